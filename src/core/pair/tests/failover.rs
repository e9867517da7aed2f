//! The rows of the table in which the active server cannot serve, and those about who waits for whom.

use super::super::{
    action::Action,
    observed::{Observed, PodState, SourceSide, Trouble, TroubleKind},
    promotion::{Cause, Unfit},
    reasons,
    state::JOIN_RETRY,
};
use super::*;
use crate::api::mysql_pair::ChangeKind;

const OTHER: &str = "00000000-0000-0000-0000-0000000000cc";

/// The active server is gone, the passive one says that its receiver has lost it.
fn active_dead() -> Observed {
    let mut o = healthy();
    down(&mut o, 0);
    up(&mut o, 1).channel.as_mut().unwrap().receiver = Receiver::Connecting;
    o
}

#[test]
fn failover_records_then_stops_the_receiver_then_applies_then_opens() {
    let d = run(&active_dead());
    assert_eq!(d.state, State::Failover(Cause::Unreachable));
    assert_eq!(steps(&d), ["Record", "StopReceiver(1)", "Apply(1)", "Open(1)"]);
    assert_eq!(recorded(&d), (1, 3, [false, true]));
    assert_eq!(
        d.change.map(|c| (c.kind, c.from, c.to)),
        Some((ChangeKind::Failover, 0, 1))
    );
    says(&d, reasons::FAILING_OVER, false);
    assert!(d.notes.iter().any(|n| n.reason == reasons::FAILOVER && n.warning));
}

#[test]
fn failover_also_when_the_passive_server_has_just_restarted_with_an_unapplied_relay_log() {
    let mut o = active_dead();
    up(&mut o, 1).channel = Some(Channel {
        received: gtids("a:1-15"),
        ..stopped(0)
    });
    assert_eq!(
        steps(&run(&o)),
        ["Record", "StopReceiver(1)", "Apply(1)", "Open(1)"]
    );
}

#[test]
fn failover_when_the_active_server_lost_its_data_or_its_disk_is_full() {
    let mut o = healthy();
    let a = up(&mut o, 0);
    (a.uuid, a.read_only, a.super_read_only, a.source) = (OTHER.into(), true, true, SourceSide::default());
    let d = run(&o);
    assert_eq!(
        (d.state.clone(), recorded(&d).0),
        (State::Failover(Cause::DataLost), 1)
    );

    let mut o = healthy();
    up(&mut o, 0).disk_full = true;
    let d = run(&o);
    assert_eq!(
        (d.state.clone(), recorded(&d).0),
        (State::Failover(Cause::DiskFull), 1)
    );
    // With nobody who could take over it is told, and looked after.
    out(&mut o);
    let d = run(&o);
    assert_eq!(d.state, State::NotRecorded { waits: false });
    says(&d, reasons::DISK_FULL, true);
}

#[test]
fn the_old_active_server_is_fenced_after_the_new_one_was_opened_and_at_once_when_it_waits_for_nobody() {
    // The record says B; A is open, and waits for acknowledgements that nobody gives any more.
    let mut o = healthy();
    o.record = Some(Record {
        active: 1,
        epoch: 3,
        in_sync: [None, Some(UUIDS[1].into())],
        settled: GtidSet::new(),
        given_up: GtidSet::new(),
    });
    up(&mut o, 1).channel = Some(stopped(0));
    assert_eq!(
        steps(&run(&o)),
        ["StopReceiver(1)", "Apply(1)", "Record", "Open(1)", "Fence(0)"]
    );
    // With `durability: Available` it goes on alone some time.
    up(&mut o, 0).source.timeout = 10_000;
    assert_eq!(steps(&run(&o)).first(), Some(&"Fence(0)".to_owned()));
    // A closed one whose source side is still on would wait for acknowledgements of what it applies.
    let a = up(&mut o, 0);
    (a.read_only, a.super_read_only) = (true, true);
    assert!(steps(&run(&o)).contains(&"Fence(0)".to_owned()));
    // Nothing else is done in the same pass, once the recorded one serves: what waited there is not counted yet.
    let b = up(&mut o, 1);
    (b.read_only, b.super_read_only) = (false, false);
    assert_eq!(steps(&run(&o)), ["Fence(0)"]);
}

