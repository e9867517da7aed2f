//! MySQLPair: two servers that replicate from each other, one of which takes writes.

use super::{LocalRef, ShardSpan, conditions, mysql_template::MysqlOverrides, schemas};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest `status.settledErrant`, in characters.
pub const SETTLED_LENGTH: usize = 32_768;

/// Two servers that replicate from each other, one of which takes writes.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "shardwright.dev",
    version = "v1alpha1",
    kind = "MySQLPair",
    plural = "mysqlpairs",
    singular = "mysqlpair",
    shortname = "mpair",
    category = "shards",
    namespaced,
    status = "MySQLPairStatus",
    derive = "PartialEq",
    doc = "MySQLPair is two MySQL servers that replicate from each other, one of which takes writes.",
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", description = "ShardCluster"),
    printcolumn(name = "Active", type_ = "string", json_path = ".status.active", description = "Server that takes the writes"),
    printcolumn(name = "In-Sync", type_ = "string", json_path = ".status.inSyncServers", description = "Servers that may be active, of two"),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch", description = "Rises with each change of active or inSync"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status", description = "Whether the pair is as specified"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", description = "Why"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 45").message("metadata.name must be at most 45 characters: names of Pods and Services are made from it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must begin with a letter and hold only a-z, 0-9 and -: names of Services are made from it"),
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.mysql) && has(self.mysql.storage)) == (has(oldSelf.mysql) && has(oldSelf.mysql.storage))").message("`mysql.storage` is immutable: it may not be added or removed").reason(Reason::FieldValueForbidden))]
pub struct MySQLPairSpec {
    /// The cluster. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("`clusterRef` is immutable").reason(Reason::FieldValueForbidden))]
    pub cluster_ref: LocalRef,
    /// What this pair has otherwise than the cluster's template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql: Option<MysqlOverrides>,
    /// Enabled: the operator acts on this pair. Paused: it changes nothing, neither children nor servers, and goes on reporting status.
    #[serde(default)]
    pub reconciliation: Reconciliation,
    /// The server that should take the writes: A (`<pair>-0`) or B (`<pair>-1`). A *changed* value is one planned switchover, acted upon once,
    /// while both servers are in sync (`status.observedPreferredActive`); it never undoes a failover. No wish when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::place")]
    pub preferred_active: Option<Place>,
}

/// One of the two servers of a pair: A (`<pair>-0`) or B (`<pair>-1`).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
pub enum Place {
    /// `<pair>-0`.
    A,
    /// `<pair>-1`.
    B,
}

impl Place {
    /// Its number in the StatefulSet.
    pub fn ordinal(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
    /// The place with this number.
    pub fn of(ordinal: usize) -> Self {
        if ordinal == 0 { Self::A } else { Self::B }
    }
}

/// Whether the operator acts on an object.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum Reconciliation {
    /// The operator acts.
    #[default]
    Enabled,
    /// The operator changes nothing, neither children nor servers; status goes on being reported. For maintenance by hand.
    Paused,
}

/// Observed state of a MySQLPair.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MySQLPairStatus {
    /// The generation last acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The record: Pod of the one server that may be opened for writes (rule P1). Changed only by compare-and-swap, before anything is done (P2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub active: Option<String>,
    /// Rises with each change of `active` or `inSync`, and with each step that must find what another operator saw before void; never falls.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub epoch: i64,
    /// The servers that have everything, by server_uuid: an emptied volume has another one and is no member.
    #[serde(default)]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["serverUuid".into()]))]
    pub in_sync: Vec<InSyncMember>,
    /// `inSync` for people: `2/2`.
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub in_sync_servers: String,
    /// GTID set: transactions that only the passive server has, or had, and that it may be copied over with: they were saved in Secrets
    /// `<pair>-errant-<epoch>`, or their loss was accepted. Until it is a member again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = SETTLED_LENGTH))]
    pub settled_errant: Option<String>,
    /// GTID set: transactions that the active server had received and not applied when a person accepted their loss. It throws them away
    /// before it is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = SETTLED_LENGTH))]
    pub given_up: Option<String>,
    /// The value of the annotation `shardwright.dev/accept-data-loss` when nothing asked for it: it counts for nothing until it is
    /// taken away, or another one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ignored_accept_data_loss: Option<i64>,
    /// The value of `spec.preferredActive` that was acted upon last: another one there is a wish that is not yet carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::place")]
    pub observed_preferred_active: Option<Place>,
    /// The last change of the active server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<ActiveChange>,
    /// The two servers as last seen.
    #[serde(default)]
    #[schemars(length(max = 2))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub servers: Vec<ServerStatus>,
    /// Shards whose databases are on the active server, whatever the record says of them; absent before they were first looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub shards: Option<Vec<ShardSpan>>,
    /// Conditions: Ready, Reconciling, Stalled, Durable, StorageAsSpecified.
    #[serde(default)]
    #[schemars(schema_with = "conditions::schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A server that has everything that the active one has.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct InSyncMember {
    /// Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// `server_uuid` of the data folder it has.
    #[schemars(length(min = 36, max = 36))]
    pub server_uuid: String,
}

/// One server as last seen.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Active or passive, by the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// What is true of it, in one word.
    #[schemars(length(min = 1, max = 64))]
    pub state: String,
    /// `server_uuid`, when it was ever reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub server_uuid: Option<String>,
    /// Version of MySQL, when it was ever reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// The last error of its Pod, its volume or its replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1100))]
    pub last_error: Option<String>,
}

/// Active (takes the writes) or Passive (follows), by the record.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum Role {
    /// Takes the writes.
    Active,
    /// Follows.
    Passive,
}

/// A change of the active server: what for, and where the time went.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ActiveChange {
    /// Failover, Switchover or AcceptedLoss.
    pub kind: ChangeKind,
    /// What made it necessary, in one CamelCase word, such as `ActiveUnreachable` or `PreferredActive`.
    #[schemars(length(min = 1, max = 64))]
    pub cause: String,
    /// Pod that was active; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub from: Option<String>,
    /// Pod that became active.
    #[schemars(length(min = 1, max = 63))]
    pub to: String,
    /// The epoch that the change was recorded with.
    #[schemars(range(min = 0))]
    pub epoch: i64,
    /// When the cause was first seen.
    pub start_time: MicroTime,
    /// When the new active server was opened for writes; absent while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_time: Option<MicroTime>,
    /// What was done, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<ChangeStep>,
}

/// Why the active server changed: Failover (it was lost), Switchover (it was planned; no outcome of a statement is unknown), AcceptedLoss
/// (a person gave up what only the lost server had).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum ChangeKind {
    /// It was lost.
    Failover,
    /// It was planned.
    Switchover,
    /// A person accepted the loss of data.
    AcceptedLoss,
}

impl ChangeKind {
    /// The word in status, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failover => "Failover",
            Self::Switchover => "Switchover",
            Self::AcceptedLoss => "AcceptedLoss",
        }
    }
}

/// One step of a change.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ChangeStep {
    /// What was done: `detected`, `closed`, `reached`, `recorded`, `received` (the receiver was stopped), `applied`, `opened`, `endpoint` (the Service leads there).
    #[schemars(length(min = 1, max = 32))]
    pub name: String,
    /// How long it took, in milliseconds.
    #[schemars(range(min = 0))]
    pub duration_milliseconds: i64,
}
