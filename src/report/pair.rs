//! What a pass over a pair is reported as: status by compare-and-swap, and events.

use super::{events, status};
use crate::{
    act::apply::Error,
    api::{
        MySQLPair, MySQLPairStatus,
        conditions::{self, Said},
        mysql_pair::ActiveChange,
        names,
    },
    controllers::Context,
    core::{
        note::Note,
        pair::{self, Decision, Observed},
    },
    metrics::pairs::PairSeen,
};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;

/// What is reported beside what was decided.
#[derive(Debug, Default)]
pub struct Also {
    /// A change of the active server that is over.
    pub change: Option<ActiveChange>,
    /// Whether the volumes are as large as they should be.
    pub storage: Option<Said>,
    /// What came out while it was done.
    pub notes: Vec<Note>,
}

/// What is measured of a pair: as its status says it.
fn measured(observed: &Observed, status: &MySQLPairStatus) -> PairSeen {
    let holds = |type_: &str| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == type_ && c.status == "True")
    };
    let record = observed.record.as_ref();
    let both = record.and_then(|r| observed.side(r.active).up().zip(observed.side(r.passive()).up()));
    PairSeen {
        epoch: status.epoch,
        in_sync: status.in_sync.len(),
        lag: both.map(|(active, passive)| active.executed.minus(&passive.executed_later).count()),
        ready: holds(conditions::READY),
        stalled: holds(conditions::STALLED),
        durable: holds(conditions::DURABLE),
    }
}

/// Writes the status when it says something new, upon `seen`, the pair as it was read or last written; then the events.
///
/// # Errors
/// [`Error`]; nothing is published then: the next pass will see the same transition.
pub async fn report(
    ctx: &Context,
    seen: &MySQLPair,
    observed: &Observed,
    decision: &Decision,
    also: Also,
    now: Timestamp,
) -> Result<(), Error> {
    let old = seen.status.clone().unwrap_or_default();
    let mut new = pair::status(observed, decision, &old, seen.metadata.generation, now);
    if also.change.is_some() {
        new.last_change = also.change;
    }
    if let Some(storage) = also.storage {
        let generation = seen.metadata.generation;
        conditions::set(&mut new.conditions, &[storage], generation, now);
    }
    let measured = measured(observed, &new);
    ctx.metrics
        .pairs
        .seen(&observed.namespace, &observed.pair, measured);
    status::write(&ctx.client, names::MANAGER_PAIR, seen, seen.status.as_ref(), &new).await?;
    let about = seen.object_ref(&());
    events::publish(&ctx.recorder, &about, "Reconcile", &decision.notes).await;
    events::publish(&ctx.recorder, &about, "Reconcile", &also.notes).await;
    Ok(())
}
