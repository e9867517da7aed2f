//! Reasons of conditions and events, and the words for a server's state: one list, which `docs/failover.md` explains.

/// Ready: the active server takes writes, the other one follows and has everything.
pub const SERVING: &str = "Serving";
/// Nothing was done yet.
pub const CREATING: &str = "Creating";
/// Both servers are needed before the first decision.
pub const WAITING_FOR_SERVERS: &str = "WaitingForServers";
/// Who is active is being recorded.
pub const ELECTING: &str = "Electing";
/// Neither server has everything that the other one has.
pub const DIVERGED_SERVERS: &str = "DivergedServers";
/// The recorded active server does not answer.
pub const ACTIVE_UNAVAILABLE: &str = "ActiveUnavailable";
/// The recorded active server has another data folder than the recorded one.
pub const ACTIVE_DATA_LOST: &str = "ActiveDataLost";
/// Both servers say the same `server_uuid`.
pub const SAME_SERVER_UUID: &str = "SameServerUuid";
/// The active server is being opened.
pub const OPENING: &str = "Opening";
/// Accounts are being set up.
pub const CREATING_ACCOUNTS: &str = "CreatingAccounts";
/// The passive server does not answer.
pub const PASSIVE_UNAVAILABLE: &str = "PassiveUnavailable";
/// The passive server is taken out of the record.
pub const LEAVING: &str = "PassiveLeaving";
/// The active server stops to follow one that is out.
pub const SEPARATING: &str = "Separating";
/// The passive server has transactions that the active one has not.
pub const ERRANT_TRANSACTIONS: &str = "ErrantTransactions";
/// The passive server is being copied from the active one.
pub const REBUILDING_PASSIVE: &str = "RebuildingPassive";
/// Copying failed and is tried again.
pub const REBUILD_FAILED: &str = "RebuildFailed";
/// It would have to be copied, and a server has no clone plugin.
pub const CLONE_UNAVAILABLE: &str = "CloneUnavailable";
/// The passive server is being made to follow.
pub const ATTACHING: &str = "AttachingPassive";
/// Replication stopped with an error.
pub const REPLICATION_BROKEN: &str = "ReplicationBroken";
/// The passive server has not got everything yet.
pub const CATCHING_UP: &str = "CatchingUp";
/// The active server is being made to follow the passive one.
pub const CLOSING_CIRCLE: &str = "ClosingCircle";
/// The passive server is being recorded.
pub const JOINING: &str = "PassiveJoining";
/// Pods are being replaced, one at a time.
pub const ROLLING: &str = "Rolling";
/// The pair is being deleted and the record still names it.
pub const HOLDS_SHARDS: &str = "HoldsShards";
/// The pair is being deleted.
pub const DELETING: &str = "Deleting";
/// `spec.reconciliation: Paused`.
pub const PAUSED: &str = "Paused";
/// The ShardCluster is not there.
pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
/// A name made from the pair's is too long.
pub const INVALID_NAME: &str = "InvalidName";
/// my.cnf lines that the operator owns or that are none.
pub const CONFIG_KEY_NOT_ALLOWED: &str = "ConfigKeyNotAllowed";
/// The Secrets with the passwords cannot be used.
pub const CREDENTIALS_UNUSABLE: &str = "CredentialsUnusable";
/// The API refused a child.
pub const CHILD_REFUSED: &str = "ChildRefused";
/// An image cannot be had.
pub const IMAGE_PULL_FAILED: &str = "ImagePullFailed";
/// A container cannot be made, or mysqld ends again and again.
pub const SERVER_NOT_STARTING: &str = "ServerNotStarting";
/// No node takes a Pod.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// A claim gets no volume.
pub const VOLUME_NOT_BOUND: &str = "VolumeNotBound";

/// Event: the pair became ready.
pub const PAIR_READY: &str = "PairReady";
/// Event: who is active was recorded.
pub const ACTIVE_RECORDED: &str = "ActiveRecorded";
/// Event: the active server was opened.
pub const ACTIVE_OPENED: &str = "ActiveOpened";
/// Event: a server that is not the recorded active one was open, and was fenced.
pub const SERVER_FENCED: &str = "ServerFenced";
/// Event: the passive server was recorded as having everything.
pub const PASSIVE_JOINED: &str = "PassiveJoined";
/// Event: the passive server was taken out of the record.
pub const PASSIVE_LEFT: &str = "PassiveLeft";
/// Event: copying the passive server began.
pub const REBUILD_STARTED: &str = "RebuildStarted";
/// Event: the passive server was copied.
pub const PASSIVE_REBUILT: &str = "PassiveRebuilt";
/// Event: the first Pod is replaced for a changed specification.
pub const ROLL_STARTED: &str = "RollStarted";
/// Event: a Pod is replaced.
pub const POD_REPLACED: &str = "PodReplaced";