#[test]
fn no_failover() {
    type Case<'a> = (&'a dyn Fn(&mut Observed), Unfit, &'a str, bool);
    let cases: [Case<'_>; 5] = [
        (
            &|o| down(o, 1),
            Unfit::Unreachable,
            reasons::ACTIVE_UNAVAILABLE,
            false,
        ),
        (
            &|o| o.sides[1].pod.as_mut().unwrap().deleting = true,
            Unfit::Leaving,
            reasons::ACTIVE_UNAVAILABLE,
            false,
        ),
        (
            &|o| o.record.as_mut().unwrap().in_sync[1] = None,
            Unfit::NotMember,
            reasons::NOT_IN_SYNC,
            true,
        ),
        (
            &|o| up(o, 1).channel = None,
            Unfit::Detached,
            reasons::PROMOTION_UNFIT,
            true,
        ),
        (
            &|o| up(o, 1).disk_full = true,
            Unfit::DiskFull,
            reasons::DISK_FULL,
            true,
        ),
    ];
    for (change, unfit, reason, stalled) in cases {
        let mut o = active_dead();
        change(&mut o);
        let d = run(&o);
        assert_eq!(
            (&d.state, d.actions.len()),
            (&State::NoFailover(Cause::Unreachable, unfit), 0)
        );
        says(&d, reason, stalled);
    }
    // An emptied volume is no member either.
    let mut o = active_dead();
    up(&mut o, 1).uuid = OTHER.into();
    assert_eq!(
        run(&o).state,
        State::NoFailover(Cause::Unreachable, Unfit::NotMember)
    );
}

#[test]
fn a_broken_applier_is_started_again_and_nothing_is_recorded() {
    let mut o = active_dead();
    let error = (1062, "Duplicate entry".to_owned());
    let c = up(&mut o, 1).channel.as_mut().unwrap();
    (c.applier, c.applier_error) = (false, Some(error.clone()));
    let d = run(&o);
    assert_eq!(
        d.state,
        State::NoFailover(Cause::Unreachable, Unfit::Applier(error))
    );
    assert_eq!(d.actions, [Action::Start(1)]);
    says(&d, reasons::PROMOTION_UNFIT, true);
    assert!(
        d.overall.message().contains("accept-data-loss: \"2\""),
        "{}",
        d.overall.message()
    );
}

#[test]
fn an_applier_that_was_ended_in_the_middle_of_a_transaction_is_no_fault() {
    let ended = |o: &mut Observed| {
        let c = up(o, 1).channel.as_mut().unwrap();
        (c.receiver, c.applier) = (Receiver::Off, false);
        c.applier_error = Some((1756, "the coordinator stopped".into()));
    };
    let mut o = active_dead();
    ended(&mut o);
    assert_eq!(run(&o).state, State::Failover(Cause::Unreachable));
    let mut o = healthy();
    ended(&mut o);
    assert_eq!(run(&o).actions, [Action::Start(1)]);
}

#[test]
fn a_person_may_accept_the_loss_once() {
    let mut o = active_dead();
    o.record.as_mut().unwrap().in_sync[1] = None;
    o.last_executed[0] = Some(gtids("a:1-12"));
    o.before.stalled = Some(reasons::NOT_IN_SYNC.into());
    o.accepted_loss = Some(1);
    assert_eq!(
        run(&o).state,
        State::NoFailover(Cause::Unreachable, Unfit::NotMember)
    );
    o.accepted_loss = Some(2);
    let d = run(&o);
    assert_eq!(steps(&d), ["Record", "StopReceiver(1)", "Apply(1)", "Open(1)"]);
    let note = d
        .notes
        .iter()
        .find(|n| n.reason == reasons::DATA_LOSS_ACCEPTED)
        .unwrap();
    assert!(note.note.contains(&gtids("a:11-12").to_string()), "{}", note.note);
    assert_eq!(d.change.map(|c| c.kind), Some(ChangeKind::AcceptedLoss));
    // Nobody is left to go on with.
    down(&mut o, 1);
    assert!(run(&o).actions.is_empty());
}

