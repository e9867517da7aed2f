//! The rows of the stages in which a move goes on: copies are made, follow, are compared, and shards are cut over.

use super::{
    batch::{self, Next},
    observed::{
        ChannelSeen, End, Observed, PairSeen, Place, SeedOutcome, ServerSeen, VerifyOutcome, VerifyRun,
    },
    state::{GRACE, RECENT, RETRY, RETRY_LONGEST, State},
};
use crate::{
    api::{Move, MoveStage, Seed},
    core::{gtid::GtidSet, pair::observed::Tries, placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::Timestamp;

/// In stage Seeding, when nothing ends it.
pub(super) fn seeding(o: &Observed, m: &Move, now: Timestamp) -> State {
    let unseeded = moves::set(&m.shards).minus(&moves::set(&m.seeded));
    if m.seed == Seed::Physical && !unseeded.is_empty() {
        return cloning(o, m, &unseeded);
    }
    for at in End::BOTH {
        let Some(run) = o.seeding.get(at as usize).and_then(Option::as_ref) else {
            continue;
        };
        let due = o.copies(m, at).intersect(&unseeded);
        match &run.outcome {
            SeedOutcome::Done { gtid } if complete(o, at, &run.shards) && run.shards.overlaps(&due) => {
                return State::Seeded {
                    at,
                    shards: run.shards.intersect(&due),
                    gtid: gtid.clone(),
                };
            }
            SeedOutcome::Running { .. } => return State::Seeding(at),
            SeedOutcome::Refused { why } => return State::SeedRefused(why.clone()),
            SeedOutcome::Failed { error, tries } if waits(*tries, now) => {
                return State::SeedFailed(error.clone());
            }
            _ => {}
        }
    }
    if unseeded.is_empty() {
        return State::AllSeeded;
    }
    let at = if o.copies(m, End::To).overlaps(&unseeded) {
        End::To
    } else {
        End::From
    };
    if let Some(end) = not_ready(o) {
        return State::SeedWaits(end);
    }
    State::SeedDue {
        at,
        shards: o.copies(m, at).intersect(&unseeded),
    }
}

/// Errors of a CLONE that the next one would end with as well: another version, platform, character set or configuration, plugins that are missing,
/// encryption, no space.
const NOT_CLONEABLE: [u32; 8] = [3864, 3865, 3866, 3867, 3868, 3870, 3872, 3873];

/// The target pair's own controller clones: the move waits until both its servers are members, and have everything.
fn cloning(o: &Observed, m: &Move, unseeded: &SpanSet) -> State {
    let to = o.pair(End::To);
    let servers: Vec<&ServerSeen> = to.servers.iter().flatten().collect();
    let source = o.server(o.passive(End::From));
    if let ([a, b], Some(source), true) = (servers.as_slice(), source, to.whole()) {
        if complete(o, End::To, &moves::set(&m.shards)) {
            let common = |x: &GtidSet, y: &GtidSet| x.minus(&x.minus(y));
            return State::Cloned {
                shards: unseeded.clone(),
                gtid: common(&source.executed, &common(&a.executed, &b.executed)),
            };
        }
        // The clone would have to be newer, or the channel older.
        if !a.has.is_empty() && !b.has.is_empty() {
            return State::Outgrown;
        }
    }
    let empty = servers.len() == 2 && servers.iter().all(|s| s.has.is_empty());
    let clone = &to.clone;
    match (&clone.failed, clone.hindered) {
        (_, Some(why)) if empty => State::NotCloneable(why.to_owned()),
        (Some((number, text)), _) if empty && !to.two_members && NOT_CLONEABLE.contains(number) => {
            State::NotCloneable(format!("{text} ({number})"))
        }
        (Some((number, text)), _) if clone.running.is_none() => {
            State::CloneFailed(format!("{text} ({number})"))
        }
        _ => State::Cloning,
    }
}

/// Both servers of this end have databases of all of them.
fn complete(o: &Observed, end: End, shards: &SpanSet) -> bool {
    let has = |s: &Option<ServerSeen>| s.as_ref().is_some_and(|s| shards.is_subset(&s.has));
    o.pair(end).servers.iter().all(has)
}

fn waits(tries: Tries, now: Timestamp) -> bool {
    batch::due(tries, RETRY, RETRY_LONGEST).is_some_and(|at| at > now)
}

fn not_ready(o: &Observed) -> Option<End> {
    End::BOTH.into_iter().find(|end| !o.pair(*end).whole())
}

/// In the stages Following and Retaining, when nothing ends them.
pub(super) fn following(o: &Observed, m: &Move, now: Timestamp) -> State {
    let channel = |into| channel(o, m, into, now);
    if let Some(state) = channel(End::To).or_else(|| channel(End::From)) {
        return state;
    }
    if m.stage == MoveStage::Retaining {
        return State::Retaining;
    }
    if o.at_rest(m) {
        return State::Undecided(o.course.undecided.clone());
    }
    if let Some(end) = not_ready(o) {
        return State::PairNotReady(end);
    }
    verification(o, m, End::From, now)
        .or_else(|| verification(o, m, End::To, now))
        .unwrap_or_else(|| cutover(o, m, now))
}

/// The channel into this end: it runs on the active server, takes from the other pair's passive one, and lets through the shards of the move.
fn channel(o: &Observed, m: &Move, into: End, now: Timestamp) -> Option<State> {
    let (pair, source) = (o.pair(into), o.pair(into.other()));
    let passive = o.passive(into);
    if o.server(passive).is_some_and(|s| s.channel.is_some()) {
        return Some(State::ChannelMisplaced(passive));
    }
    let at = o.active(into);
    let server = pair.active_server()?;
    let right = |c: &ChannelSeen| c.leads_to == Some(source.passive());
    let fit = source.passive_server().is_some_and(|s| s.follows);
    let counted = Observed::counted(m, into);
    // What it lacks, that server has no longer: it was made anew from the active one, or its logs were purged.
    let purged = || {
        source
            .passive_server()
            .is_some_and(|s| !s.purged.is_subset_of(&server.executed))
    };
    match &server.channel {
        Some(c) if c.started && !right(c) => Some(State::ChannelAstray(at)),
        Some(c) if c.started && c.filter != Some(moves::set(&m.shards)) => Some(State::FilterLost(at)),
        Some(c) if right(c) && !c.runs && fit && purged() => Some(unable(o, m, into)),
        Some(c) if right(c) => match &c.error {
            Some(error) => Some(State::ChannelBroken {
                at,
                error: error.clone(),
                long: o.memory.broken_since[into as usize].is_some_and(|t| now.duration_since(t) > GRACE),
            }),
            None if !c.started => Some(State::ChannelStopped(at)),
            None => (!c.runs).then_some(State::ChannelConnecting(at)),
        },
        _ if !fit => Some(State::SourceMissing(into.other())),
        _ if counted.is_empty() && moves::moved(&o.record, m).is_empty() && !nothing_executed(source) => {
            Some(State::NotCounted(into))
        }
        _ if purged() => Some(unable(o, m, into)),
        _ => Some(State::ChannelMissing(into)),
    }
}

/// The other pair's passive server has purged what this end lacks. With copies here, they can't follow any more; without, nothing of it is needed.
fn unable(o: &Observed, m: &Move, into: End) -> State {
    if o.copies(m, into).is_empty() {
        State::NotCounted(into)
    } else {
        State::LogsPurged(o.active(into))
    }
}

fn nothing_executed(pair: &PairSeen) -> bool {
    pair.passive_server().is_none_or(|s| s.executed.is_empty())
}

/// Copies at this end that are bound for it, and nobody knows whether they are equal.
fn verification(o: &Observed, m: &Move, at: End, now: Timestamp) -> Option<State> {
    let run = o.compared(m, at);
    let bound = o.bound_for(m, at);
    let verified = moves::set(&m.verified);
    if let Some(run) = run.filter(|r| r.since.is_some()) {
        let doubted = match &run.outcome {
            VerifyOutcome::Different { shards, .. } => shards.clone(),
            VerifyOutcome::Untold { .. } => run.shards.clone(),
            _ => SpanSet::new(),
        };
        let shards = doubted.intersect(&bound).intersect(&verified);
        if !shards.is_empty() {
            return Some(State::Doubted { shards });
        }
    }
    let due = bound.minus(&verified);
    if due.is_empty() {
        return None;
    }
    // A short one does not prove that they are equal. That they are different it does.
    let proves = |r: &&VerifyRun| r.since.is_none() || matches!(r.outcome, VerifyOutcome::Different { .. });
    let run = run.filter(|r| r.shards.overlaps(&due)).filter(proves);
    Some(match run.map(|r| (&r.outcome, r.shards.intersect(&due))) {
        Some((VerifyOutcome::Running { .. }, _)) => State::Verifying(at),
        Some((VerifyOutcome::Equal, shards)) => State::Equal { at, shards },
        Some((VerifyOutcome::Different { shards, tables }, _)) if !o.policy.verify_again => {
            State::Different {
                shards: shards.clone(),
                tables: tables.clone(),
            }
        }
        Some((VerifyOutcome::Unknown { error, tries }, _)) if waits(*tries, now) => {
            State::NotVerified(error.clone())
        }
        _ => State::VerifyDue { at, shards: due },
    })
}

/// The pre-flight of a batch, and the batch.
fn cutover(o: &Observed, m: &Move, now: Timestamp) -> State {
    let Some(to) = End::BOTH
        .into_iter()
        .find(|end| !batch::candidates(o, m, *end).is_empty())
    else {
        return if o.policy.manual && !o.policy.approved {
            State::WaitingForApproval
        } else {
            State::WaitingForWindow
        };
    };
    if let Some(at) =
        batch::due(o.memory.undone, batch::UNDONE_RETRY, batch::UNDONE_RETRY_LONGEST).filter(|t| *t > now)
    {
        return State::BackingOff(at);
    }
    let (source, target) = (o.active(to.other()), o.active(to));
    let held = [source, o.passive(to.other()), target];
    let shards = batch::candidates(o, m, to);
    if let Some(state) = held
        .into_iter()
        .find_map(|at| long_transaction(o, at, &shards, now))
    {
        return state;
    }
    let batch = match batch::next(o, m, to, now) {
        Next::Batch(batch) => batch,
        Next::Blocked(until) => {
            return State::Blocked {
                shards: batch::candidates(o, m, to),
                until,
            };
        }
    };
    let executed = |at| o.server(at).map_or_else(GtidSet::new, |s| s.executed.clone());
    let lag = executed(source).minus(&executed(target)).count();
    if lag > batch::FAR {
        return State::CatchingUp { lag };
    }
    if let Some(state) = recheck(o, m, to, now) {
        return state;
    }
    let at = o.passive(to.other());
    let shut = o.server(at).map_or_else(SpanSet::new, |s| s.shut.clone());
    if !batch.is_subset(&shut) {
        let blocked = o.memory.blocked.keys().copied().collect();
        let window = batch::window(o, m, to).minus(&blocked);
        let shards = batch.union(&window).minus(&shut);
        return State::FencingAhead { at, shards };
    }
    State::CuttingOver { to, batch }
}

/// What was changed in the shards that may go to this end now was not compared a moment ago.
fn recheck(o: &Observed, m: &Move, to: End, now: Timestamp) -> Option<State> {
    let shards = batch::candidates(o, m, to);
    let run = o.compared(m, to);
    let of_all = |r: &&VerifyRun| shards.is_subset(&r.shards);
    if let Some(run) = run {
        match &run.outcome {
            VerifyOutcome::Running { .. } if run.since.is_some() => return Some(State::Rechecking(to)),
            VerifyOutcome::Equal if of_all(&run) && now.duration_since(run.when) < RECENT => return None,
            VerifyOutcome::Unknown { error, tries } if run.since.is_some() && waits(*tries, now) => {
                return Some(State::NotRechecked(error.clone()));
            }
            _ => {}
        }
    }
    // Where they were equal on one side they were on the other; the record has where the copies were made, before any of them was compared.
    let known = [run, o.compared(m, to.other())]
        .into_iter()
        .flatten()
        .filter(of_all);
    let since = known.map(|r| match (&r.outcome, &r.since) {
        (VerifyOutcome::Equal, _) => Some(r.position.clone()),
        (_, since) => since.clone(),
    });
    let since = since.flatten().next().unwrap_or_else(|| {
        let [from, to] = End::BOTH.map(|end| Observed::counted(m, end));
        from.union(&to)
    });
    Some(State::RecheckDue {
        at: to,
        shards,
        since,
    })
}

/// A transaction that kept a shard from being fenced, and is older than the specification allows.
fn long_transaction(o: &Observed, at: Place, shards: &SpanSet, now: Timestamp) -> Option<State> {
    let longest = o.policy.end_transactions_after?;
    o.server(at)?.blockers.iter().find_map(|b| {
        let connection = b.connection?;
        let old = now.duration_since(b.since) > longest;
        let in_the_way = shards.contains(b.shard) && o.memory.blocked.contains_key(&b.shard);
        (old && in_the_way).then_some(State::Ending {
            at,
            connection,
            shard: b.shard,
        })
    })
}
