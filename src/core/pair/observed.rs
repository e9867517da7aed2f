//! What was seen of a pair: plain data, no handle, no clock. What could not be seen is a value, not an error.

use super::moving::{Links, Moving};
use crate::{
    api::names,
    core::{credentials, gtid::GtidSet, spans::SpanSet},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A place in the pair: 0 is A (`<pair>-0`), 1 is B (`<pair>-1`).
pub type Ordinal = usize;

/// The other place.
pub fn other(ordinal: Ordinal) -> Ordinal {
    1 - ordinal.min(1)
}

/// The decision on record (rule P2): what `MySQLPair.status` says of who may be open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The one server that may be opened.
    pub active: Ordinal,
    /// Rises by one with each change of the others.
    pub epoch: i64,
    /// `server_uuid` of each member that has everything, by place.
    pub in_sync: [Option<String>; 2],
    /// Errant transactions of the passive server that it need not keep: they were saved, or a person gave them up (rule P8). Until it joins.
    pub settled: GtidSet,
    /// What the active server had received and not applied when a person gave it up: it is thrown away, not applied.
    pub given_up: GtidSet,
}

impl Record {
    /// The place that follows.
    pub fn passive(&self) -> Ordinal {
        other(self.active)
    }
    /// The member at `place`, if it is one.
    pub fn member(&self, place: Ordinal) -> Option<&str> {
        self.in_sync.get(place).and_then(Option::as_deref)
    }
    /// Number of members.
    pub fn members(&self) -> usize {
        self.in_sync.iter().flatten().count()
    }
}

/// Everything that a pass saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Namespace of the pair.
    pub namespace: String,
    /// Name of the pair.
    pub pair: String,
    /// Whether the finalizer is on it.
    pub finalizer: bool,
    /// Set when the pair is being deleted.
    pub deletion: Option<Deletion>,
    /// `spec.reconciliation: Paused`.
    pub paused: bool,
    /// What the servers should be made of.
    pub desired: Desired,
    /// The record; `None` before the first one.
    pub record: Option<Record>,
    /// The last epoch, also when there is no record.
    pub epoch: i64,
    /// The place that an earlier status or the published map calls active: decides between equals, nothing else.
    pub hint: Option<Ordinal>,
    /// What the accounts on the active server should carry as their mark; `None` without credentials.
    pub account_mark: Option<String>,
    /// When the pair's credentials were made: a server that was started earlier may have others.
    pub credentials_since: Option<Timestamp>,
    /// Since when the passive server has not been following, as far as this process has seen.
    pub adrift_since: Option<Timestamp>,
    /// Since when replication of the passive server stops with an error, as far as this process has seen.
    pub broken_since: Option<Timestamp>,
    /// How often this process has made the passive server follow since it last did.
    pub follows: Tries,
    /// How often this process has begun to copy the passive server since it was last a member.
    pub copies: Tries,
    /// How often this process has let commits wait for the passive server, to record it in, since it was last a member.
    pub joins: Tries,
    /// Since when the active server has had no acknowledgement although commits wait for one, as far as this process has seen:
    /// no semi-sync client, or commits that wait while none gets through ([`ServerState::unheard`]).
    pub unheard_since: Option<Timestamp>,
    /// A planned switchover was given up a moment ago: none before this.
    pub no_switchover_before: Option<Timestamp>,
    /// It was given up for somebody's edit alone: what was wished for still is.
    pub switchover_void: bool,
    /// How long a commit waits for its acknowledgement, milliseconds: [`STRICT_TIMEOUT`], or what `durability: Available` allows.
    pub acknowledgement_timeout: u64,
    /// `spec.preferredActive`.
    pub preferred: Option<Ordinal>,
    /// The value of it that was acted upon (`status.observedPreferredActive`): another one is one planned switchover.
    pub preferred_seen: Option<Ordinal>,
    /// The epoch that the annotation `shardwright.dev/accept-data-loss` names.
    pub accepted_loss: Option<i64>,
    /// The same, as it was there before anything asked for it.
    pub ignored_loss: Option<i64>,
    /// This process has sent a CLONE into the server at the place a moment ago, of which nothing need be seen yet.
    pub copying: [bool; 2],
    /// Errant transactions that have been saved in this epoch, whole.
    pub saved: GtidSet,
    /// Errant transactions of which only the names could be saved: they are too many.
    pub saved_by_name: GtidSet,
    /// `gtid_executed` of each server when this process last saw it.
    pub last_executed: [Option<GtidSet>; 2],
    /// When a server that is gone for good is replaced.
    pub replacement: Replacement,
    /// What moves of shards ask of the pair; `None` while it is in none, and has no shards of others.
    pub moving: Option<Moving>,
    /// The two places.
    pub sides: [Side; 2],
    /// What the status said before.
    pub before: Before,
}

