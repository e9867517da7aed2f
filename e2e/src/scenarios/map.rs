//! The published map: restored, versioned, pushed.

use crate::blueprint::{self as bp, PAIR};
use crate::fleet::Fleet;
use crate::http;
use crate::scenario::Group;
use crate::wait::{REPAIR, SOON, Seen};
use crate::{scenario, shared, wait};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shardwright::api::{ShardCluster, ShardRange};
use std::time::{Duration, Instant};

/// The group.
pub fn group() -> Group {
    Group {
        name: "map",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "map-deleted",
                deleted,
                "a deleted map is published again with the same version"
            ),
            scenario!(
                Short,
                "map-edited",
                edited,
                "a map edited by hand is restored, its version does not fall"
            ),
            scenario!(
                Short,
                "map-pushed",
                pushed,
                "every operator answers the long poll, at once after a change and 304 without one"
            ),
            scenario!(
                Short,
                "record-lost",
                record_lost,
                "the record of who serves what is wiped: it is made again from the map, nothing moves"
            ),
            scenario!(
                Short,
                "map-not-owned",
                not_owned,
                "nothing owns the map, and it says whose it is"
            ),
        ],
    }
}

async fn deleted(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    let cm: ConfigMap = f.get(&f.map_name()).await?;
    f.delete::<ConfigMap>(&f.map_name()).await?;
    f.again::<ConfigMap>(&f.map_name(), cm.metadata.uid.as_deref(), SOON)
        .await?;
    let after = f.map().await?;
    ensure!(
        after.text == before.text && after.plain == before.plain,
        "{} → {}",
        before.text,
        after.text
    );
    f.intact().await
}

async fn edited(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    f.sights.suspend_maps(true);
    for data in [
        json!({"ranges.json": "[]"}),
        json!({"shardmap.json": "{}", "ranges.json": "nonsense"}),
        json!({"shardmap.json": null}),
        json!({"shardmap.json": before.text.replace("p0-", "p1-")}),
    ] {
        f.edit::<ConfigMap>(&f.map_name(), json!({"data": data})).await?;
        let after = f
            .map_when("to be restored", SOON, |m| {
                m.entries == before.entries && m.plain == before.plain
            })
            .await?;
        ensure!(
            after.version >= before.version,
            "{} → {}",
            before.version,
            after.version
        );
    }
    // Taking away the labels would hide it from the long poll.
    f.edit::<ConfigMap>(&f.map_name(), json!({"metadata": {"labels": null}}))
        .await?;
    wait::until("the labels to be back", SOON, || async {
        let cm: ConfigMap = f.get(&f.map_name()).await?;
        let labels = cm.metadata.labels.unwrap_or_default();
        Ok(Seen::when(
            labels.get(shardwright::api::names::MAP_LABEL) == Some(&f.cluster),
            || format!("{labels:?}"),
        ))
    })
    .await?;
    f.sights.suspend_maps(false);
    f.all_ready(SOON).await
}

