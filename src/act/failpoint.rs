//! For tests of what an operator leaves behind that dies between two steps: a change of the active server that goes no further than a
//! given step. Two things are needed for it, so that nobody comes upon it by accident: an environment variable of the operator that no
//! chart and no manifest sets, and then an annotation of the pair.

use crate::api::MySQLPair;
use kube::ResourceExt as _;
use std::sync::OnceLock;

/// Has to be `armed` in the operator's environment.
pub const VARIABLE: &str = "SHARDWRIGHT_FAILPOINTS";
/// On a pair: after how many steps of a change of its active server this operator does nothing more about it, for as long as it lives.
pub const HALT: &str = "failpoint.shardwright.dev/halt-after-steps";

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
}
