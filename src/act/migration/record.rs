//! Changes of the record.

use super::{Error, Hands};
use crate::{
    act::placement as record_act,
    api::{MoveKey, Placement, ShardCluster, names::MANAGER_MIGRATION},
    core::{
        migration::fences,
        placement::{self, moves},
    },
};
use kube::ResourceExt as _;

pub use crate::core::migration::Change;

/// Why a change is not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The record is not what was seen.
    #[error("the record changed since it was read")]
    Superseded,
    /// The transition refuses.
    #[error(transparent)]
    Refused(#[from] placement::Error),
}

/// Whether what was decided about a move upon `a` holds of `b`: the move is the same, and so is what is shut and served at both its pairs. The map
/// that was published meanwhile, other moves and the names of ranges do not matter to it.
pub fn same(a: &Placement, b: &Placement, key: &MoveKey) -> bool {
    let at = |p: &Placement, pair: &str| (fences::shut(p, pair), fences::open(p, pair));
    moves::find(a, key) == moves::find(b, key)
        && [&key.from, &key.to].iter().all(|pair| at(a, pair) == at(b, pair))
}

fn placement_of(c: &ShardCluster) -> Placement {
    let status = c.status.as_ref();
    status.and_then(|s| s.placement.clone()).unwrap_or_default()
}

impl Hands<'_> {
    /// By compare-and-swap on what was read, or written in this pass. The end of a batch names its number and may be made of a newer record.
    pub(super) async fn change(&mut self, change: &Change) -> Result<(), Error> {
        let (key, seen) = (&self.site.key, &self.record);
        let named = matches!(change, Change::UndoBatch { .. } | Change::CutOver { .. });
        let numbered = matches!(change, Change::BeginBatch(_));
        let uid = self.cluster.uid().unwrap_or_default();
        let cluster = record_act::update(
            self.client,
            MANAGER_MIGRATION,
            &self.site.namespace,
            &self.site.cluster,
            &uid,
            Some(self.cluster.clone()),
            |c| {
                let now = placement_of(c);
                // The batch is given the number that this pass goes by.
                let other = numbered && now.batches != seen.batches;
                if !named && (other || !same(seen, &now, key)) {
                    return Err(ChangeError::Superseded);
                }
                Ok(Some(change.apply(&now, key)?))
            },
        )
        .await?;
        self.record = placement_of(&cluster);
        self.cluster = cluster;
        match change {
            Change::BeginBatch(_) => self.done.begun = true,
            Change::CutOver { .. } => self.done.cut_over = true,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{Seed, ShardSpan},
        core::{placement::claim, spans::SpanSet},
    };

    fn span(first: i32, last: i32) -> SpanSet {
        SpanSet::of(ShardSpan::new(first, last))
    }

    #[test]
    fn a_new_map_and_another_pair_change_nothing_for_a_move() {
        let p = claim(&Placement::default(), &span(0, 9), "p0", Some("r0")).unwrap();
        let p = placement::serve(&p, &span(0, 9), "p0").unwrap();
        let p = moves::begin_move(&p, "p0", "p1", &span(5, 9), Seed::PerDatabase).unwrap();
        let key = MoveKey::new("p0", "p1");
        assert!(same(&p, &placement::publish(&p, "h", 0), &key));
        let other = claim(&p, &span(20, 29), "p2", Some("r1")).unwrap();
        assert!(same(&p, &other, &key));
        let handed = placement::hand_over(&p, &span(5, 9), "r2").unwrap();
        assert!(same(&p, &handed, &key));
        let seeded = moves::seeded(&p, &key, &span(5, 5), "").unwrap();
        assert!(!same(&p, &seeded, &key));
    }
}
