//! The rows of the stages in which a move goes on: copies are made, follow, are compared, and shards are cut over.

use super::{
    batch::{self, Next},
    observed::{ChannelSeen, End, Observed, PairSeen, Place, SeedOutcome, ServerSeen, VerifyOutcome},
    state::{GRACE, RETRY, RETRY_LONGEST, State},
};
use crate::{
    api::{Move, MoveStage},
    core::{gtid::GtidSet, pair::observed::Tries, placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::Timestamp;

/// In stage Seeding, when nothing ends it.
pub(super) fn seeding(o: &Observed, m: &Move, now: Timestamp) -> State {
    let unseeded = moves::set(&m.shards).minus(&moves::set(&m.seeded));
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
    let counted = if into == End::To {
        &m.seed_gtid
    } else {
        &m.opposite_gtid
    };
    match &server.channel {
        Some(c) if c.started && !right(c) => Some(State::ChannelAstray(at)),
        Some(c) if c.started && c.filter != Some(moves::set(&m.shards)) => Some(State::FilterLost(at)),
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
        _ => Some(State::ChannelMissing(into)),
    }
}

fn nothing_executed(pair: &PairSeen) -> bool {
    pair.passive_server().is_none_or(|s| s.executed.is_empty())
}

/// Copies at this end that are bound for it, and nobody knows whether they are equal.
fn verification(o: &Observed, m: &Move, at: End, now: Timestamp) -> Option<State> {
    let due = o.bound_for(m, at).minus(&moves::set(&m.verified));
    if due.is_empty() {
        return None;
    }
    let since = if at == End::To {
        &m.seed_gtid
    } else {
        &m.opposite_gtid
    };
    let since: GtidSet = since.parse().unwrap_or_default();
    let run = o.verifying.get(at as usize).and_then(Option::as_ref);
    // One that was read before these copies were made is of other ones.
    let run = run.filter(|r| r.shards.overlaps(&due) && since.is_subset_of(&r.position));
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
    if let Some(state) = long_transaction(o, source, &batch::candidates(o, m, to), now) {
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
    let at = o.passive(to.other());
    let shut = o.server(at).map_or_else(SpanSet::new, |s| s.shut.clone());
    if !batch.is_subset(&shut) {
        let shards = batch.union(&batch::window(o, m, to)).minus(&shut);
        return State::FencingAhead { at, shards };
    }
    State::CuttingOver { to, batch }
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
