//! Says what became of a ShardRange.

use super::{events, status};
use crate::{
    act::apply::Error,
    api::{ShardRange, names::MANAGER_RANGE},
    core::range::Said,
};
use kube::{Client, Resource as _};

/// Writes the status of `seen` when it is another one, then the events. Returns the range as it then is.
///
/// # Errors
/// [`Error`]; [`Error::is_conflict`] means: observe again.
pub async fn report(
    client: &Client,
    recorder: &events::Recorder,
    seen: &ShardRange,
    said: &Said,
) -> Result<ShardRange, Error> {
    let written = status::write(client, MANAGER_RANGE, seen, seen.status.as_ref(), &said.status).await?;
    events::publish(recorder, &seen.object_ref(&()), "Reconcile", &said.notes).await;
    Ok(written.unwrap_or_else(|| seen.clone()))
}

/// Writes how far a bring-up is; the range as it then is.
///
/// # Errors
/// [`Error`]; [`Error::is_conflict`] means that somebody changed the range.
pub async fn progress(
    client: &Client,
    seen: &ShardRange,
    progress: String,
) -> Result<Option<ShardRange>, Error> {
    let mut next = seen.status.clone().unwrap_or_default();
    next.progress = progress;
    status::write(client, MANAGER_RANGE, seen, seen.status.as_ref(), &next).await
}
