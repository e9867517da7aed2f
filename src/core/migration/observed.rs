//! What is known of one move when it is decided upon: the record, the wish, both pairs with their four servers, and the work in the background.

use super::{batch::Cost, wish::Course};
use crate::{
    api::{Move, MoveKey, Placement},
    core::{gtid::GtidSet, pair::observed::Tries, placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// A server of a pair: 0 is A, 1 is B.
pub type Ordinal = usize;

/// One of the two pairs that a move is between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// [`Move::from`].
    From,
    /// [`Move::to`].
    To,
}

impl End {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::From, Self::To];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::From => Self::To,
            Self::To => Self::From,
        }
    }
}

/// One of the four servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Its pair.
    pub end: End,
    /// Which of the two.
    pub server: Ordinal,
}

impl Place {
    /// This server of that pair.
    pub fn new(end: End, server: Ordinal) -> Self {
        Self { end, server }
    }
}

/// All that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The record, whole.
    pub record: Placement,
    /// Which move of it.
    pub key: MoveKey,
    /// Which way its shards go, by the `pairRef` of their ranges.
    pub course: Course,
    /// Both pairs.
    pub ends: [PairSeen; 2],
    /// The copying that this operator has begun in the background, into each end.
    pub seeding: [Option<SeedRun>; 2],
    /// The comparing that it has begun, of copies at each end.
    pub verifying: [Option<VerifyRun>; 2],
    /// What the specification says of cutovers.
    pub policy: Policy,
    /// What this operator remembers of earlier passes. Nothing safe depends on it.
    pub memory: Memory,
}

/// A pair.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an aspect of its own of the object"
)]
pub struct PairSeen {
    /// The MySQLPair is there.
    pub exists: bool,
    /// Ready at its present generation, or being deleted with both servers in sync; and not in the middle of a change of the active server.
    pub ready: bool,
    /// `status.epoch`.
    pub epoch: i64,
    /// `status.active`.
    pub active: Ordinal,
    /// `status.inSync` has two members.
    pub two_members: bool,
    /// Its servers; `None` for one that does not answer, or has other data than the record says.
    pub servers: [Option<ServerSeen>; 2],
    /// What is known of cloning another pair over it.
    pub clone: CloneSeen,
}

/// What is known of cloning another pair over this one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CloneSeen {
    /// Bytes that the CLONE which runs has copied, and that it is going to copy, as far as known.
    pub running: Option<(u64, u64)>,
    /// Number and text of the error that ended the last one, a moment ago.
    pub failed: Option<(u32, String)>,
    /// Why it can't be done, whatever happens.
    pub hindered: Option<&'static str>,
}

impl PairSeen {
    /// The place that is not the recorded active one.
    pub fn passive(&self) -> Ordinal {
        usize::from(self.active == 0)
    }
    /// A server.
    pub fn server(&self, at: Ordinal) -> Option<&ServerSeen> {
        self.servers.get(at).and_then(Option::as_ref)
    }
    /// The recorded active server.
    pub fn active_server(&self) -> Option<&ServerSeen> {
        self.server(self.active)
    }
    /// The other one.
    pub fn passive_server(&self) -> Option<&ServerSeen> {
        self.server(self.passive())
    }
    /// Both answer, both are members, and it is ready.
    pub fn whole(&self) -> bool {
        self.exists && self.ready && self.two_members && self.servers.iter().all(Option::is_some)
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSeen {
    /// `gtid_executed`.
    pub executed: GtidSet,
    /// `gtid_purged`: what it can no longer send.
    pub purged: GtidSet,
    /// Shards whose databases it has.
    pub has: SpanSet,
    /// Of them, those that are READ ONLY.
    pub shut: SpanSet,
    /// It is the passive one, and follows the active one of its pair.
    pub follows: bool,
    /// The channel that takes from the other pair of this move.
    pub channel: Option<ChannelSeen>,
    /// Open and prepared transactions that keep shards of this move from being fenced, as far as known.
    pub blockers: Vec<Blocker>,
}

/// A channel between the two pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelSeen {
    /// The server of the other pair that it leads to; `None` when to no such one, or not set up as it should be.
    pub leads_to: Option<Ordinal>,
    /// Shards that its filter lets through; `None` without a filter.
    pub filter: Option<SpanSet>,
    /// A thread of it runs.
    pub started: bool,
    /// Both threads run.
    pub runs: bool,
    /// Number and text of the error that stopped it.
    pub error: Option<(u32, String)>,
}

/// A transaction that has touched a shard and is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The shard.
    pub shard: i32,
    /// Its connection; `None` for a prepared XA transaction, which has none.
    pub connection: Option<u64>,
    /// Since when it is open.
    pub since: Timestamp,
}

/// Copies that are being made into one end.
#[derive(Clone, Debug, PartialEq)]
pub struct SeedRun {
    /// Of these shards.
    pub shards: SpanSet,
    /// How far it is.
    pub outcome: SeedOutcome,
}

/// How far the copying is.
#[derive(Clone, Debug, PartialEq)]
pub enum SeedOutcome {
    /// It runs.
    Running {
        /// Bytes that are copied.
        bytes: u64,
        /// Bytes in all, as far as known.
        of: u64,
    },
    /// Complete on both servers, whose locks this operator has held ever since it began.
    Done {
        /// What they count as executed for it.
        gtid: GtidSet,
    },
    /// It ended otherwise, and may be tried again.
    Failed {
        /// Why.
        error: String,
        /// How often in a row.
        tries: Tries,
    },
    /// It can't be done as things are.
    Refused {
        /// What a person has to change.
        why: String,
    },
}

