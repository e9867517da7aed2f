//! One test a row of the table in `docs/failover.md`, and what stands beside it.

mod cloned;
mod consent;
mod failover;
mod lifecycle;
mod moving;
mod passive;
mod switchover;

use super::{
    action::Action,
    decide::{Children, Decision, decide},
    observed::{
        Before, Channel, Desired, FollowerAccount, Observed, PodState, Receiver, Record, Replacement,
        STRICT_TIMEOUT, Server, ServerState, Side, SourceSide, Tries, Volume,
    },
    reasons,
    state::{GRACE, Lost, State, UNHEARD, UNHEARD_AND_GONE},
};
use crate::{
    api::conditions::Overall,
    core::{credentials::replication_user, gtid::GtidSet},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub(super) const UUIDS: [&str; 2] = [
    "00000000-0000-0000-0000-00000000000a",
    "00000000-0000-0000-0000-00000000000b",
];
const MARK: &str = "mark";
const HASH: &str = "hash";

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub(super) fn gtids(text: &str) -> GtidSet {
    text.replace("a:", &format!("{}:", UUIDS[0]))
        .replace("b:", &format!("{}:", UUIDS[1]))
        .parse()
        .unwrap()
}

/// The channel of the other server, which leads to `to`.
pub(super) fn channel(to: usize) -> Channel {
    Channel {
        host: crate::api::names::host("ns", "p", to),
        port: 3306,
        user: replication_user(UUIDS[1 - to]),
        auto_position: true,
        verified_tls: true,
        receiver: Receiver::On,
        receiver_error: None,
        applier: true,
        applier_error: None,
        received: GtidSet::new(),
    }
}

/// The source side of an active server whose commits one follower acknowledges.
pub(super) fn source() -> SourceSide {
    SourceSide {
        enabled: true,
        waits: true,
        clients: 1,
        waiting: 0,
        acknowledged: 10,
        timeout: STRICT_TIMEOUT,
    }
}

/// The account that the server with this `server_uuid` follows with.
pub(super) fn follower(uuid: &str) -> FollowerAccount {
    FollowerAccount {
        user: replication_user(uuid),
        mark: Some(MARK.into()),
        locked: false,
        dumps: 0,
    }
}

pub(super) fn server(i: usize) -> ServerState {
    ServerState {
        uuid: UUIDS[i].into(),
        version: "9.7.4".into(),
        read_only: true,
        super_read_only: true,
        offline: false,
        executed: gtids("a:1-10"),
        executed_later: gtids("a:1-10"),
        purged: GtidSet::new(),
        channel: None,
        source: SourceSide {
            timeout: STRICT_TIMEOUT,
            ..SourceSide::default()
        },
        semi_sync: true,
        acknowledges: true,
        sync_relay_log: 1,
        disk_full: false,
        account_marks: [(); 2].map(|()| Some(MARK.into())),
        followers: UUIDS.map(follower).into(),
        foreign: vec![],
        can_clone: true,
        shards: crate::core::spans::SpanSet::new(),
        databases: 1,
        clone: None,
        links: None,
    }
}

pub(super) fn pod(i: usize) -> PodState {
    PodState {
        uid: format!("pod-{i}"),
        ip: Some("10.0.0.1".into()),
        ready: true,
        deleting: false,
        created: now() - SignedDuration::from_secs(600),
        spec_hash: Some(HASH.into()),
        ran: true,
        running: true,
        trouble: None,
        node_gone: None,
    }
}

/// A pair whose servers have just come up for the first time.
pub(super) fn fresh() -> Observed {
    let side = |i| Side {
        pod: Some(pod(i)),
        volume: Volume::Bound,
        server: Server::Up(Box::new(ServerState {
            executed: GtidSet::new(),
            executed_later: GtidSet::new(),
            account_marks: [None, None],
            followers: vec![],
            databases: 0,
            ..server(i)
        })),
    };
    Observed {
        namespace: "ns".into(),
        pair: "p".into(),
        finalizer: true,
        deletion: None,
        paused: false,
        desired: Desired::Spec { hash: HASH.into() },
        record: None,
        epoch: 0,
        hint: None,
        account_mark: Some(MARK.into()),
        credentials_since: None,
        adrift_since: None,
        broken_since: None,
        follows: Tries::default(),
        copies: Tries::default(),
        joins: Tries::default(),
        unheard_since: None,
        no_switchover_before: None,
        switchover_void: false,
        acknowledgement_timeout: STRICT_TIMEOUT,
        preferred: None,
        preferred_seen: None,
        accepted_loss: None,
        ignored_loss: None,
        copying: [false; 2],
        saved: GtidSet::new(),
        saved_by_name: GtidSet::new(),
        last_executed: [None, None],
        replacement: Replacement::After(SignedDuration::from_secs(1800)),
        moving: None,
        sides: [side(0), side(1)],
        before: Before::default(),
    }
}

/// A pair where all is well: A is active.
fn healthy() -> Observed {
    let mut o = fresh();
    o.record = Some(Record {
        active: 0,
        epoch: 2,
        in_sync: UUIDS.map(|u| Some(u.to_owned())),
        settled: GtidSet::new(),
        given_up: GtidSet::new(),
    });
    o.epoch = 2;
    for i in [0, 1] {
        o.sides[i].server = Server::Up(Box::new(ServerState {
            channel: Some(channel(1 - i)),
            ..server(i)
        }));
    }
    up(&mut o, 0).read_only = false;
    up(&mut o, 0).super_read_only = false;
    up(&mut o, 0).source = source();
    o
}

fn up(o: &mut Observed, i: usize) -> &mut ServerState {
    match &mut o.sides[i].server {
        Server::Up(s) => s,
        other => panic!("{other:?}"),
    }
}
fn down(o: &mut Observed, i: usize) {
    o.sides[i].server = Server::Unreachable("refused".into());
    o.sides[i].pod.as_mut().unwrap().ready = false;
}
/// The passive server is not a member, and nobody waits for it.
fn out(o: &mut Observed) {
    o.record.as_mut().unwrap().in_sync[1] = None;
    up(o, 0).source.enabled = false;
    up(o, 0).source.waits = false;
}
fn stopped(i: usize) -> Channel {
    Channel {
        receiver: Receiver::Off,
        applier: false,
        ..channel(i)
    }
}
fn run(o: &Observed) -> Decision {
    decide(o, now())
}
/// The one record that is written, in short: who is active, the epoch, and the members.
fn recorded(d: &Decision) -> (usize, i64, [bool; 2]) {
    let mut records = d.actions.iter().filter_map(|a| match a {
        Action::Record(r) => Some((r.active, r.epoch, r.in_sync.each_ref().map(Option::is_some))),
        _ => None,
    });
    let first = records.next().unwrap_or_else(|| panic!("{:?}", d.actions));
    assert_eq!(records.next(), None, "{:?}", d.actions);
    first
}
/// The steps without the record's content.
fn steps(d: &Decision) -> Vec<String> {
    d.actions
        .iter()
        .map(|a| match a {
            Action::Record(_) => "Record".to_owned(),
            other => format!("{other:?}"),
        })
        .collect()
}

/// The steps without the record: the same once more, which makes void what another operator has in mind.
fn done(d: &Decision) -> &[Action] {
    match d.actions.as_slice() {
        [Action::Record(_), rest @ ..] => rest,
        other => panic!("{other:?}"),
    }
}
#[track_caller]
fn says(d: &Decision, reason: &str, stalled: bool) {
    assert_eq!(
        (d.overall.reason(), matches!(d.overall, Overall::Stalled { .. })),
        (reason, stalled),
        "{d:?}"
    );
}

#[test]
fn waiting_for_servers() {
    let mut o = fresh();
    down(&mut o, 1);
    o.sides[1].pod.as_mut().unwrap().created = now();
    let d = run(&o);
    assert_eq!((d.state.clone(), d.actions.len()), (State::WaitingForServers, 0));
    says(&d, reasons::WAITING_FOR_SERVERS, false);
    assert!(
        d.overall.message().contains("p-1 (Starting)"),
        "{}",
        d.overall.message()
    );
}

#[test]
fn same_server_uuid() {
    for mut o in [fresh(), healthy()] {
        up(&mut o, 1).uuid = UUIDS[0].into();
        let d = run(&o);
        assert_eq!((&d.state, d.actions.len()), (&State::SameServerUuid, 0));
        says(&d, reasons::SAME_SERVER_UUID, true);
    }
}

#[test]
fn diverged() {
    let mut o = fresh();
    up(&mut o, 0).executed = gtids("a:1-10");
    up(&mut o, 1).executed = gtids("a:1-9,b:1");
    up(&mut o, 0).databases = 1;
    up(&mut o, 1).databases = 1;
    let d = run(&o);
    assert!(matches!(d.state, State::Diverged { .. }) && d.actions.is_empty());
    says(&d, reasons::DIVERGED_SERVERS, true);
    // Unless one of them has nothing that anyone put there.
    up(&mut o, 0).databases = 0;
    assert_eq!(run(&o).state, State::Electing { active: 1 });
}

#[test]
fn electing() {
    let mut o = fresh();
    let d = run(&o);
    assert_eq!(recorded(&d), (0, 1, [true, false]));
    says(&d, reasons::ELECTING, false);
    // Of two equal ones the one that was it before, of two others the one that has everything.
    o.hint = Some(1);
    assert_eq!(run(&o).state, State::Electing { active: 1 });
    up(&mut o, 0).executed = gtids("a:1");
    assert_eq!(run(&o).state, State::Electing { active: 0 });
    up(&mut o, 1).executed = gtids("a:1,b:1");
    o.hint = Some(0);
    assert_eq!(run(&o).state, State::Electing { active: 1 });
    // The epoch never falls, also when somebody removed the record.
    o.epoch = 7;
    assert_eq!(recorded(&run(&o)).1, 8);
}

#[test]
fn accounts_missing() {
    for mark in [None, Some("another".to_owned())] {
        let mut o = healthy();
        up(&mut o, 0).account_marks[1] = mark.clone();
        let d = run(&o);
        let accounts = Action::Accounts {
            server: 0,
            followers: UUIDS.map(str::to_owned).into(),
        };
        assert_eq!(
            (&d.state, d.actions.as_slice()),
            (&State::AccountsMissing, std::slice::from_ref(&accounts))
        );
        // Those that the servers follow with are among them.
        for i in [0, 1] {
            let mut o = healthy();
            up(&mut o, 0).followers[i].mark = mark.clone();
            assert_eq!(run(&o).actions, std::slice::from_ref(&accounts));
            let mut o = healthy();
            up(&mut o, 0).followers[i].locked = true;
            assert_eq!(run(&o).actions, std::slice::from_ref(&accounts));
        }
        o.account_mark = None;
        assert_eq!(
            run(&o).state,
            State::Healthy,
            "without credentials nothing can be said of them"
        );
    }
}

#[test]
fn what_the_active_server_committed_in_between_is_not_errant() {
    let mut o = healthy();
    up(&mut o, 1).executed = gtids("a:1-12");
    up(&mut o, 1).executed_later = gtids("a:1-12");
    assert_eq!(run(&o).state, State::Healthy);
    // Without a channel it can have that from nowhere but its own past: the active one lost something.
    up(&mut o, 1).channel = Some(stopped(0));
    assert_eq!(run(&o).state, State::MemberLost(Lost::Errant));
}

#[test]
fn reverse_channel_open() {
    for dead in [true, false] {
        let mut o = healthy();
        out(&mut o);
        up(&mut o, 1).channel = None;
        if dead {
            down(&mut o, 1);
        }
        let d = run(&o);
        assert_eq!(
            (&d.state, d.actions.as_slice()),
            (&State::ReverseChannelOpen, [Action::Stop(0)].as_slice())
        );
    }
}

#[test]
fn a_healthy_pair_is_left_alone() {
    let mut o = healthy();
    o.before.ready = true;
    let d = run(&o);
    assert_eq!(
        (&d.state, d.actions.len(), d.notes.len()),
        (&State::Healthy, 0, 0)
    );
    says(&d, reasons::SERVING, false);
    assert!(d.overall.is_ready() && d.following && d.children == Children::Apply);
}
