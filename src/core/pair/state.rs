//! The state of a pair: which row of the table in `docs/failover.md` holds. The order of the questions is that of the table.

use super::observed::{Channel, CloneStage, Observed, Ordinal, Receiver, Record, ServerState, other};
use crate::core::gtid::GtidSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

/// How long a member may be away before it is taken out of the record: a restart takes less.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// An empty server that lacks more transactions than this is copied rather than made to apply them one by one.
pub const COPY_RATHER: u64 = 1000;
/// Seconds between two tries to copy a server.
pub const REBUILD_RETRY: i64 = 10;

/// Errors of an applier that its relay log is to blame for: it is fetched again.
const RELAY_LOG_ERRORS: [u32; 6] = [1594, 1595, 1871, 1872, 13117, 13121];
/// A login that was refused, on a channel.
const ACCESS_DENIED: u32 = 1045;

/// Whether a receiver stopped because it could not reach its source, or was cut off: that is no fault of the channel.
fn is_connection_error(number: u32) -> bool {
    // All errors of the client library, and what a server says that starts, ends, is full or closed to others.
    (2000..3000).contains(&number)
        || [1040, 1053, 1129, 1158, 1159, 1160, 1161, 1203, 1226, 3032].contains(&number)
}

/// Which row of the table holds: the first one that does.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// No record, and a server does not answer.
    WaitingForServers,
    /// Both say the same `server_uuid`.
    SameServerUuid,
    /// No record, and each has transactions that the other one lacks.
    Diverged {
        /// What only A and what only B has.
        only: [GtidSet; 2],
    },
    /// No record, and this one has everything.
    Electing {
        /// The one to record.
        active: Ordinal,
    },
    /// The active server does not answer.
    ActiveUnavailable,
    /// The active server has not the data folder that was recorded.
    ActiveDataLost,
    /// The active server is closed.
    ActiveClosed,
    /// An account is missing on the active server, or has another password.
    AccountsMissing,
    /// A recorded passive server is not what was recorded any more.
    MemberLost(Lost),
    /// The passive server is out, and the active one would take from it.
    ReverseChannelOpen,
    /// The passive server does not answer.
    PassiveUnavailable,
    /// The passive server is being copied.
    Rebuilding,
    /// The passive server cannot get what it lacks from the active one's binary logs, or too slowly.
    RebuildNeeded(Rebuild),
    /// The passive server has transactions that the active one lacks.
    Errant(GtidSet),
    /// The passive server follows nobody, somebody else, or not as it should.
    PassiveDetached,
    /// The passive server would follow, but is stopped without an error.
    PassiveStopped,
    /// The replication of this one stopped with an error.
    Broken {
        /// The one that follows.
        at: Ordinal,
        /// Number and text.
        error: (u32, String),
    },
    /// The passive server connects, or lacks something still.
    CatchingUp,
    /// The active server does not follow the passive one.
    CircleOpen(Circle),
    /// All is well but for the record.
    NotRecorded,
    /// All is well.
    Healthy,
}

/// Why a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// It has another data folder.
    OtherData,
    /// It has transactions that the active one lacks.
    Errant,
    /// It has to be copied.
    Behind,
    /// It has not followed for longer than [`GRACE`].
    Adrift,
}

/// What is to be done about a server that cannot catch up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// Copy it now. `failed` is the error of an earlier try.
    Now {
        /// Error of the try before.
        failed: Option<String>,
    },
    /// The last try failed just now.
    Later {
        /// Its error.
        failed: String,
    },
    /// A server has no clone plugin.
    Impossible,
}

/// What is missing to the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Circle {
    /// The active one follows nobody, or not as it should.
    Detached,
    /// It would follow, but is stopped.
    Stopped,
    /// It connects.
    Connecting,
}

/// The two servers of a pair that has a record, both up.
#[derive(Clone, Copy)]
struct Both<'a> {
    o: &'a Observed,
    record: &'a Record,
    active: &'a ServerState,
    passive: &'a ServerState,
}

