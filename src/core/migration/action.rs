//! The steps that a pass may take.

use super::observed::{End, Observed, Ordinal, Place};
use crate::{
    api::{MoveKey, Placement},
    core::{
        gtid::GtidSet,
        placement::{self, moves},
        spans::SpanSet,
    },
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};

/// One step. Each is safe to repeat; they are taken in order, and the first that fails ends the pass. Before the first one the locks of all
/// servers that [`Action::locks`] names are taken; after that the record and the status of both pairs are read once more, and the pass ends
/// unless they are what it has seen (rule P7).
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Changes the record by compare-and-swap: it must still be what this pass has read, or has itself made of it. [`Change::UndoBatch`] and
    /// [`Change::CutOver`] name their batch, and may be made of a newer record that still has it.
    Record(Change),
    /// Reads the status of both pairs once more, with the batch on record and the target's position reached, and fails unless they are what they
    /// were. Whoever is promoted at the source later reads the record after it is on record itself, so it finds the batch, and keeps its shards
    /// READ ONLY. Whoever was promoted at the target before may lack what the former active server has reached: that one goes on applying.
    Confirm(Pairs),
    /// `ALTER DATABASE … READ ONLY = 1`, outside the binary log, with a `lock_wait_timeout` of a second: when it is done, no transaction of
    /// these shards is under way there. Fails when one is not done in time, or is held by a prepared XA transaction; those that are done stay done.
    Fence {
        /// Where.
        at: Place,
        /// What.
        shards: SpanSet,
    },
    /// `READ ONLY = 0`, outside the binary log.
    Unfence {
        /// Where.
        at: Place,
        /// What.
        shards: SpanSet,
    },
    /// Before anything is blocked: samples `gtid_executed` of `of`, anew each time, until `server` executes such a one within that time; fails when it
    /// has not for [`APPROACH`](super::batch::APPROACH), and when a client there holds on to a shard of the batch.
    Approach {
        /// The one that follows.
        server: Place,
        /// The one whose position it is.
        of: Place,
        /// What is to be opened on `server`.
        batch: SpanSet,
        /// So long.
        within: SignedDuration,
    },
    /// Samples `gtid_executed` of `of` and waits until `server` has executed it; fails when it has not within that time, and unless the channel of
    /// `server` then still lets through `filter`, and has not stopped with an error: what a filter leaves out counts as executed (rule R4).
    Reach {
        /// The one that follows.
        server: Place,
        /// The one whose position it is.
        of: Place,
        /// Shards that the filter has to let through.
        filter: SpanSet,
        /// So long.
        within: SignedDuration,
    },
    /// Both servers of this end count these transactions as executed: nothing of this move is in them that they lack.
    Count {
        /// The end.
        end: End,
        /// Which.
        gtid: GtidSet,
    },
    /// Points the channel at `source` anew, sets its filter, and starts it.
    Point {
        /// The one that takes.
        at: Place,
        /// The one that it takes from.
        source: Place,
        /// Shards that the filter lets through.
        filter: SpanSet,
    },
    /// Sets the filter, which a restart has taken away, and starts the channel.
    StartChannel {
        /// Where.
        at: Place,
        /// Shards that the filter lets through.
        filter: SpanSet,
    },
    /// Stops the channel.
    StopChannel(Place),
    /// Stops the channel and takes it away.
    RemoveChannel(Place),
    /// Begins to make copies in the background, closed from the first moment, on both servers of this end. The work takes the locks of both, and ends when
    /// the record does not name it any more.
    Seed {
        /// Where.
        into: End,
        /// Of these shards.
        shards: SpanSet,
    },
    /// Begins to compare the copies at this end with what is served at the other, row by row at one position.
    Verify {
        /// Where the copies are.
        at: End,
        /// Of these shards.
        shards: SpanSet,
    },
    /// Begins to compare, of the copies at this end, the rows that the binary logs of both sides have a change of since this position: in the background, and at
    /// one position.
    Recheck {
        /// Where the copies are.
        at: End,
        /// Of these shards.
        shards: SpanSet,
        /// Where they were equal.
        since: GtidSet,
    },
    /// Ends what runs in the background, and forgets what came of it.
    StopWork,
    /// Fails unless none of these servers has a channel of the move. With their locks nobody else sets one up any more.
    Unlinked(Vec<Place>),
    /// Drops copies, outside the binary log, one after another.
    Drop {
        /// Where.
        at: Place,
        /// Of these shards.
        shards: SpanSet,
    },
    /// Ends a client's transaction, and its connection.
    EndTransaction {
        /// Where.
        at: Place,
        /// Its connection.
        connection: u64,
    },
}

