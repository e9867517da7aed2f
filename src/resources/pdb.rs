//! The PodDisruptionBudget of a pair: a drain takes one server at a time.

use super::labels;
use super::pair::PairContext;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `<pair>`, at most one server away by eviction.
///
/// A Pod that is not ready may always be evicted: else a node with a server that does not come up could never be drained.
pub fn pod_disruption_budget(ctx: &PairContext) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: ctx.owned(ctx.pair.clone()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(labels::pair_label_selector(&ctx.pair)),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
