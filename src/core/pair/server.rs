//! What a server of a pair answered.

use super::moving::Links;
use crate::{
    api::names,
    core::{credentials, gtid::GtidSet, spans::SpanSet},
};

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
