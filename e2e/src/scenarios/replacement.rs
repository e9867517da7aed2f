//! Nodes that never come back, and volumes that grow.

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::testbed;
use crate::wait::{self, BRING_UP, SOON, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shardwright::api::mysql_template::{Replacement, ReplacementMode};
use shardwright::api::{MySQLPair, ShardCluster, names};
use shardwright::resources::stateful_set::MYSQLD_CONTAINER;
use std::io::{Seek as _, Write as _};
use std::time::Duration;

/// The groups.
pub fn groups() -> Vec<Group> {
    vec![
        Group {
            name: "growth",
            alone: false,
            fixture: Fixture::Empty,
            scenarios: vec![scenario!(
                Short,
                "storage-grows",
                grows,
                "a larger size: the claims ask for it where the class allows that, else a condition says so; nothing is restarted"
            )],
        },
        Group {
            name: "replacement",
            alone: true,
            fixture: Fixture::Empty,
            scenarios: vec![
                scenario!(
                    Short,
                    "replacement-node-gone",
                    node_gone,
                    "the active server's node never comes back: served by the other one, made anew on the third node, its volume kept",
                    TestBed
                ),
                scenario!(
                    Short,
                    "replacement-data-damaged",
                    damaged,
                    "a server crashes at each start for what is on its volume: it is made anew with another one, and the old one is kept",
                    TestBed
                ),
                scenario!(
                    Full,
                    "replacement-manual",
                    manual,
                    "mode Manual: a server whose node is gone is waited for, until the mode is another one",
                    TestBed
                ),
            ],
        },
    ]
}

/// A node is NotReady some 50 s after its death; the least patience that can be asked for is a minute. Both, and room.
const REPLACED: Duration = Duration::from_secs(240);
/// Bytes of a page of InnoDB.
const PAGE: usize = 16 << 10;
/// As short as it can be.
const PATIENCE: i32 = 60;

async fn fleet(f: &Fleet, mode: ReplacementMode) -> Result<()> {
    let mut cluster = bp::cluster(f);
    cluster.spec.mysql.replacement = Replacement {
        mode,
        after_seconds: PATIENCE,
    };
    f.apply(&cluster).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, OPEN - 1, PAIR)).await?;
    f.all_ready(BRING_UP).await?;
    f.write(&bp::shards()).await
}

async fn volume_of(f: &Fleet, ordinal: usize) -> Result<String> {
    let claim: PersistentVolumeClaim = f.get(&format!("data-{}", names::pod(PAIR, ordinal))).await?;
    claim
        .spec
        .and_then(|s| s.volume_name)
        .with_context(|| format!("the claim of {ordinal} has no volume"))
}

/// Waits until the server at `ordinal` has a Pod on another node, with another volume.
async fn replaced(f: &Fleet, ordinal: usize, node: &str, volume: &str) -> Result<()> {
    let name = names::pod(PAIR, ordinal);
    wait::until(
        &format!("{name} to be made on another node"),
        REPLACED,
        || async {
            let pod = f.get_opt::<Pod>(&name).await?;
            let on = pod.and_then(|p| p.spec).and_then(|s| s.node_name);
            let now = volume_of(f, ordinal).await.unwrap_or_default();
            let good = on.as_deref().is_some_and(|n| n != node) && !now.is_empty() && now != volume;
            Ok(Seen::when(good, || format!("on {on:?}, volume {now}")))
        },
    )
    .await
}

/// The old volume is there, and will be.
async fn kept(f: &Fleet, volume: &str) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(f.world.client.clone());
    let pv = volumes
        .get(volume)
        .await
        .with_context(|| format!("{volume} is gone"))?;
    let policy = pv.spec.and_then(|s| s.persistent_volume_reclaim_policy);
    ensure!(
        policy.as_deref() == Some("Retain"),
        "{volume} has the policy {policy:?}"
    );
    let note = f.event(PAIR, "ServerReplaced", volume, SOON).await?;
    println!("      replacement: {note}");
    Ok(())
}

async fn node_gone(f: &Fleet) -> Result<()> {
    fleet(f, ReplacementMode::Automatic).await?;
    let before = f.record(PAIR).await?;
    let node = f.node_of(PAIR, before.active).await?;
    let volume = volume_of(f, before.active).await?;
    f.world.bed(&["node", "kill", &node]).await?;
    let seen = async {
        // The operator may have been on that node as well: then another one leads first.
        f.served_by(PAIR, before.passive(), Duration::from_secs(60))
            .await?;
        f.write(&bp::shards()).await?;
        replaced(f, before.active, &node, &volume).await?;
        kept(f, &volume).await?;
        f.all_ready(BRING_UP).await?;
        f.recovered(PAIR).await
    }
    .await;
    f.world.bed(&["node", "start", &node]).await?;
    seen?;
    // The node that comes back late finds nothing to do.
    f.world.operator_ready().await?;
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == before.passive(),
        "another server is active"
    );
    Ok(())
}

