//! What an idle fleet costs: writes to the API, and the operator's memory.

use super::Figure;
use crate::fleet::Fleet;
use crate::testbed;
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::{Result, anyhow};
use kube::api::ListParams;
use shardwright::api::MySQLPair;
use std::time::Duration;

const WATCHED: Duration = Duration::from_secs(60);

/// Resident memory of the largest of the operators.
pub async fn resident(world: &World) -> Figure {
    let figure = |value, note| Figure::at_most("operator, resident with 2 pairs", value, "MB", 60.0, note);
    if !world.settings.local {
        return figure(None, "(needs the test bed)".into());
    }
    let sizes = async {
        let pods = world.operator_pods().await?;
        let sizes: Result<Vec<u64>> = pods.iter().map(testbed::resident).collect();
        sizes.and_then(|s| s.into_iter().max().ok_or_else(|| anyhow!("there is no operator")))
    };
    #[allow(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
    match sizes.await {
        Ok(bytes) => figure(Some(bytes as f64 / 1e6), "(the larger of the replicas)".into()),
        Err(e) => figure(None, format!("({e:#})")),
    }
}

/// A pair tells the databases that it holds when it looks next, up to ten seconds after the last was made: only then nothing is left to
/// be told.
async fn settled(f: &Fleet, shards: i32) -> Result<()> {
    wait::until("the pairs to have told what they hold", wait::SOON, || async {
        let pairs = f.api::<MySQLPair>().list(&ListParams::default()).await?;
        let spans = pairs
            .iter()
            .filter_map(|p| p.status.as_ref()?.shards.as_ref())
            .flatten();
        let told: i32 = spans.map(|s| s.last - s.first + 1).sum();
        Ok(Seen::when(told == shards, || format!("{told} of {shards}")))
    })
    .await
    .map(drop)
}

/// Writes of the operator in a minute in which nothing happens, from the API server's audit log, but for Leases.
pub async fn writes(f: &Fleet, shards: i32) -> Figure {
    let figure = |value, note| {
        Figure::at_most(
            "idle fleet, writes to the API in 60 s",
            value,
            "writes",
            0.0,
            note,
        )
    };
    if !f.world.settings.local {
        return figure(None, "(needs the test bed's audit log)".into());
    }
    let found = async {
        f.all_ready(crate::wait::SOON).await?;
        settled(f, shards).await?;
        f.world.operator_writes(None, WATCHED).await
    };
    match found.await {
        Ok(found) => {
            let n: u32 = found.values().sum();
            let note = if found.is_empty() {
                String::new()
            } else {
                format!("({found:?})")
            };
            figure(Some(f64::from(n)), note)
        }
        Err(e) => figure(None, format!("({e:#})")),
    }
}
