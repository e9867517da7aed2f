//! A pair's children: each is compared with what is there, and applied only when something differs (rule O2).

use super::apply::{self, Error};
use crate::resources::{
    PairChildren, PairContext,
    compare::{is_covered_by, stamp},
    pair_children,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Client, ResourceExt};
use serde_json::Value;

/// Applies `wanted` when what is there does not say it already.
///
/// # Errors
/// [`Error`].
pub async fn ensure<K: apply::Object>(client: &Client, manager: &str, wanted: &K) -> Result<(), Error> {
    let live = apply::get::<K>(
        client,
        &wanted.namespace().unwrap_or_default(),
        &wanted.name_any(),
    )
    .await?;
    let mut want = serde_json::to_value(wanted).unwrap_or_default();
    stamp(&mut want);
    if let Some(live) = &live {
        // One that is being deleted cannot be mended; it is made again when it is gone.
        if live.meta().deletion_timestamp.is_some() || is_covered_by(&want, &value(live)) {
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
    let live = apply::get::<StatefulSet>(client, &ctx.namespace, &stateful_set.name_any()).await?;
    ensure(client, manager, &keep_claims(stateful_set, live)).await
}

/// The claims' template cannot be changed after the StatefulSet was made: what is there is kept.
fn keep_claims(mut wanted: StatefulSet, live: Option<StatefulSet>) -> StatefulSet {
    let live = live.and_then(|l| l.spec);
    if let (Some(wanted), Some(live)) = (&mut wanted.spec, live)
        && !is_covered_by(
            &value(&wanted.volume_claim_templates),
            &value(&live.volume_claim_templates),
        )
    {
        wanted.volume_claim_templates = live.volume_claim_templates;
    }
    wanted
}
