//! What a person accepts: one loss, the one that was asked about.

use super::super::{
    action::Action,
    consent,
    observed::Observed,
    promotion::{Cause, Unfit},
    reasons,
    state::Rebuild,
};
use super::*;

/// A pass, and what the status keeps of it.
fn pass(o: &mut Observed) -> Decision {
    let d = run(o);
    o.ignored_loss = consent::ignored(o, &d.overall);
    o.before.stalled = match &d.overall {
        Overall::Stalled { reason, .. } => Some((*reason).to_owned()),
        _ => None,
    };
    d
}

/// The passive server is no member, and the active one is gone.
fn not_in_sync() -> Observed {
    let mut o = healthy();
    o.record.as_mut().unwrap().in_sync[1] = None;
    down(&mut o, 0);
    o
}

fn no_failover(d: &Decision) -> bool {
    d.state == State::NoFailover(Cause::Unreachable, Unfit::NotMember)
}

#[test]
fn it_counts_when_it_was_set_after_it_was_asked_for() {
    let mut o = not_in_sync();
    assert!(no_failover(&pass(&mut o)));
    o.accepted_loss = Some(1);
    assert!(no_failover(&pass(&mut o)), "another epoch");
    o.accepted_loss = Some(2);
    let d = pass(&mut o);
    assert_eq!(recorded(&d), (1, 3, [false, true]));
    // Until that is on record it goes on to count, also when a step fails before.
    says(&d, reasons::NOT_IN_SYNC, true);
    assert_eq!(recorded(&pass(&mut o)), (1, 3, [false, true]));
}

#[test]
fn it_counts_for_nothing_when_it_was_there_before() {
    let mut o = healthy();
    o.accepted_loss = Some(2);
    assert_eq!(pass(&mut o).state, State::Healthy);
    let mut gone = not_in_sync();
    (gone.accepted_loss, gone.ignored_loss) = (o.accepted_loss, o.ignored_loss);
    for _ in 0..3 {
        assert!(no_failover(&pass(&mut gone)));
    }
    let d = pass(&mut gone);
    assert!(
        d.overall.message().contains("take away the one that is there"),
        "{}",
        d.overall.message()
    );
    gone.accepted_loss = None;
    assert!(no_failover(&pass(&mut gone)));
    gone.accepted_loss = Some(2);
    assert!(!no_failover(&pass(&mut gone)));
    // An epoch that is still to come, as of an earlier pair of the name.
    let mut o = healthy();
    o.accepted_loss = Some(3);
    pass(&mut o);
    let mut gone = not_in_sync();
    (gone.epoch, gone.record.as_mut().unwrap().epoch) = (3, 3);
    (gone.accepted_loss, gone.ignored_loss) = (o.accepted_loss, o.ignored_loss);
    for _ in 0..3 {
        assert!(no_failover(&pass(&mut gone)));
    }
}

#[test]
fn given_for_errant_transactions_it_is_on_record_at_once_and_promotes_nobody() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).executed = gtids("a:1-10,b:1-2");
    up(&mut o, 1).can_clone = false;
    o.saved_by_name = gtids("b:1-2");
    let d = pass(&mut o);
    says(&d, reasons::ERRANT_TRANSACTIONS, true);
    o.accepted_loss = Some(2);
    // The active server goes before the next pass: that is another loss.
    let mut gone = o.clone();
    down(&mut gone, 0);
    for _ in 0..3 {
        assert!(no_failover(&pass(&mut gone)));
    }
    // No copy can be made: what was given up is recorded all the same.
    let d = pass(&mut o);
    assert_eq!(d.state, State::RebuildNeeded(Rebuild::Impossible));
    let [Action::Record(r)] = d.actions.as_slice() else {
        panic!("{:?}", d.actions)
    };
    assert_eq!((r.epoch, &r.settled), (3, &gtids("b:1-2")));
    let told = |d: &Decision| {
        d.notes
            .iter()
            .find(|n| n.reason == reasons::DATA_LOSS_ACCEPTED)
            .map(|n| n.note.clone())
    };
    let note = told(&d).unwrap();
    assert!(note.contains(&gtids("b:1-2").to_string()), "{note}");
    (o.epoch, o.record) = (3, Some(r.clone()));
    let d = pass(&mut o);
    assert!(d.actions.is_empty(), "{:?}", d.actions);
    says(&d, reasons::CLONE_UNAVAILABLE, true);
}

/// A pair that nobody can write to says so first, and what it was asked for, whatever else is amiss.
#[test]
fn what_is_asked_comes_before_what_ails_a_pod_or_a_specification() {
    let mut o = not_in_sync();
    let pod = o.sides[0].pod.as_mut().unwrap();
    pod.trouble = Some(super::super::observed::Trouble {
        kind: super::super::observed::TroubleKind::Unschedulable,
        message: "no node takes it".into(),
    });
    o.desired = Desired::ClusterMissing { cluster: "c".into() };
    up(&mut o, 1).disk_full = true;
    let d = pass(&mut o);
    says(&d, reasons::NOT_IN_SYNC, true);
    let message = d.overall.message();
    assert!(
        message.contains("accept-data-loss") && message.contains("no node takes it"),
        "{message}"
    );
}

