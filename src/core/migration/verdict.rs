//! What is said of a move: its condition, and its events.

use super::{
    batch,
    observed::{End, Observed, SeedOutcome, VerifyOutcome},
    reasons,
    state::State,
};
use crate::{
    api::conditions::Overall,
    core::{note::Note, placement::moves},
};

/// The move as a whole.
pub fn overall(o: &Observed, state: &State) -> Overall {
    let working = |reason, message: String| Overall::Working { reason, message };
    let stalled = |reason, message: String| Overall::Stalled { reason, message };
    let (from, to) = (&o.key.from, &o.key.to);
    match state {
        State::Gone => Overall::Ready {
            reason: reasons::NOT_MOVING,
            message: "no move is on record".into(),
        },
        State::WorkLeft => working(
            reasons::CLEANING_UP,
            "work in the background that nobody needs is ended".into(),
        ),
        State::BatchLeft { .. } => working(
            reasons::UNDOING,
            "a batch that did not get through is undone".into(),
        ),
        State::FenceMissing(_) => working(
            reasons::FENCING,
            "databases are made READ ONLY where they are not served".into(),
        ),
        State::FenceLeft(_) | State::FenceAhead(_) => working(
            reasons::OPENING,
            "databases are opened where they are served".into(),
        ),
        State::OthersCopy(end) => working(
            reasons::CLEANING_UP,
            format!("waits until copies are made at {} for another move", o.name(*end)),
        ),
        State::ChannelLeft(_) | State::Dropping(_) | State::Over => working(
            reasons::CLEANING_UP,
            format!(
                "the channels between {from} and {to} are taken away, then the copies that are not served"
            ),
        ),
        State::NotWanted | State::Superseded(_) | State::RetentionOver => {
            working(reasons::CLEANING_UP, format!("the move from {from} to {to} ends"))
        }
        State::Unseen(at) => working(
            reasons::WAITING_FOR_SERVERS,
            format!(
                "nothing is dropped before all servers answer: {}",
                at.iter().map(|at| o.pod(*at)).collect::<Vec<_>>().join(", ")
            ),
        ),
        State::PairMissing(end) => stalled(
            reasons::PAIR_NOT_FOUND,
            format!(
                "shards are placed at {}, which is not there: make it again, its volumes have them",
                o.name(*end)
            ),
        ),
        State::Undecided(shards) => working(
            reasons::UNDECIDED,
            format!(
                "the ranges of shards {shards} are not accepted or are being deleted: they stay where they are"
            ),
        ),
        State::Seeded { .. } | State::AllSeeded | State::SeedDue { .. } | State::Seeding(_) => {
            working(reasons::SEEDING, progress(o))
        }
        State::Cloned { .. } | State::Cloning => working(reasons::SEEDING, cloned(o)),
        State::Outgrown => working(
            reasons::CLEANING_UP,
            format!("a shard came into being after {from} was cloned over {to}: the move is begun anew"),
        ),
        State::NotCloneable(why) => working(
            reasons::SEEDING,
            format!("{from} can't be cloned over {to}, databases are copied one by one: {why}"),
        ),
        State::CloneFailed(why) => working(
            reasons::SEEDING_FAILED,
            format!("cloning {from} over {to} is tried again: {why}"),
        ),
        State::SeedFailed(why) => working(reasons::SEEDING_FAILED, format!("tried again: {why}")),
        State::SeedRefused(why) => stalled(reasons::SEEDING_REFUSED, why.clone()),
        State::PairNotReady(end) | State::PairOpening(end) | State::SeedWaits(end) => working(
            reasons::PAIR_NOT_READY,
            format!("{} has to be ready, with two members", o.name(*end)),
        ),
        State::ChannelMisplaced(_)
        | State::ChannelAstray(_)
        | State::ChannelStopped(_)
        | State::NotCounted(_)
        | State::ChannelMissing(_)
        | State::ChannelConnecting(_) => working(
            reasons::CONNECTING,
            format!("the channels between {from} and {to} are set up"),
        ),
        State::SourceMissing(end) => working(
            reasons::PAIR_NOT_READY,
            format!(
                "the passive server of {} has to follow: copies are fed from it",
                o.name(*end)
            ),
        ),
        State::FilterLost(at) => working(
            reasons::CHANNEL_BROKEN,
            format!(
                "the channel on {} ran without its filter: the copies are compared again",
                o.pod(*at)
            ),
        ),
        State::LogsPurged(at) => working(
            reasons::LOGS_PURGED,
            format!(
                "the passive server of {} has purged what the copies on {} lack: they are dropped, and made anew where shards still have to move",
                o.name(at.end.other()),
                o.pod(*at)
            ),
        ),
        State::ChannelBroken {
            at,
            error: (n, text),
            long,
        } => {
            let message = format!("the channel on {} has stopped: {text} ({n})", o.pod(*at));
            if *long {
                stalled(
                    reasons::CHANNEL_BROKEN,
                    format!("{message}. Mend what it names{}", or_set_back(o)),
                )
            } else {
                working(reasons::CHANNEL_BROKEN, message)
            }
        }
        State::Equal { .. } | State::VerifyDue { .. } | State::Verifying(_) => {
            working(reasons::VERIFYING, compared(o))
        }
        State::Doubted { shards } => working(
            reasons::VERIFYING,
            format!("the copies of shards {shards} are not known to be equal any more"),
        ),
        State::RecheckDue { .. } | State::Rechecking(_) => working(
            reasons::VERIFYING,
            "what was changed since the copies were compared is compared".into(),
        ),
        State::NotVerified(why) | State::NotRechecked(why) => working(
            reasons::VERIFICATION_UNKNOWN,
            format!("the comparison came to no end and is tried again: {why}"),
        ),
        State::Different { shards, tables } => stalled(
            reasons::COPIES_DIFFER,
            format!(
                "shards {shards} differ in {}. Nothing was switched. Find out who wrote there; then annotate shardwright.dev/verify-again to compare once more{}",
                tables.join(", "),
                or_set_back(o)
            ),
        ),
        State::WaitingForApproval => working(
            reasons::WAITING_FOR_APPROVAL,
            "ready to be cut over: approve it with `shardwright cutover`".into(),
        ),
        State::WaitingForWindow => working(
            reasons::WAITING_FOR_WINDOW,
            "ready to be cut over when the window opens".into(),
        ),
        State::BackingOff(at) => working(
            reasons::BATCH_UNDONE,
            format!("a batch did not get through in time and was undone; the next one begins at {at:.0}"),
        ),
        State::Ending { shard, .. } => working(
            reasons::OPEN_TRANSACTIONS,
            format!("a transaction on shard {shard} is ended"),
        ),
        State::Blocked { shards, until } => working(
            reasons::OPEN_TRANSACTIONS,
            format!("shards {shards} have open or prepared transactions, and are tried again at {until:.0}"),
        ),
        State::CatchingUp { lag } => working(reasons::CATCHING_UP, format!("{lag} transactions behind")),
        State::CuttingOver { to, .. } if o.memory.behind => {
            let (source, target) = (o.active(to.other()), o.active(*to));
            working(
                reasons::CATCHING_UP,
                format!(
                    "no batch is begun before {} has within {} ms what {} has",
                    o.pod(target),
                    batch::close(o.memory.waits).as_millis(),
                    o.pod(source)
                ),
            )
        }
        State::FencingAhead { .. } | State::CuttingOver { .. } | State::Arrived | State::Resuming => {
            working(reasons::CUTTING_OVER, left(o))
        }
        State::Retaining => Overall::Ready {
            reason: reasons::RETAINING,
            message: o
                .mv()
                .and_then(|m| m.retain_until.as_ref())
                .map_or_else(String::new, |t| {
                    format!("pairRef may be set back until {:.0}", t.0)
                }),
        },
    }
}

