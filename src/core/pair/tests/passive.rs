//! The rows of the table with both servers up and the active one open.

use super::super::{
    action::Action,
    observed::{Channel, CloneRun, CloneStage, Observed, Receiver},
    reasons,
    state::{Circle, Lost, Rebuild, State},
};
use super::{Decision, GRACE, channel, done, gtids, healthy, now, out, recorded, run, says, stopped, up};
use crate::{api::conditions::Overall, core::gtid::GtidSet};
use k8s_openapi::jiff::SignedDuration;

fn empty_passive(transactions: u32) -> Observed {
    let mut o = healthy();
    out(&mut o);
    let all = gtids(&format!("a:1-{transactions}"));
    up(&mut o, 0).executed = all.clone();
    up(&mut o, 0).executed_later = all;
    up(&mut o, 0).channel = None;
    let s = up(&mut o, 1);
    (s.executed, s.executed_later, s.channel, s.databases) = (GtidSet::new(), GtidSet::new(), None, 0);
    o
}

#[test]
fn rebuilding() {
    let mut o = empty_passive(5000);
    let s = up(&mut o, 1);
    s.clone = Some(CloneRun {
        stage: CloneStage::Running,
        error: None,
        ended_ago: None,
        bytes: None,
        donor: crate::api::names::host("ns", "p", 0),
        brought: GtidSet::new(),
    });
    s.super_read_only = false;
    let d = run(&o);
    assert_eq!((&d.state, d.actions.len()), (&State::Rebuilding, 0));
    says(&d, reasons::REBUILDING_PASSIVE, false);
    assert!(!d.overall.message().contains('%'), "{}", d.overall.message());
    for (done, of, says) in [
        (0, 5 << 20, "copied from it, 0% of about 10 MiB"),
        ((13 << 30) - 1, 13 << 30, "copied from it, 90% of about 13.0 GiB"),
        (1300 << 20, 1300 << 20, "copied from it, 100% of about 1.2 GiB"),
    ] {
        up(&mut o, 1).clone.as_mut().unwrap().bytes = Some((done, of));
        let message = run(&o).overall.message().to_owned();
        assert!(message.contains(says), "{message}");
    }
    // `read_only` is another matter.
    up(&mut o, 1).read_only = false;
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
}

#[test]
fn rebuild_needed() {
    let copy = Action::Rebuild { server: 1, donor: 0 };
    let mut o = empty_passive(5000);
    let d = run(&o);
    assert_eq!(done(&d), std::slice::from_ref(&copy));
    says(&d, reasons::REBUILDING_PASSIVE, false);
    // A little is applied rather than copied, unless the active server cannot send it any more.
    assert_eq!(
        run(&empty_passive(500)).state,
        State::PassiveDetached { waits: false }
    );
    let mut few = empty_passive(500);
    up(&mut few, 0).purged = gtids("a:1-5");
    assert_eq!(done(&run(&few)), std::slice::from_ref(&copy));
    // What is errant and nobody's is overwritten.
    up(&mut few, 0).purged = GtidSet::new();
    up(&mut few, 1).executed = gtids("b:1");
    assert_eq!(done(&run(&few)), std::slice::from_ref(&copy));
    // What another server than the active one committed would not be taken.
    let mut foreign = empty_passive(500);
    up(&mut foreign, 0).executed = gtids("a:1-10,b:1");
    assert_eq!(done(&run(&foreign)), std::slice::from_ref(&copy));
    // After a failure it is tried again, but not at once.
    let failed = |ago| {
        Some(CloneRun {
            stage: CloneStage::Failed,
            error: Some((3862, "Clone Donor Error".into())),
            ended_ago: Some(ago),
            bytes: None,
            donor: crate::api::names::host("ns", "p", 0),
            brought: GtidSet::new(),
        })
    };
    up(&mut o, 1).clone = failed(3);
    let d = run(&o);
    assert!(d.actions.is_empty());
    says(&d, reasons::REBUILD_FAILED, true);
    up(&mut o, 1).clone = failed(30);
    let d = run(&o);
    assert_eq!(done(&d), [copy]);
    says(&d, reasons::REBUILD_FAILED, true);
    assert!(d.overall.message().contains("3862"));
    up(&mut few, 0).can_clone = false;
    let d = run(&few);
    assert_eq!(d.state, State::RebuildNeeded(Rebuild::Impossible));
    says(&d, reasons::CLONE_UNAVAILABLE, true);
}