/// A comparison of copies at one end with what is served at the other.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyRun {
    /// Of these shards.
    pub shards: SpanSet,
    /// Only the rows that were changed since this position, at which they were equal; `None` when it is of all rows.
    pub since: Option<GtidSet>,
    /// The one position at which both sides are, or were, read.
    pub position: GtidSet,
    /// From when on what it has found is a moment old: since it began, for one of all rows; since it ended, for a short one.
    pub when: Timestamp,
    /// How far it is.
    pub outcome: VerifyOutcome,
}

/// How far a comparison is.
#[derive(Clone, Debug, PartialEq)]
pub enum VerifyOutcome {
    /// It runs.
    Running {
        /// Tables that were compared.
        tables: u64,
        /// Tables in all.
        of: u64,
    },
    /// Every row is equal.
    Equal,
    /// Some are not.
    Different {
        /// Shards.
        shards: SpanSet,
        /// Tables, with their databases.
        tables: Vec<String>,
    },
    /// It came to no end, which proves nothing (rule R4).
    Unknown {
        /// Why.
        error: String,
        /// How often in a row.
        tries: Tries,
    },
    /// The binary logs do not tell any more what was changed: only all rows prove anything.
    Untold {
        /// Why.
        why: String,
    },
}

/// What the specification and its annotations say.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a field of its own of the API"
)]
pub struct Policy {
    /// `cutover: Manual`.
    pub manual: bool,
    /// The approval that it waits for was given.
    pub approved: bool,
    /// No window is specified, or it is open.
    pub window: bool,
    /// How long a batch may take before it is undone.
    pub deadline: SignedDuration,
    /// A transaction that keeps a shard from being fenced for longer than this is ended.
    pub end_transactions_after: Option<SignedDuration>,
    /// `retainSource`.
    pub retain: SignedDuration,
    /// A person does not want the way back any longer.
    pub retain_no_longer: bool,
    /// A person has asked to have copies compared again, since they were found different.
    pub verify_again: bool,
}

/// What this operator remembers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// What the last batch cost.
    pub cost: Option<Cost>,
    /// Batches in a row that were undone, for whatever reason but a shard that could not be fenced.
    pub undone: Tries,
    /// Shards that could not be fenced, each with how often.
    pub blocked: BTreeMap<i32, Tries>,
    /// Waits before a batch in which the target did not catch up in time, less what batches that went through make good.
    pub waits: u32,
    /// The last one was such.
    pub behind: bool,
    /// This operator makes copies there for another move.
    pub others_copy: Option<End>,
    /// Since when the channel into each end has been broken.
    pub broken_since: [Option<Timestamp>; 2],
    /// What was said of the move before.
    pub reason: Option<String>,
}

impl Observed {
    /// The move.
    pub fn mv(&self) -> Option<&Move> {
        moves::find(&self.record, &self.key)
    }
    /// A pair.
    pub fn pair(&self, end: End) -> &PairSeen {
        let [from, to] = &self.ends;
        if end == End::From { from } else { to }
    }
    /// A pair's name.
    pub fn name(&self, end: End) -> &str {
        if end == End::From {
            &self.key.from
        } else {
            &self.key.to
        }
    }
    /// A server that answers.
    pub fn server(&self, at: Place) -> Option<&ServerSeen> {
        self.pair(at.end).server(at.server)
    }
    /// The recorded active server's place.
    pub fn active(&self, end: End) -> Place {
        Place::new(end, self.pair(end).active)
    }
    /// The other one's.
    pub fn passive(&self, end: End) -> Place {
        Place::new(end, self.pair(end).passive())
    }
    /// The four places.
    pub fn places() -> [Place; 4] {
        [(End::From, 0), (End::From, 1), (End::To, 0), (End::To, 1)].map(|(end, i)| Place::new(end, i))
    }
    /// Those of the pairs that are there.
    pub fn there(&self) -> Vec<Place> {
        let all = Self::places().into_iter();
        all.filter(|at| self.pair(at.end).exists).collect()
    }
    /// Servers of a pair as people know them: `from-0`.
    pub fn pod(&self, at: Place) -> String {
        crate::api::names::pod(self.name(at.end), at.server)
    }
    /// Shards of the move that the record places at this end.
    pub fn placed(&self, m: &Move, end: End) -> SpanSet {
        moves::placed_at(&self.record, m, self.name(end))
    }
    /// Shards of the move that are placed at the other end and go to this one.
    pub fn bound_for(&self, m: &Move, end: End) -> SpanSet {
        self.copies(m, end).intersect(if end == End::From {
            &self.course.back
        } else {
            &self.course.forward
        })
    }
    /// No shard goes anywhere.
    pub fn at_rest(&self, m: &Move) -> bool {
        End::BOTH.iter().all(|end| self.bound_for(m, *end).is_empty())
    }
    /// The comparison of copies at this end that this operator has begun last. One that was read before these copies were made is of other ones.
    pub fn compared(&self, m: &Move, at: End) -> Option<&VerifyRun> {
        let made = Self::counted(m, at);
        let run = self.verifying.get(at as usize).and_then(Option::as_ref);
        run.filter(|r| made.is_subset_of(&r.position))
    }
    /// What both servers of this end count as executed for the copies there.
    pub fn counted(m: &Move, at: End) -> GtidSet {
        let recorded = if at == End::To {
            &m.seed_gtid
        } else {
            &m.opposite_gtid
        };
        recorded.parse().unwrap_or_default()
    }
    /// Copies at this end: shards of the move that are placed at the other one.
    pub fn copies(&self, m: &Move, end: End) -> SpanSet {
        self.placed(m, end.other())
    }
}
