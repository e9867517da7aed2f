//! What may go wrong while shards move: the wish is taken back, servers end, pairs are cut off from each other or deleted. Whatever it is, each shard has
//! one home all the time, nothing acknowledged is lost, and the move ends.

use super::stage::{
    FRESH, HALF, LAST, MIDDLE, all, apply_range, approve, begin, fixture, half, heavy, moved_once, open,
    placed, quick, retained, split,
};
use super::watch::Watch;
use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::crowd::Pace;
use crate::fleet::Fleet;
use crate::moves::{self, MOVED, run};
use crate::pair::TAKEN_OVER;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use shardwright::api::{MoveStage, MySQLPair, Placement, ShardRange, names};
use shardwright::core::placement::{self, moves as record};
use std::sync::Arc;
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "split-faults",
        alone: true,
        fixture: shared!(fixture),
        scenarios: vec![
            scenario!(
                Full,
                "split-aborted",
                aborted,
                "the wish is taken back while copies are made, while they follow, and half-way through the cutover: nothing is left, and the next try succeeds",
                TestBed
            ),
            scenario!(
                Short,
                "split-source-killed",
                source_killed,
                "the source's active server ends while copies are made, while they follow, in the cutover, and in the time of grace",
                TestBed
            ),
            scenario!(
                Full,
                "split-target-killed",
                target_killed,
                "the target's active server ends while copies are made, while they follow, in the cutover, and in the time of grace",
                TestBed
            ),
            scenario!(
                Full,
                "split-passives-killed",
                passives_killed,
                "the passive servers end, from which the channels take: they take from there again",
                TestBed
            ),
            scenario!(
                Full,
                "split-switchover",
                switchover,
                "planned changes of the active server of both pairs while shards move: no outcome is unknown",
                TestBed
            ),
            scenario!(
                Full,
                "split-partition",
                partition,
                "nodes of both pairs are cut off from each other while shards are cut over",
                TestBed
            ),
            scenario!(
                Full,
                "split-target-deleted",
                target_deleted,
                "the target pair is deleted while copies follow: the shards stay where they are, the pair goes, and made again it takes them"
            ),
            scenario!(
                Full,
                "split-range-replaced",
                range_replaced,
                "the range that moves is deleted, and two others take its shards, of which one stays: the move goes on with the rest"
            ),
        ],
    }
}

/// Copies follow and are verified, and nothing is cut over until a person approves.
async fn held_in_following(f: &Fleet, pair: &str) -> Result<()> {
    let mut spec = retained();
    spec["cutover"] = json!("Manual");
    split(f, pair, spec).await?;
    verified(f, pair).await
}

async fn verified(f: &Fleet, pair: &str) -> Result<()> {
    f.between(PAIR, pair, "to follow, and to be verified", MOVED, |_, m| {
        m.stage == MoveStage::Following && record::set(&m.verified) == half()
    })
    .await
}

fn moved(p: &Placement) -> usize {
    placement::shards(p, |s| s.pair == FRESH).len()
}

/// Waits until some shards are at the new pair; gives how many.
async fn some_moved(f: &Fleet) -> Result<usize> {
    f.between(PAIR, FRESH, "to have moved a shard", MOVED, |p, _| moved(p) > 0)
        .await?;
    Ok(moved(&f.placement().await?))
}

async fn aborted(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    for stage in ["Seeding", "Following", "CuttingOver"] {
        abort_in(f, stage)
            .await
            .with_context(|| format!("the wish was taken back in {stage}"))?;
        watch.writes().await?;
    }
    // Nothing of it is in the way of the next try.
    f.edit::<ShardRange>(HALF, json!({"spec": quick()})).await?;
    f.send(HALF, FRESH).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    watch.writes().await?;
    watch.end(f, "split-aborted").await?.no_doubt()?;
    f.nothing_left().await?;
    f.intact().await
}