/// What else a person may do while nothing has moved.
fn or_set_back(o: &Observed) -> &'static str {
    let moved = o.mv().is_some_and(|m| !moves::moved(&o.record, m).is_empty());
    if moved {
        "; shards that were moved can't go back before"
    } else {
        "; or set pairRef back, and the copies are dropped"
    }
}

fn progress(o: &Observed) -> String {
    let running = o.seeding.iter().flatten().find_map(|r| match r.outcome {
        SeedOutcome::Running { bytes, of } => Some((bytes, of)),
        _ => None,
    });
    match running {
        Some((bytes, of)) => format!("{bytes} of {of} bytes are copied"),
        None => "copies are made".into(),
    }
}

fn cloned(o: &Observed) -> String {
    let what = format!(
        "{} is cloned over {}, one server after the other",
        o.name(End::From),
        o.name(End::To)
    );
    match o.pair(End::To).clone.running {
        Some((bytes, of)) => format!("{what}: {bytes} of {of} bytes"),
        None => what,
    }
}

fn compared(o: &Observed) -> String {
    let running = o.verifying.iter().flatten().find_map(|r| match r.outcome {
        VerifyOutcome::Running { tables, of } => Some((tables, of)),
        _ => None,
    });
    match running {
        Some((tables, of)) => format!("{tables} of {of} tables are compared"),
        None => "copies are compared".into(),
    }
}