#[test]
fn active_denied() {
    let mut o = healthy();
    o.sides[0].server = Server::AccessDenied("denied".into());
    let d = run(&o);
    assert_eq!(d.state, State::ActiveDenied);
    assert!(
        !d.actions
            .iter()
            .any(|a| matches!(a, Action::Record(r) if r.active == 1))
    );
}

fn closed() -> Observed {
    let mut o = healthy();
    let a = up(&mut o, 0);
    (a.read_only, a.super_read_only, a.channel) = (true, true, Some(stopped(1)));
    a.source = SourceSide {
        timeout: STRICT_TIMEOUT,
        ..SourceSide::default()
    };
    o
}

#[test]
fn active_closed() {
    let on = "SourceOn { server: 0, timeout: 4294967295 }";
    let mut o = closed();
    let d = run(&o);
    assert_eq!(steps(&d), ["StopReceiver(0)", "Apply(0)", on, "Open(0)"]);
    says(&d, reasons::OPENING, false);
    // It received something while it was passive: that is applied first, and nothing more is received.
    let c = up(&mut o, 0).channel.as_mut().unwrap();
    (c.receiver, c.received) = (Receiver::On, gtids("b:1-3"));
    let d = run(&o);
    assert_eq!(steps(&d), ["StopReceiver(0)", "Apply(0)", on, "Open(0)"]);
    says(&d, reasons::APPLYING, false);
    // Alone it waits for nobody.
    let mut o = closed();
    o.record.as_mut().unwrap().in_sync[1] = None;
    let d = run(&o);
    assert_eq!(steps(&d), ["StopReceiver(0)", "Apply(0)", "Record", "Open(0)"]);
    assert_eq!(
        recorded(&d),
        (0, 3, [true, false]),
        "a join that is under way becomes void"
    );
    up(&mut o, 0).source = source();
    assert_eq!(
        steps(&run(&o)),
        ["StopReceiver(0)", "Apply(0)", "Record", "SourceOff(0)", "Open(0)"]
    );
    // One that was left in offline mode lets nobody in.
    let mut o = healthy();
    up(&mut o, 0).offline = true;
    assert!(steps(&run(&o)).contains(&"Open(0)".to_owned()));
}

#[test]
fn active_unfit() {
    let mut o = closed();
    let c = up(&mut o, 0).channel.as_mut().unwrap();
    (c.received, c.applier_error) = (gtids("b:1-3"), Some((1062, "Duplicate entry".into())));
    let d = run(&o);
    assert_eq!(steps(&d), ["StopReceiver(0)", "Apply(0)"]);
    says(&d, reasons::PROMOTION_UNFIT, true);
    o.before.stalled = Some(reasons::PROMOTION_UNFIT.into());
    o.accepted_loss = Some(2);
    let d = run(&o);
    assert_eq!(
        (&d.state, steps(&d)),
        (&State::Discarding, vec!["Record".into(), "Discard(0)".into()])
    );
    assert!(d.notes.iter().any(|n| n.reason == reasons::RELAY_LOG_DISCARDED));
}

