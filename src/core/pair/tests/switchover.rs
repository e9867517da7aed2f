//! Planned changes of the active server.

use super::super::{action::Action, observed::Observed, state::Why, wish::Wish};
use super::*;

const STEPS: [&str; 6] = [
    "Close(0)",
    "Reach { server: 1, of: 0 }",
    "StopReceiver(1)",
    "Apply(1)",
    "Record",
    "Open(1)",
];

fn preferred() -> Observed {
    let mut o = healthy();
    o.preferred = Some(1);
    o
}

#[test]
fn a_changed_preference_is_one_switchover() {
    let mut o = preferred();
    let d = run(&o);
    assert_eq!(
        (&d.state, &d.wish),
        (&State::SwitchOver(Why::Preferred), &Wish::Pending)
    );
    assert_eq!(steps(&d), STEPS);
    assert_eq!(recorded(&d), (1, 3, [false, true]));
    says(&d, reasons::SWITCHING_OVER, false);
    // Acted upon: never again, whoever is active.
    o.preferred_seen = Some(1);
    let d = run(&o);
    assert_eq!((&d.state, &d.wish), (&State::Healthy, &Wish::None));
    // It holds already.
    o.preferred = Some(0);
    assert_eq!(run(&o).wish, Wish::Done);
}

#[test]
fn a_preference_is_refused_at_once_when_the_passive_server_is_not_well() {
    let refused = |change: &dyn Fn(&mut Observed), word: &str| {
        let mut o = preferred();
        change(&mut o);
        let d = run(&o);
        let Wish::Refused(why) = &d.wish else {
            panic!("{:?} in {:?}", d.wish, d.state)
        };
        assert!(why.contains(word), "{why}");
        assert!(!d.actions.contains(&Action::Close(0)), "{:?}", d.actions);
        assert!(d.notes.iter().any(|n| n.reason == reasons::SWITCHOVER_REFUSED));
    };
    refused(
        &|o| {
            let c = up(o, 1).channel.as_mut().unwrap();
            (c.applier, c.applier_error) = (false, Some((1062, "Duplicate entry".into())));
        },
        "1062",
    );
    refused(&|o| down(o, 1), "does not follow");
    let was_in_sync = |o: &mut Observed| {
        out(o);
        (o.epoch, o.record.as_mut().unwrap().epoch) = (9, 9);
    };
    refused(&was_in_sync, "not in sync");
    refused(
        &|o| {
            up(o, 0).executed = gtids("a:1-5000");
            up(o, 0).executed_later = gtids("a:1-5000");
        },
        "4990 transactions",
    );
    refused(
        &|o| o.no_switchover_before = Some(now() + SignedDuration::from_secs(3)),
        "in time",
    );
    // What only an edit of the pair stood in the way of is still wished for, and tried again in a moment.
    let mut o = preferred();
    (o.no_switchover_before, o.switchover_void) = (Some(now() + SignedDuration::from_secs(1)), true);
    let d = run(&o);
    assert_eq!((d.wish, d.state), (Wish::Pending, State::Healthy));
    o.no_switchover_before = Some(now());
    assert_eq!(run(&o).state, State::SwitchOver(Why::Preferred));
    // A pair that comes up for the first time has not got so far yet.
    let mut o = preferred();
    out(&mut o);
    assert_eq!(run(&o).wish, Wish::Pending);
}

#[test]
fn an_active_server_whose_pod_is_deleted_is_handed_over_before_it_goes() {
    let mut o = healthy();
    o.sides[0].pod.as_mut().unwrap().deleting = true;
    let d = run(&o);
    assert_eq!(d.state, State::SwitchOver(Why::Leaving));
    assert_eq!(steps(&d), STEPS);
    // One that was closed, by an operator that went in the middle of it, is opened first: giving up leaves it open, and then commits wait.
    let mut closed = o.clone();
    let a = up(&mut closed, 0);
    (a.read_only, a.super_read_only) = (true, true);
    assert_eq!(steps(&run(&closed)).last(), Some(&"Open(0)".to_owned()));
    // Not to one that goes as well, and not again at once after it was given up.
    let mut both = o.clone();
    both.sides[1].pod.as_mut().unwrap().deleting = true;
    assert_ne!(run(&both).state, State::SwitchOver(Why::Leaving));
    o.no_switchover_before = Some(now() + SignedDuration::from_secs(1));
    assert!(!steps(&run(&o)).contains(&"Close(0)".to_owned()));
}

#[test]
fn an_outdated_active_server_is_handed_over_rather_than_replaced() {
    let mut o = healthy();
    for side in &mut o.sides {
        side.pod.as_mut().unwrap().spec_hash = Some("old".into());
    }
    let d = run(&o);
    assert!(
        matches!(
            d.actions.as_slice(),
            [
                Action::Record(_),
                Action::SourceOff(0),
                Action::DeletePod { place: 1, .. }
            ]
        ),
        "{:?}",
        d.actions
    );
    o.sides[1].pod.as_mut().unwrap().spec_hash = Some(HASH.into());
    let d = run(&o);
    assert_eq!(
        (&d.state, steps(&d)),
        (&State::SwitchOver(Why::Roll), STEPS.map(str::to_owned).into())
    );
}
