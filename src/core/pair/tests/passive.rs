//! The rows of the table with both servers up and the active one open.

use super::super::{
    decide::Action,
    observed::{Channel, CloneRun, CloneStage, Observed, Receiver},
    reasons,
    state::{Circle, Rebuild, State},
};
use super::{channel, gtids, healthy, out, recorded, run, says, stopped, up};
use crate::core::gtid::GtidSet;

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
    });
    s.super_read_only = false;
    let d = run(&o);
    assert_eq!((&d.state, d.actions.len()), (&State::Rebuilding, 0));
    says(&d, reasons::REBUILDING_PASSIVE, false);
    // `read_only` is another matter.
    up(&mut o, 1).read_only = false;
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
}

#[test]
fn rebuild_needed() {
    let copy = Action::Rebuild { server: 1, donor: 0 };
    let mut o = empty_passive(5000);
    let d = run(&o);
    assert_eq!(d.actions, std::slice::from_ref(&copy));
    says(&d, reasons::REBUILDING_PASSIVE, false);
    // A little is applied rather than copied, unless the active server cannot send it any more.
    assert_eq!(run(&empty_passive(500)).state, State::PassiveDetached);
    let mut few = empty_passive(500);
    up(&mut few, 0).purged = gtids("a:1-5");
    assert_eq!(run(&few).actions, std::slice::from_ref(&copy));
    // What is errant and nobody's is overwritten.
    up(&mut few, 0).purged = GtidSet::new();
    up(&mut few, 1).executed = gtids("b:1");
    assert_eq!(run(&few).actions, std::slice::from_ref(&copy));
    // After a failure it is tried again, but not at once.
    let failed = |ago| {
        Some(CloneRun {
            stage: CloneStage::Failed,
            error: Some((3862, "Clone Donor Error".into())),
            ended_ago: Some(ago),
        })
    };
    up(&mut o, 1).clone = failed(3);
    let d = run(&o);
    assert!(d.actions.is_empty());
    says(&d, reasons::REBUILD_FAILED, true);
    up(&mut o, 1).clone = failed(30);
    let d = run(&o);
    assert_eq!(d.actions, [copy]);
    says(&d, reasons::REBUILD_FAILED, true);
    assert!(d.overall.message().contains("3862"));
    up(&mut few, 0).can_clone = false;
    let d = run(&few);
    assert_eq!(d.state, State::RebuildNeeded(Rebuild::Impossible));
    says(&d, reasons::CLONE_UNAVAILABLE, true);
}

#[test]
fn errant() {
    let mut o = healthy();
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).executed = gtids("a:1-10,b:1-2");
    let d = run(&o);
    assert_eq!((&d.state, d.actions.len()), (&State::Errant(gtids("b:1-2")), 0));
    says(&d, reasons::ERRANT_TRANSACTIONS, true);
    assert!(d.overall.message().contains(&gtids("b:1-2").to_string()));
}

#[test]
fn passive_detached() {
    let follow = Action::Follow { server: 1, source: 0 };
    let with = |c: Option<Channel>| {
        let mut o = healthy();
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
        // Another password, and a relay log that cannot be read.
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
        assert_eq!(d.actions, std::slice::from_ref(&follow), "{c:?}");
        says(&d, reasons::ATTACHING, false);
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
    assert_eq!((&d.state, d.actions.len()), (&State::CatchingUp, 0));
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
    assert_eq!(run(&o).state, State::CatchingUp);
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
        (&State::NotRecorded, (0, 3, [true, true]))
    );
}