#[test]
fn a_member_that_is_gone_leaves_the_record_before_the_active_server_stops_waiting() {
    let mut o = healthy();
    down(&mut o, 1);
    let d = run(&o);
    assert_eq!((&d.state, d.actions.len()), (&State::PassiveUnavailable, 0));
    says(&d, reasons::PASSIVE_UNAVAILABLE, false);
    assert!(!d.following);
    // The active server sees it gone as well.
    up(&mut o, 0).source.clients = 0;
    let d = run(&o);
    assert_eq!(d.state, State::MemberLost(Lost::Gone));
    assert_eq!(steps(&d), ["Record", "SourceOff(0)"]);
    assert_eq!(recorded(&d), (0, 3, [true, false]));
    // Or commits wait for it.
    up(&mut o, 0).source = SourceSide {
        waiting: 2,
        ..source()
    };
    o.unheard_since = Some(now());
    assert_eq!(run(&o).state, State::PassiveUnavailable);
    o.unheard_since = Some(now() - UNHEARD_AND_GONE);
    assert_eq!(run(&o).state, State::MemberLost(Lost::Gone));
}

#[test]
fn a_passive_server_that_acknowledges_nothing_while_it_is_recorded_in_is_not_waited_for() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).source = SourceSide {
        waiting: 2,
        ..source()
    };
    // A moment is what a commit takes.
    assert_eq!(run(&o).state, State::NotRecorded { waits: false });
    o.unheard_since = Some(now() - UNHEARD_AND_GONE);
    let d = run(&o);
    assert_eq!(d.state, State::WaitingForNobody);
    assert_eq!(steps(&d), ["Record", "SourceOff(0)"]);
    // Not again at once.
    up(&mut o, 0).source = SourceSide {
        enabled: false,
        ..source()
    };
    o.unheard_since = None;
    o.joins = Tries::default().again(now());
    let d = run(&o);
    assert_eq!(d.state, State::NotRecorded { waits: true });
    assert!(steps(&d).is_empty());
    says(&d, reasons::JOINING, false);
    o.joins = Tries::default().again(now() - JOIN_RETRY);
    assert_eq!(run(&o).state, State::NotRecorded { waits: false });
    // Nor with a full volume.
    up(&mut o, 0).source = source();
    up(&mut o, 1).disk_full = true;
    assert_eq!(run(&o).state, State::WaitingForNobody);
}

#[test]
fn an_active_server_with_no_connection_left_serves() {
    let mut o = healthy();
    o.sides[0].server = Server::Full("Too many connections".into());
    let d = run(&o);
    assert_eq!(d.state, State::ActiveDenied);
    assert!(steps(&d).is_empty());
    assert!(d.overall.message().contains("max_connections"), "{:?}", d.overall);
}

