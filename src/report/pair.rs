//! What a pass over a pair is reported as: status by compare-and-swap, and events.

use super::{events, status};
use crate::{
    act::apply::Error,
    api::{MySQLPair, mysql_pair::ActiveChange, names},
    core::pair::{self, Decision, Observed},
};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource, runtime::events::Recorder};

/// Writes the status when it says something new, upon `seen`, the pair as it was read or last written; then the events. `change` is a change of
/// the active server that is over.
///
/// # Errors
/// [`Error`]; nothing is published then: the next pass will see the same transition.
pub async fn report(
    client: &Client,
    recorder: &Recorder,
    seen: &MySQLPair,
    observed: &Observed,
    decision: &Decision,
    change: Option<ActiveChange>,
    now: Timestamp,
) -> Result<(), Error> {
    let old = seen.status.clone().unwrap_or_default();
    let mut new = pair::status(observed, decision, &old, seen.metadata.generation, now);
    if change.is_some() {
        new.last_change = change;
    }
    status::write(client, names::MANAGER_PAIR, seen, seen.status.as_ref(), &new).await?;
    events::publish(recorder, &seen.object_ref(&()), "Reconcile", &decision.notes).await;
    Ok(())
}