/// Begins to move [`HALF`], takes the wish back in this stage, and sees that nothing is left.
async fn abort_in(f: &Fleet, stage: &str) -> Result<()> {
    match stage {
        "Seeding" => {
            heavy(f).await?;
            split(f, FRESH, retained()).await?;
            f.stage(PAIR, FRESH, MoveStage::Seeding, SOON).await?;
        }
        "Following" => held_in_following(f, FRESH).await?,
        _ => {
            held_in_following(f, FRESH).await?;
            // Two shards cannot be fenced, so that the others have moved and these have not.
            let held = [Holder::begin(f, MIDDLE).await?, Holder::begin(f, LAST).await?];
            approve(f).await?;
            let apart = f
                .between(PAIR, FRESH, "to have moved all but two", MOVED, |p, _| {
                    moved(p) == 6
                })
                .await;
            f.send(HALF, PAIR).await?;
            for holder in held {
                holder.end().await?;
            }
            apart?;
        }
    }
    if stage != "CuttingOver" {
        f.send(HALF, PAIR).await?;
    }
    f.at_home(&half(), PAIR, MOVED).await?;
    f.nothing_left().await?;
    f.ready::<ShardRange>(HALF, SOON).await?;
    f.write(&open()).await?;
    f.intact().await
}

/// A transaction that is open on a shard, as an application leaves one behind.
pub(super) struct Holder(crate::server::Server);

impl Holder {
    /// # Errors
    /// What the server answered.
    pub(super) async fn begin(f: &Fleet, shard: i32) -> Result<Self> {
        let map = f.map().await?;
        let entry = map.entry(shard)?;
        let mut server = f.app(&entry.pair, entry.active_ordinal()?).await?;
        let table = f.table(shard).await?;
        server.run("BEGIN").await?;
        let _: Vec<u64> = server.rows(&format!("SELECT COUNT(*) FROM {table}")).await?;
        Ok(Self(server))
    }

    /// # Errors
    /// When the server has ended it.
    pub(super) async fn end(mut self) -> Result<()> {
        self.0.run("ROLLBACK").await
    }
}

/// Kills servers in each stage of a move. What the crowd was told must hold; outcomes may be unknown, servers were killed.
async fn killed_in_each_stage(f: &Arc<Fleet>, name: &str, pairs: &[&str], active: bool) -> Result<()> {
    begin(f).await?;
    heavy(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    let strike = |seeding| struck(f, &watch, pairs, active, seeding);
    let mut spec = retained();
    spec["cutover"] = json!("Manual");
    split(f, FRESH, spec).await?;
    f.stage(PAIR, FRESH, MoveStage::Seeding, SOON).await?;
    strike(true).await.context("while copies were made")?;
    verified(f, FRESH).await?;
    strike(false).await.context("while copies followed")?;
    // Whoever follows goes on, or is compared anew.
    verified(f, FRESH).await?;
    approve(f).await?;
    let cut = some_moved(f).await?;
    strike(false)
        .await
        .with_context(|| format!("in the cutover, {cut} of 8 shards were moved"))?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, SOON).await?;
    strike(false).await.context("in the time of grace")?;
    f.one_home(false).await?;
    let ended = watch.end(f, name).await?;
    ensure!(
        ended.went.len() == 8,
        "8 shards were to move, once each: {:?}",
        ended.went
    );
    // The old copies follow again: there is a way back.
    f.send(HALF, PAIR).await?;
    f.at_home(&half(), PAIR, MOVED).await?;
    f.whole(&ended.tried).await?;
    f.nothing_left().await?;
    f.recovered(PAIR).await?;
    f.recovered(FRESH).await?;
    f.intact().await
}

/// Kills a server of each of these pairs, and waits until each is whole again and every shard is written.
async fn struck(f: &Fleet, watch: &Watch, pairs: &[&str], active: bool, seeding: bool) -> Result<()> {
    let mut struck = vec![];
    for pair in pairs {
        let record = f.record(pair).await?;
        let victim = if active { record.active } else { record.passive() };
        f.signal(pair, victim, "KILL").await?;
        struck.push((*pair, record));
    }
    for (pair, before) in struck {
        // A pair that is being copied over has no server that could take over.
        if active && before.members.len() == 2 && !(seeding && pair == FRESH) {
            f.served_by(pair, before.passive(), TAKEN_OVER).await?;
        }
        f.members(pair, 2, REPAIR).await?;
    }
    watch.writes().await
}

async fn source_killed(f: &Arc<Fleet>) -> Result<()> {
    killed_in_each_stage(f, "split-source-killed", &[PAIR], true).await
}
async fn target_killed(f: &Arc<Fleet>) -> Result<()> {
    killed_in_each_stage(f, "split-target-killed", &[FRESH], true).await
}
async fn passives_killed(f: &Arc<Fleet>) -> Result<()> {
    killed_in_each_stage(f, "split-passives-killed", &[PAIR, FRESH], false).await
}

