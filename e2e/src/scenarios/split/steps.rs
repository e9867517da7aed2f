//! The operator dies while shards move: at random moments, and before every step that a move has. These run alone.

use super::super::operator::kill_leader;
use super::data::logs_purged;
use super::stage::{BUSY, FRESH, HALF, begin, fixture, half, moved_once, open, quick, retained, split};
use super::watch::Watch;
use crate::blueprint::PAIR;
use crate::crowd::Pace;
use crate::dice::Dice;
use crate::fleet::Fleet;
use crate::moves::{Copy, MOVED};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use shardwright::act::failpoint;
use shardwright::api::{MoveStage, ShardCluster, ShardRange, names};
use shardwright::core::placement::{self, moves};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The groups.
pub fn groups() -> Vec<Group> {
    vec![Group {
        name: "split-steps",
        alone: true,
        fixture: shared!(fixture),
        scenarios: vec![
            scenario!(
                Short,
                "split-operator-killed",
                at_random,
                "the leader is killed again and again while shards move under load: they arrive, and each has one home all the time",
                TestBed,
                Operator
            ),
            scenario!(
                Full,
                "split-killed-in-batch",
                in_batch,
                "the operator is killed before each step of a batch: what was begun is undone or done, never both",
                TestBed,
                Operator
            ),
            scenario!(
                Full,
                "split-killed-while-copying",
                while_copying,
                "the operator is killed before each step of a move until its copies are verified",
                TestBed,
                Operator
            ),
            scenario!(
                Full,
                "split-killed-while-ending",
                while_ending,
                "the operator is killed before each step of a move from its last batch to its end",
                TestBed,
                Operator
            ),
            scenario!(
                Full,
                "split-source-fails-in-batch",
                source_in_batch,
                "the source's active server ends while the operator is halted before a step of a batch: what is in the batch is opened by no promotion",
                TestBed,
                Operator
            ),
            scenario!(
                Full,
                "split-target-fails-in-batch",
                target_in_batch,
                "the target's active server ends while the operator is halted before a step of a batch",
                TestBed,
                Operator
            ),
            scenario!(
                Full,
                "split-logs-purged",
                logs_purged,
                "the binary logs that a channel needs are purged while it is stopped: nothing is switched by a copy that lacks them",
                Operator
            ),
        ],
    }]
}

/// The steps of a batch, in their order.
const BATCH: [&str; 6] = [
    "Batch.BeginBatch",
    "Batch.Fence",
    "Batch.Reach",
    "Batch.Confirm",
    "Batch.CutOver",
    "Batch.Unfence",
];
/// The steps of a move until its copies are verified.
const COPYING: [&str; 6] = ["Seed", "Seeded", "Follow", "Point", "Verify", "Verified"];
/// The steps of a move after its last batch.
const ENDING: [&str; 5] = ["Retain", "CleanUp", "RemoveChannel", "Drop", "EndMove"];
/// Leaders that die in one scenario.
const KILLS: usize = 6;
/// Longer than any step takes.
const HALTED: Duration = Duration::from_secs(2);

async fn at_random(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let seed = Dice::seed_now();
    let mut dice = Dice::new(seed);
    println!("      split-operator-killed: seed {seed}");
    f.note(format!("seed {seed}"));
    let watch = Watch::begin(f, Pace::CALM).await?;
    split(f, FRESH, quick()).await?;
    let begun = Instant::now();
    let (mut kills, mut to) = (0, FRESH);
    // There and back, until enough have died. Random moments, the waiting is not a proof of anything. Each leader has some seconds, or nothing would
    // ever be done.
    while begun.elapsed() < MOVED * 2 {
        let record = f.placement().await?;
        let there = placement::shards(&record, |s| s.pair == to);
        if half().is_subset(&there) && record.moves.is_empty() {
            if kills >= KILLS {
                break;
            }
            to = if to == FRESH { PAIR } else { FRESH };
            f.send(HALF, to).await?;
        }
        tokio::time::sleep(Duration::from_millis(2_000 + dice.below(6_000))).await;
        kill_leader(f).await?;
        kills += 1;
        f.note(format!("killed after {:.1}s", begun.elapsed().as_secs_f64()));
    }
    println!("      split-operator-killed: killed {kills} times");
    ensure!(
        kills >= KILLS,
        "it was over after {kills} kills, which proves little"
    );
    f.world.operator_ready().await?;
    f.at_home(&half(), to, MOVED).await?;
    f.nothing_left().await?;
    watch.writes().await?;
    watch.end(f, "split-operator-killed").await?.no_doubt()?;
    f.intact().await
}

