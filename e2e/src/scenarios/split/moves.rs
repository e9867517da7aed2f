//! Shards move where they are wished, and nothing is in their way.

use super::rotation;
use super::stage::{
    BUSY, FRESH, HALF, LAST, MIDDLE, OTHERS, all, apply_range, approve, begin, fixture, half, open, others,
    placed, quick, retained, seeded_by, split,
};
use super::watch::Watch;
use crate::blueprint::{PAIR, RANGE};
use crate::crowd::{Pace, Shape, row};
use crate::fleet::Fleet;
use crate::moves::{MOVED, run};
use crate::scenario::Group;
use crate::wait::{self, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Result, ensure};
use kube::api::ListParams;
use serde_json::json;
use shardwright::api::{MoveStage, Seed, ShardCluster, ShardRange, names};
use shardwright::core::placement::moves;
use std::sync::Arc;
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "split",
        alone: true,
        fixture: shared!(fixture),
        scenarios: vec![
            scenario!(
                Short,
                "split-half",
                in_half,
                "one range becomes two, on two pairs, while clients write to every shard: each moves once, nothing is lost, the way back stays open for its time",
                TestBed
            ),
            scenario!(
                Short,
                "pairref-changed",
                pairref_changed,
                "a range goes to an empty pair by a changed pairRef, and from there to its old pair, which is empty by then"
            ),
            scenario!(
                Short,
                "split-to-serving-pair",
                to_serving_pair,
                "shards go to a pair that serves others, database by database; the others notice nothing",
                TestBed
            ),
            scenario!(
                Short,
                "split-back",
                back,
                "after 1,000 further rows at the new pair the range goes back by its pairRef: none of them is lost",
                TestBed
            ),
            scenario!(
                Short,
                "split-manual",
                manual,
                "a cutover waits for its approval, which a changed spec takes back, and for its window"
            ),
            scenario!(
                Full,
                "split-three-ways",
                three_ways,
                "one range becomes three, on three pairs, in one commit",
                TestBed
            ),
            scenario!(
                Full,
                "split-swap",
                swap,
                "two ranges change places, of different sizes, in one move",
                TestBed
            ),
            scenario!(
                Full,
                "split-rotation",
                rotation::goes_round,
                "three pairs with a range each: every range goes on to the next pair; two moves, and the third when the way back of one of them has ended",
                TestBed
            ),
            scenario!(
                Full,
                "split-two-at-once",
                two_at_once,
                "movesPerPair and movesPerCluster: two halves leave one pair one after the other, and at once when allowed",
                TestBed
            ),
            scenario!(
                Full,
                "split-again",
                again,
                "half of what has just moved is sent on to a third pair while the way back is still open",
                TestBed
            ),
        ],
    }
}

async fn in_half(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    split(f, FRESH, retained()).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, SOON).await?;
    f.ready::<ShardRange>(HALF, SOON).await?;
    f.ready::<ShardRange>(RANGE, SOON).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    // Numbers are written every few seconds.
    wait::until("the range to say what its move has cost", SOON, || async {
        let said = f.migration(HALF).await?;
        let all = said["phase"] == "Retaining"
            && said["shards"] == 8
            && said["shardsMoved"] == 8
            && said["writeBlock"]["shards"] == 8
            && !said["retainUntil"].is_null();
        Ok(Seen::when(all, || said.to_string()))
    })
    .await?;
    watch.end(f, "split-half").await?.once(&half(), PAIR, FRESH)?;
    // The old copies follow, on both of their servers.
    f.same_rows(&half(), &[FRESH, PAIR]).await?;
    // The way back ends when a person says so, and nothing of it is left.
    f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
        .await?;
    f.nothing_left().await?;
    f.write(&open()).await?;
    f.intact().await
}

async fn pairref_changed(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let before = f.map().await?.version;
    f.send(RANGE, FRESH).await?;
    f.at_home(&all(), FRESH, MOVED).await?;
    f.nothing_left().await?;
    ensure!(f.map().await?.version > before, "the map has the same version");
    f.write(&open()).await?;
    f.intact().await?;
    // That pair is an empty one now.
    f.send(RANGE, PAIR).await?;
    f.at_home(&all(), PAIR, MOVED).await?;
    f.nothing_left().await?;
    f.write(&open()).await?;
    f.intact().await?;
    f.healthy(PAIR).await?;
    f.healthy(FRESH).await
}

async fn to_serving_pair(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    split(f, BUSY, retained()).await?;
    seeded_by(f, PAIR, BUSY, Seed::PerDatabase).await?;
    f.at_home(&half(), BUSY, MOVED).await?;
    f.stage(PAIR, BUSY, MoveStage::Retaining, SOON).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    let ended = watch.end(f, "split-to-serving-pair").await?;
    ended.once(&half(), PAIR, BUSY)?;
    f.same_rows(&half(), &[BUSY, PAIR]).await?;
    f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
        .await?;
    f.nothing_left().await?;
    f.write(&open()).await?;
    f.intact().await?;
    f.healthy(BUSY).await
}

