//! Pairs that shards move to or from.

use super::super::{
    action::Action,
    moving::{Link, Links, Moving, Outsider},
    observed::Observed,
    promotion::{Cause, Unfit},
    state::{Circle, Rebuild, Why},
};
use super::*;

/// A server of another pair.
const OTHER: &str = "00000000-0000-0000-0000-0000000000cc";

fn other(n: &str) -> GtidSet {
    format!("{OTHER}:{n}").parse().unwrap()
}
/// Shards move to or from this pair.
fn moving(mut o: Observed) -> Observed {
    o.moving = Some(Moving {
        in_move: true,
        accounts: vec!["shardwright_m_x".into()],
        ..Moving::default()
    });
    for i in [0, 1] {
        if let Server::Up(s) = &mut o.sides[i].server {
            s.links = Some(Links::default());
        }
    }
    o
}
fn links(o: &mut Observed, i: usize) -> &mut Links {
    up(o, i).links.as_mut().unwrap()
}
fn link(out_of_step: bool) -> Link {
    Link {
        name: "from-p2".into(),
        out_of_step,
        received: GtidSet::new(),
    }
}
const OPENED: [&str; 3] = ["Shut(1)", "Open(1)", "Unshut { server: 1, active: true }"];

/// What is done for moves, and without which it is what is done for any other pair.
fn is_for_moves(a: &Action) -> bool {
    matches!(
        a,
        Action::Shut(_)
            | Action::Unshut { .. }
            | Action::Bar(_)
            | Action::Admit(_)
            | Action::Quiet(_)
            | Action::Unlink(_)
            | Action::Mend(_)
    )
}
/// The steps with moves; the others among them are those without.
#[track_caller]
fn steps_of(o: &Observed) -> Vec<String> {
    let (with, without) = (run(&moving(o.clone())), run(o));
    assert_eq!(with.state, without.state);
    assert!(!without.actions.iter().any(is_for_moves), "{:?}", without.actions);
    let rest: Vec<_> = with
        .actions
        .iter()
        .filter(|a| !is_for_moves(a))
        .cloned()
        .collect();
    assert_eq!(rest, without.actions);
    steps(&with)
}

#[test]
fn whoever_takes_over_is_shut_as_recorded_after_it_is_on_record_and_before_it_is_opened() {
    let mut o = healthy();
    down(&mut o, 0);
    let [shut, open, unshut] = OPENED;
    let expected = ["Record", "StopReceiver(1)", "Apply(1)", shut, open, unshut];
    assert_eq!(steps_of(&o), expected);
    // Also when a person has accepted a loss: of a member that cannot apply, and of one that is no member.
    (o.accepted_loss, o.ignored_loss) = (Some(2), None);
    o.before.stalled = Some(reasons::PROMOTION_UNFIT.into());
    up(&mut o, 1).channel = None;
    assert_eq!(
        run(&o).state,
        State::AcceptingLoss(Cause::Unreachable, Unfit::Detached)
    );
    assert_eq!(steps_of(&o), ["Record", "Discard(1)", shut, open, unshut]);
    o.record.as_mut().unwrap().in_sync[1] = None;
    o.before.stalled = Some(reasons::NOT_IN_SYNC.into());
    assert_eq!(steps_of(&o), expected);
}

#[test]
fn an_active_server_that_comes_back_is_shut_as_recorded_before_commits_wait_and_before_it_is_opened() {
    let mut o = healthy();
    let a = up(&mut o, 0);
    (a.read_only, a.super_read_only) = (true, true);
    a.source = SourceSide {
        timeout: STRICT_TIMEOUT,
        ..SourceSide::default()
    };
    let unshut = "Unshut { server: 0, active: true }";
    let steps = steps_of(&o);
    assert_eq!(steps[..4], ["StopReceiver(0)", "Apply(0)", "Shut(0)", "Bar(0)"]);
    assert!(steps[4].starts_with("SourceOn"), "{steps:?}");
    assert_eq!(steps[5..], ["Open(0)", unshut]);
    // Alone: it is recorded once more, and the record of the cluster is read after that. No commit waits.
    o.record.as_mut().unwrap().in_sync[1] = None;
    let expected = [
        "StopReceiver(0)",
        "Apply(0)",
        "Record",
        "Shut(0)",
        "Open(0)",
        unshut,
    ];
    assert_eq!(steps_of(&o), expected);
    up(&mut o, 0).source.enabled = true;
    assert_eq!(steps_of(&o)[3..5], ["SourceOff(0)", "Shut(0)"]);
}

