//! The state of a pair: which row of the table in `docs/failover.md` holds. The order of the questions is that of the table.

use super::{
    compare::{Both, Threads, adrift, applier_fault, idle, threads},
    moving,
    observed::{Observed, Ordinal, Record, STRICT_TIMEOUT, ServerState},
    passive::both_up,
    promotion::{self, Cause, Unfit},
    reasons, replace,
};
use crate::core::{credentials, gtid::GtidSet};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long replication of a member may be broken before it is taken out of the record, and before it is copied anew.
pub const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// An empty server that lacks more transactions than this is copied rather than made to apply them one by one.
pub const COPY_RATHER: u64 = 1000;
/// Between two tries to copy a server, after the first one; twice as long after each further one.
pub const REBUILD_RETRY: SignedDuration = SignedDuration::from_secs(10);
/// The longest time between two of them.
pub const REBUILD_RETRY_LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// The same for making a server follow.
pub const FOLLOW_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// The longest time between two of them.
pub const FOLLOW_RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(60);
/// The same for letting commits wait for a passive server that is to be recorded in, and acknowledged nothing the last time.
pub const JOIN_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// The longest time between two of them.
pub const JOIN_RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(60);
/// How long commits may wait for a passive server that answers the operator, before it is taken out of the record.
pub const UNHEARD: SignedDuration = SignedDuration::from_secs(3);
/// The same for one that does not answer the operator: a commit that waits for a moment is no proof.
pub const UNHEARD_AND_GONE: SignedDuration = SignedDuration::from_millis(300);

/// `sync_relay_log` of a member: what it acknowledged survives the loss of its node's power (rule P3).
pub const EACH_EVENT: u64 = 1;
/// `sync_relay_log` of a server that catches up: a transaction has about five events, and a flush of each alone is slower than the source writes.
/// What it lost of them it would fetch again.
pub const MANY_EVENTS: u64 = 10_000;
/// A server that lacks more transactions than this, and is no member, need not bring each event to the disk.
pub const LAGS_MUCH: u64 = 100;

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
    /// The active server cannot serve, and the passive one takes over.
    Failover(Cause),
    /// The active server cannot serve, the passive one may lack something, and a person has accepted that.
    AcceptingLoss(Cause, Unfit),
    /// The active server cannot serve, and the passive one must not take over.
    NoFailover(Cause, Unfit),
    /// The active server refuses the operator's password.
    ActiveDenied,
    /// The active server is closed, and what it received as a passive one cannot be applied.
    ActiveUnfit {
        /// Number and text of the applier's error.
        error: (u32, String),
    },
    /// The active server is closed, and a person has given up what it received as a passive one.
    Discarding,
    /// The active server is closed.
    ActiveClosed {
        /// Transactions that it received as a passive one and has not applied.
        unapplied: u64,
    },
    /// The active server is handed over to the passive one, nothing being wrong with it.
    SwitchOver(Why),
    /// A recorded passive server is not what was recorded any more.
    MemberLost(Lost),
    /// Commits wait for acknowledgements that nobody will send.
    WaitingForNobody,
    /// Commits wait for longer, or shorter, than was specified.
    OtherTimeout,
    /// An account is missing on the active server, or has another password.
    AccountsMissing,
    /// A former self of the passive server could still acknowledge.
    Strangers(Vec<String>),
    /// Another pair could take from the active server, and acknowledge for it.
    Outsiders(Vec<String>),
    /// The passive server is out, and the active one would take from it.
    ReverseChannelOpen,
    /// The passive server takes from another pair.
    ChannelsLeft,
    /// The passive server has been gone for too long, and is made anew.
    Replacing,
    /// The passive server does not answer.
    PassiveUnavailable,
    /// The passive server is being copied.
    Rebuilding,
    /// It is being copied from another pair, and nobody wants that any more.
    CloneUnwanted,
    /// Another pair is to be cloned over this one: over the passive server first.
    CloneDue(Rebuild),
    /// The passive server cannot get what it lacks from the active one's binary logs, or too slowly.
    RebuildNeeded(Rebuild),
    /// The passive server has transactions that the active one lacks.
    Errant {
        /// Which.
        set: GtidSet,
        /// Too many to be saved.
        too_many: bool,
    },
    /// The passive server follows nobody, somebody else, or not as it should.
    PassiveDetached {
        /// It was made to follow a moment ago, in vain.
        waits: bool,
    },
    /// A server cannot acknowledge, or not wait for it: it has not got the plugins.
    NoSemiSync {
        /// Which.
        at: Ordinal,
    },
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
    CatchingUp {
        /// It lacks much, and brings each event to the disk by itself: on a source that is written to it would never be done.
        slowly: bool,
    },
    /// The active server does not follow the passive one.
    CircleOpen(Circle),
    /// A channel of the active server that takes from another pair has ended because another one did.
    OutOfStep,
    /// All is well but for the record.
    NotRecorded {
        /// It was tried in vain a moment ago.
        waits: bool,
    },
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
    /// Its replication has been broken for longer than [`GRACE`].
    Adrift,
    /// It does not answer, and the active server hears nothing of it.
    Gone,
    /// It answers, and the active server has heard nothing of it for `UNHEARD`.
    Unheard,
    /// Its Pod is being deleted.
    Leaving,
    /// The active server does not wait for it.
    NotWaitedFor,
    /// Its channel has to be set up anew, which throws away what it received.
    Detached,
    /// What it acknowledges is not on its disk yet.
    Unsynced,
    /// Another pair is to be cloned over it.
    ClonedOver,
}

