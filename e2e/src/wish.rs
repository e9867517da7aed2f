//! `spec.preferredActive` in scenarios: a name there is a wish only where it changes something, and it is acted upon once.

use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use anyhow::Result;
use serde_json::json;
use shardwright::api::{MySQLPair, Place};

/// Whether naming `to` now is a wish: only a value that changes is one, and it is acted upon once.
fn is_wish(named: Option<Place>, acted_upon: Option<Place>, to: usize) -> bool {
    let to = Some(Place::of(to));
    named != to && acted_upon != to
}

impl Fleet {
    /// Names a server as the preferred one; a wish only when it did not stand there already.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn prefer(&self, pair: &str, to: usize) -> Result<()> {
        self.edit::<MySQLPair>(pair, json!({"spec": {"preferredActive": Place::of(to)}}))
            .await
            .map(|_| ())
    }

    /// Sees to it that naming a server is a wish: a name that stands there from earlier is taken away.
    ///
    /// # Errors
    /// When the API refuses, or the operator does not take notice.
    pub async fn forget_wish(&self, pair: &str, to: usize) -> Result<()> {
        let found: MySQLPair = self.get(pair).await?;
        let seen = |p: MySQLPair| p.status.and_then(|s| s.observed_preferred_active);
        if is_wish(found.spec.preferred_active, seen(found), to) {
            return Ok(());
        }
        self.edit::<MySQLPair>(pair, json!({"spec": {"preferredActive": null}}))
            .await?;
        wait::until("the last wish to be forgotten", wait::SOON, || async {
            let seen = seen(self.get(pair).await?);
            Ok(Seen::when(seen.is_none(), || format!("{seen:?}")))
        })
        .await
    }

    /// Asks for a planned switchover, whatever was asked for before.
    ///
    /// # Errors
    /// As [`Fleet::forget_wish`].
    pub async fn wish(&self, pair: &str, to: usize) -> Result<()> {
        self.forget_wish(pair, to).await?;
        self.prefer(pair, to).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_that_changes_is_a_wish() {
        let (a, b) = (Some(Place::A), Some(Place::B));
        assert!(is_wish(None, None, 1));
        assert!(is_wish(a, a, 1));
        // It was acted upon, and undone by a failover since.
        assert!(!is_wish(b, b, 1));
        // It was taken away, and the operator has not seen that: named again, it would have seen no change.
        assert!(!is_wish(None, b, 1));
        // Nobody has acted upon it: named again, nothing changes either.
        assert!(!is_wish(b, a, 1));
    }
}