/// Which row of the table holds.
pub fn state(o: &Observed, now: Timestamp) -> State {
    let Some(record) = &o.record else {
        return unrecorded(o);
    };
    let (a, p) = (record.active, record.passive());
    let Some(active) = o.side(a).up() else {
        return State::ActiveUnavailable;
    };
    if record.member(a) != Some(active.uuid.as_str()) {
        return State::ActiveDataLost;
    }
    if o.side(p).up().is_some_and(|s| s.uuid == active.uuid) {
        return State::SameServerUuid;
    }
    if !active.writable() {
        return State::ActiveClosed;
    }
    if o.account_mark.as_deref().is_some_and(|m| !active.has_accounts(m)) {
        return State::AccountsMissing;
    }
    let Some(passive) = o.side(p).up() else {
        if record.member(p).is_some() && adrift(o, now) {
            return State::MemberLost(Lost::Adrift);
        }
        if record.member(p).is_none() && !idle(active.channel.as_ref()) {
            return State::ReverseChannelOpen;
        }
        return State::PassiveUnavailable;
    };
    both_up(
        Both {
            o,
            record,
            active,
            passive,
        },
        now,
    )
}

fn unrecorded(o: &Observed) -> State {
    let (Some(a), Some(b)) = (o.side(0).up(), o.side(1).up()) else {
        return State::WaitingForServers;
    };
    if a.uuid == b.uuid {
        return State::SameServerUuid;
    }
    let (only_a, only_b) = (a.executed.minus(&b.executed), b.executed.minus(&a.executed));
    let active = match (only_a.is_empty(), only_b.is_empty()) {
        (true, true) => o.hint.unwrap_or(0),
        (false, true) => 0,
        (true, false) => 1,
        // Nothing of anyone's on one of them: what only it has is of no use, and it is made again from the other.
        (false, false) if b.blank() => 0,
        (false, false) if a.blank() => 1,
        (false, false) => {
            return State::Diverged {
                only: [only_a, only_b],
            };
        }
    };
    State::Electing { active }
}

fn both_up(b: Both<'_>, now: Timestamp) -> State {
    let p = b.record.passive();
    if let Some(member) = b.record.member(p) {
        if member != b.passive.uuid {
            return State::MemberLost(Lost::OtherData);
        }
        let errant = errant(b);
        if rebuild_needed(b, &errant) {
            return State::MemberLost(Lost::Behind);
        }
        if !errant.is_empty() {
            return State::MemberLost(Lost::Errant);
        }
        if adrift(b.o, now) {
            return State::MemberLost(Lost::Adrift);
        }
    } else if !follows(b) && !idle(b.active.channel.as_ref()) {
        return State::ReverseChannelOpen;
    }
    if b.passive
        .clone
        .as_ref()
        .is_some_and(|c| c.stage == CloneStage::Running)
    {
        return State::Rebuilding;
    }
    let errant = errant(b);
    if rebuild_needed(b, &errant) {
        return State::RebuildNeeded(rebuild(b));
    }
    if !errant.is_empty() {
        return State::Errant(errant);
    }
    let Some(channel) = b
        .passive
        .channel
        .as_ref()
        .filter(|c| c.leads_to(&b.o.host(b.record.active)))
    else {
        return State::PassiveDetached;
    };
    match thread_state(channel) {
        Threads::Refetch => return State::PassiveDetached,
        Threads::Stopped => return State::PassiveStopped,
        Threads::Broken(error) => return State::Broken { at: p, error },
        Threads::Connecting => return State::CatchingUp,
        Threads::Run => {}
    }
    if b.record.member(p).is_none() && !b.active.executed.is_subset_of(&b.passive.executed_later) {
        return State::CatchingUp;
    }
    circle(b)
}

fn circle(b: Both<'_>) -> State {
    let (a, p) = (b.record.active, b.record.passive());
    let Some(channel) = b.active.channel.as_ref().filter(|c| c.leads_to(&b.o.host(p))) else {
        return State::CircleOpen(Circle::Detached);
    };
    match thread_state(channel) {
        Threads::Refetch => State::CircleOpen(Circle::Detached),
        Threads::Stopped => State::CircleOpen(Circle::Stopped),
        Threads::Connecting => State::CircleOpen(Circle::Connecting),
        Threads::Broken(error) => State::Broken { at: a, error },
        Threads::Run if b.record.member(p).is_none() => State::NotRecorded,
        Threads::Run => State::Healthy,
    }
}

