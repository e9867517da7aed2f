//! Reasons of conditions and events of a ShardRange; those of `Accepted` are in `core::claims`.

/// Ready: every shard is served where it belongs, with every table.
pub const SERVING: &str = "Serving";
/// The ShardCluster is not there, or is being deleted.
pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
/// The cluster has not recorded the claim yet.
pub const WAITING_FOR_RECORD: &str = "WaitingForRecord";
/// The pair cannot take new databases yet.
pub const WAITING_FOR_PAIR: &str = "WaitingForPair";
/// The cluster's tables were not tried on a server yet.
pub const WAITING_FOR_TABLES: &str = "WaitingForTables";
/// The cluster's tables cannot be created, and the range has new shards.
pub const TABLES_UNUSABLE: &str = "TablesUnusable";
/// Databases are being created.
pub const CREATING_DATABASES: &str = "CreatingDatabases";
/// The databases are made, the map that has the shards is being published.
pub const PUBLISHING_MAP: &str = "PublishingMap";
/// Tables are being created in shards that are served already.
pub const ROLLING_OUT_TABLES: &str = "RollingOutTables";
/// `pairRef` names another pair than the one that serves, and the shards have not set out yet.
pub const WAITING_FOR_MOVE: &str = "WaitingForMove";
/// They cannot set out as things are.
pub const MOVE_REFUSED: &str = "MoveRefused";
/// Databases of served shards are not on the server.
pub const DATABASE_MISSING: &str = "DatabaseMissing";
/// Databases of a shard are on several pairs.
pub const AMBIGUOUS_COPIES: &str = "AmbiguousCopies";
/// The pair that serves has no active server that can be reached.
pub const PAIR_NOT_SERVING: &str = "PairNotServing";
/// It is being deleted and holds shards that no other range has taken.
pub const SHARDS_NOT_HANDED_OVER: &str = "ShardsNotHandedOver";
/// It is being deleted, and nothing keeps it.
pub const DELETING: &str = "Deleting";

/// TablesDeclared: the shards have no table but those that the cluster declares.
pub const TABLES_DECLARED: &str = "TablesDeclared";
/// TablesDeclared: some have others, which are left alone.
pub const TABLE_NOT_DECLARED: &str = "TableNotDeclared";

/// Event: the claim was accepted.
pub const RANGE_ACCEPTED: &str = "RangeAccepted";
/// Event: databases were created and are in the map.
pub const SHARDS_OPENED: &str = "ShardsOpened";
/// Event: tables were created in every shard of the range.
pub const TABLES_CREATED: &str = "TablesCreated";
/// Event: the range became ready.
pub const RANGE_READY: &str = "RangeReady";