#[test]
fn errant_transactions_are_saved_before_the_server_is_copied_over() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).executed = gtids("a:1-10,b:1-2");
    let set = gtids("b:1-2");
    let d = run(&o);
    let save = Action::SaveErrant {
        server: 1,
        set: set.clone(),
    };
    assert_eq!(d.actions, [save]);
    says(&d, reasons::SAVING_ERRANT, false);
    o.saved = set.clone();
    assert_eq!(done(&run(&o)), [Action::Rebuild { server: 1, donor: 0 }]);
    // Too many: a person has to look, and to say so.
    (o.saved, o.saved_by_name) = (GtidSet::new(), set);
    let d = run(&o);
    assert!(d.actions.is_empty());
    says(&d, reasons::ERRANT_TRANSACTIONS, true);
    assert!(d.overall.message().contains(&gtids("b:1-2").to_string()));
    (o.before.stalled, o.accepted_loss) = (Some(reasons::ERRANT_TRANSACTIONS.into()), Some(2));
    assert_eq!(done(&run(&o)), [Action::Rebuild { server: 1, donor: 0 }]);
}

/// The record that comes before a copy has another epoch: nothing was saved or accepted in that one, and the copy may fail.
#[test]
fn what_was_saved_or_accepted_stays_so_until_the_server_joins() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).executed = gtids("a:1-10,b:1-2");
    let record = |d: &Decision| {
        d.actions.iter().find_map(|a| match a {
            Action::Record(r) => Some(r.clone()),
            _ => None,
        })
    };
    let copies = |o: &Observed| {
        let d = run(o);
        assert_eq!(done(&d), [Action::Rebuild { server: 1, donor: 0 }]);
        record(&d)
    };
    for accepted in [false, true] {
        let mut o = o.clone();
        if accepted {
            (o.saved_by_name, o.accepted_loss) = (gtids("b:1-2"), Some(2));
            o.before.stalled = Some(reasons::ERRANT_TRANSACTIONS.into());
        } else {
            o.saved = gtids("b:1-2");
        }
        let settled = copies(&o).unwrap();
        assert_eq!((settled.epoch, &settled.settled), (3, &gtids("b:1-2")));
        (o.epoch, o.record) = (3, Some(settled));
        (o.saved, o.saved_by_name) = (GtidSet::new(), GtidSet::new());
        assert_eq!(copies(&o).unwrap().settled, gtids("b:1-2"));
        // One more is another matter.
        up(&mut o, 1).executed = gtids("a:1-10,b:1-3");
        assert!(matches!(run(&o).state, State::Errant { too_many: false, .. }));
        // It was copied, follows, and is recorded in.
        up(&mut o, 1).executed = gtids("a:1-10");
        up(&mut o, 0).channel = Some(channel(1));
        assert_eq!(record(&run(&o)).map(|r| r.settled), Some(GtidSet::new()));
    }
}

/// Whoever took its lock would end the copy, and whoever fenced it: it is left alone until it says itself that it is copied over.
#[test]
fn a_copy_that_was_just_begun_is_left_alone() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    let p = up(&mut o, 1);
    (p.executed, p.channel, p.super_read_only) = (gtids("a:1-10,b:1-2"), None, false);
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
    o.copying[1] = true;
    let d = run(&o);
    assert_eq!((&d.state, &d.actions), (&State::Rebuilding, &vec![]));
    // Also while something else is done about the active one.
    o.account_mark = Some("another".into());
    assert!(!run(&o).actions.contains(&Action::Fence(1)));
}

#[test]
fn what_was_received_from_somebody_else_and_not_applied_is_thrown_away() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).channel = Some(Channel {
        received: gtids("b:7"),
        ..stopped(0)
    });
    assert_eq!(run(&o).state, State::PassiveDetached { waits: false });
    up(&mut o, 1).channel = Some(Channel {
        received: gtids("a:9"),
        ..stopped(0)
    });
    assert_eq!(run(&o).state, State::PassiveStopped);
}

#[test]
fn a_server_whose_replication_stays_broken_is_copied_anew() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    let c = up(&mut o, 1).channel.as_mut().unwrap();
    (c.applier, c.applier_error) = (false, Some((1062, "Duplicate entry".into())));
    assert_eq!(run(&o).actions, [Action::Start(1)]);
    // It was copied a moment ago, and has caught up since: only the error counts.
    o.adrift_since = Some(now() - SignedDuration::from_hours(1));
    let d = run(&o);
    assert!(d.broken && d.actions == [Action::Start(1)], "{d:?}");
    o.broken_since = Some(now() - GRACE - SignedDuration::from_secs(1));
    assert_eq!(done(&run(&o)), [Action::Rebuild { server: 1, donor: 0 }]);
}

