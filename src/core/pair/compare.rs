//! The two servers of a pair beside each other: who has what, and who takes from whom.

use super::{
    moving,
    observed::{Channel, CloneStage, Observed, Receiver, Record, ServerState, other},
    reasons,
    state::{COPY_RATHER, GRACE, REBUILD_RETRY, REBUILD_RETRY_LONGEST, Rebuild},
};
use crate::core::gtid::GtidSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

/// Errors of an applier that its relay log is to blame for: it is fetched again.
const RELAY_LOG_ERRORS: [u32; 6] = [1594, 1595, 1871, 1872, 13117, 13121];
/// Errors of a receiver that has lost the semi-sync protocol because another receiver of its server ended.
const OUT_OF_STEP: [u32; 2] = [13122, 13117];
/// A login that was refused, on a channel.
const ACCESS_DENIED: u32 = 1045;
/// The coordinator of the applier was ended, maybe in the middle of a transaction (`ER_MTA_INCONSISTENT_DATA`).
const ENDED_IN_TRANSACTION: u32 = 1756;
/// The account is locked, on a channel.
const ACCOUNT_LOCKED: u32 = 3118;

/// Whether a receiver stopped because it could not reach its source, or was cut off: that is no fault of the channel.
fn is_connection_error(number: u32) -> bool {
    // All errors of the client library, and what a server says that starts, ends, is full or closed to others.
    (2000..3000).contains(&number)
        || [1040, 1053, 1129, 1158, 1159, 1160, 1161, 1203, 1226, 3032].contains(&number)
}

/// The two servers of a pair that has a record, both up.
#[derive(Clone, Copy)]
pub(super) struct Both<'a> {
    pub o: &'a Observed,
    pub record: &'a Record,
    pub active: &'a ServerState,
    pub passive: &'a ServerState,
}

/// What the threads of a channel say.
pub(super) enum Threads {
    Run,
    Connecting,
    Stopped,
    /// Set up again, with the present account and an empty relay log.
    Refetch,
    Broken((u32, String)),
}

pub(super) fn threads(o: &Observed, c: &Channel) -> Threads {
    if let Some(error) = applier_fault(c) {
        return if RELAY_LOG_ERRORS.contains(&error.0) {
            Threads::Refetch
        } else {
            Threads::Broken(error)
        };
    }
    match (&c.receiver_error, c.receiver) {
        (Some((ACCESS_DENIED | ACCOUNT_LOCKED, _)), Receiver::Off | Receiver::Connecting) => Threads::Refetch,
        // Only where a server takes from another pair as well.
        (Some((number, _)), Receiver::Off) if o.moving.is_some() && OUT_OF_STEP.contains(number) => {
            Threads::Stopped
        }
        (Some(error), Receiver::Off) if !is_connection_error(error.0) => Threads::Broken(error.clone()),
        (_, Receiver::Off) => Threads::Stopped,
        (_, Receiver::Connecting | Receiver::On) if !c.applier => Threads::Stopped,
        (_, Receiver::Connecting) => Threads::Connecting,
        (_, Receiver::On) => Threads::Run,
    }
}

/// What stopped the applier. One that was ended in the middle of a transaction, of which it has received a part only, goes on when it is
/// started.
pub(super) fn applier_fault(c: &Channel) -> Option<(u32, String)> {
    let stopped = !c.applier;
    c.applier_error
        .clone()
        .filter(|(number, _)| stopped && *number != ENDED_IN_TRANSACTION)
}

/// Whether no channel takes anything. An applier may go on with what was received: stopping it waits for the rest of a transaction of which a
/// part was received, and that never comes from a source that is gone.
pub(super) fn idle(c: Option<&Channel>) -> bool {
    c.is_none_or(|c| c.receiver == Receiver::Off)
}

pub(super) fn adrift(o: &Observed, now: Timestamp) -> bool {
    o.adrift_since
        .is_some_and(|since| now.duration_since(since) > GRACE)
}

pub(super) fn broken_for_long(o: &Observed, now: Timestamp) -> bool {
    o.broken_since
        .is_some_and(|since| now.duration_since(since) > GRACE)
}

impl<'a> Both<'a> {
    /// Both servers, when they answer.
    pub fn of(o: &'a Observed, record: &'a Record) -> Option<Self> {
        Some(Both {
            o,
            record,
            active: o.side(record.active).up()?,
            passive: o.side(other(record.active)).up()?,
        })
    }