/// Spoils what InnoDB cannot start without, under the running mysqld, and kills it.
async fn damage(f: &Fleet, ordinal: usize) -> Result<()> {
    let pod = f.server_pod(PAIR, ordinal).await?;
    let pid = testbed::first_process(&testbed::container_id(&pod, MYSQLD_CONTAINER)?)?;
    let path = format!("/proc/{pid}/root/var/lib/mysql/data/ibdata1");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .with_context(|| format!("open {path}"))?;
    let pages = usize::try_from(file.metadata()?.len())?.saturating_sub(PAGE);
    file.seek(std::io::SeekFrom::Start(u64::try_from(PAGE)?))?;
    file.write_all(&vec![0xa5; pages])?;
    file.sync_all()?;
    testbed::kill_container(&pod, MYSQLD_CONTAINER).await
}

async fn damaged(f: &Fleet) -> Result<()> {
    fleet(f, ReplacementMode::Automatic).await?;
    let before = f.record(PAIR).await?;
    let volume = volume_of(f, before.active).await?;
    damage(f, before.active).await?;
    f.served_by(PAIR, before.passive(), Duration::from_secs(60))
        .await?;
    f.write(&bp::shards()).await?;
    f.event(PAIR, "ServerNotStarting", "status 2", BRING_UP).await?;
    wait::until("another volume", REPLACED, || async {
        let now = volume_of(f, before.active).await.unwrap_or_default();
        Ok(Seen::when(!now.is_empty() && now != volume, || {
            format!("volume {now}")
        }))
    })
    .await?;
    kept(f, &volume).await?;
    f.all_ready(BRING_UP).await?;
    f.recovered(PAIR).await
}

async fn manual(f: &Fleet) -> Result<()> {
    fleet(f, ReplacementMode::Manual).await?;
    let before = f.record(PAIR).await?;
    let node = f.node_of(PAIR, before.passive()).await?;
    let volume = volume_of(f, before.passive()).await?;
    let name = names::pod(PAIR, before.passive());
    let old = f.server_pod(PAIR, before.passive()).await?.uid();
    f.world.bed(&["node", "kill", &node]).await?;
    let seen = async {
        f.served_by(PAIR, before.active, Duration::from_secs(60)).await?;
        f.write(&bp::shards()).await?;
        f.members(PAIR, 1, Duration::from_secs(60)).await?;
        // For longer than it would take with the other mode.
        wait::throughout(
            "a server that is waited for",
            Duration::from_secs(130),
            || async {
                let pod = f.get_opt::<Pod>(&name).await?.and_then(|p| p.uid());
                let now = volume_of(f, before.passive()).await?;
                Ok(Seen::when(pod == old && now == volume, || {
                    format!("{pod:?}, volume {now}")
                }))
            },
        )
        .await?;
        f.write(&bp::shards()).await?;
        // A pair's own mode wins over the template's.
        let own =
            json!({"spec": {"mysql": {"replacement": {"mode": "Automatic", "afterSeconds": PATIENCE}}}});
        f.edit::<MySQLPair>(PAIR, own).await?;
        replaced(f, before.passive(), &node, &volume).await?;
        kept(f, &volume).await?;
        f.all_ready(BRING_UP).await?;
        f.recovered(PAIR).await
    }
    .await;
    f.world.bed(&["node", "start", &node]).await?;
    seen?;
    f.world.operator_ready().await?;
    f.recovered(PAIR).await
}

async fn grows(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    let class = {
        let claim: PersistentVolumeClaim = f.get(&format!("data-{}", names::pod(PAIR, 0))).await?;
        let name = claim
            .spec
            .and_then(|s| s.storage_class_name)
            .context("the claim names no class")?;
        let classes: Api<StorageClass> = Api::all(f.world.client.clone());
        classes.get(&name).await?
    };
    f.condition::<MySQLPair>(PAIR, "StorageAsSpecified", "True", "", SOON)
        .await?;
    let mut pods = vec![];
    for n in names::ORDINALS {
        pods.push(f.server_pod(PAIR, n).await?.uid());
    }
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"mysql": {"storage": {"size": "1100Mi"}}}}),
    )
    .await?;
    if class.allow_volume_expansion == Some(true) {
        for n in names::ORDINALS {
            wait::until("the claim to ask for the new size", SOON, || async {
                let claim: PersistentVolumeClaim = f.get(&format!("data-{}", names::pod(PAIR, n))).await?;
                let asks = claim
                    .spec
                    .and_then(|s| s.resources)
                    .and_then(|r| r.requests)
                    .unwrap_or_default();
                let good = asks.get("storage") == Some(&Quantity("1100Mi".into()));
                Ok(Seen::when(good, || format!("{asks:?}")))
            })
            .await?;
        }
        f.condition::<MySQLPair>(PAIR, "StorageAsSpecified", "True", "", BRING_UP)
            .await?;
    } else {
        let said = f
            .condition::<MySQLPair>(PAIR, "StorageAsSpecified", "False", "", SOON)
            .await?;
        ensure!(
            said.message.contains(&class.name_any()),
            "the class that does not allow it is not named: {}",
            said.message
        );
    }
    f.all_ready(SOON).await?;
    for n in names::ORDINALS {
        ensure!(f.server_pod(PAIR, n).await?.uid() == pods[n], "{n} was replaced");
    }
    f.recovered(PAIR).await
}
