//! Volumes that are full: what mysqld does then is written down in `docs/failure-modes.md`.

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::pair::TAKEN_OVER;
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::wait::{self, BRING_UP, REPAIR, Seen};
use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use shardwright::api::mysql_template::Storage;
use shardwright::api::names;
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "disk",
        alone: false,
        fixture: Fixture::Empty,
        scenarios: vec![scenario!(
            Full,
            "disk-full",
            disk_full,
            "the passive server's volume is full, then the active one's, then there is room again: served all the time but for a moment",
            TestBed
        )],
    }
}

/// mysqld looks for room once a minute, and by itself: after that it goes on.
const NOTICED: Duration = Duration::from_secs(150);

async fn fill(f: &Fleet, what: &str, ordinal: usize) -> Result<()> {
    let claim = format!("{}/data-{}", f.ns, names::pod(PAIR, ordinal));
    f.note(format!("{what} {claim}"));
    f.world.bed(&["volume", what, &claim]).await.map(|_| ())
}

async fn disk_full(f: &Fleet) -> Result<()> {
    let shards: Vec<i32> = (0..OPEN).collect();
    let mut cluster = bp::cluster(f);
    cluster.spec.mysql.storage = Storage {
        size: Quantity("400Mi".into()),
        class_name: Some("local-small".into()),
    };
    f.apply(&cluster).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, OPEN - 1, PAIR)).await?;
    f.all_ready(BRING_UP).await?;
    f.write(&shards).await?;

    let before = f.record(PAIR).await?;
    fill(f, "fill", before.passive()).await?;
    // Its relay log takes what fits into its last block, then it acknowledges nothing more; that must not hold up anyone for long.
    wait::until("the full passive server to be out", NOTICED, || async {
        f.write(&shards).await?;
        let record = f.record(PAIR).await?;
        Ok(Seen::when(record.members.len() == 1, || format!("{record:?}")))
    })
    .await?;
    f.write(&shards).await?;
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "the full server is active"
    );
    fill(f, "free", before.passive()).await?;
    f.all_ready(NOTICED + REPAIR).await?;
    f.recovered(PAIR).await?;

    let before = f.record(PAIR).await?;
    fill(f, "fill", before.active).await?;
    // Commits neither end nor fail then: whoever writes hears nothing, until another server is active.
    wait::until("the other server to be active", NOTICED, || async {
        let written = tokio::time::timeout(Duration::from_secs(3), f.write(&shards)).await;
        let record = f.record(PAIR).await?;
        Ok(Seen::when(record.active == before.passive(), || {
            format!("{record:?}, {written:?}")
        }))
    })
    .await?;
    let after = f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
    f.write(&shards).await?;
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(change.cause == "ActiveDiskFull", "lastChange is {change:?}");
    fill(f, "free", before.active).await?;
    f.all_ready(NOTICED + REPAIR).await?;
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == after.active,
        "another server is active"
    );
    Ok(())
}
