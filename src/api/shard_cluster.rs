//! ShardCluster: a fleet.

use super::{LocalRef, Placement, conditions, mysql_template::MysqlTemplate, schemas};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fleet of MySQL pairs that together serve the virtual shards 0 to `spec.shards.total` - 1.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "shardwright.dev",
    version = "v1alpha1",
    kind = "ShardCluster",
    plural = "shardclusters",
    singular = "shardcluster",
    shortname = "shc",
    category = "shards",
    namespaced,
    status = "ShardClusterStatus",
    derive = "PartialEq",
    doc = "ShardCluster is a fleet of MySQL pairs that together serve a fixed number of virtual shards.",
    printcolumn(name = "Shards", type_ = "integer", json_path = ".spec.shards.total", description = "Virtual shards in all"),
    printcolumn(name = "Open", type_ = "integer", json_path = ".status.openShards", description = "Shards in the map"),
    printcolumn(name = "Ranges", type_ = "integer", json_path = ".status.ranges", description = "ShardRanges of this cluster"),
    printcolumn(name = "Pairs", type_ = "string", json_path = ".status.pairsReady", description = "MySQLPairs that are Ready, of all"),
    printcolumn(name = "Map", type_ = "integer", json_path = ".status.placement.mapVersion", description = "Version of the shard map"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status", description = "Whether the fleet is as specified"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", description = "Why"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 40").message("metadata.name must be at most 40 characters: names of children are made from it"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must begin with a letter and hold only a-z, 0-9 and -: names of Services are made from it"),
)]
#[cfg_attr(test, kube(cel))]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.routing) == has(oldSelf.routing)").message("`routing` is immutable: it may not be added or removed").reason(Reason::FieldValueForbidden),
    validation = Rule::new("!has(self.routing) || !has(self.routing.modulus) || self.routing.modulus == self.shards.total").message("`routing.modulus` must equal `shards.total`").field_path(".routing.modulus"),
    validation = Rule::new("!has(self.layout) || !has(oldSelf.layout) || self.layout == oldSelf.layout").message("`layout` may not be changed, it is carried out once: make further MySQLPairs and ShardRanges instead").reason(Reason::FieldValueForbidden).field_path(".layout"),
    validation = Rule::new("!has(self.layout) || self.layout.open <= self.shards.total").message("`layout.open` must not exceed `shards.total`").field_path(".layout.open"),
    validation = Rule::new("!has(self.layout) || !has(self.routing) || self.routing.mode != 'KeyHash' || self.layout.open == self.shards.total").message("`layout.open` must equal `shards.total` in mode KeyHash: all mod shards are open").field_path(".layout.open")
)]
pub struct ShardClusterSpec {
    /// The key space. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("`shards` is immutable").reason(Reason::FieldValueForbidden))]
    pub shards: Shards,
    /// How a key finds its shard; mode ID when absent. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("`routing` is immutable").reason(Reason::FieldValueForbidden))]
    pub routing: Option<Routing>,
    /// Template of the servers.
    pub mysql: MysqlTemplate,
    /// Tables of every shard. Only ever added to: a table that is removed here stays where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<Tables>,
    /// Makes pairs and ranges once, when the cluster is new; afterwards they are ordinary objects that anyone edits. May be taken out,
    /// but not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Where the shard map is published; ConfigMap `<cluster>-shard-map` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_map: Option<ShardMapTarget>,
    /// How many moves of shards between pairs are under way at once.
    #[serde(default)]
    pub migration: Migration,
}

/// How many moves of shards between pairs are under way at once. One counts while copies are made, follow and are cut over; not while old copies are
/// kept, or cleaned up.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.movesPerPair <= self.movesPerCluster").message("`movesPerPair` must not exceed `movesPerCluster`").field_path(".movesPerPair"))]
pub struct Migration {
    /// Moves of which one pair is an end, 1 to 16.
    #[serde(default = "moves_per_pair")]
    #[schemars(range(min = 1, max = 16))]
    pub moves_per_pair: i32,
    /// Moves of the whole cluster, 1 to 64.
    #[serde(default = "moves_per_cluster")]
    #[schemars(range(min = 1, max = 64))]
    pub moves_per_cluster: i32,
}

fn moves_per_pair() -> i32 {
    1
}
fn moves_per_cluster() -> i32 {
    4
}

impl Default for Migration {
    fn default() -> Self {
        Self {
            moves_per_pair: moves_per_pair(),
            moves_per_cluster: moves_per_cluster(),
        }
    }
}

/// The key space: databases `<databasePrefix><number with digits digits>`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.digits == 5 || self.total <= [1, 10, 100, 1000, 10000][self.digits]").message("`digits` must be enough to write the number of the last shard").field_path(".digits"),
    validation = Rule::new("!['mysql', 'sys', 'performance_schema', 'information_schema'].exists(s, s.startsWith(self.databasePrefix) && size(s) == size(self.databasePrefix) + self.digits)").message("`databasePrefix` and `digits` together may not fit the name of a database of MySQL's own: the grant of the applications would cover it").field_path(".databasePrefix")
)]
pub struct Shards {
    /// Number of virtual shards, 1 to 65536, of which any part may be open.
    #[schemars(range(min = 1, max = 65536))]
    pub total: i32,
    /// What the name of every database begins with.
    #[serde(default = "default_prefix")]
    #[schemars(length(min = 1, max = 24), regex(pattern = "^[a-z][a-z0-9_]*$"))]
    pub database_prefix: String,
    /// Digits of the number in a database's name, filled with zeros, 1 to 5.
    #[serde(default = "default_digits")]
    #[schemars(range(min = 1, max = 5))]
    pub digits: i32,
}

