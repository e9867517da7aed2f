//! What an operator sees of the world, as the plain data that the core decides upon.

use super::world::{
    self, Copy, GHOST, Kind, Me, Mode, Mysqld, OTHER_PAIR, Receiver as Receives, Record as Recorded, Refusal,
    Run, SELVES, Txs, World, all,
};
use crate::{
    api::names,
    core::{
        credentials::replication_user,
        gtid::GtidSet,
        pair::{
            compare::passive_follows,
            moving::{Links, Moving, Outsider},
            observed::{
                Before, Channel, CloneRun, CloneStage, Desired, FollowerAccount, NodeGone, Observed,
                PodState, Receiver, Record, Replacement, STRICT_TIMEOUT, Server, ServerState, Side,
                SourceSide, Tries, Volume,
            },
            state::{EACH_EVENT, LAGS_MUCH, MANY_EVENTS},
        },
        spans::SpanSet,
    },
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// What an operator sees, and nothing else: of what looks the same there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    pub record: Option<Recorded>,
    /// The servers; those that do not answer with nothing but what Kubernetes says of them.
    pub servers: [Mysqld; 2],
    pub answers: [bool; 2],
    /// Whose the dump threads are that run, as far as there may be any.
    pub dumpers: [Option<Me>; 3],
    pub wish: Option<usize>,
    /// It has begun to copy over this one, and sees nothing of it yet.
    pub copying: [bool; 2],
    pub saved: Txs,
    /// What has been so since a moment ago, or since long.
    pub long: bool,
    /// Accounts of former selves are overlooked: see [`super::safeguards::Without::LockOut`].
    pub knows_no_strangers: bool,
    /// Shards move to or from the pair.
    pub moving: bool,
    /// It serves nothing at first.
    pub blank: bool,
    /// Another pair is to be cloned over it.
    pub clone_wanted: bool,
}

impl View {
    /// What operator `op` sees now, servers cut off from it excepted.
    pub fn of(w: &World, op: usize, long: bool) -> Self {
        let answers = [0, 1].map(|i| reaches(w, op, i));
        let server = |i: usize| {
            let s = w.servers[i];
            let kept = if answers[i] { s } else { Mysqld::empty(0) };
            Mysqld {
                run: if s.run == Run::Down { Run::Down } else { Run::Up },
                leaving: s.leaving,
                node_gone: s.node_gone,
                passing: 0,
                heard: 0,
                peer: 0,
                copy: match kept.copy {
                    Copy::Begun { .. } => Copy::None,
                    seen => seen,
                },
                ..kept
            }
        };
        let dumps = [0, 1]
            .into_iter()
            .filter(|i| answers[*i])
            .fold(0, |all, i| all | w.servers[i].dumps);
        let dumper = |j: usize| (dumps & 1 << j != 0).then_some(w.servers[j].me);
        Self {
            record: w.record,
            servers: [server(0), server(1)],
            answers,
            dumpers: [0, 1, GHOST].map(dumper),
            wish: w.wish,
            copying: [0, 1].map(|i| matches!(w.servers[i].copy, Copy::Begun { op: by, .. } if by == op)),
            saved: w.kept,
            long,
            knows_no_strangers: false,
            moving: w.left.moving,
            blank: w.left.blank,
            clone_wanted: w.clone_wanted,
        }
    }
}

/// Whether the operator gets an answer of the server.
pub fn reaches(w: &World, op: usize, i: usize) -> bool {
    let s = &w.servers[i];
    s.up() && !s.node_gone && !w.ops[op].cut[i]
}

const MARK: &str = "mark";
const HASH: &str = "hash";
/// The account that another pair takes with.
const OUTSIDER: &str = "shardwright_m_x";
/// Wherever the world's epoch is, the core counts from here.
const EPOCH: i64 = 100;

pub fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// `server_uuid`.
pub fn uuid(me: Me) -> String {
    format!("00000000-0000-0000-0000-00000000000{me}")
}

/// Each of the model's transactions stands for so many of MySQL's: to lack one is to lag much.
fn gtids(set: Txs) -> GtidSet {
    let many = LAGS_MUCH as u32 + 1;
    let one = |n: u32| {
        let first = n % 8 * many + 1;
        format!("{}:{first}-{}", uuid((n / 8) as Me), first + many - 1)
    };
    let text: Vec<_> = (0..33).filter(|n| set & 1 << n != 0).map(one).collect();
    text.join(",").parse().unwrap()
}

/// The other way round.
pub fn txs(set: &GtidSet) -> Txs {
    (0..33)
        .filter(|n| gtids(1 << n).is_subset_of(set))
        .fold(0, |all, n| all | 1 << n)
}