    /// The passive server's channel, when it leads to the active one.
    pub fn channel(self) -> Option<&'a Channel> {
        let host = self.o.host(self.record.active);
        self.passive
            .channel
            .as_ref()
            .filter(|c| c.leads_to(&host, &self.passive.uuid))
    }

    fn takes(self) -> bool {
        self.channel().is_some_and(Channel::runs)
    }

    /// The passive server takes from the active one, acknowledges what it takes, and has nothing of its own.
    pub fn follows(self) -> bool {
        self.takes() && self.passive.acknowledges && self.errant().is_empty()
    }

    /// What the passive server has and the active one has not. A transaction of the active one's own can reach the follower just
    /// before the active one counts it as executed, so those are not errant while it follows.
    pub fn errant(self) -> GtidSet {
        let rest = self.uncounted(self.passive.executed.minus(&self.active.executed_later));
        if rest.is_empty() || !self.takes() {
            return rest;
        }
        // What it takes from another pair is on its way to both just as well.
        let rest = moving::channels(self.active)
            .iter()
            .fold(rest, |rest, c| rest.minus(&c.received));
        match Uuid::try_parse(&self.active.uuid) {
            Ok(uuid) => rest.minus(&rest.of_server(uuid)),
            _ => rest,
        }
    }

    /// Without what a move brings to one server after the other, over no channel: who lacks it is not behind, and who has it is not errant.
    fn uncounted(self, set: GtidSet) -> GtidSet {
        let Some(moving) = self.o.moving.as_ref().filter(|_| !set.is_empty()) else {
            return set;
        };
        set.minus(&moving.counted)
    }

    /// What it received, has not applied, and the active one does not have: applying it would make it errant. While it takes from the
    /// active one, that is what is on its way.
    pub fn stray(self) -> GtidSet {
        if self.takes() {
            return GtidSet::new();
        }
        self.passive.channel.as_ref().map_or_else(GtidSet::new, |c| {
            c.unapplied(&self.passive.executed)
                .minus(&self.active.executed_later)
        })
    }

    /// Transactions that the passive server has still to execute.
    pub fn lag(self) -> u64 {
        self.active.executed.minus(&self.passive.executed_later).count()
    }

    /// The passive server cannot get what it lacks from the active one's binary logs, or too slowly, or what it has of its own is nobody's or saved.
    pub fn rebuild_needed(self, errant: &GtidSet) -> bool {
        let (a, p) = (self.active, self.passive);
        // One with errant transactions and data keeps them until they are saved.
        if !errant.is_empty() && !p.blank() {
            return errant.is_subset_of(&self.settled());
        }
        // One that is no member would never have it by other means: it is copied, and has it then.
        let member = self.record.member(other(self.record.active)) == Some(p.uuid.as_str());
        let due = |set: GtidSet| if member { self.uncounted(set) } else { set };
        let purged = !due(a.purged.minus(&p.executed_later)).is_empty();
        let lacks = due(a.executed.minus(&p.executed_later));
        // What an earlier server at its place committed has its `server_id`: a receiver takes that for its own, and leaves it out.
        let own = Uuid::try_parse(&a.uuid).map_or_else(|_| GtidSet::new(), |uuid| lacks.of_server(uuid));
        let much = || lacks.count() > COPY_RATHER || lacks != own;
        purged
            || !errant.is_empty()
            || (p.blank() && a.version == p.version && a.can_clone && p.can_clone && much())
    }

    /// Errant transactions that need not be kept where they are: they were saved, or a person gives them up, or they came from another pair. What was
    /// recorded so stays so: the record that comes before a copy has another epoch, in which nothing was saved or accepted.
    pub fn settled(self) -> GtidSet {
        let settled = self.record.settled.union(&self.o.saved).union(&self.brought());
        if self.o.loss_accepted(&[reasons::ERRANT_TRANSACTIONS]) {
            settled.union(&self.o.saved_by_name)
        } else {
            settled
        }
    }

    /// Of what only the passive server has, what a copy may overwrite.
    pub fn overwritable(self) -> GtidSet {
        let errant = self.errant();
        errant.minus(&errant.minus(&self.settled()))
    }

    /// A copy that failed is tried again, and so is one that was completed and did not make it a member: each time later.
    pub fn rebuild(self, now: Timestamp) -> Rebuild {
        if !self.active.can_clone || !self.passive.can_clone {
            return Rebuild::Impossible;
        }
        let (run, copies) = (self.passive.clone.as_ref(), self.o.copies);
        let failed = match run {
            Some(c) if c.stage == CloneStage::Failed => c
                .error
                .as_ref()
                .map_or_else(|| "interrupted".to_owned(), |(n, text)| format!("{text} ({n})")),
            _ if copies.count > 0 => {
                format!("it was begun {} times and has not made it a member", copies.count)
            }
            _ => return Rebuild::Now { failed: None },
        };
        let ended = run.and_then(|c| c.ended_ago).map(SignedDuration::from_secs);
        let begun = copies.last.map(|last| now.duration_since(last));
        let ago = ended.into_iter().chain(begun).min();
        if ago.is_some_and(|ago| ago < copies.patience(REBUILD_RETRY, REBUILD_RETRY_LONGEST)) {
            Rebuild::Later { failed }
        } else {
            Rebuild::Now { failed: Some(failed) }
        }
    }
}

/// Whether replication of the passive server stopped with an error.
pub fn passive_broken(o: &Observed) -> bool {
    let both = o.record.as_ref().and_then(|r| Both::of(o, r));
    let channel = both.and_then(Both::channel);
    channel.is_some_and(|c| matches!(threads(o, c), Threads::Broken(_)))
}

/// Whether the passive server is what it should be, apart from the record: while it is not, the grace period runs.
pub fn passive_follows(o: &Observed) -> bool {
    let Some(record) = &o.record else { return true };
    match Both::of(o, record) {
        // Replication that was broken runs for a moment when it is started again: what counts then is that it gets through.
        Some(both) => both.follows() && (o.adrift_since.is_none() || both.lag() == 0),
        // Nothing can be said of a passive server while the active one is away: its own receiver has nobody to follow.
        None => o.side(record.active).up().is_none(),
    }
}