/// Why the active server is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Its Pod is being deleted: a drain, an eviction, or a person.
    Leaving,
    /// `spec.preferredActive` was changed.
    Preferred,
    /// Its Pod is to be replaced.
    Roll,
    /// The passive one was cloned from another pair, and the active one has nothing of anyone's.
    Cloned,
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

/// Which row of the table holds.
pub fn state(o: &Observed, now: Timestamp) -> State {
    let Some(record) = &o.record else {
        return unrecorded(o);
    };
    if let Some(cause) = promotion::cause(o, record) {
        match promotion::fitness(o, record) {
            Ok(()) => return State::Failover(cause),
            // It answers, and nobody can take over: it is looked after as it is.
            Err(_) if cause == Cause::DiskFull => {}
            Err(unfit) if o.promotion_accepted(&unfit) => {
                return State::AcceptingLoss(cause, unfit);
            }
            Err(unfit) => return State::NoFailover(cause, unfit),
        }
    }
    serving(o, record, now).unwrap_or(State::ActiveDenied)
}

fn unrecorded(o: &Observed) -> State {
    let alone = o.loss_accepted(&[reasons::WAITING_FOR_SERVERS]);
    let (a, b) = match (o.side(0).up(), o.side(1).up()) {
        (Some(a), Some(b)) => (a, b),
        // A person says that the other one will not come back.
        (Some(_), None) if alone => return State::Electing { active: 0 },
        (None, Some(_)) if alone => return State::Electing { active: 1 },
        _ => return State::WaitingForServers,
    };
    if a.uuid == b.uuid {
        return State::SameServerUuid;
    }
    let (only_a, only_b) = (a.executed.minus(&b.executed), b.executed.minus(&a.executed));
    let active = match (only_a.is_empty(), only_b.is_empty()) {
        (true, true) => o.hint.or(o.preferred).unwrap_or(0),
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

/// The active server answers and has the recorded data; `None` when it does not answer.
fn serving(o: &Observed, record: &Record, now: Timestamp) -> Option<State> {
    let (a, p) = (record.active, record.passive());
    let active = o.side(a).up()?;
    let passive = o.side(p).up();
    if passive.is_some_and(|s| s.uuid == active.uuid) {
        return Some(State::SameServerUuid);
    }
    if let Some(why) = leaving(o, record, now) {
        return Some(State::SwitchOver(why));
    }
    if !active.writable() {
        return Some(closed(o, record, active));
    }
    if let Some(state) = waiting(o, record, active, now) {
        return Some(state);
    }
    if let Some(state) = accounts(o, record, active) {
        return Some(state);
    }
    let outsiders = moving::admitted(active);
    if !outsiders.is_empty() {
        return Some(State::Outsiders(outsiders));
    }
    Some(match Both::of(o, record) {
        Some(both) => both_up(both, now),
        None if record.member(p).is_none() && !idle(active.channel.as_ref()) => State::ReverseChannelOpen,
        None if replace::due(o, now) => State::Replacing,
        None => State::PassiveUnavailable,
    })
}

/// The recorded active server is closed.
fn closed(o: &Observed, record: &Record, active: &ServerState) -> State {
    let left = promotion::unapplied(active);
    let fault = active.channel.as_ref().and_then(applier_fault);
    match fault {
        _ if !left.is_empty() && left.is_subset_of(&record.given_up) => State::Discarding,
        Some(_) if !left.is_empty() && o.loss_accepted(&[reasons::PROMOTION_UNFIT]) => State::Discarding,
        Some(error) if !left.is_empty() => State::ActiveUnfit { error },
        _ => State::ActiveClosed {
            unapplied: left.count(),
        },
    }
}

/// The active server's Pod is being deleted, and the passive one can take over.
fn leaving(o: &Observed, record: &Record, now: Timestamp) -> Option<Why> {
    // One that is closed is opened first: what is given up leaves it open, and then commits must wait.
    let open = o
        .side(record.active)
        .up()
        .is_some_and(|s| s.writable() && s.source.enabled);
    (deleting(o, record.active) && open && may_switch_over(o, record, now)).then_some(Why::Leaving)
}

/// Its Pod is being deleted.
pub(super) fn deleting(o: &Observed, place: Ordinal) -> bool {
    o.side(place).pod.as_ref().is_some_and(|p| p.deleting)
}

/// The passive one can take over, and lacks little.
pub(super) fn may_switch_over(o: &Observed, record: &Record, now: Timestamp) -> bool {
    o.no_switchover_before.is_none_or(|t| t <= now)
        && promotion::fitness(o, record).is_ok()
        && promotion::close_behind(o, record)
}

/// Who waits for whom: rules P3 and P5.
fn waiting(o: &Observed, record: &Record, active: &ServerState, now: Timestamp) -> Option<State> {
    let p = record.passive();
    let passive = o.side(p).up();
    let source = active.source;
    let unheard_for = |d: SignedDuration| {
        o.unheard_since
            .is_some_and(|since| now.duration_since(since) >= d)
    };
    if record.member(p).is_none() {
        // It waits already for one that is about to be recorded, unless that one acknowledges nothing.
        let mute =
            source.clients == 0 || unheard_for(UNHEARD_AND_GONE) || passive.is_some_and(|s| s.disk_full);
        let joins = !mute && Both::of(o, record).is_some_and(Both::follows);
        return (source.enabled && !joins).then_some(State::WaitingForNobody);
    }
    let gone_on_alone = source.enabled && !source.waits && o.acknowledgement_timeout == STRICT_TIMEOUT;
    let lost = match passive {
        _ if !source.enabled || gone_on_alone => Some(Lost::NotWaitedFor),
        _ if deleting(o, p) && !deleting(o, record.active) => Some(Lost::Leaving),
        None if source.clients == 0 || unheard_for(UNHEARD_AND_GONE) => Some(Lost::Gone),
        Some(_) if unheard_for(UNHEARD) => Some(Lost::Unheard),
        _ => Both::of(o, record).and_then(|b| lost(b, now)),
    };
    if let Some(lost) = lost {
        return Some(State::MemberLost(lost));
    }
    (source.timeout != o.acknowledgement_timeout).then_some(State::OtherTimeout)
}

/// Why a member that answers is none any more.
fn lost(b: Both<'_>, now: Timestamp) -> Option<Lost> {
    if b.record.member(b.record.passive()) != Some(b.passive.uuid.as_str()) {
        return Some(Lost::OtherData);
    }
    let errant = b.errant();
    if b.rebuild_needed(&errant) {
        return Some(Lost::Behind);
    }
    if !errant.is_empty() {
        return Some(Lost::Errant);
    }
    let channel = b.channel();
    if !b.passive.acknowledges
        || !b.stray().is_empty()
        || channel.is_none_or(|c| matches!(threads(b.o, c), Threads::Refetch))
    {
        return Some(Lost::Detached);
    }
    if b.passive.sync_relay_log != EACH_EVENT {
        return Some(Lost::Unsynced);
    }
    if adrift(b.o, now) && !b.follows() {
        return Some(Lost::Adrift);
    }
    b.clone_wanted().then_some(Lost::ClonedOver)
}

/// Who may log in to take and to acknowledge.
fn accounts(o: &Observed, record: &Record, active: &ServerState) -> Option<State> {
    let mark = o.account_mark.as_deref()?;
    let passive = o.side(record.passive()).up();
    let admitted = |uuid: &str| active.admits(uuid, mark);
    if !active.has_accounts(mark) || !admitted(&active.uuid) || passive.is_some_and(|s| !admitted(&s.uuid)) {
        return Some(State::AccountsMissing);
    }
    let follower = match (passive, record.member(record.passive())) {
        (Some(s), _) => s.uuid.as_str(),
        (None, Some(member)) => member,
        (None, None) => return None,
    };
    let known = [active.uuid.as_str(), follower].map(credentials::replication_user);
    let strangers: Vec<String> = active
        .followers
        .iter()
        .filter(|f| (!f.locked || f.dumps > 0) && !known.contains(&f.user))
        .map(|f| f.user.clone())
        .collect();
    (!strangers.is_empty()).then_some(State::Strangers(strangers))
}