/// What was tried in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tries {
    /// How often.
    pub count: u32,
    /// When last.
    pub last: Option<Timestamp>,
}

impl Tries {
    /// With one more.
    #[must_use]
    pub fn again(self, now: Timestamp) -> Self {
        Self {
            count: self.count.saturating_add(1),
            last: Some(now),
        }
    }
    /// How long to wait after the last one: `first`, twice that after the second one, and so on, `longest` at most.
    pub fn patience(self, first: SignedDuration, longest: SignedDuration) -> SignedDuration {
        let doublings = self.count.saturating_sub(1).min(20);
        first.saturating_mul(1 << doublings).min(longest)
    }
    /// Whether the last one was so short ago that the next one waits: see [`Tries::patience`].
    pub fn too_soon(self, now: Timestamp, first: SignedDuration, longest: SignedDuration) -> bool {
        let patience = self.patience(first, longest);
        self.last.is_some_and(|last| now.duration_since(last) < patience)
    }
}

/// `rpl_semi_sync_source_timeout` of `durability: Strict`: the longest there is, 49 days (rule P3).
pub const STRICT_TIMEOUT: u64 = 4_294_967_295;

/// When a server that is gone for good is replaced (`mysql.replacement`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// After it has been gone for so long.
    After(SignedDuration),
    /// Never by itself.
    Manual,
}

/// A pair that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deletion {
    /// The record of a live ShardCluster in a namespace that stays names this pair.
    pub holds_shards: bool,
}

/// What the servers should be made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Desired {
    /// As the template and the overrides say.
    Spec {
        /// Hash of what the user specified; a Pod with another one is replaced.
        hash: String,
    },
    /// The ShardCluster is not there: everything is kept as it is.
    ClusterMissing {
        /// Its name.
        cluster: String,
    },
    /// The specification cannot be carried out: everything is kept as it is.
    Refused {
        /// Reason of the condition.
        reason: &'static str,
        /// What to change.
        message: String,
    },
}

/// What the status said before this pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Before {
    /// `Ready` was `True`.
    pub ready: bool,
    /// Reason of `Ready`.
    pub reason: Option<String>,
    /// Reason of `Stalled`, when it was `True`.
    pub stalled: Option<String>,
    /// Reason of `Durable`.
    pub durable: Option<String>,
    /// State of each server.
    pub states: [Option<String>; 2],
    /// UUID and version of each server when it was last reached.
    pub known: [Option<(String, String)>; 2],
}

/// One place of the pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its Pod.
    pub pod: Option<PodState>,
    /// Its claim.
    pub volume: Volume,
    /// Its server.
    pub server: Server,
}

impl Side {
    /// The server, when it answered.
    pub fn up(&self) -> Option<&ServerState> {
        match &self.server {
            Server::Up(s) => Some(s),
            _ => None,
        }
    }
}

/// A Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an aspect of its own that the kubelet reports"
)]
pub struct PodState {
    /// Its UID.
    pub uid: String,
    /// Its address.
    pub ip: Option<String>,
    /// Its containers are ready, as the kubelet sees it. (Its own readiness follows the record: see [`super::gate`].)
    pub ready: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// When it was made.
    pub created: Timestamp,
    /// Hash of the specification that it was made of.
    pub spec_hash: Option<String>,
    /// mysqld has run in it at least once.
    pub ran: bool,
    /// mysqld runs in it now.
    pub running: bool,
    /// What keeps it from running.
    pub trouble: Option<Trouble>,
    /// The node that it was given to, and since when that is not ready or not there; `None` while all is well with it.
    pub node_gone: Option<NodeGone>,
}

/// A node that does not answer Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeGone {
    /// Its name.
    pub node: String,
    /// Since when it is not ready (its condition's last transition), or, when it is not there, since when the Pod is being deleted.
    pub since: Timestamp,
}

/// What keeps a Pod from running.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// In general.
    pub kind: TroubleKind,
    /// In the words of the kubelet or the scheduler.
    pub message: String,
}

/// What keeps a Pod from running, in general.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// The image cannot be had.
    Image,
    /// The container cannot be made, or ends again and again.
    Start,
    /// mysqld crashes each time it is started.
    Crash,
    /// No node takes it.
    Unschedulable,
    /// Its volume is not there.
    Volume,
}

