//! For tests of what an operator leaves behind that dies between two steps: a change of the active server, or a move of shards, that goes no further
//! than a given step. Two things are needed for it, so that nobody comes upon it by accident: an environment variable of the operator that no
//! chart and no manifest sets, and then an annotation of the pair, or of the cluster.

use crate::{
    api::{MySQLPair, ShardCluster},
    core::migration::{Action, Change},
};
use kube::ResourceExt as _;
use std::sync::OnceLock;

/// Has to be `armed` in the operator's environment.
pub const VARIABLE: &str = "SHARDWRIGHT_FAILPOINTS";
/// On a pair: after how many steps of a change of its active server this operator does nothing more about it, for as long as it lives.
pub const HALT: &str = "failpoint.shardwright.dev/halt-after-steps";
/// On a cluster: before which step, by [`step`], a pass of a move halts, of whichever move comes there first.
pub const HALT_MOVE: &str = "failpoint.shardwright.dev/halt-move-before";

fn armed() -> bool {
    static ARMED: OnceLock<bool> = OnceLock::new();
    *ARMED.get_or_init(|| std::env::var(VARIABLE).is_ok_and(|v| v == "armed"))
}

/// After how many steps a change of the active server stops.
pub fn halt(pair: &MySQLPair) -> Option<usize> {
    armed().then(|| named(pair)).flatten()
}

fn named(pair: &MySQLPair) -> Option<usize> {
    pair.annotations().get(HALT)?.parse().ok()
}

/// Never ends when that is so many steps.
pub async fn reached(halt: Option<usize>, steps: usize, epoch: i64) {
    if halt == Some(steps) {
        tracing::warn!("failpoint: halted after {steps} steps at epoch {epoch}");
        std::future::pending::<()>().await;
    }
}

/// Before which step a move halts.
pub fn halt_move(cluster: &ShardCluster) -> Option<String> {
    armed()
        .then(|| cluster.annotations().get(HALT_MOVE).cloned())
        .flatten()
}

/// What [`HALT_MOVE`] calls the step `n` of a pass: for a change of the record the name of the change, else that of the action; with `Batch.` in front
/// when the pass cuts a batch over.
pub fn step(pass: &[Action], n: usize) -> String {
    let batch = pass
        .iter()
        .any(|a| matches!(a, Action::Record(Change::CutOver { .. })));
    let name = match pass.get(n) {
        None => "End",
        Some(Action::Approach { .. }) => "Approach",
        Some(Action::Record(change)) => change.name(),
        Some(Action::Confirm(_)) => "Confirm",
        Some(Action::Fence { .. }) => "Fence",
        Some(Action::Unfence { .. }) => "Unfence",
        Some(Action::Reach { .. }) => "Reach",
        Some(Action::Count { .. }) => "Count",
        Some(Action::Point { .. }) => "Point",
        Some(Action::StartChannel { .. }) => "StartChannel",
        Some(Action::StopChannel(_)) => "StopChannel",
        Some(Action::RemoveChannel(_)) => "RemoveChannel",
        Some(Action::Seed { .. }) => "Seed",
        Some(Action::Verify { .. }) => "Verify",
        Some(Action::Recheck { .. }) => "Recheck",
        Some(Action::StopWork) => "StopWork",
        Some(Action::Unlinked(_)) => "Unlinked",
        Some(Action::Drop { .. }) => "Drop",
        Some(Action::EndTransaction { .. }) => "EndTransaction",
    };
    if batch {
        format!("Batch.{name}")
    } else {
        name.to_owned()
    }
}

/// Never ends when that is the step `n` of this pass.
pub async fn before(halt: Option<&str>, pass: &[Action], n: usize) {
    if halt.is_some_and(|halt| halt == step(pass, n)) {
        tracing::warn!("failpoint: a move halted before {}", step(pass, n));
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{LocalRef, MySQLPairSpec};
    use futures::FutureExt as _;

    #[test]
    fn an_annotation_alone_halts_nothing() {
        let spec = MySQLPairSpec {
            cluster_ref: LocalRef::new("c"),
            mysql: None,
            reconciliation: crate::api::mysql_pair::Reconciliation::Enabled,
            preferred_active: None,
        };
        let mut pair = MySQLPair::new("p", spec);
        assert_eq!(named(&pair), None);
        pair.annotations_mut().insert(HALT.into(), "2".into());
        assert_eq!((named(&pair), halt(&pair)), (Some(2), None));
    }

    #[test]
    fn only_the_named_step_is_the_last() {
        for (halt, goes_on) in [(None, true), (Some(1), true), (Some(2), false)] {
            assert_eq!(reached(halt, 2, 7).now_or_never().is_some(), goes_on);
        }
    }
    #[test]
    fn a_move_halts_before_the_named_step_only() {
        let pass = [Action::StopWork, Action::Record(Change::CleanUp)];
        for (halt, n, goes_on) in [
            (None, 1, true),
            (Some("StopWork"), 1, true),
            (Some("CleanUp"), 1, false),
            (Some("CleanUp"), 0, true),
            (Some("End"), 2, false),
        ] {
            assert_eq!(before(halt, &pass, n).now_or_never().is_some(), goes_on);
        }
        let batch = [Action::StopWork, Action::Record(Change::CutOver { number: 7 })];
        assert_eq!(step(&batch, 0), "Batch.StopWork");
        assert_eq!(step(&batch, 1), "Batch.CutOver");
    }
}