fn default_prefix() -> String {
    "db".to_owned()
}
fn default_digits() -> i32 {
    5
}

/// How a key finds its shard.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.mode != 'KeyHash' || (has(self.algorithm) && has(self.modulus))").message("`algorithm` and `modulus` must be set in mode KeyHash"),
    validation = Rule::new("self.mode == 'KeyHash' || (!has(self.algorithm) && !has(self.modulus))").message("`algorithm` and `modulus` may not be set in mode ID")
)]
pub struct Routing {
    /// ID: a 64-bit ID carries its shard. KeyHash: the hash of a key, modulo `modulus`.
    pub mode: RoutingMode,
    /// The hash; KeyHash only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<HashAlgorithm>,
    /// Number that the hash is taken modulo; must equal `shards.total`. KeyHash only, where it must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub modulus: Option<i32>,
}

/// How a key finds its shard.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum RoutingMode {
    /// A 64-bit ID carries its shard.
    #[default]
    ID,
    /// The hash of a key, modulo the number of shards.
    KeyHash,
}

/// Hash of the bytes of the key and nothing else, read as one big-endian number. KeyHash only, where it must be set.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum HashAlgorithm {
    /// MD5, used for distribution and not for secrecy.
    MD5,
}

/// Tables of every shard.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.objects) || self.objects.all(o, self.objects.exists_one(p, p.typeId == o.typeId))").message("`objects[].typeId` must be unique"),
    validation = Rule::new("!has(self.objects) || !has(self.mappings) || self.objects.all(o, !self.mappings.exists(m, m.name == o.name))").message("an object and a mapping may not have the same name")
)]
pub struct Tables {
    /// Object tables: `local_id` (auto-increment primary key), `data` (JSON), `ts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub objects: Vec<ObjectTable>,
    /// Mapping tables: `from_id`, `to_id`, `sequence`, primary key (from_id, to_id), index on (from_id, sequence).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub mappings: Vec<MappingTable>,
    /// A ConfigMap whose values are SQL: CREATE TABLE and CREATE INDEX statements only, run in every shard in the order of its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::object_ref")]
    pub ddl_from: Option<LocalRef>,
}

/// A table of objects of one type.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ObjectTable {
    /// Name of the table.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z][a-z0-9_]*$"))]
    pub name: String,
    /// The type's number inside an ID, 0 to 1023; unique. `locate` names the table by it.
    #[schemars(range(min = 0, max = 1023))]
    pub type_id: i32,
}

/// A table of one-directional links between objects.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MappingTable {
    /// Name of the table, after the two nouns: `board_has_pins`.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z][a-z0-9_]*$"))]
    pub name: String,
}

/// What a new cluster begins with.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.pairs <= self.open").message("`pairs` must not exceed `open`: a pair needs at least one shard").field_path(".pairs"))]
pub struct Layout {
    /// Number of MySQLPairs, 1 to 256, called `<cluster>-p0`, `<cluster>-p1`, ….
    #[schemars(range(min = 1, max = 256))]
    pub pairs: i32,
    /// Shards opened, from 0 on, spread evenly over the pairs: one ShardRange each, called `<cluster>-r0`, `<cluster>-r1`, ….
    #[schemars(range(min = 1, max = 65536))]
    pub open: i32,
}

/// Where the shard map is published.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ShardMapTarget {
    /// Name of the ConfigMap. After a change the old one is left, with a last map that no longer follows.
    #[schemars(schema_with = "schemas::object_name")]
    pub config_map_name: String,
}

/// Observed state of a ShardCluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ShardClusterStatus {
    /// The generation last acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Who serves which shard: the record. Changed only by the operator, only by compare-and-swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Whether `spec.layout` was carried out; it is carried out once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutState>,
    /// Hash of the tables that were last found good: those that every shard is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tables_hash: Option<String>,
    /// Shards in the map.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub open_shards: i32,
    /// ShardRanges of this cluster.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ranges: i32,
    /// MySQLPairs of this cluster.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub pairs: i32,
    /// MySQLPairs that are Ready, of all: `2/2`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub pairs_ready: String,
    /// Conditions: Ready, Reconciling, Stalled, ShardsCovered.
    #[serde(default)]
    #[schemars(schema_with = "conditions::schema")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Whether `spec.layout` was carried out (Seeded); it is carried out once.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum LayoutState {
    /// Pairs and ranges were made; the layout is not looked at again.
    Seeded,
}

impl ShardClusterSpec {
    /// How a key finds its shard.
    pub fn routing_mode(&self) -> RoutingMode {
        self.routing.as_ref().map_or(RoutingMode::ID, |r| r.mode)
    }
}

impl ShardCluster {
    /// Name of the ConfigMap that the map is published in.
    pub fn shard_map_name(&self) -> String {
        match &self.spec.shard_map {
            Some(t) => t.config_map_name.clone(),
            None => super::names::shard_map(self.metadata.name.as_deref().unwrap_or_default()),
        }
    }
}
