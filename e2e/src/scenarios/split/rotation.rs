//! Three ranges go round: the last of their moves would close a circle of links.

use super::stage::{BUSY, FRESH, HALF, MIDDLE, OTHERS, all, begin, half, others, quick, retained, split};
use super::watch::Watch;
use crate::blueprint::{PAIR, RANGE};
use crate::crowd::Pace;
use crate::fleet::Fleet;
use crate::moves::{MOVED, run};
use crate::wait::SOON;
use anyhow::{Result, ensure};
use serde_json::json;
use shardwright::api::{MoveStage, ShardCluster, ShardRange};
use shardwright::core::placement::moves;
use std::sync::Arc;

/// Each range goes on to the next pair, all in one commit.
pub(super) async fn goes_round(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    split(f, FRESH, quick()).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.nothing_left().await?;
    // As many at once as the links allow.
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"migration": {"movesPerPair": 2, "movesPerCluster": 4}}}),
    )
    .await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    for (range, pair) in [(RANGE, FRESH), (HALF, BUSY), (OTHERS, PAIR)] {
        let mut spec = retained();
        spec["pairRef"] = json!({"name": pair});
        f.edit::<ShardRange>(range, json!({ "spec": spec })).await?;
    }
    let first = run(0, MIDDLE - 1);
    for (shards, pair) in [(&first, FRESH), (&half(), BUSY), (&others(), PAIR)] {
        f.at_home(shards, pair, MOVED).await?;
    }
    // The way back of one of them has ended for it; the others are kept.
    let record = f.placement().await?;
    ensure!(
        record.moves.len() == 2,
        "two of three links were to be left: {:?}",
        record.moves
    );
    for m in &record.moves {
        f.stage(&m.from, &m.to, MoveStage::Retaining, SOON).await?;
    }
    watch.writes().await?;
    f.one_home(false).await?;
    let ended = watch.end(f, "split-rotation").await?;
    ended.no_doubt()?;
    ended.each_once(&all().union(&others()))?;
    for m in &record.moves {
        f.same_rows(&moves::set(&m.shards), &[&m.from, &m.to]).await?;
    }
    for range in [RANGE, HALF, OTHERS] {
        f.edit::<ShardRange>(range, json!({"spec": {"retainSourceSeconds": 0}}))
            .await?;
    }
    f.nothing_left().await?;
    f.intact().await
}
