//! A pair that another one is cloned over.

use super::super::{
    action::Action,
    moving::{Links, Moving},
    observed::{CloneRun, CloneStage, Observed},
    state::{Rebuild, Why},
};
use super::*;

/// What the other pair had executed.
fn brought() -> GtidSet {
    "00000000-0000-0000-0000-0000000000cc:1-5000".parse().unwrap()
}
/// It has nothing of anyone's, and the pair `q` is to be cloned over it.
fn wanted() -> Observed {
    let mut o = healthy();
    for i in [0, 1] {
        let s = up(&mut o, i);
        (s.databases, s.links) = (0, Some(Links::default()));
    }
    o.moving = Some(Moving {
        in_move: true,
        cloned_from: Some("q".into()),
        ..Moving::default()
    });
    o
}
fn unwanted(mut o: Observed) -> Observed {
    o.moving.as_mut().unwrap().cloned_from = None;
    o
}
fn clone(stage: CloneStage, from: &str) -> CloneRun {
    let done = stage == CloneStage::Completed;
    CloneRun {
        stage,
        error: None,
        ended_ago: (stage != CloneStage::Running).then_some(100),
        bytes: None,
        donor: crate::api::names::host("ns", from, 1),
        brought: if done { brought() } else { GtidSet::new() },
    }
}
/// The passive server is out.
fn due() -> Observed {
    let mut o = wanted();
    out(&mut o);
    up(&mut o, 0).channel = None;
    o
}
/// It has been cloned.
fn cloned() -> Observed {
    let mut o = due();
    let s = up(&mut o, 1);
    (s.executed, s.executed_later, s.purged) = (brought(), brought(), brought());
    (s.channel, s.databases) = (None, 3);
    s.clone = Some(clone(CloneStage::Completed, "q"));
    o
}

#[test]
fn the_passive_server_is_out_before_it_is_overwritten() {
    let d = run(&wanted());
    assert_eq!(d.state, State::MemberLost(Lost::ClonedOver));
    assert_eq!(recorded(&d), (0, 3, [true, false]));
    assert_eq!(steps(&d), ["Record", "SourceOff(0)"]);
    // Nothing may come back from it.
    let mut o = due();
    up(&mut o, 0).channel = Some(channel(1));
    assert_eq!(run(&o).actions, [Action::Stop(0)]);
    // Somebody has something on one of them, or it can't clone.
    for i in [0, 1] {
        let mut o = wanted();
        up(&mut o, i).databases = 1;
        assert_eq!(run(&o).state, State::Healthy);
        let mut o = wanted();
        up(&mut o, i).can_clone = false;
        assert_eq!(run(&o).state, State::Healthy);
    }
}

#[test]
fn clone_due() {
    let d = run(&due());
    let clone_from = Action::CloneFrom {
        server: 1,
        known: gtids("a:1-10"),
        from: "q".into(),
    };
    assert_eq!(d.state, State::CloneDue(Rebuild::Now { failed: None }));
    assert_eq!(done(&d), [clone_from]);
    says(&d, reasons::REBUILDING_PASSIVE, false);
    assert!(d.overall.message().contains("q is cloned over the pair"));
    // It has begun.
    let mut o = due();
    up(&mut o, 1).clone = Some(clone(CloneStage::Running, "q"));
    let d = run(&o);
    assert_eq!((&d.state, d.actions.len()), (&State::Rebuilding, 0));
    assert!(d.overall.message().contains("copied from q-1."), "{d:?}");
    // After a failure it is tried again, but not at once.
    let mut o = due();
    let mut failed = clone(CloneStage::Failed, "q");
    (failed.error, failed.ended_ago) = (Some((3862, "Clone Donor Error".into())), Some(3));
    up(&mut o, 1).clone = Some(failed);
    let d = run(&o);
    assert!(matches!(d.state, State::CloneDue(Rebuild::Later { .. })) && d.actions.is_empty());
    says(&d, reasons::REBUILD_FAILED, true);
    up(&mut o, 1).clone.as_mut().unwrap().ended_ago = Some(30);
    assert_eq!(done(&run(&o)).len(), 1);
}

#[test]
fn clone_unwanted() {
    let mut o = unwanted(due());
    up(&mut o, 1).clone = Some(clone(CloneStage::Running, "q"));
    let d = run(&o);
    assert_eq!(
        (&d.state, d.actions.as_slice()),
        (&State::CloneUnwanted, &[Action::EndClone(1)][..])
    );
    says(&d, reasons::SEPARATING, false);
    // One from within the pair is another matter.
    up(&mut o, 1).clone = Some(clone(CloneStage::Running, "p"));
    assert_eq!(run(&o).state, State::Rebuilding);
}

#[test]
fn the_one_that_was_cloned_takes_over_from_one_that_has_nothing() {
    let d = run(&cloned());
    assert_eq!(d.state, State::SwitchOver(Why::Cloned));
    let adopt = Action::Adopt {
        server: 1,
        of: 0,
        from: "q".into(),
    };
    assert_eq!(d.actions[..2], [Action::Close(0), adopt]);
    assert_eq!(recorded(&d), (1, 3, [false, true]));
    let rest = [
        "Record",
        "Shut(1)",
        "Open(1)",
        "Unshut { server: 1, active: true }",
    ];
    assert_eq!(steps(&d)[2..], rest);
    // A try came to nothing a moment ago.
    let mut o = cloned();
    o.no_switchover_before = Some(now() + SignedDuration::from_secs(1));
    assert_eq!(run(&o).state, State::Rebuilding);
    // It is not what it should be, or the active one has something.
    let not: [fn(&mut Observed); 4] = [
        |o| up(o, 0).databases = 1,
        |o| up(o, 1).clone = Some(clone(CloneStage::Completed, "r")),
        |o| up(o, 1).executed = GtidSet::new(),
        |o| up(o, 1).databases = 0,
    ];
    for change in not {
        let mut o = cloned();
        change(&mut o);
        assert_ne!(run(&o).state, State::SwitchOver(Why::Cloned));
    }
}

#[test]
fn the_other_one_is_copied_within_the_pair() {
    let mut o = cloned();
    o.record = Some(Record {
        active: 1,
        in_sync: [None, Some(UUIDS[1].into())],
        ..o.record.unwrap()
    });
    let all = gtids("a:1-10").union(&brought());
    let s = up(&mut o, 1);
    (s.executed, s.executed_later, s.purged) = (all.clone(), all.clone(), all);
    (s.read_only, s.super_read_only) = (false, false);
    let s = up(&mut o, 0);
    (s.read_only, s.super_read_only) = (true, true);
    assert_eq!(done(&run(&o)), [Action::Rebuild { server: 0, donor: 1 }]);
}

#[test]
fn what_was_cloned_in_vain_is_nobodys_and_overwritten() {
    let o = unwanted(cloned());
    let d = run(&o);
    assert_eq!(done(&d), [Action::Rebuild { server: 1, donor: 0 }]);
    let Some(Action::Record(r)) = d.actions.first() else {
        panic!("{d:?}");
    };
    assert_eq!(r.settled, brought());
    // A copy into a folder, as for a backup, has brought nothing.
    let mut backup = o.clone();
    up(&mut backup, 1).clone.as_mut().unwrap().donor = String::new();
    assert!(matches!(run(&backup).state, State::Errant { .. }));
    // What somebody has added to it is saved first.
    let mut o = o;
    let s = up(&mut o, 1);
    s.executed = s.executed.union(&gtids("b:1"));
    assert!(matches!(run(&o).state, State::Errant { too_many: false, .. }));
}
