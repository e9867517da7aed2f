//! ShardRange: a run of virtual shards, and the pair where it belongs.
#![allow(
    clippy::duplicated_attributes,
    reason = "each printcolumn has a type and may have a priority"
)]

use super::{LocalRef, Seed, ShardSpan, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
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
    ),
    printcolumn(
        name = "Migration",
        type_ = "string",
        json_path = ".status.migration.progress",
        description = "Phase of the move that shards of the range are in, and how far it is",
        priority = 1
    ),
    printcolumn(
        name = "ETA",
        type_ = "integer",
        json_path = ".status.migration.etaSeconds",
        description = "Seconds until its copies are made",
        priority = 1
    ),
    printcolumn(
        name = "Lag",
        type_ = "integer",
        json_path = ".status.migration.lagTransactions",
        description = "Transactions that the copies lack",
        priority = 1
    ),
    printcolumn(
        name = "Write-Block",
        type_ = "string",
        json_path = ".status.migration.writeBlock.summary",
        description = "How long shards could not be written while they were cut over",
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
    /// What shards wait for that are ready to be cut over to another pair. Automatic: nothing. Manual: an approval, which `shardwright cutover` gives. Of
    /// several ranges in one move all that ask for an approval must have it. Shards that go back to where they were wait for nothing.
    #[serde(default)]
    pub cutover: Cutover,
    /// When shards may be cut over; at any time when absent. Of several ranges in one move all windows must be open. Shards that go back to where they
    /// were do not wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutover_window: Option<CutoverWindow>,
    /// A batch of shards that is not cut over within so many seconds is given up, and tried again later: 1 to 60. The wait for open transactions and the
    /// wait for the target end after one second each, whatever it says. Of several ranges in one move the shortest counts.
    #[serde(default = "batch_deadline")]
    #[schemars(range(min = 1, max = 60))]
    pub batch_deadline_seconds: i32,
    /// A client's transaction that keeps a shard from being cut over, and has been open for so many seconds, is ended with its connection:
    /// 1 to 86400. It is waited for without end when absent. Of several ranges in one move each must have it, and the longest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub transaction_deadline_seconds: Option<i32>,
    /// For so many seconds the old copies are kept up to date once every shard is where it is wished, 0 to 31536000: as long as that,
    /// `pairRef` may be set back. 0 also ends the time of a move that keeps them. Of several ranges in one move the longest counts.
    #[serde(default = "retain_source")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub retain_source_seconds: i32,
}

fn batch_deadline() -> i32 {
    5
}
fn retain_source() -> i32 {
    86_400
}

/// What shards wait for that are ready to be cut over to another pair.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum Cutover {
    /// Nothing.
    #[default]
    Automatic,
    /// An approval, which `shardwright cutover` gives.
    Manual,
}

/// A time of the day, in UTC.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.start != self.end").message("`end` must differ from `start`").field_path(".end"))]
pub struct CutoverWindow {
    /// When it opens, in UTC: `22:00`.
    #[schemars(length(min = 5, max = 5), regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// When it closes, in UTC; on the next day when that is earlier than `start`.
    #[schemars(length(min = 5, max = 5), regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub end: String,
    /// Days on which it opens; each when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub days: Vec<Weekday>,
}

/// A day of the week.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum Weekday {
    /// Monday.
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
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
    /// The move between two pairs that shards of this range are in, or were in last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<RangeMigration>,
    /// Conditions: Accepted, Ready, Reconciling, Stalled, TablesDeclared.
    #[serde(default)]
    #[schemars(schema_with = "conditions::schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A move between two pairs, as far as a range is concerned.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RangeMigration {
    /// Name of the MySQLPair at one end.
    #[schemars(length(min = 1, max = 63))]
    pub from: String,
    /// Name of the MySQLPair at the other end.
    #[schemars(length(min = 1, max = 63))]
    pub to: String,
    /// How the copies are made. Physical: the whole of `to` is cloned. PerDatabase: database by database, beside what the pair serves.
    pub seed: Seed,
    /// How far it is; Ended when it is over.
    pub phase: MovePhase,
    /// Whether it goes on by itself.
    pub state: MoveHealth,
    /// What is done, or waited for, in one CamelCase word.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// The same for people.
    #[schemars(length(max = 1100))]
    pub waits_for: String,
    /// Phase and progress for people: `Seeding 43%`, `Following 12/256`.
    #[schemars(length(max = 64))]
    pub progress: String,
    /// Shards of this range in the move.
    #[schemars(range(min = 0))]
    pub shards: i32,
    /// Of these, those that are not where they were when the move began.
    #[schemars(range(min = 0))]
    pub shards_moved: i32,
    /// Bytes copied so far, of all shards of the move.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub bytes_copied: i64,
    /// Bytes to copy in all, as far as known.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub bytes_total: i64,
    /// Seconds until the copies are made, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub eta_seconds: Option<i64>,
    /// Transactions that the copies lack, as of the last look; absent while there are no complete ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub lag_transactions: Option<i64>,
    /// Until when `pairRef` may be set back over this move; in phase Retaining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_until: Option<Time>,
    /// How long shards could not be written while they were cut over, of all shards of the move, as this operator has measured it; absent before the first
    /// batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_block: Option<WriteBlock>,
}

/// How far a move is.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum MovePhase {
    /// Copies are made; nothing depends on them.
    Seeding,
    /// Copies follow, are compared, and shards are cut over.
    Following,
    /// Every shard is where it is wished, and `pairRef` may be set back.
    Retaining,
    /// Copies that are not served are taken away.
    CleaningUp,
    /// Nothing is left of it.
    Ended,
}

/// Whether a move goes on by itself.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum MoveHealth {
    /// It does.
    Working,
    /// There is nothing to do.
    Ready,
    /// It needs a person.
    Stalled,
}

/// How long shards could not be written while they were cut over.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WriteBlock {
    /// Shards that were measured.
    #[schemars(range(min = 0))]
    pub shards: i32,
    /// Half of them no longer than this, in milliseconds.
    #[schemars(range(min = 0))]
    pub p50_milliseconds: i64,
    /// 99 of 100 of them no longer than this, in milliseconds.
    #[schemars(range(min = 0))]
    pub p99_milliseconds: i64,
    /// None longer than this, in milliseconds.
    #[schemars(range(min = 0))]
    pub max_milliseconds: i64,
    /// The same for people: `p50 31 ms, max 87 ms`.
    #[schemars(length(max = 64))]
    pub summary: String,
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
    /// Shards of a cluster that are wished at a pair, and everything else as it is when nobody says.
    pub fn new(cluster: &str, span: ShardSpan, pair: &str) -> Self {
        Self {
            cluster_ref: LocalRef::new(cluster),
            first: span.first,
            last: span.last,
            pair_ref: LocalRef::new(pair),
            deletion_policy: DeletionPolicy::default(),
            cutover: Cutover::default(),
            cutover_window: None,
            batch_deadline_seconds: batch_deadline(),
            transaction_deadline_seconds: None,
            retain_source_seconds: retain_source(),
        }
    }
    /// The shards that are claimed.
    pub fn span(&self) -> ShardSpan {
        ShardSpan::new(self.first, self.last)
    }
}