async fn back(f: &Arc<Fleet>) -> Result<()> {
    const FURTHER: u64 = 1000;
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    split(f, FRESH, retained()).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, SOON).await?;
    let mut client = f.client().await?;
    let shards: Vec<i32> = half().shards().collect();
    for (n, shard) in (1..=FURTHER).zip(shards.iter().cycle()) {
        let done = row(&mut client, *shard, Shape::Transaction, "further", n).await?;
        ensure!(
            done.place.host.starts_with(FRESH),
            "row {n} was written at {}",
            done.place.host
        );
    }
    f.send(HALF, PAIR).await?;
    f.at_home(&half(), PAIR, MOVED).await?;
    watch.writes().await?;
    let ended = watch.end(f, "split-back").await?;
    ended.no_doubt()?;
    ensure!(
        ended.went.len() == 16,
        "each of 8 shards was to go and to come back: {:?}",
        ended.went
    );
    // By the same move: when all are back, there is no old copy that anybody needs.
    f.nothing_left().await?;
    for ordinal in names::ORDINALS {
        wait::until("every further row to be at the old pair", SOON, || async {
            let (mut found, mut server) = (0, f.server(PAIR, ordinal).await?);
            for shard in &shards {
                let table = f.table(*shard).await?;
                let rows: u64 = server
                    .one(&format!(
                        "SELECT COUNT(*) FROM {table} WHERE JSON_UNQUOTE(JSON_EXTRACT(data, '$.client')) = 'further'"
                    ))
                    .await?;
                found += rows;
            }
            Ok(Seen::when(found == FURTHER, || format!("{found} of {FURTHER}")))
        })
        .await?;
    }
    f.intact().await
}

async fn manual(f: &Arc<Fleet>) -> Result<()> {
    // Nothing is cut over, whatever else goes on.
    const STAYS: Duration = Duration::from_secs(3);
    let stays = || {
        wait::throughout("a cutover that nobody approved", STAYS, || async {
            let record = f.placement().await?;
            let elsewhere = record.spans.iter().any(|s| s.pair == FRESH);
            Ok(Seen::when(!elsewhere, || format!("{:?}", record.spans)))
        })
    };
    let waits_for = |reason: &'static str| f.condition::<ShardRange>(HALF, "Ready", "False", reason, MOVED);
    begin(f).await?;
    let (start, end) = window_far_from_now();
    let mut spec = retained();
    spec["cutover"] = json!("Manual");
    spec["cutoverWindow"] = json!({"start": start, "end": end});
    split(f, FRESH, spec).await?;
    waits_for("WaitingForApproval").await?;
    f.between(PAIR, FRESH, "to be verified and waiting", SOON, |_, m| {
        m.stage == MoveStage::Following && moves::set(&m.verified) == half()
    })
    .await?;
    stays().await?;
    approve(f).await?;
    waits_for("WaitingForWindow").await?;
    stays().await?;
    // An approval is of one generation of the spec: this is another one.
    f.edit::<ShardRange>(HALF, json!({"spec": {"cutoverWindow": null}}))
        .await?;
    waits_for("WaitingForApproval").await?;
    stays().await?;
    f.write(&open()).await?;
    approve(f).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.ready::<ShardRange>(HALF, SOON).await?;
    f.intact().await?;
    // Who goes back needs no approval.
    f.send(HALF, PAIR).await?;
    f.at_home(&half(), PAIR, MOVED).await?;
    f.nothing_left().await?;
    f.intact().await
}

async fn three_ways(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    let part = |first, last, pair| placed(f, first, last, pair, quick());
    f.edit::<ShardRange>(RANGE, json!({"spec": {"last": 4}})).await?;
    apply_range(f, HALF, part(5, 9, FRESH)).await?;
    apply_range(f, "r2", part(10, LAST, BUSY)).await?;
    f.at_home(&run(0, 4), PAIR, MOVED).await?;
    f.at_home(&run(5, 9), FRESH, MOVED).await?;
    f.at_home(&run(10, LAST), BUSY, MOVED).await?;
    watch.writes().await?;
    let ended = watch.end(f, "split-three-ways").await?;
    ended.no_doubt()?;
    ensure!(
        ended.went.len() == 11,
        "11 shards were to move, once each: {:?}",
        ended.went
    );
    f.nothing_left().await?;
    f.intact().await
}