fn left(o: &Observed) -> String {
    let left: usize = o.mv().map_or(0, |m| {
        End::BOTH.iter().map(|end| o.bound_for(m, *end).len()).sum()
    });
    format!("{left} shards are left to be cut over")
}

/// What people are told, once the actions are done.
pub fn notes(o: &Observed, state: &State, overall: &Overall) -> Vec<Note> {
    let (from, to) = (&o.key.from, &o.key.to);
    let note = match state {
        State::SeedDue { at, shards } => Note::normal(
            reasons::SEEDING_STARTED,
            format!("shards {shards} are copied to {}", o.name(*at)),
        ),
        State::NotCloneable(_) => Note::warning(reasons::SEEDING_FAILED, overall.message()),
        State::AllSeeded => Note::normal(
            reasons::SEEDED,
            format!("all copies between {from} and {to} are complete"),
        ),
        State::Equal { shards, .. } => Note::normal(
            reasons::VERIFIED,
            format!("shards {shards} are equal on both sides"),
        ),
        State::BatchLeft { .. } => Note::warning(reasons::BATCH_UNDONE, overall.message()),
        State::FilterLost(_) => Note::warning(reasons::UNVERIFIED, overall.message()),
        State::Arrived => Note::normal(
            reasons::ARRIVED,
            format!("every shard of {from} and {to} is where it is wished"),
        ),
        State::Ending {
            shard,
            connection,
            at,
        } => Note::warning(
            reasons::TRANSACTION_ENDED,
            format!(
                "connection {connection} on {} kept shard {shard} from being cut over for too long, and was ended",
                o.pod(*at)
            ),
        ),
        State::NotWanted | State::Superseded(_) | State::RetentionOver => {
            let early = if let State::Superseded(early) = state {
                format!(" ({})", early.reason())
            } else {
                String::new()
            };
            Note::normal(
                reasons::WAY_BACK_ENDED,
                format!("copies of {from} and {to} at each other are no longer kept{early}"),
            )
        }
        State::LogsPurged(at) => Note::warning(
            reasons::LOGS_PURGED,
            format!(
                "the passive server of {} has purged what the copies on {} lack: they are dropped",
                o.name(at.end.other()),
                o.pod(*at)
            ),
        ),
        State::Over => Note::normal(
            reasons::MOVE_ENDED,
            format!("nothing is left between {from} and {to}"),
        ),
        _ => {
            let told_before = o.memory.reason.as_deref() == Some(overall.reason());
            let alarming = matches!(overall, Overall::Stalled { .. })
                || matches!(
                    state,
                    State::ChannelBroken { .. }
                        | State::SeedFailed(_)
                        | State::CloneFailed(_)
                        | State::NotVerified(_)
                        | State::NotRechecked(_)
                );
            return if alarming && !told_before {
                vec![Note::warning(overall.reason(), overall.message())]
            } else {
                vec![]
            };
        }
    };
    vec![note]
}