#[test]
fn a_switchover_stops_what_comes_from_other_pairs_first() {
    let mut o = healthy();
    o.preferred = Some(1);
    assert_eq!(run(&moving(o.clone())).state, State::SwitchOver(Why::Preferred));
    let [shut, open, unshut] = OPENED;
    let expected = [
        "Quiet(0)",
        "Close(0)",
        "Reach { server: 1, of: 0 }",
        "StopReceiver(1)",
        "Apply(1)",
        "Record",
        shut,
        open,
        unshut,
    ];
    assert_eq!(steps_of(&o), expected);
}

#[test]
fn a_server_that_joins_is_shut_as_recorded_and_is_the_one_that_is_taken_from() {
    let mut o = healthy();
    out(&mut o);
    assert_eq!(run(&moving(o.clone())).state, State::NotRecorded { waits: false });
    let steps = steps_of(&o);
    let unshut = "Unshut { server: 1, active: false }";
    assert_eq!(steps[1..5], ["Shut(1)", unshut, "Admit(1)", "Bar(0)"]);
    assert!(steps[0].starts_with("SyncRelayLog") && steps[5].starts_with("SourceOn"));
}

#[test]
fn outsiders() {
    for (locked, dumps) in [(false, 0), (true, 1)] {
        let mut o = moving(healthy());
        links(&mut o, 0).accounts = vec![Outsider {
            user: "shardwright_m_x".into(),
            locked,
            dumps,
        }];
        let d = run(&o);
        assert_eq!(d.state, State::Outsiders(vec!["shardwright_m_x".into()]));
        assert_eq!(d.actions, [Action::Bar(0)]);
        says(&d, reasons::LOCKING_OUT, false);
        // From the passive one they are to take.
        let accounts = std::mem::take(&mut links(&mut o, 0).accounts);
        links(&mut o, 1).accounts = accounts;
        assert_eq!(run(&o).state, State::Healthy);
    }
}

#[test]
fn one_that_acknowledges_is_seen_also_by_a_pair_that_knows_of_no_move() {
    let mut o = healthy();
    up(&mut o, 0).foreign = vec!["shardwright_m_x".into()];
    assert_eq!(run(&o).actions, [Action::Bar(0)]);
    // Somebody else's server is told of, and left alone.
    up(&mut o, 0).foreign = vec!["replica".into()];
    assert_eq!(run(&o).state, State::Healthy);
}

#[test]
fn channels_left() {
    let mut o = moving(healthy());
    links(&mut o, 1).channels = vec![link(false)];
    let d = run(&o);
    assert_eq!(
        (&d.state, &*d.actions),
        (&State::ChannelsLeft, &[Action::Unlink(1)][..])
    );
    says(&d, reasons::SEPARATING, false);
    // Before anything is saved of it: what comes over them would never end.
    out(&mut o);
    up(&mut o, 0).channel = Some(stopped(1));
    up(&mut o, 1).executed = other("1-5").union(&gtids("a:1-10"));
    assert_eq!(run(&o).state, State::ChannelsLeft);
    // Whoever takes the lock of one that is copied over ends that.
    o.copying[1] = true;
    assert_eq!(run(&o).state, State::Rebuilding);
}

