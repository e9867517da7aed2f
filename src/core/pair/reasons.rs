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
/// The recorded active server has another data folder than the recorded one, and the passive one cannot take over.
pub const ACTIVE_DATA_LOST: &str = "ActiveDataLost";
/// The active server cannot serve; the passive one takes over.
pub const FAILING_OVER: &str = "FailingOver";
/// The active server cannot serve, and the passive one is no member: it may lack what was acknowledged.
pub const NOT_IN_SYNC: &str = "NotInSync";
/// The active server cannot serve, and what the passive one received cannot be applied.
pub const PROMOTION_UNFIT: &str = "PromotionUnfit";
/// The active server is being handed over.
pub const SWITCHING_OVER: &str = "SwitchingOver";
/// What the active server received is being applied before it is opened.
pub const APPLYING: &str = "ApplyingRelayLog";
/// Commits wait for acknowledgements that nobody sends, or for a time other than specified; that is being changed.
pub const SETTING_DURABILITY: &str = "SettingDurability";
/// A former self of a server is being locked out.
pub const LOCKING_OUT: &str = "LockingOut";
/// Transactions that only the passive server has are being saved.
pub const SAVING_ERRANT: &str = "SavingErrant";
/// The passive server has been gone for too long, and is made anew.
pub const REPLACING: &str = "Replacing";
/// A volume is full.
pub const DISK_FULL: &str = "DiskFull";
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
/// A server has not got the plugins of semi-synchronous replication.
pub const SEMI_SYNC_UNAVAILABLE: &str = "SemiSyncUnavailable";
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

/// Durable: a commit is acknowledged when both servers have it.
pub const ACKNOWLEDGED_BY_BOTH: &str = "AcknowledgedByBoth";
/// Not durable: only one server is in sync.
pub const ALONE: &str = "Alone";
/// Not durable: the active server waited for too long (`durability: Available`) and goes on alone.
pub const NOT_WAITING: &str = "NotWaiting";
/// Not durable: a server that is none of the pair acknowledges too, and a commit waits for whichever is first.
pub const FOREIGN_ACKNOWLEDGER: &str = "ForeignAcknowledger";

/// Event: the pair became ready.
pub const PAIR_READY: &str = "PairReady";
/// Event: who is active was recorded.
pub const ACTIVE_RECORDED: &str = "ActiveRecorded";
/// Event: the active server was opened.
pub const ACTIVE_OPENED: &str = "ActiveOpened";
/// Event: the other server became active, because the active one could not serve.
pub const FAILOVER: &str = "Failover";
/// Event: the other server became active as planned.
pub const SWITCHOVER: &str = "Switchover";
/// Event: a planned switchover was begun and given up; the active server takes writes again.
pub const SWITCHOVER_ABORTED: &str = "SwitchoverAborted";
/// Event: a planned switchover is not done.
pub const SWITCHOVER_REFUSED: &str = "SwitchoverRefused";
/// Event: a server became active that may lack transactions, as a person accepted.
pub const DATA_LOSS_ACCEPTED: &str = "DataLossAccepted";
/// Event: what a server received was thrown away, as a person accepted.
pub const RELAY_LOG_DISCARDED: &str = "RelayLogDiscarded";
/// Event: errant transactions were saved.
pub const ERRANT_SAVED: &str = "ErrantSaved";
/// Event: accounts of former selves were locked.
pub const FORMER_SELF_LOCKED_OUT: &str = "FormerSelfLockedOut";
/// Event: a server that was gone for good is made anew.
pub const SERVER_REPLACED: &str = "ServerReplaced";
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

/// Words for the state of one server.
pub mod states {
    /// Takes writes.
    pub const SERVING: &str = "Serving";
    /// Follows, both threads run.
    pub const FOLLOWING: &str = "Following";
    /// Up, closed, and follows nobody.
    pub const CLOSED: &str = "Closed";
    /// Its threads try to connect or are stopped.
    pub const CONNECTING: &str = "Connecting";
    /// Its replication stopped with an error.
    pub const BROKEN: &str = "ReplicationBroken";
    /// It is being copied over.
    pub const REBUILDING: &str = "Rebuilding";
    /// Its Pod is there, its server not yet or not any more.
    pub const STARTING: &str = "Starting";
    /// Its Pod runs, its server does not answer.
    pub const UNREACHABLE: &str = "Unreachable";
    /// Its server knows other passwords.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// It has all the connections that it takes.
    pub const FULL: &str = "ConnectionsExhausted";
    /// Its Pod cannot run.
    pub const FAILING: &str = "Failing";
    /// Its Pod is being deleted.
    pub const STOPPING: &str = "Stopping";
    /// There is no Pod.
    pub const MISSING: &str = "Missing";
    /// It is open although the record does not say so; it is being closed.
    pub const OPEN: &str = "OpenUnrecorded";
}
