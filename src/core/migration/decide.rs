//! What is done about a move: pure and total.

use super::{
    action::{Action, Change},
    batch,
    observed::{End, Observed, Place},
    state::{self, State},
    verdict,
};
use crate::{
    api::{Move, conditions::Overall},
    core::{note::Note, placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// What comes of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The row of the table.
    pub state: State,
    /// What is done, in this order.
    pub actions: Vec<Action>,
    /// The move as a whole.
    pub overall: Overall,
    /// What people are told, in events, once the actions are done.
    pub notes: Vec<Note>,
    /// When to look again.
    pub requeue: Duration,
    /// The steps before the point of no return have to be done within this: else the pass ends, and the next one undoes the batch.
    pub deadline: Option<SignedDuration>,
}

/// Copies that are dropped in one pass on each server: further ones wait for a second, so that the server has time for others.
pub const DROPS: usize = 4;
/// The longest wait for the target while a batch is fenced; a shorter deadline is kept.
pub const REACH: SignedDuration = SignedDuration::from_secs(1);

/// After something was done.
const AT_ONCE: Duration = Duration::from_millis(10);
/// While something is waited for.
const WORKING: Duration = Duration::from_secs(1);
/// While a person is waited for, or a channel that is broken.
const STALLED: Duration = Duration::from_secs(5);
/// While the way back is kept open.
const RETAINING: Duration = Duration::from_secs(10);

/// Decides what is done about a move.
pub fn decide(o: &Observed, now: Timestamp) -> Decision {
    let state = state::state(o, now);
    let actions = match o.mv() {
        Some(m) => steps(o, m, &state, now),
        None if state == State::WorkLeft => vec![Action::StopWork],
        None => vec![],
    };
    let overall = verdict::overall(o, &state);
    let requeue = match (&overall, &state) {
        (Overall::Stalled { .. }, _) | (_, State::ChannelBroken { .. }) => STALLED,
        (_, State::Dropping(_)) => WORKING,
        (_, State::BackingOff(at) | State::Blocked { until: at, .. }) => {
            Duration::try_from(at.duration_since(now)).map_or(AT_ONCE, |d| d.clamp(AT_ONCE, STALLED))
        }
        _ if !actions.is_empty() => AT_ONCE,
        (Overall::Ready { .. }, _) => RETAINING,
        _ => WORKING,
    };
    Decision {
        notes: verdict::notes(o, &state, &overall),
        deadline: matches!(state, State::CuttingOver { .. }).then_some(o.policy.deadline),
        actions,
        overall,
        requeue,
        state,
    }
}

/// The third column of the table.
fn steps(o: &Observed, m: &Move, state: &State, now: Timestamp) -> Vec<Action> {
    let filter = || moves::set(&m.shards);
    let record = |change| vec![Action::Record(change)];
    match state {
        State::WorkLeft => vec![Action::StopWork],
        State::BatchLeft { at } => undo(o, m, *at),
        State::FenceMissing(on) => each(on, |at, shards| Action::Fence { at, shards }),
        State::FenceLeft(on) | State::FenceAhead(on) => each(on, |at, shards| Action::Unfence { at, shards }),
        State::ChannelLeft(at) => at.iter().copied().map(Action::RemoveChannel).collect(),
        State::Dropping(on) => {
            let drops = each(on, |at, shards| Action::Drop {
                at,
                shards: shards.shards().take(DROPS).collect(),
            });
            std::iter::once(unlinked(o)).chain(drops).collect()
        }
        // Nor has anybody else anything to do with the move.
        State::Over => vec![unlinked(o), Action::Record(Change::EndMove)],
        State::NotWanted
        | State::Superseded(_)
        | State::RetentionOver
        | State::Outgrown
        | State::LogsPurged(_) => record(Change::CleanUp),
        State::Seeded { shards, gtid, .. } | State::Cloned { shards, gtid } => record(Change::Seeded {
            shards: shards.clone(),
            gtid: gtid.clone(),
        }),
        // Whoever clones loses the server's lock.
        State::NotCloneable(_) => vec![
            Action::Unlinked(vec![Place::new(End::To, 0), Place::new(End::To, 1)]),
            Action::Record(Change::CopyRather),
        ],
        State::AllSeeded => record(Change::Follow),
        State::SeedDue { at, shards } => vec![Action::Seed {
            into: *at,
            shards: shards.clone(),
        }],
        State::Arrived => record(Change::Retain {
            until: now.checked_add(o.policy.retain).unwrap_or(Timestamp::MAX),
        }),
        State::Resuming => record(Change::Resume),
        State::ChannelMisplaced(at) => vec![Action::RemoveChannel(*at)],
        State::ChannelAstray(at) => vec![Action::StopChannel(*at)],
        // On record first: one that is stopped does not show what it has left out.
        State::FilterLost(at) => unverify(o, m, at.end)
            .into_iter()
            .chain([Action::StopChannel(*at)])
            .collect(),
        State::ChannelBroken { at, .. } => unverify(o, m, at.end)
            .into_iter()
            .chain([Action::StartChannel {
                at: *at,
                filter: filter(),
            }])
            .collect(),
        State::ChannelStopped(at) => vec![Action::StartChannel {
            at: *at,
            filter: filter(),
        }],
        State::NotCounted(into) => count(o, *into),
        State::ChannelMissing(into) => vec![Action::Point {
            at: o.active(*into),
            source: o.passive(into.other()),
            filter: filter(),
        }],
        State::Doubted { shards } => record(Change::Unverified(shards.clone())),
        State::Equal { shards, .. } => record(Change::Verified(shards.clone())),
        State::VerifyDue { at, shards } => vec![Action::Verify {
            at: *at,
            shards: shards.clone(),
        }],
        State::RecheckDue { at, shards, since } => vec![Action::Recheck {
            at: *at,
            shards: shards.clone(),
            since: since.clone(),
        }],
        State::Ending { at, connection, .. } => vec![Action::EndTransaction {
            at: *at,
            connection: *connection,
        }],
        State::FencingAhead { at, shards } => vec![Action::Fence {
            at: *at,
            shards: shards.clone(),
        }],
        State::CuttingOver { to, batch } => cut_over(o, m, *to, batch),
        State::Gone
        | State::Unseen(_)
        | State::PairMissing(_)
        | State::OthersCopy(_)
        | State::Undecided(_)
        | State::SeedRefused(_)
        | State::Seeding(_)
        | State::Cloning
        | State::CloneFailed(_)
        | State::SeedFailed(_)
        | State::PairNotReady(_)
        | State::PairOpening(_)
        | State::SeedWaits(_)
        | State::SourceMissing(_)
        | State::ChannelConnecting(_)
        | State::Retaining
        | State::Different { .. }
        | State::Verifying(_)
        | State::NotVerified(_)
        | State::WaitingForApproval
        | State::WaitingForWindow
        | State::BackingOff(_)
        | State::Blocked { .. }
        | State::CatchingUp { .. }
        | State::Rechecking(_)
        | State::NotRechecked(_) => vec![],
    }
}

fn each(on: &[state::On], step: impl Fn(Place, SpanSet) -> Action) -> Vec<Action> {
    on.iter().map(|(at, shards)| step(*at, shards.clone())).collect()
}

/// On all servers that there are.
fn unlinked(o: &Observed) -> Action {
    Action::Unlinked(o.there())
}

/// Only when this is on record is anything opened again.
fn undo(o: &Observed, m: &Move, at: End) -> Vec<Action> {
    let mut steps = vec![Action::Record(Change::UndoBatch {
        number: m.batch_number,
    })];
    let active = o.active(at);
    if o.server(active).is_some() {
        steps.push(Action::Unfence {
            at: active,
            shards: moves::set(&m.batch),
        });
    }
    steps
}

fn count(o: &Observed, into: End) -> Vec<Action> {
    let Some(source) = o.server(o.passive(into.other())) else {
        return vec![];
    };
    let gtid = source.executed.clone();
    vec![
        Action::Count {
            end: into,
            gtid: gtid.clone(),
        },
        Action::Record(Change::Counted { end: into, gtid }),
    ]
}

/// Copies at this end are not known to be equal any more, nor is what was found of them just now.
fn unverify(o: &Observed, m: &Move, end: End) -> Vec<Action> {
    let known = o.copies(m, end).intersect(&moves::set(&m.verified));
    let mut steps = vec![];
    if o.verifying.iter().any(Option::is_some) {
        steps.push(Action::StopWork);
    }
    if !known.is_empty() {
        steps.push(Action::Record(Change::Unverified(known)));
    }
    steps
}

/// The order of R2. Whatever fails before `CutOver` is undone by the next pass; after it everything goes forward.
fn cut_over(o: &Observed, m: &Move, to: End, batch: &SpanSet) -> Vec<Action> {
    let (source, target) = (o.active(to.other()), o.active(to));
    let number = o.record.batches.saturating_add(1);
    vec![
        Action::Approach {
            server: target,
            of: source,
            batch: batch.clone(),
            within: batch::close(o.memory.waits),
        },
        Action::Record(Change::BeginBatch(batch.clone())),
        Action::Fence {
            at: source,
            shards: batch.clone(),
        },
        Action::Reach {
            server: target,
            of: source,
            filter: moves::set(&m.shards),
            within: o.policy.deadline.min(REACH),
        },
        Action::Confirm(o.pairs()),
        Action::Record(Change::CutOver { number }),
        Action::Unfence {
            at: target,
            shards: batch.clone(),
        },
    ]
}