#[test]
fn member_lost() {
    let with = |change: &dyn Fn(&mut Observed)| {
        let mut o = healthy();
        change(&mut o);
        let d = run(&o);
        match &d.state {
            State::MemberLost(why) => {
                assert_eq!(steps(&d), ["Record", "SourceOff(0)"]);
                *why
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(with(&|o| up(o, 1).uuid = OTHER.into()), Lost::OtherData);
    assert_eq!(with(&|o| up(o, 1).executed = gtids("a:1-10,b:1")), Lost::Errant);
    let behind = with(&|o| {
        up(o, 0).purged = gtids("a:1-5");
        up(o, 1).executed = gtids("a:1-3");
        up(o, 1).executed_later = gtids("a:1-3");
    });
    assert_eq!(behind, Lost::Behind, "it is recorded before it is overwritten");
    let broken = |o: &mut Observed| {
        let c = up(o, 1).channel.as_mut().unwrap();
        (c.applier, c.applier_error) = (false, Some((1062, "Duplicate entry".into())));
        o.adrift_since = Some(now() - GRACE - SignedDuration::from_secs(1));
    };
    assert_eq!(with(&broken), Lost::Adrift);
    assert_eq!(
        with(&|o| o.unheard_since = Some(now() - UNHEARD)),
        Lost::Unheard,
        "it answers and acknowledges nothing"
    );
    assert_eq!(
        with(&|o| o.sides[1].pod.as_mut().unwrap().deleting = true),
        Lost::Leaving
    );
    assert_eq!(with(&|o| up(o, 0).source.enabled = false), Lost::NotWaitedFor);
    assert_eq!(with(&|o| up(o, 0).source.waits = false), Lost::NotWaitedFor);
    // Its relay log would be thrown away.
    assert_eq!(with(&|o| up(o, 1).channel = None), Lost::Detached);
    assert_eq!(with(&|o| up(o, 1).acknowledges = false), Lost::Detached);
    let unreadable = |o: &mut Observed| {
        let c = up(o, 1).channel.as_mut().unwrap();
        (c.applier, c.applier_error) = (false, Some((13121, "relay log".into())));
    };
    assert_eq!(with(&unreadable), Lost::Detached);
}

#[test]
fn available_goes_on_alone_and_says_so() {
    let mut o = healthy();
    o.acknowledgement_timeout = 10_000;
    let d = run(&o);
    let timeout = Action::Timeout {
        server: 0,
        timeout: 10_000,
    };
    assert_eq!(
        (&d.state, d.actions.as_slice()),
        (&State::OtherTimeout, [timeout].as_slice())
    );
    up(&mut o, 0).source.timeout = 10_000;
    assert_eq!(run(&o).state, State::Healthy);
    up(&mut o, 0).source.waits = false;
    assert_eq!(run(&o).state, State::Healthy);
    let said = super::super::durable::durable(&o);
    assert_eq!((said.status, said.reason), (Some(false), reasons::NOT_WAITING));
    out(&mut o);
    assert_eq!(super::super::durable::durable(&o).reason, reasons::ALONE);
    assert_eq!(super::super::durable::durable(&healthy()).status, Some(true));
}

#[test]
fn a_foreign_server_that_acknowledges_is_told_once_and_takes_the_pair_its_durability() {
    let mut o = healthy();
    up(&mut o, 0).foreign = vec!["reports".into()];
    let told = |o: &Observed| {
        let d = run(o);
        assert_eq!((d.state, d.actions.len()), (State::Healthy, 0));
        d.notes
            .iter()
            .filter(|n| n.warning && n.reason == reasons::FOREIGN_ACKNOWLEDGER)
            .count()
    };
    let said = super::super::durable::durable(&o);
    assert_eq!(
        (said.status, said.reason),
        (Some(false), reasons::FOREIGN_ACKNOWLEDGER)
    );
    assert!(said.message.contains("(account reports)"), "{}", said.message);
    assert_eq!(told(&o), 1);
    o.before.durable = Some(reasons::FOREIGN_ACKNOWLEDGER.into());
    assert_eq!(told(&o), 0);
    // A server whose commits wait for nobody may be taken from by anybody.
    up(&mut o, 0).foreign.clear();
    up(&mut o, 1).foreign = vec!["reports".into()];
    assert_eq!(super::super::durable::durable(&o).status, Some(true));
}

#[test]
fn waiting_for_nobody() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).source = source();
    // One that is about to be recorded is waited for already.
    assert_eq!(run(&o).state, State::NotRecorded { waits: false });
    down(&mut o, 1);
    let d = run(&o);
    assert_eq!(d.state, State::WaitingForNobody);
    assert_eq!(steps(&d), ["Record", "SourceOff(0)"]);
    assert_eq!(recorded(&d), (0, 3, [true, false]));
}

/// A server that hangs in its fence must not keep the active one waiting for it.
#[test]
fn a_passive_server_that_is_to_be_fenced_is_let_go_of_first() {
    let mut o = healthy();
    up(&mut o, 1).super_read_only = false;
    assert_eq!(steps(&run(&o)), ["Fence(1)"]);
    o.unheard_since = Some(now() - UNHEARD);
    let d = run(&o);
    assert_eq!(d.state, State::MemberLost(Lost::Unheard));
    assert_eq!(steps(&d), ["Record", "SourceOff(0)", "Fence(1)"]);
    // The same when it is on record already that it is out.
    o.record.as_mut().unwrap().in_sync[1] = None;
    up(&mut o, 1).channel = None;
    let d = run(&o);
    assert_eq!(d.state, State::WaitingForNobody);
    assert_eq!(steps(&d), ["Record", "SourceOff(0)", "Fence(1)"]);
}

#[test]
fn strangers_are_locked_out() {
    let mut o = healthy();
    let former = FollowerAccount {
        dumps: 1,
        locked: true,
        ..follower(OTHER)
    };
    up(&mut o, 0).followers.push(former);
    let d = run(&o);
    let lock = Action::LockOut {
        server: 0,
        users: vec![replication_user(OTHER)],
    };
    assert_eq!(
        d.actions,
        std::slice::from_ref(&lock),
        "its dump thread runs still"
    );
    up(&mut o, 0).followers[2].dumps = 0;
    assert_eq!(run(&o).state, State::Healthy);
    up(&mut o, 0).followers[2].locked = false;
    assert_eq!(run(&o).actions, std::slice::from_ref(&lock));
    // Also while the member does not answer; of one that is no member nothing is known.
    down(&mut o, 1);
    assert_eq!(run(&o).actions, [lock]);
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    assert_eq!(run(&o).state, State::PassiveUnavailable);
}

#[test]
fn replacing() {
    let mut o = healthy();
    out(&mut o);
    down(&mut o, 1);
    up(&mut o, 0).channel = Some(stopped(1));
    let gone = |o: &mut Observed, since: i64| {
        let pod: &mut PodState = o.sides[1].pod.as_mut().unwrap();
        pod.node_gone = Some(super::super::observed::NodeGone {
            node: "n".into(),
            since: now() - SignedDuration::from_secs(since),
        });
    };
    gone(&mut o, 1700);
    assert_eq!(run(&o).state, State::PassiveUnavailable);
    gone(&mut o, 1900);
    // Its node was away for long; it was not.
    assert_eq!(run(&o).state, State::PassiveUnavailable);
    o.adrift_since = Some(now() - SignedDuration::from_secs(1700));
    assert_eq!(run(&o).state, State::PassiveUnavailable);
    o.adrift_since = Some(now() - SignedDuration::from_secs(1900));
    let d = run(&o);
    assert_eq!(steps(&d), [r#"Replace { place: 1, uid: Some("pod-1") }"#]);
    says(&d, reasons::REPLACING, false);
    // Nor need it be the node: its data may be what makes it crash.
    let mut damaged = o.clone();
    let pod = damaged.sides[1].pod.as_mut().unwrap();
    pod.node_gone = None;
    pod.trouble = Some(Trouble {
        kind: TroubleKind::Crash,
        message: "container mysqld ends again and again, last with status 2".into(),
    });
    assert_eq!(run(&damaged).state, State::Replacing);
    let mut early = damaged.clone();
    early.adrift_since = Some(now() - SignedDuration::from_secs(1700));
    assert_ne!(run(&early).state, State::Replacing);
    // What it is made of may be, too.
    damaged.sides[0].pod.as_mut().unwrap().spec_hash = Some("another".into());
    assert_ne!(run(&damaged).state, State::Replacing);
    o.replacement = Replacement::Manual;
    assert_eq!(run(&o).state, State::PassiveUnavailable);
    // Never the only good copy, and never while nobody serves.
    o.replacement = Replacement::After(SignedDuration::from_secs(60));
    o.record.as_mut().unwrap().in_sync[1] = Some(UUIDS[1].into());
    assert_ne!(run(&o).state, State::Replacing);
    o.record.as_mut().unwrap().in_sync[1] = None;
    up(&mut o, 0).read_only = true;
    assert_ne!(run(&o).state, State::Replacing);
}