/// The plain data that the core decides upon.
pub fn observed(v: &View) -> Observed {
    let since = if v.long {
        now() - SignedDuration::from_hours(1)
    } else {
        now()
    };
    let unheard = v.record.is_some_and(|r| {
        let s = &v.servers[r.active];
        v.answers[r.active] && s.source_on && (s.dumps == 0 && !s.outsider || s.waiting != 0)
    });
    let mut observed = Observed {
        namespace: "ns".into(),
        pair: "p".into(),
        finalizer: true,
        deletion: None,
        paused: false,
        desired: Desired::Spec { hash: HASH.into() },
        record: v.record.as_ref().map(|r| Record {
            active: r.active,
            epoch: EPOCH,
            in_sync: r.members.map(|m| m.map(uuid)),
            settled: gtids(r.settled),
            given_up: GtidSet::new(),
        }),
        epoch: EPOCH,
        hint: None,
        account_mark: Some(MARK.into()),
        credentials_since: None,
        adrift_since: None,
        broken_since: None,
        follows: Tries::default(),
        copies: Tries::default(),
        joins: Tries::default(),
        unheard_since: unheard.then_some(since),
        no_switchover_before: None,
        switchover_void: false,
        acknowledgement_timeout: STRICT_TIMEOUT,
        preferred: v.wish,
        preferred_seen: None,
        accepted_loss: None,
        ignored_loss: None,
        copying: v.copying,
        saved: gtids(v.saved),
        saved_by_name: GtidSet::new(),
        last_executed: [None, None],
        replacement: Replacement::After(SignedDuration::from_mins(30)),
        moving: v.moving.then(|| Moving {
            in_move: true,
            cloned_from: v.clone_wanted.then(|| "q".to_owned()),
            ..Moving::default()
        }),
        sides: [side(v, 0), side(v, 1)],
        before: Before::default(),
    };
    observed.adrift_since = (!passive_follows(&observed)).then_some(since);
    observed.broken_since = observed.adrift_since;
    observed
}

fn side(v: &View, i: usize) -> Side {
    let s = &v.servers[i];
    let running = s.run != Run::Down;
    let pod = PodState {
        uid: format!("pod-{i}"),
        ip: Some("10.0.0.1".into()),
        ready: running && !s.node_gone,
        deleting: s.leaving,
        created: now() - SignedDuration::from_hours(2),
        spec_hash: Some(HASH.into()),
        ran: true,
        running,
        trouble: None,
        node_gone: s.node_gone.then(|| NodeGone {
            node: "node".into(),
            since: now() - SignedDuration::from_hours(1),
        }),
    };
    Side {
        pod: Some(pod),
        volume: Volume::Bound,
        server: if v.answers[i] {
            Server::Up(Box::new(server(v, i)))
        } else {
            Server::Unreachable("no answer".into())
        },
    }
}

fn server(v: &View, i: usize) -> ServerState {
    let s = &v.servers[i];
    let marked = s.executed & all(Kind::Base) != 0;
    let dumps_of = |me: Me| {
        (0..3)
            .filter(|j| s.dumps & 1 << j != 0 && v.dumpers[*j] == Some(me))
            .count() as u32
    };
    let follower = |me: Me| {
        let overlooked = v.knows_no_strangers && v.servers.iter().all(|s| s.me != me);
        (s.has_account(me) && !overlooked).then(|| FollowerAccount {
            user: replication_user(&uuid(me)),
            mark: Some(MARK.into()),
            locked: s.locks(me),
            dumps: dumps_of(me),
        })
    };
    let executed = gtids(s.executed);
    let others = if v.blank { 0 } else { all(Kind::Base) };
    ServerState {
        uuid: uuid(s.me),
        version: "9.7.4".into(),
        read_only: s.mode != Mode::Open,
        super_read_only: s.mode == Mode::Closed,
        offline: s.offline,
        executed: executed.clone(),
        executed_later: executed,
        purged: gtids(s.purged),
        channel: s.channel.map(|c| channel(s, c)),
        source: SourceSide {
            enabled: s.source_on,
            waits: s.source_on,
            clients: s.dumps.count_ones() + u32::from(s.outsider),
            waiting: s.waiting.count_ones(),
            acknowledged: 0,
            timeout: STRICT_TIMEOUT,
        },
        semi_sync: true,
        acknowledges: true,
        sync_relay_log: if s.synced { EACH_EVENT } else { MANY_EVENTS },
        disk_full: false,
        account_marks: [(); 2].map(|()| marked.then(|| MARK.into())),
        followers: (0..SELVES).filter_map(follower).collect(),
        foreign: if s.outsider { vec![OUTSIDER.into()] } else { vec![] },
        can_clone: true,
        shards: SpanSet::new(),
        databases: usize::from(s.executed & (world::CLIENTS | world::BROUGHT | others) != 0),
        clone: clone(s.copy),
        links: v.moving.then(|| Links {
            accounts: vec![Outsider {
                user: OUTSIDER.into(),
                locked: !s.admits_others,
                dumps: s.outsider.into(),
            }],
            ..Links::default()
        }),
    }
}

fn channel(s: &Mysqld, c: world::Channel) -> Channel {
    Channel {
        host: names::host("ns", "p", c.to),
        port: names::MYSQL_PORT,
        user: replication_user(&uuid(c.user)),
        auto_position: true,
        verified_tls: true,
        receiver: match s.receiver {
            Receives::Off => Receiver::Off,
            Receives::Connecting => Receiver::Connecting,
            Receives::On => Receiver::On,
        },
        receiver_error: match s.refusal {
            Refusal::None => None,
            Refusal::Denied => Some((3118, "locked".into())),
            Refusal::Purged => Some((13114, "purged".into())),
        },
        applier: s.applier,
        applier_error: None,
        received: gtids(s.received),
    }
}

fn clone(copy: Copy) -> Option<CloneRun> {
    let stage = match copy {
        Copy::None | Copy::Begun { .. } => return None,
        Copy::Running { .. } => CloneStage::Running,
        Copy::Completed | Copy::Cloned => CloneStage::Completed,
        Copy::Failed => CloneStage::Failed,
    };
    let elsewhere = matches!(copy, Copy::Cloned | Copy::Running { donor: OTHER_PAIR });
    Some(CloneRun {
        stage,
        error: None,
        ended_ago: (stage != CloneStage::Running).then_some(100),
        bytes: None,
        donor: names::host("ns", if elsewhere { "q" } else { "p" }, 1),
        brought: gtids(if copy == Copy::Cloned { world::BROUGHT } else { 0 }),
    })
}