async fn pushed(f: &Fleet) -> Result<()> {
    let path = format!("/maps/{}/{}", f.ns, f.cluster);
    let pods = f.world.operator_addresses().await?;
    ensure!(!pods.is_empty(), "no operator has an address");
    for address in &pods {
        let map = f.map().await?;
        // The replica's own watch may be an instant behind.
        wait::until("the operator to have the map", SOON, || async {
            let a = http::get(address, &path, SOON).await?;
            Ok(Seen::when(
                a.status == 200 && a.body.trim() == map.text.trim(),
                || format!("{a:?}"),
            ))
        })
        .await?;
        let answer = http::get(address, &path, SOON).await?;
        ensure!(
            answer.header("etag") == Some(&format!("\"{}\"", map.version)),
            "ETag is {:?}, the version {}",
            answer.header("etag"),
            map.version
        );
        let begun = Instant::now();
        let same = http::get(address, &format!("{path}?version={}&wait=1s", map.version), SOON).await?;
        ensure!(same.status == 304, "without a change: {same:?}");
        ensure!(
            begun.elapsed() >= Duration::from_millis(900),
            "it did not wait: {:?}",
            begun.elapsed()
        );
        let unknown = http::get(address, &format!("/maps/{}/nobody", f.ns), SOON).await?;
        ensure!(unknown.status == 404, "an unknown cluster: {unknown:?}");
        for probe in ["/livez", "/readyz"] {
            let a = http::get(address, probe, SOON).await?;
            ensure!(a.status == 200, "{probe}: {a:?}");
        }
        let metrics = http::get(address, "/metrics", SOON).await?;
        ensure!(
            metrics.status == 200 && metrics.body.contains("shardwright"),
            "metrics: {metrics:?}"
        );
    }
    // A change reaches every waiting client, at whichever replica.
    let version = f.map().await?.version;
    let waiting = pods.iter().map(|address| {
        let (address, path) = (address.clone(), format!("{path}?version={version}&wait=30s"));
        tokio::spawn(async move {
            (
                http::get(&address, &path, Duration::from_secs(60)).await,
                Instant::now(),
            )
        })
    });
    let waiting: Vec<_> = waiting.collect();
    f.apply(&bp::range(f, "r1", 8, 9, PAIR)).await?;
    f.map_when("to have the new shards", SOON, |m| m.version > version)
        .await?;
    // Seen by polling, so it was published a moment before this; the figure itself is the benchmark's.
    let seen = Instant::now();
    for answer in waiting {
        let (answer, at) = answer.await?;
        let answer = answer?;
        let late = at.saturating_duration_since(seen);
        ensure!(
            late < Duration::from_millis(500),
            "told {late:?} after the map was seen"
        );
        ensure!(answer.status == 200, "{answer:?}");
        let told: serde_json::Value = serde_json::from_str(&answer.body)?;
        ensure!(told["version"] == version + 1, "told version {}", told["version"]);
    }
    f.ready::<ShardRange>("r1", REPAIR).await
}

async fn record_lost(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    let patch = json!({"status": {"placement": null}});
    f.api::<ShardCluster>()
        .patch_status(&f.cluster, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    wait::until("the record to be back", SOON, || async {
        let c: ShardCluster = f.get(&f.cluster).await?;
        let record = c.status.and_then(|s| s.placement);
        let spans = record
            .as_ref()
            .map_or(0, |r| r.spans.iter().map(|s| s.last - s.first + 1).sum());
        Ok(Seen::when(
            usize::try_from(spans)? == before.shards().len(),
            || format!("{record:?}"),
        ))
    })
    .await?;
    f.all_ready(REPAIR).await?;
    let after = f.map().await?;
    ensure!(
        after.entries == before.entries,
        "{} → {}",
        before.text,
        after.text
    );
    ensure!(
        after.version >= before.version,
        "{} → {}",
        before.version,
        after.version
    );
    f.healthy(PAIR).await?;
    f.write(&after.shards()).await?;
    f.intact().await
}

async fn not_owned(f: &Fleet) -> Result<()> {
    let cm: ConfigMap = f.get(&f.map_name()).await?;
    ensure!(
        cm.metadata.owner_references.is_none(),
        "owned: {:?}",
        cm.metadata.owner_references
    );
    let cluster: ShardCluster = f.get(&f.cluster).await?;
    let map = f.map().await?;
    let says = &map.json["cluster"];
    ensure!(
        says["uid"] == json!(cluster.metadata.uid)
            && says["name"] == json!(f.cluster)
            && says["namespace"] == json!(f.ns),
        "the map says it is of {says}"
    );
    let recorded = cluster.status.and_then(|s| s.placement).map(|p| p.map_version);
    ensure!(
        recorded == Some(map.version),
        "on record is {recorded:?}, published {}",
        map.version
    );
    Ok(())
}