#[test]
fn instructions_come_before_sets_of_transactions() {
    let mut o = not_in_sync();
    o.last_executed[0] = Some(gtids("a:1-12"));
    let d = run(&o);
    let at = |word: &str| d.overall.message().find(word).unwrap();
    assert!(at("accept-data-loss") < at(&gtids("a:11-12").to_string()));
}

#[test]
fn one_server_may_go_on_without_a_record_after_minutes_and_when_a_person_says_so() {
    let mut o = fresh();
    down(&mut o, 0);
    o.sides[1].pod.as_mut().unwrap().created = now();
    o.accepted_loss = Some(0);
    let d = pass(&mut o);
    assert_eq!(d.state, State::WaitingForServers);
    says(&d, reasons::WAITING_FOR_SERVERS, false);
    o.sides[1].pod.as_mut().unwrap().created = now() - consent::WAITING_PATIENCE;
    for _ in 0..2 {
        let d = pass(&mut o);
        says(&d, reasons::WAITING_FOR_SERVERS, true);
        assert!(d.overall.message().contains("accept-data-loss: \"0\""), "{d:?}");
    }
    o.accepted_loss = None;
    pass(&mut o);
    o.accepted_loss = Some(0);
    let d = pass(&mut o);
    assert_eq!(
        (&d.state, recorded(&d)),
        (&State::Electing { active: 1 }, (1, 1, [false, true]))
    );
    assert!(d.notes.iter().any(|n| n.reason == reasons::DATA_LOSS_ACCEPTED));
    // One that refuses the password is there.
    o.accepted_loss = None;
    o.sides[0].server = Server::AccessDenied("denied".into());
    assert!(matches!(pass(&mut o).overall, Overall::Working { .. }));
    // With nobody there is nothing to go on with.
    down(&mut o, 0);
    down(&mut o, 1);
    says(&pass(&mut o), reasons::WAITING_FOR_SERVERS, false);
}

/// The active server is gone, and the passive one cannot apply what it received.
fn unfit() -> Observed {
    let mut o = healthy();
    down(&mut o, 0);
    let c = up(&mut o, 1).channel.as_mut().unwrap();
    (c.applier, c.applier_error) = (false, Some((1062, "Duplicate entry".into())));
    c.received = gtids("a:11-14");
    o.last_executed[0] = Some(gtids("a:1-12"));
    pass(&mut o);
    assert_eq!(o.before.stalled.as_deref(), Some(reasons::PROMOTION_UNFIT));
    o.accepted_loss = Some(2);
    o
}

#[test]
fn what_is_given_up_is_recorded_told_and_then_thrown_away() {
    let mut o = unfit();
    let d = run(&o);
    assert_eq!(steps(&d), ["Record", "Discard(1)", "Open(1)"]);
    let Some(Action::Record(r)) = d.actions.first() else {
        panic!("{:?}", d.actions)
    };
    assert_eq!((r.active, r.epoch, &r.given_up), (1, 3, &gtids("a:11-14")));
    let note = d.notes.iter().find(|n| n.reason == reasons::DATA_LOSS_ACCEPTED);
    let note = &note.unwrap().note;
    assert!(note.contains(&gtids("a:11-14").to_string()), "{note}");
    // The operator dies after the record: nobody is asked again.
    (o.epoch, o.record, o.accepted_loss) = (3, Some(r.clone()), None);
    for fault in [true, false] {
        let mut o = o.clone();
        if !fault {
            up(&mut o, 1).channel.as_mut().unwrap().applier_error = None;
        }
        let d = pass(&mut o);
        assert_eq!(
            (&d.state, steps(&d)),
            (&State::Discarding, vec!["Record".into(), "Discard(1)".into()])
        );
        assert_eq!(recorded(&d), (1, 4, [false, true]));
    }
    // One more transaction is another matter.
    up(&mut o, 1).channel.as_mut().unwrap().received = gtids("a:11-15");
    let d = pass(&mut o);
    assert!(matches!(d.state, State::ActiveUnfit { .. }), "{:?}", d.state);
    says(&d, reasons::PROMOTION_UNFIT, true);
}

#[test]
fn a_full_volume_is_no_loss_to_be_accepted() {
    let mut o = healthy();
    down(&mut o, 0);
    up(&mut o, 1).disk_full = true;
    pass(&mut o);
    o.accepted_loss = Some(2);
    for _ in 0..2 {
        let d = pass(&mut o);
        assert_eq!(d.state, State::NoFailover(Cause::Unreachable, Unfit::DiskFull));
        says(&d, reasons::DISK_FULL, true);
    }
}