/// What the threads of a channel say.
enum Threads {
    Run,
    Connecting,
    Stopped,
    /// Set up again, with the present password and an empty relay log.
    Refetch,
    Broken((u32, String)),
}

fn thread_state(c: &Channel) -> Threads {
    if !c.applier
        && let Some(error) = &c.applier_error
    {
        return if RELAY_LOG_ERRORS.contains(&error.0) {
            Threads::Refetch
        } else {
            Threads::Broken(error.clone())
        };
    }
    match (&c.receiver_error, c.receiver) {
        (Some((ACCESS_DENIED, _)), Receiver::Off | Receiver::Connecting) => Threads::Refetch,
        (Some(error), Receiver::Off) if !is_connection_error(error.0) => Threads::Broken(error.clone()),
        (_, Receiver::Off) => Threads::Stopped,
        (_, Receiver::Connecting | Receiver::On) if !c.applier => Threads::Stopped,
        (_, Receiver::Connecting) => Threads::Connecting,
        (_, Receiver::On) => Threads::Run,
    }
}

/// Whether no channel takes anything.
fn idle(c: Option<&Channel>) -> bool {
    c.is_none_or(Channel::stopped)
}

fn adrift(o: &Observed, now: Timestamp) -> bool {
    o.adrift_since
        .is_some_and(|since| now.duration_since(since) > GRACE)
}

/// The passive server takes from the active one, and has nothing of its own.
fn follows(b: Both<'_>) -> bool {
    b.passive
        .channel
        .as_ref()
        .is_some_and(|c| c.leads_to(&b.o.host(b.record.active)) && c.runs())
        && errant(b).is_empty()
}

/// What the passive server has and the active one has not. A transaction of the active one's own can reach the follower just
/// before the active one counts it as executed, so those are not errant while it follows.
fn errant(b: Both<'_>) -> GtidSet {
    let rest = b.passive.executed.minus(&b.active.executed_later);
    let takes = b
        .passive
        .channel
        .as_ref()
        .is_some_and(|c| c.leads_to(&b.o.host(b.record.active)) && c.runs());
    match Uuid::try_parse(&b.active.uuid) {
        Ok(uuid) if takes => rest.minus(&rest.of_server(uuid)),
        _ => rest,
    }
}

fn rebuild_needed(b: Both<'_>, errant: &GtidSet) -> bool {
    let (a, p) = (b.active, b.passive);
    let purged = !a.purged.is_subset_of(&p.executed_later);
    let much = || a.executed.minus(&p.executed_later).count() > COPY_RATHER;
    // One with errant transactions and data keeps them: a person has to look.
    if !errant.is_empty() && !p.blank() {
        return false;
    }
    purged
        || !errant.is_empty()
        || (p.blank() && a.version == p.version && a.can_clone && p.can_clone && much())
}

fn rebuild(b: Both<'_>) -> Rebuild {
    if !b.active.can_clone || !b.passive.can_clone {
        return Rebuild::Impossible;
    }
    let Some(run) = b.passive.clone.as_ref().filter(|c| c.stage == CloneStage::Failed) else {
        return Rebuild::Now { failed: None };
    };
    let failed = run
        .error
        .as_ref()
        .map_or_else(|| "interrupted".to_owned(), |(n, text)| format!("{text} ({n})"));
    if run.ended_ago.is_some_and(|s| s < REBUILD_RETRY) {
        Rebuild::Later { failed }
    } else {
        Rebuild::Now { failed: Some(failed) }
    }
}

/// Whether the passive server is what it should be, apart from the record: while it is not, the grace period runs.
pub fn passive_follows(o: &Observed) -> bool {
    let Some(record) = &o.record else { return true };
    let (Some(active), Some(passive)) = (o.side(record.active).up(), o.side(other(record.active)).up())
    else {
        // Nothing can be said of a passive server while the active one is away: its own receiver has nobody to follow.
        return o.side(record.active).up().is_none();
    };
    follows(Both {
        o,
        record,
        active,
        passive,
    })
}