#[test]
fn passive_detached() {
    let follow = Action::Follow { server: 1, source: 0 };
    let with = |c: Option<Channel>| {
        let mut o = healthy();
        out(&mut o);
        up(&mut o, 0).channel = Some(stopped(1));
        up(&mut o, 1).channel = c;
        run(&o)
    };
    let cases = [
        None,
        Some(channel(1)),
        Some(Channel {
            auto_position: false,
            ..channel(0)
        }),
        Some(Channel {
            verified_tls: false,
            ..channel(0)
        }),
        // Another server's account, another password, a locked account, and a relay log that cannot be read.
        Some(Channel {
            user: "shardwright_r_0000000000000000".into(),
            ..channel(0)
        }),
        Some(Channel {
            receiver: Receiver::Connecting,
            receiver_error: Some((3118, "locked".into())),
            ..channel(0)
        }),
        Some(Channel {
            receiver: Receiver::Connecting,
            receiver_error: Some((1045, "denied".into())),
            ..channel(0)
        }),
        Some(Channel {
            applier: false,
            applier_error: Some((13121, "relay log".into())),
            ..channel(0)
        }),
    ];
    for c in cases {
        let d = with(c.clone());
        assert_eq!(done(&d), std::slice::from_ref(&follow), "{c:?}");
        says(&d, reasons::ATTACHING, false);
    }
}

#[test]
fn a_server_that_does_not_follow_is_not_made_to_all_the_time() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).channel = Some(Channel {
        receiver: Receiver::Connecting,
        receiver_error: Some((1045, "denied".into())),
        ..channel(0)
    });
    let waits = |o: &Observed, ago: i64| {
        let mut o = o.clone();
        o.follows.last = Some(now() - SignedDuration::from_secs(ago));
        let d = run(&o);
        says(&d, reasons::ATTACHING, false);
        assert!(
            d.overall.message().contains("denied (1045)"),
            "{}",
            d.overall.message()
        );
        let waits = d.state == State::PassiveDetached { waits: true };
        assert_eq!(d.actions.is_empty(), waits);
        waits
    };
    for (count, seconds) in [(1, 5), (2, 10), (3, 20), (9, 60)] {
        o.follows.count = count;
        assert!(waits(&o, seconds - 1) && !waits(&o, seconds), "{count}");
    }
}

#[test]
fn without_the_plugins_a_person_is_called() {
    for i in [0, 1] {
        let mut o = healthy();
        out(&mut o);
        up(&mut o, 0).channel = Some(stopped(1));
        (up(&mut o, i).semi_sync, up(&mut o, 1).acknowledges) = (false, i == 0);
        let d = run(&o);
        assert_eq!((&d.state, d.actions.len()), (&State::NoSemiSync { at: i }, 0));
        says(&d, reasons::SEMI_SYNC_UNAVAILABLE, true);
        assert_eq!(d.overall.message().contains("delete its Pod"), i == 0);
    }
    // A member leaves first.
    let mut o = healthy();
    (up(&mut o, 1).semi_sync, up(&mut o, 1).acknowledges) = (false, false);
    assert_eq!(run(&o).state, State::MemberLost(Lost::Detached));
}

#[test]
fn a_copy_that_does_not_make_a_member_is_made_again_later_and_later() {
    let mut o = empty_passive(5000);
    let ended = |ago| {
        Some(CloneRun {
            stage: CloneStage::Completed,
            error: None,
            bytes: None,
            donor: crate::api::names::host("ns", "p", 0),
            brought: GtidSet::new(),
            ended_ago: Some(ago),
        })
    };
    // By another operator, some time: nothing is known of it.
    up(&mut o, 1).clone = ended(1);
    assert_eq!(run(&o).state, State::RebuildNeeded(Rebuild::Now { failed: None }));
    for (count, seconds) in [(1, 10), (2, 20), (3, 40), (20, 3600)] {
        o.copies.count = count;
        o.copies.last = Some(now() - SignedDuration::from_hours(9));
        for (ago, later) in [(seconds - 1, true), (seconds, false)] {
            up(&mut o, 1).clone = ended(ago);
            let d = run(&o);
            says(&d, reasons::REBUILD_FAILED, true);
            assert_eq!(d.actions.is_empty(), later, "{count} {ago}");
        }
    }
    // Of one that was refused there is nothing to see.
    (o.copies.count, o.copies.last) = (1, Some(now() - SignedDuration::from_secs(9)));
    up(&mut o, 1).clone = None;
    assert!(run(&o).actions.is_empty());
    // Until the next one it is closed as it should be.
    up(&mut o, 1).super_read_only = false;
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
    o.copies.last = Some(now() - SignedDuration::from_secs(10));
    assert_eq!(done(&run(&o)), [Action::Rebuild { server: 1, donor: 0 }]);
    // While the fourth one runs, it is said that the others were in vain.
    o.copying[1] = true;
    for (count, stalled) in [(3, false), (4, true)] {
        o.copies.count = count;
        assert_eq!(matches!(run(&o).overall, Overall::Stalled { .. }), stalled);
    }
}