#[test]
fn out_of_step() {
    let mut o = moving(healthy());
    links(&mut o, 0).channels = vec![link(true)];
    let d = run(&o);
    assert_eq!(
        (&d.state, &*d.actions),
        (&State::OutOfStep, &[Action::Mend(0)][..])
    );
    assert!(d.overall.is_ready() && d.requeue >= std::time::Duration::from_secs(1));
    // What is more urgent comes first.
    o.preferred = Some(1);
    assert_eq!(run(&o).state, State::SwitchOver(Why::Preferred));
}

#[test]
fn a_receiver_that_ended_because_another_one_did_is_not_broken() {
    for code in [13122, 13117] {
        let ended = |o: &mut Observed, i: usize| {
            let c = up(o, i).channel.as_mut().unwrap();
            c.receiver = Receiver::Off;
            c.receiver_error = Some((code, "could not queue event from source".into()));
        };
        let mut o = healthy();
        ended(&mut o, 0);
        assert!(matches!(run(&o).state, State::Broken { at: 0, .. }));
        let mut o = moving(o);
        assert_eq!(run(&o).state, State::CircleOpen(Circle::Stopped));
        assert_eq!(run(&o).actions, [Action::Start(0)]);
        links(&mut o, 0).channels = vec![link(false)];
        assert_eq!(run(&o).actions, [Action::Mend(0), Action::Start(0)]);
        let mut o = healthy();
        ended(&mut o, 1);
        assert!(matches!(run(&o).state, State::Broken { at: 1, .. }));
        assert_eq!(run(&moving(o)).state, State::PassiveStopped);
    }
}

#[test]
fn what_a_move_brings_to_one_server_first_makes_nobody_errant_or_behind() {
    let has = |i: usize, purged: bool| {
        let mut o = moving(healthy());
        let s = up(&mut o, i);
        s.executed = s.executed.union(&other("1-5000"));
        s.executed_later = s.executed.clone();
        if purged {
            s.purged = other("1-5000");
        }
        o
    };
    let counted = |mut o: Observed| {
        o.moving.as_mut().unwrap().counted = other("1-5000");
        o
    };
    // Without a word of it on record.
    assert_eq!(run(&has(1, true)).state, State::MemberLost(Lost::Errant));
    assert_eq!(run(&has(0, true)).state, State::MemberLost(Lost::Behind));
    for i in [0, 1] {
        assert_eq!(run(&counted(has(i, true))).state, State::Healthy);
    }
    // What is not among it counts as ever, and so does what a server of the pair committed.
    let mut o = counted(has(1, true));
    up(&mut o, 1).executed = other("1-5001");
    assert_eq!(run(&o).state, State::MemberLost(Lost::Errant));
    // A server that is out lacks it for good: it is copied.
    let mut o = counted(has(0, true));
    out(&mut o);
    assert!(matches!(run(&o).state, State::RebuildNeeded(Rebuild::Now { .. })));
    // What it has of it beyond the active one is no reason for that.
    let mut o = counted(has(1, true));
    out(&mut o);
    assert_eq!(run(&o).state, State::NotRecorded { waits: false });
}

#[test]
fn what_is_on_its_way_from_another_pair_is_not_errant() {
    let mut o = moving(healthy());
    let p = up(&mut o, 1);
    p.executed = p.executed.union(&other("7"));
    assert_eq!(run(&o).state, State::MemberLost(Lost::Errant));
    links(&mut o, 0).channels = vec![Link {
        received: other("5-7"),
        ..link(false)
    }];
    assert_eq!(run(&o).state, State::Healthy);
    // Once it takes no longer from the active one, it has it from elsewhere.
    up(&mut o, 1).channel = Some(stopped(0));
    assert_eq!(run(&o).state, State::MemberLost(Lost::Errant));
}

#[test]
fn a_passive_server_that_is_worked_on_is_not_fenced_while_it_is_read_only() {
    let mut o = healthy();
    up(&mut o, 1).super_read_only = false;
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
    let mut o = moving(o);
    assert_eq!(run(&o).state, State::Healthy);
    assert!(run(&o).actions.is_empty());
    up(&mut o, 1).read_only = false;
    assert_eq!(run(&o).actions, [Action::Fence(1)]);
}