/// Who is active in each pair, since which epoch.
pub type Pairs = [(Ordinal, i64); 2];

/// A transition of the record: [`crate::core::placement::moves`].
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Copies are complete.
    Seeded {
        /// Of these shards.
        shards: SpanSet,
        /// What their end counts as executed.
        gtid: GtidSet,
    },
    /// An end counts these transactions as executed.
    Counted {
        /// The end.
        end: End,
        /// Which.
        gtid: GtidSet,
    },
    /// Copies are made database by database after all.
    CopyRather,
    /// Seeding → Following.
    Follow,
    /// Copies were found equal.
    Verified(SpanSet),
    /// Nobody knows any more.
    Unverified(SpanSet),
    /// A batch begins.
    BeginBatch(SpanSet),
    /// It is given up.
    UndoBatch {
        /// Which.
        number: i64,
    },
    /// The point of no return.
    CutOver {
        /// Which.
        number: i64,
    },
    /// Following → Retaining.
    Retain {
        /// Until then.
        until: Timestamp,
    },
    /// Retaining → Following.
    Resume,
    /// → CleaningUp.
    CleanUp,
    /// The move is over.
    EndMove,
}

impl Change {
    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Seeded { .. } => "Seeded",
            Self::Counted { .. } => "Counted",
            Self::CopyRather => "CopyRather",
            Self::Follow => "Follow",
            Self::Verified(_) => "Verified",
            Self::Unverified(_) => "Unverified",
            Self::BeginBatch(_) => "BeginBatch",
            Self::UndoBatch { .. } => "UndoBatch",
            Self::CutOver { .. } => "CutOver",
            Self::Retain { .. } => "Retain",
            Self::Resume => "Resume",
            Self::CleanUp => "CleanUp",
            Self::EndMove => "EndMove",
        }
    }
    /// The record after it.
    ///
    /// # Errors
    /// Those of the transition.
    pub fn apply(&self, p: &Placement, key: &MoveKey) -> Result<Placement, placement::Error> {
        match self {
            Self::Seeded { shards, gtid } => moves::seeded(p, key, shards, &gtid.to_string()),
            Self::Counted { end, gtid } => {
                let pair = if *end == End::From { &key.from } else { &key.to };
                moves::counted(p, key, pair, &gtid.to_string())
            }
            Self::CopyRather => moves::copy_rather(p, key),
            Self::Follow => moves::follow(p, key),
            Self::Verified(shards) => moves::verified(p, key, shards),
            Self::Unverified(shards) => moves::unverified(p, key, shards),
            Self::BeginBatch(batch) => moves::begin_batch(p, key, batch),
            Self::UndoBatch { number } => moves::undo_batch(p, key, *number),
            Self::CutOver { number } => moves::cut_over(p, key, *number),
            Self::Retain { until } => moves::retain(p, key, Time(*until)),
            Self::Resume => moves::resume(p, key),
            Self::CleanUp => moves::clean_up(p, key),
            Self::EndMove => moves::end_move(p, key),
        }
    }
}

impl Action {
    /// The servers whose locks it needs.
    pub fn locks(&self) -> Vec<Place> {
        let both = |end: &End| vec![Place::new(*end, 0), Place::new(*end, 1)];
        match self {
            Self::Record(_)
            | Self::Confirm(_)
            | Self::Verify { .. }
            | Self::Recheck { .. }
            | Self::StopWork => vec![],
            Self::Fence { at, .. }
            | Self::Unfence { at, .. }
            | Self::Point { at, .. }
            | Self::StartChannel { at, .. }
            | Self::StopChannel(at)
            | Self::RemoveChannel(at)
            | Self::Drop { at, .. }
            | Self::EndTransaction { at, .. } => vec![*at],
            Self::Approach { server, of, .. } | Self::Reach { server, of, .. } => vec![*server, *of],
            Self::Unlinked(all) => all.clone(),
            Self::Count { end, .. } | Self::Seed { into: end, .. } => both(end),
        }
    }
}

impl Observed {
    /// What [`Action::Confirm`] compares.
    pub fn pairs(&self) -> Pairs {
        self.ends.each_ref().map(|p| (p.active, p.epoch))
    }
}
