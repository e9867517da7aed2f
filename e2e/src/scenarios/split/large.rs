//! Fleets of their own: half of 512 shards moves, and a target that has no room.

use super::stage::{FRESH, HALF, LAST, apply_range, cluster, half, heavy, placed, quick, retained, split};
use super::watch::Watch;
use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::crowd::Pace;
use crate::fleet::Fleet;
use crate::moves::run;
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::wait::{self, REPAIR, Seen};
use anyhow::Result;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use shardwright::api::mysql_template::{MysqlOverrides, Storage};
use shardwright::api::{ShardRange, names};
use shardwright::core::placement;
use std::sync::Arc;
use std::time::Duration;

/// Shards that are open.
const OPEN: i32 = 512;
/// For each part of it.
const LIMIT: Duration = Duration::from_secs(420);

/// The group.
pub fn group() -> Group {
    Group {
        name: "split-large",
        alone: true,
        fixture: Fixture::Empty,
        scenarios: vec![
            scenario!(
                Full,
                "split-512-in-half",
                in_half,
                "256 of 512 shards move while clients write to all of them",
                TestBed
            ),
            scenario!(
                Full,
                "split-target-full",
                target_full,
                "the target's volumes are full while copies are made: the source serves on, and once there is room the shards arrive",
                TestBed
            ),
        ],
    }
}

async fn in_half(f: &Arc<Fleet>) -> Result<()> {
    let mut large = cluster(f);
    large.spec.shards.total = 1024;
    f.apply(&large).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::pair(f, FRESH)).await?;
    f.apply(&bp::range(f, RANGE, 0, OPEN - 1, PAIR)).await?;
    f.all_ready(LIMIT).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    let moving = run(OPEN / 2, OPEN - 1);
    f.edit::<ShardRange>(RANGE, json!({"spec": {"last": OPEN / 2 - 1}}))
        .await?;
    let spec = placed(f, OPEN / 2, OPEN - 1, FRESH, retained());
    apply_range(f, HALF, spec).await?;
    f.at_home(&moving, FRESH, LIMIT).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    watch
        .end(f, "split-512-in-half")
        .await?
        .once(&moving, PAIR, FRESH)?;
    f.all_ready(REPAIR).await?;
    f.healthy(PAIR).await?;
    f.healthy(FRESH).await
}

async fn target_full(f: &Arc<Fleet>) -> Result<()> {
    /// Longer than a copy of so little takes, also when it is begun anew.
    const FULL: Duration = Duration::from_secs(30);
    f.apply(&cluster(f)).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    let mut small = bp::pair(f, FRESH);
    small.spec.mysql = Some(MysqlOverrides {
        storage: Some(Storage {
            size: Quantity("400Mi".into()),
            class_name: Some("local-small".into()),
        }),
        ..MysqlOverrides::default()
    });
    f.apply(&small).await?;
    f.apply(&bp::range(f, RANGE, 0, LAST, PAIR)).await?;
    f.all_ready(LIMIT).await?;
    heavy(f).await?;
    let shards: Vec<i32> = (0..=LAST).collect();
    f.write(&shards).await?;
    let claim = |ordinal| format!("{}/data-{}", f.ns, names::pod(FRESH, ordinal));
    for ordinal in names::ORDINALS {
        f.world.bed(&["volume", "fill", &claim(ordinal)]).await?;
    }
    split(f, FRESH, quick()).await?;
    let stays = wait::throughout("the source of a target without room", FULL, || async {
        f.write(&shards).await?;
        let moved = placement::shards(&f.placement().await?, |s| s.pair == FRESH);
        Ok(Seen::when(moved.is_empty(), || format!("{moved:?} were moved")))
    })
    .await;
    for ordinal in names::ORDINALS {
        f.world.bed(&["volume", "free", &claim(ordinal)]).await?;
    }
    stays?;
    f.at_home(&half(), FRESH, LIMIT).await?;
    f.nothing_left().await?;
    f.write(&shards).await?;
    f.healthy(FRESH).await?;
    f.intact().await
}