/// Operators that heed [`failpoint::HALT_MOVE`], for as long as that takes.
async fn armed(f: &Fleet, what: impl Future<Output = Result<()>>) -> Result<()> {
    set_variable(f, "=armed").await?;
    let done = what.await;
    halt_before(f, None).await?;
    set_variable(f, "-").await?;
    done
}

async fn set_variable(f: &Fleet, to: &str) -> Result<()> {
    f.world.operator_failpoints(to).await?;
    f.all_ready(REPAIR).await
}

async fn halt_before(f: &Fleet, step: Option<&str>) -> Result<()> {
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"metadata": {"annotations": {failpoint::HALT_MOVE: step}}}),
    )
    .await
    .map(|_| ())
}

/// What can be seen of how far a batch has come, at the shard that is in it.
#[allow(clippy::struct_excessive_bools, reason = "they are answers, each on its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage {
    /// A batch is on record.
    recorded: bool,
    /// It is READ ONLY on the source's active server.
    fenced: bool,
    /// The record has it at the target.
    cut_over: bool,
    /// It can be written at the target.
    opened: bool,
}

impl Stage {
    /// What must be seen when the operator has halted before this step.
    fn before(step: &str) -> Self {
        let n = BATCH.iter().position(|s| *s == step).unwrap_or_default();
        Self {
            // The record of the cutover takes the batch away.
            recorded: (1..=4).contains(&n),
            fenced: n >= 2,
            cut_over: n >= 5,
            opened: false,
        }
    }
}

async fn stage(f: &Fleet, shard: i32) -> Result<Stage> {
    let record = f.placement().await?;
    let m = moves::between(&record, PAIR, FRESH).context("no move is on record")?;
    let copy = |pair: &'static str| async move {
        let active = f.active(pair).await?;
        let copies = f.copies(pair, active).await?;
        anyhow::Ok(copies.get(&shard).copied().unwrap_or(Copy::Absent))
    };
    Ok(Stage {
        recorded: moves::set(&m.batch).contains(shard),
        fenced: copy(PAIR).await? == Copy::Shut,
        cut_over: placement::shards(&record, |s| s.pair == FRESH).contains(shard),
        opened: copy(FRESH).await? == Copy::Open,
    })
}

/// The first shard of [`half`] is in the first batch, alone.
fn first() -> i32 {
    half().shards().next().unwrap_or_default()
}

/// Begins a move, and waits until the operator has halted before this step of its first batch.
async fn halted_in_batch(f: &Fleet, step: &str) -> Result<()> {
    halt_before(f, Some(step)).await?;
    split(f, FRESH, retained()).await?;
    let expected = Stage::before(step);
    let look = || async {
        let (seen, record) = (stage(f, first()).await?, f.placement().await?);
        let verified =
            moves::between(&record, PAIR, FRESH).is_some_and(|m| moves::set(&m.verified) == half());
        Ok(Seen::when(seen == expected && verified, || {
            format!("{seen:?} instead of {expected:?}, verified: {verified}")
        }))
    };
    wait::until("the operator to halt", MOVED, look).await?;
    wait::throughout("a halted operator", HALTED, look).await
}

async fn in_batch(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let all = async {
        for step in BATCH {
            killed_before(f, step)
                .await
                .with_context(|| format!("the operator was killed before {step}"))?;
        }
        Ok(())
    };
    armed(f, Box::pin(all)).await
}

async fn killed_before(f: &Arc<Fleet>, step: &str) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    halted_in_batch(f, step).await?;
    let number = batch_number(f).await?;
    halt_before(f, None).await?;
    kill_leader(f).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.world.operator_ready().await?;
    // One that was begun and not cut over is undone, and the shard is cut over in another one.
    let (record, undone) = (f.placement().await?, Stage::before(step));
    let batches = moves::between(&record, PAIR, FRESH).map_or(0, |m| m.batch_number);
    ensure!(
        !undone.recorded || batches > number,
        "the batch {number} was on record when the operator was killed before {step}, and it was the last one"
    );
    watch.writes().await?;
    f.one_home(false).await?;
    watch
        .end(f, "split-killed-in-batch")
        .await?
        .once(&half(), PAIR, FRESH)?;
    f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
        .await?;
    f.nothing_left().await?;
    f.intact().await
}

async fn batch_number(f: &Fleet) -> Result<i64> {
    let record = f.placement().await?;
    Ok(moves::between(&record, PAIR, FRESH).map_or(0, |m| m.batch_number))
}

