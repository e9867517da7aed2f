//! What was seen of a pair: plain data, no handle, no clock. What could not be seen is a value, not an error.

use super::moving::Moving;
use crate::{api::names, core::gtid::GtidSet};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub use super::server::{
    Channel, CloneRun, CloneStage, FollowerAccount, Receiver, Server, ServerState, SourceSide,
};

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