impl TroubleKind {
    /// Reason of the condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Image => super::reasons::IMAGE_PULL_FAILED,
            Self::Start | Self::Crash => super::reasons::SERVER_NOT_STARTING,
            Self::Unschedulable => super::reasons::UNSCHEDULABLE,
            Self::Volume => super::reasons::VOLUME_NOT_BOUND,
        }
    }
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Volume {
    /// There is none.
    Missing,
    /// It waits for a volume.
    Pending {
        /// The StorageClass that it asks for.
        class: Option<String>,
    },
    /// It has one.
    Bound,
    /// Its volume is gone.
    Lost,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub enum Server {
    /// There is no address to ask at.
    Absent,
    /// No answer. It proves nothing.
    Unreachable(String),
    /// It runs with other credentials.
    AccessDenied(String),
    /// It has all the connections that it takes: it serves those.
    Full(String),
    /// It answered.
    Up(Box<ServerState>),
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a variable of its own on the server"
)]
pub struct ServerState {
    /// `server_uuid`: another one after a volume was emptied.
    pub uuid: String,
    /// `version`.
    pub version: String,
    /// `read_only`.
    pub read_only: bool,
    /// `super_read_only`.
    pub super_read_only: bool,
    /// `offline_mode`: applications are not let in; on for a moment while a server is fenced.
    pub offline: bool,
    /// `gtid_executed`, first reading.
    pub executed: GtidSet,
    /// `gtid_executed` once more, after the first reading of *both* servers: what one had at first is compared with what the
    /// other has later, so that traffic between the readings makes nobody look ahead or behind.
    pub executed_later: GtidSet,
    /// `gtid_purged`: what it can no longer send.
    pub purged: GtidSet,
    /// The channel without a name.
    pub channel: Option<Channel>,
    /// Its source side of semi-synchronous replication.
    pub source: SourceSide,
    /// Both plugins of semi-synchronous replication are there.
    pub semi_sync: bool,
    /// `rpl_semi_sync_replica_enabled`: it acknowledges what it receives.
    pub acknowledges: bool,
    /// `sync_relay_log`: after so many events what it received is brought to the disk.
    pub sync_relay_log: u64,
    /// A thread of it waits for space on its volume: what it was told to commit neither ends nor fails.
    pub disk_full: bool,
    /// Marks of our accounts, `None` for one that is not there: clone, application.
    pub account_marks: [Option<String>; 2],
    /// The replication accounts that are on it, one for each incarnation of a server that ever followed (rule P3).
    pub followers: Vec<FollowerAccount>,
    /// Accounts of somebody else's servers that take from it now and acknowledge what they receive.
    pub foreign: Vec<String>,
    /// Whether the clone plugin is active.
    pub can_clone: bool,
    /// Shards whose databases it has.
    pub shards: SpanSet,
    /// Databases that are none of MySQL's own.
    pub databases: usize,
    /// The last CLONE into it.
    pub clone: Option<CloneRun>,
    /// What it has of other pairs; `None` where nobody has looked.
    pub links: Option<Links>,
}

/// The source side of semi-synchronous replication.
/// <https://dev.mysql.com/doc/refman/9.7/en/replication-semisync-interface.html>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceSide {
    /// `rpl_semi_sync_source_enabled`.
    pub enabled: bool,
    /// `Rpl_semi_sync_source_status`: commits wait. Off though enabled: it waited for too long and went on alone.
    pub waits: bool,
    /// `Rpl_semi_sync_source_clients`: servers that acknowledge.
    pub clients: u32,
    /// `Rpl_semi_sync_source_wait_sessions`: commits that wait now.
    pub waiting: u32,
    /// `Rpl_semi_sync_source_yes_tx`: commits that were acknowledged since the server was started.
    pub acknowledged: u64,
    /// `rpl_semi_sync_source_timeout`, milliseconds.
    pub timeout: u64,
}

/// A replication account on a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FollowerAccount {
    /// Its name, made of the `server_uuid` of the server that follows with it ([`credentials::replication_user`]).
    pub user: String,
    /// Hash of what it was made of.
    pub mark: Option<String>,
    /// Nobody can log in with it.
    pub locked: bool,
    /// Dump threads that run with it now.
    pub dumps: u32,
}

impl ServerState {
    /// Nobody acknowledges: there is no semi-sync client, or commits wait.
    pub fn unheard(&self) -> bool {
        self.source.enabled && (self.source.clients == 0 || self.source.waiting > 0)
    }
    /// The replication account that the server with this `server_uuid` follows with, as it should be.
    pub fn admits(&self, uuid: &str, mark: &str) -> bool {
        let user = credentials::replication_user(uuid);
        let account = self.followers.iter().find(|f| f.user == user);
        account.is_some_and(|f| !f.locked && f.mark.as_deref() == Some(mark))
    }
    /// Takes writes of those who have no privilege to pass `read_only`.
    pub fn writable(&self) -> bool {
        !self.read_only && !self.offline
    }
    /// Nothing of anyone's is on it.
    pub fn blank(&self) -> bool {
        self.databases == 0
    }
    /// All accounts are there with this mark.
    pub fn has_accounts(&self, mark: &str) -> bool {
        self.account_marks.iter().all(|m| m.as_deref() == Some(mark))
    }
}

