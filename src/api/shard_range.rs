//! ShardRange: a run of virtual shards, and the pair where it belongs.
#![allow(
    clippy::duplicated_attributes,
    reason = "each printcolumn has a type and may have a priority"
)]

use super::{LocalRef, ShardSpan, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run of virtual shards, and the pair where it belongs.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "shardwright.dev",
    version = "v1alpha1",
    kind = "ShardRange",
    plural = "shardranges",
    singular = "shardrange",
    shortname = "shr",
    category = "shards",
    namespaced,
    status = "ShardRangeStatus",
    derive = "PartialEq",
    doc = "ShardRange is a run of virtual shards, and the pair where it belongs.",
    selectable = ".spec.clusterRef.name",
    selectable = ".spec.pairRef.name",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterRef.name",
        description = "ShardCluster"
    ),
    printcolumn(
        name = "First",
        type_ = "integer",
        json_path = ".spec.first",
        description = "First shard"
    ),
    printcolumn(
        name = "Last",
        type_ = "integer",
        json_path = ".spec.last",
        description = "Last shard"
    ),
    printcolumn(
        name = "Pair",
        type_ = "string",
        json_path = ".spec.pairRef.name",
        description = "The wish: the pair where the range belongs"
    ),
    printcolumn(
        name = "Active",
        type_ = "string",
        json_path = ".status.active",
        description = "Server that takes the writes"
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        description = "Reason of Ready"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        description = "Whether the range is served as specified"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Served-By",
        type_ = "string",
        json_path = ".status.servedBySummary",
        description = "The truth: which pair serves which shards",
        priority = 1
    ),
    printcolumn(
        name = "Progress",
        type_ = "string",
        json_path = ".status.progress",
        description = "Shards served, of all",
        priority = 1
    )
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.first <= self.last").message("`first` must not be greater than `last`").field_path(".first"))]
pub struct ShardRangeSpec {
    /// The cluster. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("`clusterRef` is immutable").reason(Reason::FieldValueForbidden))]
    pub cluster_ref: LocalRef,
    /// First shard of the range, 0 to 65535.
    #[schemars(range(min = 0, max = 65535))]
    pub first: i32,
    /// Last shard of the range, inclusive, 0 to 65535.
    #[schemars(range(min = 0, max = 65535))]
    pub last: i32,
    /// The pair where the range belongs. `status.servedBy` says where it is.
    pub pair_ref: LocalRef,
    /// What the deletion of this object does while it still holds shards. Wait: it waits until another range has taken them. Retain: it
    /// goes at once, and the shards stay where they are, in the map and served. No policy drops a database.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What the deletion of a ShardRange does while it still holds shards. No policy drops a database.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum DeletionPolicy {
    /// It waits until another range has taken them.
    #[default]
    Wait,
    /// It goes at once; the shards stay where they are, in the map and served.
    Retain,
}

/// Observed state of a ShardRange.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShardRangeStatus {
    /// The generation last acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Where the shards that this range holds are served, from the cluster's record.
    #[serde(default)]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub served_by: Vec<ServedSpan>,
    /// `servedBy` for people: `p0:0-511`.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub served_by_summary: String,
    /// The server that takes the writes of this range, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub active: Option<String>,
    /// Shards served, of all: `512/512`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub progress: String,
    /// Hash of the tables that every shard of this range was last seen to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tables_hash: Option<String>,
    /// Conditions: Accepted, Ready, Reconciling, Stalled.
    #[serde(default)]
    #[schemars(schema_with = "conditions::schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A run of shards and the pair that serves it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct ServedSpan {
    /// First shard.
    #[schemars(range(min = 0, max = 65535))]
    pub first: i32,
    /// Last shard, inclusive.
    #[schemars(range(min = 0, max = 65535))]
    pub last: i32,
    /// Name of the MySQLPair.
    #[schemars(length(min = 1, max = 63))]
    pub pair: String,
}

impl ShardRangeSpec {
    /// The shards that are claimed.
    pub fn span(&self) -> ShardSpan {
        ShardSpan::new(self.first, self.last)
    }
}
