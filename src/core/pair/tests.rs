//! One test a row of the table in `docs/failover.md`, and what stands beside it.

mod lifecycle;
mod passive;

use super::{
    decide::{Action, Children, Decision, decide},
    observed::{
        Before, Channel, Desired, Observed, PodState, Receiver, Record, Server, ServerState, Side, Volume,
    },
    reasons,
    state::{GRACE, Lost, State},
};
use crate::{
    api::conditions::Overall,
    core::{credentials::REPLICATION_USER, gtid::GtidSet},
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

pub(super) fn channel(to: usize) -> Channel {
    Channel {
        host: crate::api::names::host("ns", "p", to),
        port: 3306,
        user: REPLICATION_USER.into(),
        auto_position: true,
        verified_tls: true,
        receiver: Receiver::On,
        receiver_error: None,
        applier: true,
        applier_error: None,
    }
}

pub(super) fn server(i: usize) -> ServerState {
    ServerState {
        uuid: UUIDS[i].into(),
        version: "9.7.4".into(),
        read_only: true,
        super_read_only: true,
        executed: gtids("a:1-10"),
        executed_later: gtids("a:1-10"),
        purged: GtidSet::new(),
        channel: None,
        account_marks: [(); 3].map(|()| Some(MARK.into())),
        can_clone: true,
        shards: crate::core::spans::SpanSet::new(),
        databases: 1,
        clone: None,
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
            account_marks: [None, None, None],
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
/// The passive server is not a member.
fn out(o: &mut Observed) {
    o.record.as_mut().unwrap().in_sync[1] = None;
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
/// With the record as its last step, A active, and these members.
fn recorded(d: &Decision) -> (usize, i64, [bool; 2]) {
    match d.actions.as_slice() {
        [Action::Record(r)] => (r.active, r.epoch, r.in_sync.each_ref().map(Option::is_some)),
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
fn active_unavailable() {
    let mut o = healthy();
    down(&mut o, 0);
    let d = run(&o);
    assert_eq!((&d.state, d.actions.len()), (&State::ActiveUnavailable, 0));
    says(&d, reasons::ACTIVE_UNAVAILABLE, false);
    assert!(d.following, "nobody can follow one that is away");
}

#[test]
fn active_data_lost() {
    let mut o = healthy();
    up(&mut o, 0).uuid = "00000000-0000-0000-0000-0000000000cc".into();
    let d = run(&o);
    assert_eq!(
        (&d.state, d.actions.as_slice()),
        (&State::ActiveDataLost, [Action::Fence(0)].as_slice())
    );
    says(&d, reasons::ACTIVE_DATA_LOST, true);
}

#[test]
fn active_closed() {
    let mut o = healthy();
    up(&mut o, 0).read_only = true;
    up(&mut o, 0).super_read_only = true;
    let d = run(&o);
    assert_eq!(
        (&d.state, d.actions.as_slice()),
        (&State::ActiveClosed, [Action::Open(0)].as_slice())
    );
    says(&d, reasons::OPENING, false);
}

#[test]
fn accounts_missing() {
    for mark in [None, Some("another".to_owned())] {
        let mut o = healthy();
        up(&mut o, 0).account_marks[2] = mark;
        let d = run(&o);
        assert_eq!(
            (&d.state, d.actions.as_slice()),
            (&State::AccountsMissing, [Action::Accounts(0)].as_slice())
        );
        o.account_mark = None;
        assert_eq!(
            run(&o).state,
            State::Healthy,
            "without credentials nothing can be said of them"
        );
    }
}

#[test]
fn member_lost() {
    let away = |since: SignedDuration| {
        let mut o = healthy();
        down(&mut o, 1);
        o.adrift_since = Some(now() - since);
        o
    };
    assert_eq!(run(&away(GRACE)).state, State::PassiveUnavailable);
    let d = run(&away(GRACE + SignedDuration::from_secs(1)));
    assert_eq!(
        (&d.state, recorded(&d)),
        (&State::MemberLost(Lost::Adrift), (0, 3, [true, false]))
    );

    let mut o = healthy();
    up(&mut o, 1).uuid = "00000000-0000-0000-0000-0000000000cc".into();
    assert_eq!(run(&o).state, State::MemberLost(Lost::OtherData));

    let mut o = healthy();
    up(&mut o, 1).executed = gtids("a:1-10,b:1");
    assert_eq!(run(&o).state, State::MemberLost(Lost::Errant));

    let mut o = healthy();
    up(&mut o, 0).purged = gtids("a:1-5");
    up(&mut o, 1).executed = gtids("a:1-3");
    up(&mut o, 1).executed_later = gtids("a:1-3");
    assert_eq!(
        run(&o).state,
        State::MemberLost(Lost::Behind),
        "it is recorded before it is overwritten"
    );
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
fn passive_unavailable() {
    let mut o = healthy();
    down(&mut o, 1);
    let d = run(&o);
    assert_eq!(
        (&d.state, d.actions.len(), d.following),
        (&State::PassiveUnavailable, 0, false)
    );
    says(&d, reasons::PASSIVE_UNAVAILABLE, false);
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