/// A replication channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// `SOURCE_HOST`.
    pub host: String,
    /// `SOURCE_PORT`.
    pub port: u16,
    /// `SOURCE_USER`.
    pub user: String,
    /// `SOURCE_AUTO_POSITION`.
    pub auto_position: bool,
    /// Over TLS, with the source's certificate verified.
    pub verified_tls: bool,
    /// State of the receiver thread.
    pub receiver: Receiver,
    /// Number and text of its last error, since it was started.
    pub receiver_error: Option<(u32, String)>,
    /// Whether the applier runs.
    pub applier: bool,
    /// Number and text of its last error, since it was started.
    pub applier_error: Option<(u32, String)>,
    /// `received_transaction_set`: what is in its relay log, or was; it survives a restart of the server.
    pub received: GtidSet,
}

impl Channel {
    /// Whether it is configured as [`crate::mysql`] would do it for a source at `host`, on the server with this `server_uuid`.
    pub fn leads_to(&self, host: &str, uuid: &str) -> bool {
        self.host == host
            && self.port == names::MYSQL_PORT
            && self.user == credentials::replication_user(uuid)
            && self.auto_position
            && self.verified_tls
    }
    /// Both threads run.
    pub fn runs(&self) -> bool {
        self.receiver == Receiver::On && self.applier
    }
    /// What was received and is not executed: transactions that may have been acknowledged (rule P4).
    pub fn unapplied(&self, executed: &GtidSet) -> GtidSet {
        self.received.minus(executed)
    }
    /// Neither thread runs.
    pub fn stopped(&self) -> bool {
        self.receiver == Receiver::Off && !self.applier
    }
}

/// State of a receiver thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receiver {
    /// Not running.
    Off,
    /// Trying to reach its source.
    Connecting,
    /// Receiving.
    On,
}

/// A CLONE into a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRun {
    /// How far it is.
    pub stage: CloneStage,
    /// Error number and text, when it failed.
    pub error: Option<(u32, String)>,
    /// Seconds since it ended, by the server's clock; `None` while it runs.
    pub ended_ago: Option<i64>,
    /// Bytes that it has copied, and that it is going to copy as far as it knows; `None` before it knows, and when it does not run.
    pub bytes: Option<(u64, u64)>,
    /// DNS name of the server that it copies; nothing when it does not copy over this server.
    pub donor: String,
    /// `gtid_executed` of the copy, when it is complete.
    pub brought: GtidSet,
}

/// How far a CLONE is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloneStage {
    /// It runs.
    Running,
    /// It ended well.
    Completed,
    /// It ended otherwise: also when the server was restarted in the middle of it.
    Failed,
}

impl Observed {
    /// Whether the server at `place` is being copied over: it says so itself, or has just been told to.
    pub fn copied_over(&self, place: Ordinal) -> bool {
        let runs = |s: &ServerState| s.clone.as_ref().is_some_and(|c| c.stage == CloneStage::Running);
        self.copying.get(place).is_some_and(|c| *c) || self.side(place).up().is_some_and(runs)
    }
    /// Whether this CLONE copies, or has copied, a server of another pair.
    pub fn is_from_elsewhere(&self, run: &CloneRun) -> bool {
        run.donor.ends_with(&format!(".{}.svc", self.namespace))
            && names::ORDINALS.iter().all(|i| self.host(*i) != run.donor)
    }
    /// The pair that is to be cloned over this one.
    pub fn cloned_from(&self) -> Option<&str> {
        self.moving.as_ref()?.cloned_from.as_deref()
    }
    /// Pod of a place.
    pub fn pod_name(&self, place: Ordinal) -> String {
        names::pod(&self.pair, place)
    }
    /// DNS name of a place.
    pub fn host(&self, place: Ordinal) -> String {
        names::host(&self.namespace, &self.pair, place)
    }
    /// A place.
    pub fn side(&self, place: Ordinal) -> &Side {
        let [a, b] = &self.sides;
        if place == 0 { a } else { b }
    }
    /// The hash that Pods should have, when it is known.
    pub fn desired_hash(&self) -> Option<&str> {
        match &self.desired {
            Desired::Spec { hash } => Some(hash),
            _ => None,
        }
    }
    /// Whether the Pod at `place` was made of another specification.
    pub fn outdated(&self, place: Ordinal) -> bool {
        match (&self.side(place).pod, self.desired_hash()) {
            (Some(p), Some(hash)) => p.spec_hash.as_deref() != Some(hash),
            _ => false,
        }
    }
}
