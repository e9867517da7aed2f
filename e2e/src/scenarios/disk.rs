//! Volumes that are full: what mysqld does then is written down in `docs/failure-modes.md`.

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::pair::TAKEN_OVER;
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::wait::{self, BRING_UP, REPAIR, SOON, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use shardwright::api::mysql_template::Storage;
use shardwright::api::{MySQLPair, ShardCluster, names};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The group.
pub fn group() -> Group {
    Group {
        name: "disk",
        alone: false,
        fixture: Fixture::Empty,
        scenarios: vec![scenario!(
            Short,
            "disk-full",
            disk_full,
            "the passive server's volume is full, then the active one's, then both grow: what waited goes on; the active one's alone: taken over",
            TestBed
        )],
    }
}

/// The text of a row that is written while there is no room.
const WAITED: &str = "waited for room";
/// mysqld looks for room once a minute, and by itself: after that it goes on.
const NOTICED: Duration = Duration::from_secs(150);

async fn fill(f: &Fleet, ordinal: usize) -> Result<()> {
    let claim = format!("{}/data-{}", f.ns, names::pod(PAIR, ordinal));
    f.note(format!("fill {claim}"));
    f.world.bed(&["volume", "fill", &claim]).await.map(|_| ())
}

/// Lets both volumes grow, and waits until both claims say that they have.
async fn grow(f: &Fleet, size: &str) -> Result<()> {
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"mysql": {"storage": {"size": size}}}}),
    )
    .await?;
    for n in names::ORDINALS {
        wait::until(&format!("the claim of {n} to be of {size}"), SOON, || async {
            let claim: PersistentVolumeClaim = f.get(&format!("data-{}", names::pod(PAIR, n))).await?;
            let has = claim.status.and_then(|s| s.capacity).unwrap_or_default();
            let good = has.get("storage") == Some(&Quantity(size.into()));
            Ok(Seen::when(good, || format!("{has:?}")))
        })
        .await?;
    }
    Ok(())
}

/// A row that is written while no server has room: its client waits for as long as it takes.
async fn begin_to_write(f: &Fleet, ordinal: usize) -> Result<JoinHandle<Result<()>>> {
    let table = f.table(0).await?;
    let mut app = f.app(PAIR, ordinal).await?;
    let sql = format!("INSERT INTO {table} (data) VALUES (JSON_OBJECT('text', '{WAITED}'))");
    Ok(tokio::spawn(
        async move { app.within(NOTICED + NOTICED, &sql).await },
    ))
}

async fn disk_full(f: &Fleet) -> Result<()> {
    let mut cluster = bp::cluster(f);
    cluster.spec.mysql.storage = Storage {
        size: Quantity("400Mi".into()),
        class_name: Some("local-small".into()),
    };
    f.apply(&cluster).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, OPEN - 1, PAIR)).await?;
    f.all_ready(BRING_UP).await?;
    f.write(&bp::shards()).await?;
    both_full(f).await?;
    active_full(f).await
}

/// First the passive one, then the active one as well: nobody takes over, and nothing is acknowledged until there is room.
async fn both_full(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    fill(f, before.passive()).await?;
    // Its relay log takes what fits into its last block, then it acknowledges nothing more; that must not hold up anyone for long.
    wait::until("the full passive server to be out", NOTICED, || async {
        f.write(&bp::shards()).await?;
        let record = f.record(PAIR).await?;
        Ok(Seen::when(record.members.len() == 1, || format!("{record:?}")))
    })
    .await?;
    f.write(&bp::shards()).await?;
    let alone = f.record(PAIR).await?;
    ensure!(alone.active == before.active, "the full server is active");

    fill(f, before.active).await?;
    // Its binary log takes what fits into its last block as well.
    wait::until("a commit that does not end", NOTICED, || async {
        let written = tokio::time::timeout(Duration::from_secs(2), f.write(&[1; 8])).await;
        Ok(Seen::when(written.is_err(), || format!("{written:?}")))
    })
    .await?;
    let waiting = begin_to_write(f, before.active).await?;
    wait::throughout("a pair without room", Duration::from_secs(6), || async {
        let record = f.record(PAIR).await?;
        let closed = f.server(PAIR, before.passive()).await?.vitals().await?.read_only;
        let good = record.active == before.active && closed && !waiting.is_finished();
        Ok(Seen::when(good, || {
            format!(
                "{record:?}, passive closed: {closed}, answered: {}",
                waiting.is_finished()
            )
        }))
    })
    .await?;
    f.condition::<MySQLPair>(PAIR, "Ready", "False", "DiskFull", SOON)
        .await?;

    grow(f, "640Mi").await?;
    tokio::time::timeout(NOTICED, waiting)
        .await
        .context("nobody told the client that waited for room anything")???;
    f.all_ready(NOTICED + REPAIR).await?;
    f.recovered(PAIR).await?;
    let there = f.times_there(PAIR, 0, WAITED).await?;
    ensure!(there == [1, 1], "what waited for room is there {there:?} times");
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "another server is active"
    );
    Ok(())
}

/// The active one alone: the other one takes over.
async fn active_full(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    fill(f, before.active).await?;
    // Commits neither end nor fail then: whoever writes hears nothing, until another server is active.
    wait::until("the other server to be active", NOTICED, || async {
        let written = tokio::time::timeout(Duration::from_secs(3), f.write(&bp::shards())).await;
        let record = f.record(PAIR).await?;
        Ok(Seen::when(record.active == before.passive(), || {
            format!("{record:?}, {written:?}")
        }))
    })
    .await?;
    let after = f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
    f.write(&bp::shards()).await?;
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(change.cause == "ActiveDiskFull", "lastChange is {change:?}");
    grow(f, "800Mi").await?;
    f.all_ready(NOTICED + REPAIR).await?;
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == after.active,
        "another server is active"
    );
    Ok(())
}