async fn switchover(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    held_in_following(f, FRESH).await?;
    for pair in [PAIR, FRESH] {
        let before = f.record(pair).await?;
        f.wish(pair, before.passive()).await?;
        f.served_by(pair, before.passive(), TAKEN_OVER).await?;
        f.members(pair, 2, REPAIR).await?;
    }
    // The channel takes from whoever is passive now, on whoever is active now (rule R7).
    let channel = format!("from-{PAIR}");
    let source = names::host(&f.ns, PAIR, f.record(PAIR).await?.passive());
    wait::until("the channel to be where it belongs", REPAIR, || async {
        let active = f.active(FRESH).await?;
        let of_passive = moves::channels(&mut f.server(FRESH, 1 - active).await?).await?;
        if !of_passive.is_empty() {
            return Ok(Seen::NotYet(format!("the passive server has {of_passive:?}")));
        }
        let found = moves::channel_source(&mut f.server(FRESH, active).await?, &channel).await?;
        Ok(Seen::when(found == source, || {
            format!("it takes from {found}, not from {source}")
        }))
    })
    .await?;
    verified(f, FRESH).await?;
    approve(f).await?;
    some_moved(f).await?;
    for pair in [FRESH, PAIR] {
        let before = f.record(pair).await?;
        f.wish(pair, before.passive()).await?;
        f.served_by(pair, before.passive(), TAKEN_OVER).await?;
    }
    f.at_home(&half(), FRESH, MOVED).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    watch
        .end(f, "split-switchover")
        .await?
        .once(&half(), PAIR, FRESH)?;
    f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
        .await?;
    f.nothing_left().await?;
    f.intact().await
}

async fn partition(f: &Arc<Fleet>) -> Result<()> {
    /// Longer than any failover takes to be decided.
    const CUT: Duration = Duration::from_secs(12);
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    held_in_following(f, FRESH).await?;
    let source = f.node_of(PAIR, f.record(PAIR).await?.passive()).await?;
    let target = f.node_of(FRESH, f.active(FRESH).await?).await?;
    // Where the channel leads from and to; a pair whose servers are on one of each is parted as well.
    let (a, b) = if source == target {
        let other = f.node_of(FRESH, f.record(FRESH).await?.passive()).await?;
        (source, other)
    } else {
        (source, target)
    };
    approve(f).await?;
    some_moved(f).await?;
    f.world.bed(&["node", "partition", &a, &b]).await?;
    // The time itself is meant.
    tokio::time::sleep(CUT).await;
    f.world.bed(&["node", "heal", &a]).await?;
    f.world.bed(&["node", "heal", &b]).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    let ended = watch.end(f, "split-partition").await?;
    moved_once(f, &ended).await
}

async fn target_deleted(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    held_in_following(f, FRESH).await?;
    f.delete::<MySQLPair>(FRESH).await?;
    f.gone::<MySQLPair>(FRESH, REPAIR).await?;
    f.no_moves(REPAIR).await?;
    f.at_home(&all(), PAIR, SOON).await?;
    f.write(&open()).await?;
    f.condition::<ShardRange>(HALF, "Ready", "False", "", SOON)
        .await?;
    f.apply(&bp::pair(f, FRESH)).await?;
    f.ready::<MySQLPair>(FRESH, wait::BRING_UP).await?;
    // It is wished there still.
    verified(f, FRESH).await?;
    approve(f).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.one_home(false).await?;
    f.intact().await
}

async fn range_replaced(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    held_in_following(f, FRESH).await?;
    let of = |first, last, pair| placed(f, first, last, pair, quick());
    f.delete::<ShardRange>(HALF).await?;
    // It has served shards, and nobody else takes them yet.
    wait::throughout(
        "the range that nobody replaces",
        Duration::from_secs(3),
        || async {
            let there = f.get_opt::<ShardRange>(HALF).await?.is_some();
            let record = f.placement().await?;
            Ok(Seen::when(there && moved(&record) == 0, || {
                format!("{there}, {:?}", record.spans)
            }))
        },
    )
    .await?;
    apply_range(f, "r1a", of(MIDDLE, 11, PAIR)).await?;
    apply_range(f, "r1b", of(12, LAST, FRESH)).await?;
    f.gone::<ShardRange>(HALF, SOON).await?;
    f.at_home(&run(12, LAST), FRESH, MOVED).await?;
    f.at_home(&run(0, 11), PAIR, SOON).await?;
    f.nothing_left().await?;
    f.write(&open()).await?;
    f.intact().await?;
    ensure!(
        f.get_opt::<ShardRange>(RANGE).await?.is_some(),
        "the range that was left alone is gone"
    );
    Ok(())
}