#[test]
fn passive_stopped() {
    let lost = Channel {
        receiver_error: Some((2003, "connection refused".into())),
        ..stopped(0)
    };
    for c in [stopped(0), lost] {
        let mut o = healthy();
        up(&mut o, 1).channel = Some(c);
        let d = run(&o);
        assert_eq!(
            (&d.state, d.actions.as_slice()),
            (&State::PassiveStopped, [Action::Start(1)].as_slice())
        );
        assert!(!d.following);
    }
}

#[test]
fn broken() {
    for i in [0, 1] {
        let mut o = healthy();
        up(&mut o, i).channel = Some(Channel {
            applier: false,
            applier_error: Some((1062, "Duplicate entry".into())),
            ..channel(1 - i)
        });
        let d = run(&o);
        assert_eq!(d.actions, [Action::Start(i)]);
        says(&d, reasons::REPLICATION_BROKEN, true);
        assert!(d.overall.message().contains("1062") && d.overall.message().contains(&format!("p-{i}")));
        assert!(d.requeue >= std::time::Duration::from_secs(5), "{:?}", d.requeue);
    }
}

#[test]
fn catching_up() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 1).executed_later = gtids("a:1-9");
    let d = run(&o);
    assert_eq!(
        (&d.state, d.actions.len()),
        (&State::CatchingUp { slowly: false }, 0)
    );
    says(&d, reasons::CATCHING_UP, false);
    // A member that lags stays a member: its record says that it follows.
    let mut o = healthy();
    up(&mut o, 1).executed_later = gtids("a:1-9");
    assert_eq!(run(&o).state, State::Healthy);
    let mut o = healthy();
    up(&mut o, 1).channel = Some(Channel {
        receiver: Receiver::Connecting,
        ..channel(0)
    });
    assert_eq!(run(&o).state, State::CatchingUp { slowly: false });
}

#[test]
fn one_that_lacks_much_does_not_bring_each_event_to_the_disk_until_it_joins() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 1).executed_later = GtidSet::new();
    up(&mut o, 0).executed = gtids("a:1-500");
    let d = run(&o);
    assert_eq!(
        done(&d),
        [Action::SyncRelayLog {
            server: 1,
            every: 10_000
        }]
    );
    up(&mut o, 1).sync_relay_log = 10_000;
    assert_eq!(run(&o).state, State::CatchingUp { slowly: false });
    // No member acknowledges what is not on its disk.
    let mut o = healthy();
    up(&mut o, 1).sync_relay_log = 10_000;
    assert_eq!(run(&o).state, State::MemberLost(Lost::Unsynced));
}

#[test]
fn circle_open() {
    let with = |c: Option<Channel>| {
        let mut o = healthy();
        up(&mut o, 0).channel = c;
        run(&o)
    };
    let d = with(None);
    assert_eq!(d.actions, [Action::Follow { server: 0, source: 1 }]);
    says(&d, reasons::CLOSING_CIRCLE, false);
    assert_eq!(with(Some(stopped(1))).actions, [Action::Start(0)]);
    let connecting = Channel {
        receiver: Receiver::Connecting,
        ..channel(1)
    };
    assert_eq!(
        with(Some(connecting)).state,
        State::CircleOpen(Circle::Connecting)
    );
}

#[test]
fn not_recorded() {
    let mut o = healthy();
    out(&mut o);
    let d = run(&o);
    assert_eq!(
        (&d.state, recorded(&d)),
        (&State::NotRecorded { waits: false }, (0, 3, [true, true]))
    );
    // Not while it is about to end.
    let mut leaving = o.clone();
    leaving.sides[1].pod.as_mut().unwrap().deleting = true;
    assert_eq!(run(&leaving).state, State::CatchingUp { slowly: false });
    // Commits wait first, then it reaches what was committed until then.
    assert!(
        matches!(
            d.actions.as_slice(),
            [
                Action::SyncRelayLog { server: 1, every: 1 },
                Action::SourceOn { server: 0, .. },
                Action::Reach { server: 1, of: 0 },
                Action::Record(_)
            ]
        ),
        "{:?}",
        d.actions
    );
}
