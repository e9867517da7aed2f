//! One pass over a move: observe, decide, act, report.

use super::{
    super::{busy::UnderWay, context::Context},
    Shared,
};
use crate::{
    act::{
        failpoint,
        migration::{
            Done, Error, Hands,
            work::{Progress, Works},
        },
    },
    api::{MoveStage, conditions::Overall},
    core::{
        migration::{
            self, Action, Decision, Observed, State,
            batch::{Cost, PATIENT},
            observed::{End, Memory, Place, VerifyOutcome},
            progress::{self, Mark, Progress as Further},
        },
        pair::observed::Tries,
        placement::moves,
        spans::SpanSet,
    },
    metrics::moves::{EndLabels, MoveLabels, MoveSeen},
    observe::migration::{self as observe, Found, Held, Site},
    report::migration as report,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How often numbers that change all the time are written.
const NUMBERS: Duration = Duration::from_secs(2);
/// Until the next pass while a pair is acted upon.
const PAIR_ACTS: Duration = Duration::from_millis(20);
/// A decision that has waited for its turn for so long is made anew.
const STALE: Duration = Duration::from_millis(500);
/// Write blocks that are remembered.
const BLOCKS: usize = 65_536;

/// What comes after a pass.
pub enum Next {
    /// Another one, then.
    After(Duration),
    /// None: the move is off the record.
    Gone,
}

/// What a move's task remembers between passes. Nothing in it is needed for safety (rule O1).
#[derive(Default)]
pub struct Local {
    held: Held,
    works: Works,
    /// Copies are made, for this move.
    copying: Option<UnderWay>,
    memory: Memory,
    blocks: Vec<Duration>,
    /// What was set to have copies compared again, when they were found different.
    differed: Option<BTreeMap<String, Option<String>>>,
    wrote: Option<Instant>,
    copied: u64,
    /// When a clone was first seen, and how far it was.
    cloning: Option<(Instant, u64)>,
    progress: Further,
}

/// One pass.
///
/// # Errors
/// [`Error`].
pub async fn pass(shared: &Shared, site: &Site, local: &mut Local) -> Result<Next, Error> {
    let ctx = &shared.ctx;
    let client = &ctx.client;
    let Some(found) = Box::pin(observe::find(client, &shared.stores, &mut local.held, site)).await? else {
        local.works.stop().await;
        forget(shared, site);
        return Ok(Next::Gone);
    };
    let now = Timestamp::now();
    let targets = observe::targets(&shared.stores, &found, site);
    let blocked: SpanSet = local.memory.blocked.keys().copied().collect();
    let mut seen = local.held.look(targets, &found, site, &blocked, now).await;
    let ends = End::BOTH.map(|end| observe::pair_seen(found.pair(end), end, &seen));
    for (since, pair) in local.memory.broken_since.iter_mut().zip(&ends) {
        let channel = pair.active_server().and_then(|s| s.channel.as_ref());
        *since = match channel {
            Some(c) if c.error.is_some() => since.or(Some(now)),
            // It runs, or is tried just now.
            Some(c) if c.runs => None,
            _ => *since,
        };
    }
    let verifying = local.works.verifying(now);
    let annotations = found.verify_again();
    let different = verifying
        .iter()
        .flatten()
        .any(|r| matches!(r.outcome, VerifyOutcome::Different { .. }));
    let verify_again = if different {
        let before = local.differed.get_or_insert_with(|| annotations.clone());
        annotations
            .iter()
            .any(|(r, a)| a.is_some() && before.get(r) != Some(a))
    } else {
        local.differed = None;
        false
    };
    let observed = Observed {
        record: found.record(),
        key: site.key.clone(),
        course: found.course.clone(),
        ends,
        seeding: local.works.seeding(now),
        verifying,
        policy: found.policy(&site.key, verify_again, now),
        memory: Memory {
            others_copy: others_copy(ctx, site, local),
            ..local.memory.clone()
        },
    };
    local.works.throttle(lag_of_passives(&observed));
    let decision = migration::decide(&observed, now);
    if decision.state == State::Gone {
        forget(shared, site);
        return Ok(Next::Gone);
    }
    let names = names(site);
    let waited = Instant::now();
    let turn = if decision.actions.is_empty() {
        vec![]
    } else {
        ctx.turns.take(&names.iter().cloned().collect()).await
    };
    // What was seen so long ago is looked at once more.
    let stale = waited.elapsed() > STALE;
    let held_up = !decision.actions.is_empty() && (stale || names.iter().any(|name| ctx.acting.is(name)));
    let (done, result) = if held_up {
        (Done::default(), Ok(()))
    } else {
        let halt = failpoint::halt_move(&found.cluster);
        let hands = Hands::new(
            client,
            site,
            &observed,
            found.cluster.clone(),
            (&found.naming, &found.credentials),
            &mut seen.sessions,
            &mut local.works,
        );
        Box::pin(hands.act(&decision, halt.as_deref())).await
    };
    drop(turn);
    local.copying = match (local.works.copies(), local.copying.take()) {
        (None, _) => None,
        (Some(_), Some(copying)) => Some(copying),
        (Some(end), None) => names.get(end as usize).map(|name| ctx.copying.begin(name)),
    };
    local.held.hold(seen);
    let again = remember(local, &decision, &done, result.as_ref().err(), &ctx.metrics.moves);
    tell(
        shared,
        site,
        local,
        &found,
        &observed,
        &decision,
        &done,
        result.is_ok() && !held_up,
    )
    .await;
    if held_up {
        return Ok(Next::After(PAIR_ACTS));
    }
    if let (Ok(()), State::Over) = (&result, &decision.state) {
        let moved = observed
            .mv()
            .is_some_and(|m| !moves::moved(&observed.record, m).is_empty());
        let outcome = if moved { "moved" } else { "not_moved" };
        ctx.metrics
            .moves
            .ended
            .get_or_create(&EndLabels { outcome })
            .inc();
        forget(shared, site);
        return Ok(Next::Gone);
    }
    match (result, again) {
        // What is expected to fail now and then is remembered, and decided anew.
        (Err(_), true) => Ok(Next::After(PAIR_ACTS)),
        (Err(error), false) => Err(error),
        (Ok(()), _) => Ok(Next::After(decision.requeue)),
    }
}

fn names(site: &Site) -> [String; 2] {
    End::BOTH.map(|end| format!("{}/{}", site.namespace, site.pair(end)))
}

/// The end at which copies are made for another move.
fn others_copy(ctx: &Context, site: &Site, local: &Local) -> Option<End> {
    let copied = |name: &String| local.copying.is_none() && ctx.copying.is(name);
    let at = names(site).iter().position(copied)?;
    End::BOTH.get(at).copied()
}

/// How far the target pair is cloned over: one server after the other.
fn cloned(o: &Observed, begun: &mut Option<(Instant, u64)>) -> Option<Progress> {
    let m = o.mv()?;
    let to = o.pair(End::To);
    let (bytes, of) = to.clone.running.filter(|_| m.stage == MoveStage::Seeding)?;
    let first_done = to.active_server().is_some_and(|s| !s.has.is_empty());
    let (bytes, of) = (bytes + if first_done { of } else { 0 }, of * 2);
    // By the speed since it was first seen.
    let (since, before) = *begun.get_or_insert((Instant::now(), bytes));
    let (took, copied) = (since.elapsed().as_secs(), bytes.saturating_sub(before));
    Some(Progress {
        bytes,
        of,
        eta: of.saturating_sub(bytes).saturating_mul(took).checked_div(copied),
    })
}

fn labels(site: &Site) -> MoveLabels {
    MoveLabels {
        namespace: site.namespace.clone(),
        cluster: site.cluster.clone(),
        from: site.key.from.clone(),
        to: site.key.to.clone(),
    }
}

fn forget(shared: &Shared, site: &Site) {
    shared.ctx.metrics.moves.forget(&labels(site));
    shared.backoff.succeeded(site);
}

/// Transactions that the passive server of each pair lacks of its active one.
fn lag_of_passives(o: &Observed) -> [u64; 2] {
    o.ends.each_ref().map(|p| {
        let (Some(active), Some(passive)) = (p.active_server(), p.passive_server()) else {
            return 0;
        };
        active.executed.minus(&passive.executed).count()
    })
}

/// Transactions that the copies lack: of the ends that have some, the one that lacks most.
fn lag(o: &Observed) -> Option<u64> {
    let m = o.mv()?;
    let of = |end: End| {
        if o.copies(m, end).is_empty() || m.seeded.is_empty() {
            return None;
        }
        let executed = |at: Place| o.server(at).map(|s| &s.executed);
        let (source, target) = (executed(o.active(end.other()))?, executed(o.active(end))?);
        Some(source.minus(target).count())
    };
    End::BOTH.into_iter().filter_map(of).max()
}

/// What is remembered of the steps. Whether a failure is an ordinary one, which the next pass goes by.
fn remember(
    local: &mut Local,
    decision: &Decision,
    done: &Done,
    error: Option<&Error>,
    metrics: &crate::metrics::moves::Moves,
) -> bool {
    let now = Timestamp::now();
    let memory = &mut local.memory;
    memory.reason = Some(decision.overall.reason().to_owned());
    if error.is_none()
        && decision
            .actions
            .iter()
            .any(|a| matches!(a, Action::Verify { .. }))
    {
        local.differed = None;
    }
    if let Some(Error::Held { shards, .. }) = error
        && matches!(
            decision.state,
            State::CuttingOver { .. } | State::FencingAhead { .. }
        )
    {
        memory.behind = false;
        if done.begun {
            metrics.batch("held");
        }
        for shard in shards.shards() {
            let tries = memory.blocked.entry(shard).or_default();
            *tries = tries.again(now);
        }
        return true;
    }
    let State::CuttingOver { batch, .. } = &decision.state else {
        return false;
    };
    if done.cut_over {
        metrics.batch("cut_over");
        memory.undone = Tries::default();
        (memory.waits, memory.behind) = (memory.waits.saturating_sub(PATIENT), false);
        memory.blocked.retain(|shard, _| !batch.contains(*shard));
        if let Some(blocked) = done.blocked {
            let shards = batch.len();
            metrics.blocked(shards, blocked);
            memory.cost = Some(Cost {
                shards,
                blocked: SignedDuration::try_from(blocked).unwrap_or(SignedDuration::MAX),
            });
            if local.blocks.len() < BLOCKS {
                local.blocks.extend(std::iter::repeat_n(blocked, shards));
            }
        }
        // What follows the point of no return is made good at once.
        return error.is_some();
    }
    match error {
        None => false,
        // Nobody has noticed anything yet.
        Some(Error::Behind(_)) if !done.begun => {
            (memory.waits, memory.behind) = (memory.waits.saturating_add(1), true);
            true
        }
        Some(_) if !done.begun => false,
        Some(error) => {
            let outcome = error.label();
            let known = ["late", "behind"].contains(&outcome);
            metrics.batch(if known { outcome } else { "failed" });
            memory.undone = memory.undone.again(now);
            memory.behind = false;
            // One that blocked its shards for so long is made smaller.
            memory.cost = Some(Cost {
                shards: batch.len(),
                blocked: SignedDuration::MAX,
            });
            true
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "all that a pass has come to know")]
async fn tell(
    shared: &Shared,
    site: &Site,
    local: &mut Local,
    found: &Found,
    observed: &Observed,
    decision: &Decision,
    done: &Done,
    acted: bool,
) {
    let ctx = &shared.ctx;
    let progress = local
        .works
        .progress()
        .or_else(|| cloned(observed, &mut local.cloning));
    if progress.is_none() {
        local.cloning = None;
    }
    if let Some(p) = progress {
        let more = p.bytes.saturating_sub(local.copied);
        ctx.metrics.moves.copied_bytes.inc_by(more);
        local.copied = p.bytes;
    } else {
        local.copied = 0;
    }
    if acted {
        report::tell(&ctx.recorder, &found.ranges, &decision.notes).await;
    }
    // The record as it is after the steps.
    let written = done
        .cluster
        .as_ref()
        .and_then(|c| c.status.as_ref()?.placement.as_ref());
    let record = written.unwrap_or(&observed.record);
    let Some(m) = moves::find(record, &site.key) else {
        return;
    };
    let lag = lag(observed);
    if let Some(mark) = Mark::of(observed, &decision.state, &decision.overall, lag) {
        let seen = MoveSeen {
            lag,
            stalled: matches!(decision.overall, Overall::Stalled { .. }),
            waiting: progress::waiting(observed),
            since: local.progress.since(mark, Timestamp::now()).as_second(),
        };
        ctx.metrics.moves.seen(&labels(site), seen);
    }
    let told = report::Told {
        record,
        mv: m,
        overall: &decision.overall,
        progress,
        lag,
        blocks: &local.blocks,
    };
    let at_leisure = local.wrote.is_none_or(|at| at.elapsed() > NUMBERS);
    if at_leisure {
        local.wrote = Some(Instant::now());
    }
    report::write(&ctx.client, &found.ranges, &told, at_leisure).await;
}
