//! What a pass over a move is reported as, in the status of the ranges that have shards in it.

use super::{events, status};
use crate::{
    act::migration::work::Progress,
    api::{
        Move, MoveStage, Placement, ShardRange,
        conditions::Overall,
        names::MANAGER_MIGRATION,
        shard_range::{MoveHealth, MovePhase, RangeMigration, WriteBlock},
    },
    core::{
        note::Note,
        placement::{self, moves},
    },
};
use kube::{Client, Resource as _, ResourceExt as _};
use std::{sync::Arc, time::Duration};

/// What is told of a move.
pub struct Told<'a> {
    /// The record.
    pub record: &'a Placement,
    /// The move.
    pub mv: &'a Move,
    /// How it is.
    pub overall: &'a Overall,
    /// How far the copying is.
    pub progress: Option<Progress>,
    /// Transactions that the copies lack.
    pub lag: Option<u64>,
    /// How long each shard that was cut over could not be written.
    pub blocks: &'a [Duration],
}

fn whole(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
fn long(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What a range's status says of the move; what this process has not seen of it stays as `before` has it.
pub fn of_range(told: &Told<'_>, range: &str, before: Option<&RangeMigration>) -> RangeMigration {
    let (m, record) = (told.mv, told.record);
    let mine = moves::set(&m.shards).intersect(&placement::of_range(record, range));
    let moved = moves::moved(record, m);
    let before = before.filter(|b| (&b.from, &b.to) == (&m.from, &m.to) && b.phase != MovePhase::Ended);
    let phase = match m.stage {
        MoveStage::Seeding => MovePhase::Seeding,
        MoveStage::Following => MovePhase::Following,
        MoveStage::Retaining => MovePhase::Retaining,
        MoveStage::CleaningUp => MovePhase::CleaningUp,
    };
    let (shards, shards_moved) = (mine.len(), mine.intersect(&moved).len());
    let (copied, total) = told.progress.map_or_else(
        || before.map_or((0, 0), |b| (b.bytes_copied, b.bytes_total)),
        |p| (long(p.bytes), long(p.of)),
    );
    let progress = match (phase, told.progress) {
        (MovePhase::Seeding, Some(p)) if p.of > 0 => format!("Seeding {}%", p.bytes * 100 / p.of),
        (MovePhase::Seeding, _) => "Seeding".to_owned(),
        _ => format!("{phase:?} {shards_moved}/{shards}"),
    };
    let state = match told.overall {
        Overall::Ready { .. } => MoveHealth::Ready,
        Overall::Working { .. } => MoveHealth::Working,
        Overall::Stalled { .. } => MoveHealth::Stalled,
    };
    let mut waits_for = told.overall.message().to_owned();
    if waits_for.len() > 1000 {
        let end = (0..1000).rev().find(|i| waits_for.is_char_boundary(*i));
        waits_for.truncate(end.unwrap_or(0));
        waits_for.push('…');
    }
    RangeMigration {
        from: m.from.clone(),
        to: m.to.clone(),
        seed: m.seed,
        phase,
        state,
        reason: told.overall.reason().to_owned(),
        waits_for,
        progress,
        shards: whole(shards),
        shards_moved: whole(shards_moved),
        bytes_copied: copied,
        bytes_total: total,
        eta_seconds: told.progress.and_then(|p| p.eta).map(long),
        lag_transactions: told.lag.map(long),
        retain_until: m.retain_until.clone(),
        write_block: block(told.blocks).or_else(|| before.and_then(|b| b.write_block.clone())),
    }
}

fn block(all: &[Duration]) -> Option<WriteBlock> {
    let mut sorted = all.to_vec();
    sorted.sort();
    let at = |percent: usize| {
        let i = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted
            .get(i)
            .map(|d| long(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
    };
    let (p50, p99, max) = (at(50)?, at(99)?, at(100)?);
    Some(WriteBlock {
        shards: whole(sorted.len()),
        p50_milliseconds: p50,
        p99_milliseconds: p99,
        max_milliseconds: max,
        summary: format!("p50 {p50} ms, max {max} ms"),
    })
}

/// Whether the two say the same but for numbers that change all the time.
pub fn is_alike(a: Option<&RangeMigration>, b: &RangeMigration) -> bool {
    a.is_some_and(|a| {
        (a.phase, a.state, &a.reason, a.shards, &a.from, &a.to)
            == (b.phase, b.state, &b.reason, b.shards, &b.from, &b.to)
    })
}

/// Writes what is new to the status of each range. Somebody who wrote meanwhile is not waited for: the next pass writes it.
pub async fn write(client: &Client, ranges: &[Arc<ShardRange>], told: &Told<'_>, at_leisure: bool) {
    for range in ranges {
        let before = range.status.as_ref().and_then(|s| s.migration.as_ref());
        let said = of_range(told, &range.name_any(), before);
        if before == Some(&said) || (!at_leisure && is_alike(before, &said)) {
            continue;
        }
        let mut next = range.status.clone().unwrap_or_default();
        next.migration = Some(said);
        let written = status::write(
            client,
            MANAGER_MIGRATION,
            range.as_ref(),
            range.status.as_ref(),
            &next,
        )
        .await;
        if let Err(error) = written {
            tracing::debug!(range = range.name_any(), %error, "how far a move is was not written");
        }
    }
}

/// Tells people, at each of the ranges.
pub async fn tell(recorder: &events::Recorder, ranges: &[Arc<ShardRange>], notes: &[Note]) {
    if notes.is_empty() {
        return;
    }
    for range in ranges {
        events::publish(recorder, &range.object_ref(&()), "Reconcile", notes).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_block_is_told_by_its_percentiles() {
        let all: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let b = block(&all).unwrap();
        assert_eq!(
            (
                b.shards,
                b.p50_milliseconds,
                b.p99_milliseconds,
                b.max_milliseconds
            ),
            (200, 100, 198, 200)
        );
        assert_eq!(b.summary, "p50 100 ms, max 200 ms");
        assert_eq!(block(&[]), None);
        assert_eq!(block(&all[..1]).unwrap().p99_milliseconds, 1);
    }
}
