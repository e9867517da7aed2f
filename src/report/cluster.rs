//! Says what became of a ShardCluster.

use super::{events, status};
use crate::{
    act::apply::Error,
    api::{ShardCluster, names::MANAGER_CLUSTER},
    core::cluster::Said,
};
use kube::{Client, Resource as _};

/// Writes the status of `seen` when it is another one, then the events. Returns whether anything was written.
///
/// # Errors
/// [`Error`]; [`Error::is_conflict`] means: observe again.
pub async fn report(
    client: &Client,
    recorder: &events::Recorder,
    seen: &ShardCluster,
    said: &Said,
) -> Result<bool, Error> {
    let written = status::write(client, MANAGER_CLUSTER, seen, seen.status.as_ref(), &said.status)
        .await?
        .is_some();
    events::publish(recorder, &seen.object_ref(&()), "Reconcile", &said.notes).await;
    Ok(written)
}