async fn swap(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    for (range, pair) in [(RANGE, BUSY), (OTHERS, PAIR)] {
        f.edit::<ShardRange>(
            range,
            json!({"spec": {"pairRef": {"name": pair}, "retainSourceSeconds": 3600}}),
        )
        .await?;
    }
    f.at_home(&all(), BUSY, MOVED).await?;
    f.at_home(&others(), PAIR, MOVED).await?;
    let record = f.placement().await?;
    ensure!(
        record.moves.len() == 1,
        "there is one move at most between two pairs: {:?}",
        record.moves
    );
    watch.writes().await?;
    f.one_home(false).await?;
    let ended = watch.end(f, "split-swap").await?;
    ended.no_doubt()?;
    ended.each_once(&all().union(&others()))?;
    f.same_rows(&all().union(&others()), &[PAIR, BUSY]).await?;
    f.intact().await
}

/// Moves on record that carry shards to where they are wished, and what they are at.
async fn under_way(f: &Fleet) -> Result<Vec<String>> {
    let record = f.placement().await?;
    let busy = |m: &&shardwright::api::Move| matches!(m.stage, MoveStage::Seeding | MoveStage::Following);
    Ok(record
        .moves
        .iter()
        .filter(busy)
        .map(|m| m.key().to_string())
        .collect())
}

async fn two_at_once(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    // Whoever is under way stays so until a person approves.
    let mut spec = quick();
    spec["cutover"] = json!("Manual");
    let quarter = |first, last, pair| placed(f, first, last, pair, spec.clone());
    f.edit::<ShardRange>(RANGE, json!({"spec": {"last": MIDDLE - 1}}))
        .await?;
    apply_range(f, HALF, quarter(8, 11, FRESH)).await?;
    apply_range(f, "r2", quarter(12, LAST, BUSY)).await?;
    wait::until("a move to be under way", MOVED, || async {
        let now = under_way(f).await?;
        Ok(Seen::when(!now.is_empty(), || "none".into()))
    })
    .await?;
    wait::throughout("one move at a pair", Duration::from_secs(15), || async {
        let now = under_way(f).await?;
        Ok(Seen::when(now.len() == 1, || format!("{now:?}")))
    })
    .await?;
    let waits = f.api::<ShardRange>().list(&ListParams::default()).await?.items;
    let waiting = waits.iter().filter(|r| {
        crate::fleet::conditions(*r)
            .iter()
            .any(|c| c.type_ == "Ready" && c.reason == "WaitingForMove")
    });
    ensure!(
        waiting.count() == 1,
        "not one range says that it waits for its move"
    );
    f.edit_refused::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"migration": {"movesPerPair": 2, "movesPerCluster": 1}}}),
    )
    .await?;
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"migration": {"movesPerPair": 1, "movesPerCluster": 1}}}),
    )
    .await?;
    wait::throughout("one move in the cluster", Duration::from_secs(3), || async {
        let now = under_way(f).await?;
        Ok(Seen::when(now.len() == 1, || format!("{now:?}")))
    })
    .await?;
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"migration": {"movesPerPair": 2, "movesPerCluster": 2}}}),
    )
    .await?;
    wait::until("two moves to be under way", MOVED, || async {
        let now = under_way(f).await?;
        Ok(Seen::when(now.len() == 2, || format!("{now:?}")))
    })
    .await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    for range in [HALF, "r2"] {
        f.edit::<ShardRange>(range, json!({"spec": {"cutover": "Automatic"}}))
            .await?;
    }
    f.at_home(&run(8, 11), FRESH, MOVED).await?;
    f.at_home(&run(12, LAST), BUSY, MOVED).await?;
    watch.writes().await?;
    let ended = watch.end(f, "split-two-at-once").await?;
    ended.no_doubt()?;
    ensure!(
        ended.went.len() == 8,
        "8 shards were to move, once each: {:?}",
        ended.went
    );
    f.nothing_left().await?;
    f.intact().await
}

async fn again(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    split(f, FRESH, retained()).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, SOON).await?;
    f.edit::<ShardRange>(HALF, json!({"spec": {"last": 11}})).await?;
    apply_range(f, "r2", placed(f, 12, LAST, BUSY, retained())).await?;
    // Over the move from where they came there is no way to a third pair: it ends, and another one begins.
    f.at_home(&run(12, LAST), BUSY, MOVED).await?;
    f.at_home(&run(8, 11), FRESH, SOON).await?;
    let record = f.placement().await?;
    ensure!(
        moves::between(&record, PAIR, FRESH).is_none(),
        "the first move is still on record: {:?}",
        record.moves
    );
    watch.writes().await?;
    f.one_home(false).await?;
    let ended = watch.end(f, "split-again").await?;
    ended.no_doubt()?;
    ensure!(
        ended.went.len() == 12,
        "8 shards were to move, and 4 once more: {:?}",
        ended.went
    );
    f.intact().await
}

/// A window, in UTC, that opens in six hours and lasts for one.
fn window_far_from_now() -> (String, String) {
    let now = k8s_openapi::jiff::Timestamp::now().as_second();
    let clock = |ahead: i64| {
        let minutes = (now / 60 + ahead * 60).rem_euclid(24 * 60);
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    };
    (clock(6), clock(7))
}
