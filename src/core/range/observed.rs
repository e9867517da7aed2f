//! What was seen of a ShardRange and of what it depends on: plain data.

use crate::{
    api::{Placement, ShardRangeSpec, ShardRangeStatus},
    core::{claims::Verdict, cluster::observed::TablesSeen, spans::SpanSet},
};
use std::collections::BTreeMap;

/// Everything that a pass saw.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Name of the range.
    pub name: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// The finalizer is on it.
    pub finalizer: bool,
    /// The specification.
    pub spec: ShardRangeSpec,
    /// The status before this pass.
    pub before: ShardRangeStatus,
    /// Its cluster; `None` when it is not there or is being deleted.
    pub cluster: Option<ClusterSeen>,
    /// The pairs of the namespace, by name.
    pub pairs: BTreeMap<String, PairSeen>,
    /// The shards that the published map has on the pair on record; `None` when it was not read.
    pub published: Option<SpanSet>,
    /// The databases were not looked at for some minutes, or never by this process.
    pub look_due: bool,
}

/// The cluster of a range.
#[derive(Clone, Debug)]
pub struct ClusterSeen {
    /// The record; `None` before the first one.
    pub record: Option<Placement>,
    /// What is said of the range's claim.
    pub verdict: Verdict,
    /// Shards that several pairs have and nothing decides about.
    pub ambiguous: SpanSet,
    /// Hash of the tables that were last found good.
    pub tables_hash: Option<String>,
    /// The tables that are asked for now.
    pub tables: TablesSeen,
    /// Why shards of the range do not set out for the pair where they are wished; `None` when they do, or are there.
    pub held_back: Option<HeldBack>,
}

/// Why shards do not set out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// For people.
    pub why: String,
    /// It does not pass by itself.
    pub refused: bool,
}

/// A pair that a range may lie on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSeen {
    /// Pod of the recorded active server.
    pub active: Option<String>,
    /// Its `server_uuid`, by the pair's record: who answers with another one is somebody else.
    pub uuid: Option<String>,
    /// `None` when it serves; else what is wrong.
    pub trouble: Option<String>,
}

impl Observed {
    /// The shards that are asked for.
    pub fn wanted(&self) -> SpanSet {
        SpanSet::of(self.spec.span())
    }
    /// The record, when there is one.
    pub fn record(&self) -> Option<&Placement> {
        self.cluster.as_ref()?.record.as_ref()
    }
}