async fn while_copying(f: &Arc<Fleet>) -> Result<()> {
    at_every_step(f, &COPYING).await
}
async fn while_ending(f: &Arc<Fleet>) -> Result<()> {
    at_every_step(f, &ENDING).await
}

async fn at_every_step(f: &Arc<Fleet>, steps: &'static [&'static str]) -> Result<()> {
    begin(f).await?;
    let all = async {
        for step in steps.iter().copied() {
            begin(f).await?;
            halt_before(f, Some(step)).await?;
            split(f, BUSY, quick()).await?;
            let begun = Instant::now();
            comes_to_rest(f).await.with_context(|| format!("before {step}"))?;
            println!("      split-killed: before {step} after {:?}", begun.elapsed());
            let record = f.placement().await?;
            ensure!(
                !record.moves.is_empty(),
                "the move is over, so nothing halted before {step}"
            );
            f.write(&open()).await?;
            halt_before(f, None).await?;
            kill_leader(f).await?;
            f.at_home(&half(), BUSY, MOVED)
                .await
                .with_context(|| format!("the operator was killed before {step}"))?;
            f.world.operator_ready().await?;
            f.nothing_left()
                .await
                .with_context(|| format!("the operator was killed before {step}"))?;
            f.write(&open()).await?;
            f.intact().await?;
        }
        Ok(())
    };
    armed(f, Box::pin(all)).await
}

/// Waits until a move is on record and nothing of the record has changed for a while: longer than any copy takes here, or any wait between two tries.
async fn comes_to_rest(f: &Fleet) -> Result<()> {
    const REST: Duration = Duration::from_secs(8);
    let mut last = (Instant::now(), f.placement().await?);
    let begun = Instant::now();
    while last.0.elapsed() < REST || last.1.moves.is_empty() {
        tokio::time::sleep(wait::POLL).await;
        let now = f.placement().await?;
        if now != last.1 {
            last = (Instant::now(), now);
        }
        ensure!(
            begun.elapsed() < MOVED,
            "the record does not come to rest: {:?}",
            last.1.moves
        );
    }
    Ok(())
}

/// At the worst moments: with the batch on record and the fence taken, and with the cutover on record and nothing opened.
async fn source_in_batch(f: &Arc<Fleet>) -> Result<()> {
    failover_in_batch(f, PAIR, &["Batch.Reach", "Batch.CutOver", "Batch.Unfence"]).await
}
async fn target_in_batch(f: &Arc<Fleet>) -> Result<()> {
    failover_in_batch(f, FRESH, &["Batch.CutOver", "Batch.Unfence"]).await
}

async fn failover_in_batch(f: &Arc<Fleet>, pair: &'static str, steps: &'static [&'static str]) -> Result<()> {
    begin(f).await?;
    let all = async {
        for step in steps.iter().copied() {
            failed_over_before(f, step, pair)
                .await
                .with_context(|| format!("the active server of {pair} ended before {step}"))?;
        }
        Ok(())
    };
    armed(f, Box::pin(all)).await
}

async fn failed_over_before(f: &Arc<Fleet>, step: &str, pair: &str) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    halted_in_batch(f, step).await?;
    let before = f.record(pair).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    f.signal(pair, before.active, "KILL").await?;
    // The pair's controller goes on while the move's is halted: a failover waits for nothing.
    let opened = f.served_by(pair, before.passive(), crate::pair::TAKEN_OVER).await;
    let shut = opened.is_ok().then_some(f.copies(pair, before.passive()).await?);
    halt_before(f, None).await?;
    kill_leader(f).await?;
    opened?;
    // What is in the batch, or placed elsewhere, was opened by no promotion.
    let open_there = shut.and_then(|c| c.get(&first()).copied());
    ensure!(
        open_there != Some(Copy::Open) || (pair == FRESH && Stage::before(step).cut_over),
        "shard {} was opened on {}",
        first(),
        names::pod(pair, before.passive())
    );
    f.at_home(&half(), FRESH, MOVED).await?;
    f.world.operator_ready().await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, REPAIR).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    let ended = watch.end(f, "split-fails-in-batch").await?;
    moved_once(f, &ended).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_batch_leaves_another_trace() {
        let before = |step| {
            let s = Stage::before(step);
            (s.recorded, s.fenced, s.cut_over)
        };
        assert_eq!(before("Batch.BeginBatch"), (false, false, false));
        assert_eq!(before("Batch.Fence"), (true, false, false));
        assert_eq!(before("Batch.Reach"), (true, true, false));
        assert_eq!(before("Batch.CutOver"), (true, true, false));
        assert_eq!(before("Batch.Unfence"), (false, true, true));
    }
}
