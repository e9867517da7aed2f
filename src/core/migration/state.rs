//! The state of a move: which row of the table in `docs/split.md` holds. The order of the questions is that of the table.

use super::{
    batch, fences,
    observed::{End, Observed, PairSeen, Place, SeedOutcome},
    stages,
    wish::Early,
};
use crate::{
    api::{Move, MoveStage, Seed},
    core::{gtid::GtidSet, placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Between two tries to seed, to compare, or to start a channel that stopped with an error, after the first one; twice as long after each
/// further one.
pub const RETRY: SignedDuration = SignedDuration::from_secs(5);
/// The longest time between two of them.
pub const RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(300);
/// Shards are cut over when what was changed in them was compared within this time.
pub const RECENT: SignedDuration = SignedDuration::from_secs(60);
/// A channel that has stopped with an error for longer than this needs a person.
pub const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Shards on a server.
pub type On = (Place, SpanSet);

/// Which row of the table holds: the first one that does.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The move is not on record.
    Gone,
    /// This operator copies for what is seeded, or compares for what is over.
    WorkLeft,
    /// A batch is on record from an earlier pass.
    BatchLeft {
        /// The end that it is placed at.
        at: End,
    },
    /// Servers have databases open that the record places elsewhere.
    FenceMissing(Vec<On>),
    /// Active servers have databases READ ONLY that the record places there.
    FenceLeft(Vec<On>),
    /// Passive ones do, and no batch is about to need it, nor are they few that have just arrived.
    FenceAhead(Vec<On>),
    /// Copies are made there for another move.
    OthersCopy(End),
    /// A channel of the move is left.
    ChannelLeft(Vec<Place>),
    /// Nobody knows what these servers have.
    Unseen(Vec<Place>),
    /// Copies that nobody needs any more.
    Dropping(Vec<On>),
    /// A pair may yet be opened by what was on record before.
    PairOpening(End),
    /// Nothing is left of it.
    Over,
    /// Shards are placed at a pair that is not there.
    PairMissing(End),
    /// Every shard is where it was, and none is wished over.
    NotWanted,
    /// Nothing goes anywhere, and the way back is given up.
    Superseded(Early),
    /// Nothing goes anywhere, and nobody knows where some are wished.
    Undecided(SpanSet),
    /// The whole pair was cloned.
    Cloned {
        /// These shards among it.
        shards: SpanSet,
        /// What both servers have executed.
        gtid: GtidSet,
    },
    /// It was, before a shard of the move came into being.
    Outgrown,
    /// It can't be.
    NotCloneable(String),
    /// A try to clone it failed a moment ago.
    CloneFailed(String),
    /// The controller of the pair clones it.
    Cloning,
    /// Copies were completed.
    Seeded {
        /// The end that they are at.
        at: End,
        /// Of these shards.
        shards: SpanSet,
        /// What that end counts as executed.
        gtid: GtidSet,
    },
    /// Every shard has a copy.
    AllSeeded,
    /// They can't be made.
    SeedRefused(String),
    /// They are being made.
    Seeding(End),
    /// A try to make them failed a moment ago.
    SeedFailed(String),
    /// Copies are to be made, and a pair is not whole.
    SeedWaits(End),
    /// Shards are to be compared or cut over, and a pair is not whole.
    PairNotReady(End),
    /// They are to be made.
    SeedDue {
        /// At this end.
        at: End,
        /// Of these shards.
        shards: SpanSet,
    },
    /// Every shard is where it is wished.
    Arrived,
    /// Shards change sides again, and the stage is Retaining.
    Resuming,
    /// The old copies were kept for long enough.
    RetentionOver,
    /// The channel is on a passive server.
    ChannelMisplaced(Place),
    /// The channel takes from a server that is not its pair's passive one.
    ChannelAstray(Place),
    /// The channel runs without its filter.
    FilterLost(Place),
    /// The channel has stopped with an error.
    ChannelBroken {
        /// Where.
        at: Place,
        /// Number and text.
        error: (u32, String),
        /// For longer than `GRACE`.
        long: bool,
    },
    /// What the copies lack can't be had any more from where they take it: by the server that takes.
    LogsPurged(Place),
    /// The channel is stopped without one.
    ChannelStopped(Place),
    /// The channel would have to be set up, and its source does not follow.
    SourceMissing(End),
    /// What the other pair has executed need not be taken from it.
    NotCounted(End),
    /// The channel is not there.
    ChannelMissing(End),
    /// The channel connects.
    ChannelConnecting(Place),
    /// All is kept as it is.
    Retaining,
    /// Copies that are on record as verified were found different by now, or only all rows can tell.
    Doubted {
        /// These.
        shards: SpanSet,
    },
    /// Copies were found equal.
    Equal {
        /// The end that they are at.
        at: End,
        /// Of these shards.
        shards: SpanSet,
    },
    /// Copies were found different.
    Different {
        /// Shards.
        shards: SpanSet,
        /// Tables.
        tables: Vec<String>,
    },
    /// They are being compared.
    Verifying(End),
    /// Nobody knows.
    NotVerified(String),
    /// They are to be compared.
    VerifyDue {
        /// The end that they are at.
        at: End,
        /// Of these shards.
        shards: SpanSet,
    },
    /// `cutover: Manual`.
    WaitingForApproval,
    /// The window is closed.
    WaitingForWindow,
    /// A batch was undone a moment ago.
    BackingOff(Timestamp),
    /// A transaction has been in the way for longer than is allowed.
    Ending {
        /// On this server.
        at: Place,
        /// Its connection.
        connection: u64,
        /// The shard.
        shard: i32,
    },
    /// What is left to be cut over has open transactions.
    Blocked {
        /// These shards.
        shards: SpanSet,
        /// The first is tried again then.
        until: Timestamp,
    },
    /// The target lacks much.
    CatchingUp {
        /// So many transactions.
        lag: u64,
    },
    /// What was changed in copies since they were equal is being compared.
    Rechecking(End),
    /// Nobody knows whether that is equal.
    NotRechecked(String),
    /// It is to be compared.
    RecheckDue {
        /// The end that they are at.
        at: End,
        /// Of these shards.
        shards: SpanSet,
        /// Where they were equal.
        since: GtidSet,
    },
    /// The next shards are open on the passive server that they leave.
    FencingAhead {
        /// It.
        at: Place,
        /// They.
        shards: SpanSet,
    },
    /// A batch is cut over.
    CuttingOver {
        /// To this end.
        to: End,
        /// Its shards.
        batch: SpanSet,
    },
}

/// Which row of the table holds.
pub fn state(o: &Observed, now: Timestamp) -> State {
    let Some(m) = o.mv() else {
        return if working(o) { State::WorkLeft } else { State::Gone };
    };
    let copies_for_nothing = m.stage != MoveStage::Seeding && o.seeding.iter().any(Option::is_some);
    if copies_for_nothing || m.stage == MoveStage::CleaningUp && working(o) {
        return State::WorkLeft;
    }
    if let Some(at) = batch_left(o, m) {
        return State::BatchLeft { at };
    }
    let missing = fences_missing(o);
    if !missing.is_empty() {
        return State::FenceMissing(missing);
    }
    let left = fences_left(o, m, o.ends.each_ref().map(|p| p.active), |_| SpanSet::new());
    if !left.is_empty() {
        return State::FenceLeft(left);
    }
    let ahead = fences_left(o, m, o.ends.each_ref().map(PairSeen::passive), |end| {
        batch::verified(o, m, end.other()).union(&behind(o, m, end))
    });
    if !ahead.is_empty() {
        return State::FenceAhead(ahead);
    }
    if m.stage == MoveStage::CleaningUp {
        return cleaning_up(o, m);
    }
    if let Some(end) = End::BOTH
        .into_iter()
        .find(|end| !o.pair(*end).exists && !o.placed(m, *end).is_empty())
    {
        return State::PairMissing(end);
    }
    if let Some(state) = ending(o, m, now) {
        return state;
    }
    match m.stage {
        MoveStage::Seeding => stages::seeding(o, m, now),
        _ => stages::following(o, m, now),
    }
}

/// What has arrived at an end and is READ ONLY on its passive server still. Clients write to it by then, and one by one each would hold up the applier there, and
/// the next batch with it: some are opened at once, or all when no batch follows. Whoever promotes that server opens them by the record.
fn behind(o: &Observed, m: &Move, end: End) -> SpanSet {
    let shut = o
        .server(o.passive(end))
        .map_or_else(SpanSet::new, |s| s.shut.clone());
    let arrived = shut.intersect(&o.placed(m, end));
    let more = m.stage == MoveStage::Following && !batch::candidates(o, m, end).is_empty();
    if more && arrived.len() < batch::AHEAD {
        arrived
    } else {
        SpanSet::new()
    }
}

fn working(o: &Observed) -> bool {
    o.seeding.iter().any(Option::is_some) || o.verifying.iter().any(Option::is_some)
}

fn batch_left(o: &Observed, m: &Move) -> Option<End> {
    let batch = moves::set(&m.batch);
    (!batch.is_empty()).then(|| {
        if o.placed(m, End::From).overlaps(&batch) {
            End::From
        } else {
            End::To
        }
    })
}

/// Copies that are being made are left alone: all of a move, until all of them are recorded. When more shards come into it, they are made once more.
/// What an operator that is gone, or has failed, has left of them is not.
fn being_made(o: &Observed, end: End) -> SpanSet {
    let run = o.seeding.get(end as usize).and_then(Option::as_ref);
    let goes_on =
        run.is_some_and(|r| matches!(r.outcome, SeedOutcome::Running { .. } | SeedOutcome::Done { .. }));
    o.record
        .moves
        .iter()
        .filter(|m| m.stage == MoveStage::Seeding && m.seeded != m.shards && (goes_on || m.key() != o.key))
        .fold(SpanSet::new(), |all, m| all.union(&moves::set(&m.shards)))
}

/// The controller of that pair shuts what a clone brings before it opens the server.
fn is_cloned_over(o: &Observed, pair: &str) -> bool {
    let unseeded = |m: &&Move| m.seeded != m.shards && m.to == pair;
    moves::cloned_over(&o.record, pair) && o.record.moves.iter().any(|m| unseeded(&m))
}

/// Rule R3: on each server, whatever the record places elsewhere is READ ONLY.
fn fences_missing(o: &Observed) -> Vec<On> {
    Observed::places()
        .into_iter()
        .filter(|at| !is_cloned_over(o, o.name(at.end)))
        .filter_map(|at| {
            let server = o.server(at)?;
            let open = fences::shut(&o.record, o.name(at.end))
                .intersect(&server.has)
                .minus(&server.shut)
                .minus(&being_made(o, at.end));
            (!open.is_empty()).then_some((at, open))
        })
        .collect()
}

/// READ ONLY for no reason that is on record, or allowed.
fn fences_left(o: &Observed, m: &Move, which: [usize; 2], allowed: impl Fn(End) -> SpanSet) -> Vec<On> {
    let [from, to] = which;
    [Place::new(End::From, from), Place::new(End::To, to)]
        .into_iter()
        .filter_map(|at| {
            let server = o.server(at)?;
            let left = o
                .placed(m, at.end)
                .intersect(&server.shut)
                .minus(&fences::shut(&o.record, o.name(at.end)))
                .minus(&allowed(at.end));
            (!left.is_empty()).then_some((at, left))
        })
        .collect()
}

/// The order of R6: channels on all four servers, then copies.
fn cleaning_up(o: &Observed, m: &Move) -> State {
    if let Some(end) = o.memory.others_copy {
        return State::OthersCopy(end);
    }
    let there = o.there();
    let channels: Vec<Place> = there
        .iter()
        .copied()
        .filter(|at| o.server(*at).is_some_and(|s| s.channel.is_some()))
        .collect();
    if !channels.is_empty() {
        return State::ChannelLeft(channels);
    }
    let unseen: Vec<Place> = there
        .iter()
        .copied()
        .filter(|at| o.server(*at).is_none())
        .collect();
    if !unseen.is_empty() {
        return State::Unseen(unseen);
    }
    let copies: Vec<On> = there
        .into_iter()
        .filter_map(|at| {
            let copies = needless(o, m, at.end).intersect(&o.server(at)?.has);
            (!copies.is_empty()).then_some((at, copies))
        })
        .collect();
    if !copies.is_empty() {
        return State::Dropping(copies);
    }
    // One that is being opened may be opened by an earlier record, and nobody would look after it any more.
    let opening = End::BOTH
        .into_iter()
        .find(|end| o.pair(*end).exists && !o.pair(*end).ready);
    opening.map_or(State::Over, State::PairOpening)
}

/// Copies that this move has brought to a pair, or left there, and nobody needs: not what is placed there in whatever state, and not what
/// another move of this pair has there.
fn needless(o: &Observed, m: &Move, end: End) -> SpanSet {
    let name = o.name(end);
    let mut all = moves::set(&m.shards);
    if m.seed == Seed::Physical && end == End::To {
        all = all.union(&fences::shut(&o.record, name));
    }
    let here = crate::core::placement::shards(&o.record, |s| s.pair == name);
    moves::of_pair(&o.record, name)
        .filter(|other| other.key() != o.key)
        .fold(all.minus(&here), |all, other| {
            all.minus(&moves::set(&other.shards))
        })
}

/// What ends the move, or its stage.
fn ending(o: &Observed, m: &Move, now: Timestamp) -> Option<State> {
    if !o.at_rest(m) {
        return (m.stage == MoveStage::Retaining).then_some(State::Resuming);
    }
    // They stay where they are, and the move with them.
    if !o.course.undecided.is_empty() {
        return None;
    }
    match o.course.early {
        Some(Early::NothingMoved) => return Some(State::NotWanted),
        Some(early) => return Some(State::Superseded(early)),
        None => {}
    }
    match m.stage {
        MoveStage::Following => Some(State::Arrived),
        MoveStage::Retaining
            if o.policy.retain_no_longer || m.retain_until.as_ref().is_none_or(|t| t.0 <= now) =>
        {
            Some(State::RetentionOver)
        }
        _ => None,
    }
}
