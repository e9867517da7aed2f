//! Reasons of conditions and events of a ShardCluster.

/// Ready: all pairs and ranges are.
pub const SERVING: &str = "Serving";
/// Ready: no ShardRange names the cluster yet.
pub const EMPTY: &str = "Empty";
/// `spec.layout` is being carried out.
pub const SEEDING_LAYOUT: &str = "SeedingLayout";
/// There is no record, and not every pair was asked for the databases that it has.
pub const ASKING_SERVERS: &str = "AskingServers";
/// Databases of a shard are on several pairs and nothing says which one serves.
pub const AMBIGUOUS_COPIES: &str = "AmbiguousCopies";
/// The record would not fit an object.
pub const TOO_MANY_SPANS: &str = "TooManySpans";
/// The record breaks its own rules: somebody edited the status by hand.
pub const RECORD_MALFORMED: &str = "RecordMalformed";
/// There is no record, and the published map is of a cluster with other databases.
pub const KEY_SPACE_DIFFERS: &str = "KeySpaceDiffers";
/// The ConfigMap that the map has to be published in is somebody else's.
pub const SHARD_MAP_NAME_TAKEN: &str = "ShardMapNameTaken";
/// The Secrets with the passwords cannot be used.
pub const CREDENTIALS_UNUSABLE: &str = "CredentialsUnusable";
/// The API refused an object that the cluster is given.
pub const CHILD_REFUSED: &str = "ChildRefused";
/// `spec.tables.ddlFrom` names a ConfigMap that is not there.
pub const DDL_CONFIG_MAP_NOT_FOUND: &str = "DdlConfigMapNotFound";
/// The tables cannot be created as they are written.
pub const DDL_INVALID: &str = "DdlInvalid";
/// The tables were not tried on a server yet.
pub const CHECKING_TABLES: &str = "CheckingTables";
/// A pair needs help.
pub const PAIR_STALLED: &str = "PairStalled";
/// A range needs help.
pub const RANGE_STALLED: &str = "RangeStalled";
/// Pairs are not Ready yet.
pub const PAIRS_NOT_READY: &str = "PairsNotReady";
/// Ranges are not Ready yet.
pub const RANGES_NOT_READY: &str = "RangesNotReady";
/// Tables are being created in shards that are served already.
pub const ROLLING_OUT_TABLES: &str = "RollingOutTables";

/// ShardsCovered: every shard on record belongs to a range.
pub const COVERED: &str = "Covered";
/// ShardsCovered: some are served, and no ShardRange covers them.
pub const SHARDS_NOT_COVERED: &str = "ShardsNotCovered";

/// Event: the map changed.
pub const SHARD_MAP_PUBLISHED: &str = "ShardMapPublished";
/// Event: the map's ConfigMap was deleted or edited by hand, and was restored.
pub const SHARD_MAP_RESTORED: &str = "ShardMapRestored";
/// Event: the record was made again from the map and the servers.
pub const RECORD_RESTORED: &str = "RecordRestored";
/// Event: shards were assigned to another range where they lie.
pub const SHARDS_HANDED_OVER: &str = "ShardsHandedOver";
/// Event: pairs and ranges were made from `spec.layout`.
pub const LAYOUT_SEEDED: &str = "LayoutSeeded";
/// Event: `spec.layout` was not carried out, since the cluster has pairs or ranges already.
pub const LAYOUT_SKIPPED: &str = "LayoutSkipped";
/// Event: the cluster became ready.
pub const CLUSTER_READY: &str = "ClusterReady";
/// Event: shards set out for another pair.
pub const MOVE_BEGUN: &str = "MoveBegun";
