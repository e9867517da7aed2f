//! The record of who serves which shard: `ShardCluster.status.placement`.
//!
//! It is changed only by compare-and-swap, through the transitions of `core::placement`; `ShardRange.status.servedBy` and the
//! ConfigMap follow from it (design §2, "The record and the map").

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most spans that the record holds; with names of 63 characters that is below half of the 1 MiB that an object may have.
pub const MAX_SPANS: usize = 2048;

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
}
