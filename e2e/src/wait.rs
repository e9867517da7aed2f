//! Waiting for conditions: poll, never sleep a fixed time, and say at the end what was seen last.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Between two looks.
pub const POLL: Duration = Duration::from_millis(200);
/// A single look is given up after this.
const LOOK: Duration = Duration::from_secs(15);

/// From apply to Ready for one small pair, on two busy cores.
pub const BRING_UP: Duration = Duration::from_secs(180);
/// For a repair: a Pod is started again, a child made again.
pub const REPAIR: Duration = Duration::from_secs(150);
/// For what needs no Pod to start.
pub const SOON: Duration = Duration::from_secs(60);

/// What one look found.
pub enum Seen<T> {
    /// What was waited for.
    Yes(T),
    /// Something else; said when time is up.
    NotYet(String),
}

impl Seen<()> {
    /// `Yes` when `holds`, else what was seen instead.
    pub fn when(holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        if holds {
            Self::Yes(())
        } else {
            Self::NotYet(otherwise())
        }
    }
}

/// Looks every [`POLL`] until the answer is [`Seen::Yes`]. An error counts as "not yet": a server that restarts refuses.
///
/// # Errors
/// After `limit`, with what was seen last.
pub async fn until<T, F, Fut>(what: &str, limit: Duration, look: F) -> Result<T>
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<Seen<T>>> + Send,
{
    until_each(what, limit, LOOK, look).await
}

/// The same, for looks that take long: each is given up after `each`.
///
/// # Errors
/// As [`until`].
pub async fn until_each<T, F, Fut>(what: &str, limit: Duration, each: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<Seen<T>>> + Send,
{
    let begun = Instant::now();
    loop {
        let last = match tokio::time::timeout(each, look()).await {
            Ok(Ok(Seen::Yes(t))) => return Ok(t),
            Ok(Ok(Seen::NotYet(s))) => s,
            Ok(Err(e)) => format!("error: {e:#}"),
            Err(_) => format!("no answer within {each:?}"),
        };
        if begun.elapsed() >= limit {
            bail!("waited {}s for {what}; seen last: {last}", limit.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Looks every [`POLL`] for the whole of `span` and fails at once when the answer is not [`Seen::Yes`]. For what must
/// stay as it is; errors count as a failure.
///
/// # Errors
/// With what was seen instead.
pub async fn throughout<F, Fut>(what: &str, span: Duration, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = Result<Seen<()>>> + Send,
{
    let begun = Instant::now();
    while begun.elapsed() < span {
        if let Seen::NotYet(s) = look().await? {
            bail!("{what} did not stay so: {s}");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_sight_is_said() {
        let e = until::<(), _, _>("a miracle", Duration::ZERO, || async {
            Ok(Seen::NotYet("nothing".into()))
        })
        .await
        .unwrap_err();
        assert!(e.to_string().contains("a miracle") && e.to_string().contains("nothing"));
    }

    #[tokio::test]
    async fn errors_are_looked_past() {
        let mut n = 0;
        until("two", Duration::from_secs(5), || {
            n += 1;
            let n = n;
            async move {
                if n < 2 {
                    bail!("refused")
                }
                Ok(Seen::Yes(()))
            }
        })
        .await
        .unwrap();
    }
}
