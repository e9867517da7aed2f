//! A pair's children: each is compared with what is there, and applied only when something differs (rule O2).

use super::apply::{self, Error};
use crate::resources::{
    PairChildren, PairContext,
    compare::{is_covered_by, stamp},
    pair_children,
};
use kube::{Client, ResourceExt};
use serde_json::Value;

/// Applies `wanted` when what is there does not say it already.
///
/// # Errors
/// [`Error`].
pub async fn ensure<K: apply::Object>(client: &Client, manager: &str, wanted: &K) -> Result<(), Error> {
    ensure_but(client, manager, wanted, |_, _| ()).await
}

/// Applies `wanted` over `live`, what a watch has told of it: for what has changed a moment ago and must be there at once. Nothing is compared,
/// for `live` may be what was there before.
///
/// # Errors
/// [`Error`].
pub async fn apply_at_once<K: apply::Object>(
    client: &Client,
    manager: &str,
    wanted: &K,
    live: Option<&K>,
) -> Result<(), Error> {
    if let Some(live) = live {
        apply::check_ours(live, wanted)?;
    }
    apply::apply(client, manager, &stamped(wanted)).await?;
    tracing::debug!(object = apply::describe(wanted), "applied at once");
    Ok(())
}

fn stamped<K: apply::Object>(wanted: &K) -> K {
    let mut want = value(wanted);
    stamp(&mut want);
    serde_json::from_value(want).unwrap_or_else(|_| wanted.clone())
}

/// As [`ensure`], after `keep` has put into what is wanted the parts of what is there that cannot be changed.
async fn ensure_but<K: apply::Object>(
    client: &Client,
    manager: &str,
    wanted: &K,
    keep: impl Fn(&mut Value, &Value) + Send,
) -> Result<(), Error> {
    let live = apply::get::<K>(
        client,
        &wanted.namespace().unwrap_or_default(),
        &wanted.name_any(),
    )
    .await?;
    let mut want = value(wanted);
    stamp(&mut want);
    if let Some(live) = &live {
        apply::check_ours(live, wanted)?;
        let there = value(live);
        keep(&mut want, &there);
        // One that is being deleted cannot be mended; it is made again when it is gone.
        if live.meta().deletion_timestamp.is_some() || is_covered_by(&want, &there) {
            return Ok(());
        }
    }
    let stamped: K = match serde_json::from_value(want) {
        Ok(k) => k,
        Err(_) => wanted.clone(),
    };
    apply::apply(client, manager, &stamped).await?;
    tracing::debug!(object = apply::describe(wanted), "applied");
    Ok(())
}

fn value<K: serde::Serialize>(k: &K) -> Value {
    serde_json::to_value(k).unwrap_or_default()
}

/// Makes all children of a pair that come from its specification what they should be. The StatefulSet comes last: what its Pods
/// mount is there before them.
///
/// # Errors
/// [`Error`].
pub async fn of_pair(client: &Client, manager: &str, ctx: &PairContext) -> Result<(), Error> {
    let PairChildren {
        config_map,
        headless_service,
        active_service,
        passive_service,
        pod_disruption_budget,
        network_policy,
        stateful_set,
    } = pair_children(ctx);
    futures::try_join!(
        ensure(client, manager, &config_map),
        ensure(client, manager, &headless_service),
        ensure(client, manager, &active_service),
        ensure(client, manager, &passive_service),
        ensure(client, manager, &pod_disruption_budget),
        ensure(client, manager, &network_policy),
    )?;
    ensure_but(client, manager, &stateful_set, keep_claims).await
}

/// The claims' template cannot be changed after the StatefulSet was made, in nothing: what is there is kept, to the letter.
fn keep_claims(want: &mut Value, there: &Value) {
    const TEMPLATES: &str = "/spec/volumeClaimTemplates";
    if let (Some(want), Some(there)) = (want.pointer_mut(TEMPLATES), there.pointer(TEMPLATES)) {
        *want = there.clone();
    }
}
