//! The record of who serves which shard: `ShardCluster.status.placement`.
//!
//! It is changed only by compare-and-swap, through the transitions of `core::placement`; `ShardRange.status.servedBy` and the
//! ConfigMap follow from it (design §2, "The record and the map").

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// Most spans that the record holds; with names of 63 characters that is below half of the 1 MiB that an object may have.
pub const MAX_SPANS: usize = 2048;
/// Most moves that are on record at once.
pub const MAX_MOVES: usize = 64;
/// Most spans in one list of a move.
pub const MAX_MOVE_SPANS: usize = 512;
/// Longest GTID set that a move holds, in characters.
pub const MAX_MOVE_GTID: usize = 16_384;
/// Most spans in the lists of all moves together: 120 KiB.
pub const MAX_MOVES_SPANS: usize = 4096;
/// Characters of the GTID sets of all moves together: 128 KiB.
pub const MAX_MOVES_GTID: usize = 131_072;

/// An inclusive run of shards.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct ShardSpan {
    /// First shard, 0 to 65535.
    #[schemars(range(min = 0, max = 65535))]
    pub first: i32,
    /// Last shard, inclusive.
    #[schemars(range(min = 0, max = 65535))]
    pub last: i32,
}

impl ShardSpan {
    /// The run from `first` to `last`, both included.
    pub fn new(first: i32, last: i32) -> Self {
        Self { first, last }
    }
}

/// What is true of a span at its pair.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum SpanState {
    /// Claimed, its databases are being created; not in the map.
    Creating,
    /// In the map: the pair's active server takes its writes.
    Serving,
}

/// A run of shards and where it is.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct PlacedSpan {
    /// First shard.
    #[schemars(range(min = 0, max = 65535))]
    pub first: i32,
    /// Last shard, inclusive.
    #[schemars(range(min = 0, max = 65535))]
    pub last: i32,
    /// Name of the MySQLPair that has it.
    #[schemars(length(min = 1, max = 63))]
    pub pair: String,
    /// What is true of it there.
    pub state: SpanState,
    /// Name of the ShardRange that it is assigned to; absent when none covers it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub range: Option<String>,
}

/// The record: sorted spans that do not overlap, and the version of the map that was last decided.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Version of the published map: rises by one with each change, never falls.
    #[schemars(range(min = 0))]
    pub map_version: i64,
    /// SHA-256 of the map's content at that version (without the version itself), in hexadecimal; empty before the first map.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub map_hash: String,
    /// Sorted by `first`.
    #[serde(default)]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub spans: Vec<PlacedSpan>,
    /// The links between two pairs over which shards change places. Sorted by `from` and `to`.
    #[serde(default)]
    #[schemars(length(max = MAX_MOVES))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub moves: Vec<Move>,
    /// Batches that were begun so far, of all moves: rises by one with each, never falls, so that none is taken for another.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub batches: i64,
}

/// How the copies of a move are made.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
pub enum Seed {
    /// Both servers of a pair that has no shards are cloned.
    Physical,
    /// Database by database, beside the shards that the pair serves.
    PerDatabase,
}

/// How far a move is.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
pub enum MoveStage {
    /// Copies are made; nothing depends on them.
    Seeding,
    /// Every shard is seeded and the copies follow; they are verified, and shards are cut over in batches.
    Following,
    /// Every shard is where it is wished; the old copies follow until `retainUntil`.
    Retaining,
    /// No shard changes sides any more: the channels are removed, then the copies that are not served are dropped.
    CleaningUp,
}

/// A link between two pairs. Which way each of its shards goes is the wish (`pairRef`) of the shard's range: one that is placed at `from` and
/// wished at `to` is cut over forward, one that is placed at `to` and wished at `from` the other way, by the same steps.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Name of the MySQLPair at one end. There is one move at most between two pairs.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
    /// Name of the MySQLPair at the other end.
    #[schemars(length(min = 1, max = 63))]
    pub to: String,
    /// All shards that it covers, wherever they are placed at the moment. Sorted and apart.
    #[schemars(length(max = MAX_MOVE_SPANS))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub shards: Vec<ShardSpan>,
    /// Of `shards`, those that were at `to` when they came into the move, and go to `from`: two ranges that change places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MOVE_SPANS))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub opposite: Vec<ShardSpan>,
    /// How the copies are made.
    pub seed: Seed,
    /// How far it is.
    pub stage: MoveStage,
    /// Of `shards`, those that have a complete copy on both servers of the pair where they are not placed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MOVE_SPANS))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub seeded: Vec<ShardSpan>,
    /// GTID set that `to` counts as executed because copies were taken at it; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_MOVE_GTID))]
    pub seed_gtid: String,
    /// GTID set that `from` counts as executed because copies were taken at it, or because its channel begins there; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_MOVE_GTID))]
    pub opposite_gtid: String,
    /// Of `seeded`, those whose copies were found equal, row by row, at one GTID position, and that followed without a break since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MOVE_SPANS))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub verified: Vec<ShardSpan>,
    /// Of `verified`, those that are cut over now: fenced where they are placed, or about to be. None: no cutover is under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MOVE_SPANS))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub batch: Vec<ShardSpan>,
    /// Number of the batch that was begun last; 0 before the first one.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub batch_number: i64,
    /// Until when the old copies follow; in stage Retaining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_until: Option<Time>,
}

/// As the derived one would be, if times were hashed.
impl Hash for Move {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let until = self.retain_until.as_ref().map(|t| t.0.as_nanosecond());
        (&self.from, &self.to, &self.shards, &self.opposite).hash(state);
        (
            self.seed,
            self.stage,
            &self.seeded,
            &self.seed_gtid,
            &self.opposite_gtid,
        )
            .hash(state);
        (&self.verified, &self.batch, self.batch_number, until).hash(state);
    }
}

/// The ends of a move, by which it is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoveKey {
    /// [`Move::from`].
    pub from: String,
    /// [`Move::to`].
    pub to: String,
}

impl Move {
    /// What it is found by.
    pub fn key(&self) -> MoveKey {
        MoveKey {
            from: self.from.clone(),
            to: self.to.clone(),
        }
    }
    /// The pair at its other end; `None` when `pair` is at neither.
    pub fn other_end(&self, pair: &str) -> Option<&str> {
        match pair {
            p if p == self.from => Some(&self.to),
            p if p == self.to => Some(&self.from),
            _ => None,
        }
    }
}

impl MoveKey {
    /// The move from `from` to `to`.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
        }
    }
}

/// `p0 → p1`.
impl fmt::Display for MoveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.from, self.to)
    }
}
