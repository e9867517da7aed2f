//! One test a row of the table in `docs/split.md`, and what stands beside it.

mod clone;
mod cutover;
mod link;
mod progress;
mod rest;

use super::{
    action::{Action, Change},
    decide::{Decision, decide},
    observed::{
        ChannelSeen, CloneSeen, End, Memory, Observed, PairSeen, Place, Policy, SeedOutcome, SeedRun,
        ServerSeen, VerifyOutcome, VerifyRun,
    },
    table::ROWS,
    wish::{Course, Early},
};
use crate::{
    api::{MoveKey, MoveStage, Placement, Seed, ShardSpan, conditions::Overall},
    core::{
        gtid::GtidSet,
        pair::observed::Tries,
        placement::{self, moves},
        spans::SpanSet,
    },
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Shards 4 to 7 of 0 to 7 move.
const MOVING: (i32, i32) = (4, 7);
const FROM: End = End::From;
const TO: End = End::To;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}
fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}
fn set(spans: &[(i32, i32)]) -> SpanSet {
    spans.iter().map(|&(f, l)| ShardSpan::new(f, l)).collect()
}
fn moving() -> SpanSet {
    set(&[MOVING])
}
fn gtids(n: i64) -> GtidSet {
    format!("00000000-0000-0000-0000-00000000000a:1-{n}")
        .parse()
        .unwrap()
}
fn key() -> MoveKey {
    MoveKey::new("p0", "p1")
}
fn a(end: End) -> Place {
    Place::new(end, 0)
}
fn b(end: End) -> Place {
    Place::new(end, 1)
}
fn tried(count: u32, seconds_ago: i64) -> Tries {
    Tries {
        count,
        last: Some(ago(seconds_ago)),
    }
}

fn server(has: &[(i32, i32)], shut: &[(i32, i32)]) -> ServerSeen {
    ServerSeen {
        executed: gtids(10),
        purged: GtidSet::new(),
        has: set(has),
        shut: set(shut),
        follows: false,
        channel: None,
        blockers: vec![],
    }
}
fn channel() -> ChannelSeen {
    ChannelSeen {
        leads_to: Some(1),
        filter: Some(moving()),
        started: true,
        runs: true,
        error: None,
    }
}
fn pair(servers: [ServerSeen; 2]) -> PairSeen {
    let [a, mut b] = servers;
    b.follows = true;
    PairSeen {
        exists: true,
        ready: true,
        epoch: 7,
        active: 0,
        two_members: true,
        servers: [Some(a), Some(b)],
        clone: CloneSeen::default(),
    }
}

/// p0 serves 0 to 7; 4 to 7 are wished at p1, which serves 8 and 9.
fn begun() -> Observed {
    let mut o = unwished();
    wish(&mut o, &SpanSet::new(), &moving());
    o
}

fn unwished() -> Observed {
    let served = |p: &Placement, span: (i32, i32), pair: &str| {
        let p = placement::claim(p, &set(&[span]), pair, Some("r")).unwrap();
        placement::serve(&p, &set(&[span]), pair).unwrap()
    };
    let p = served(&served(&Placement::default(), (0, 7), "p0"), (8, 9), "p1");
    let record = moves::begin_move(&p, "p0", "p1", &moving(), Seed::PerDatabase).unwrap();
    Observed {
        record,
        key: key(),
        course: Course::default(),
        ends: [
            pair([server(&[(0, 7)], &[]), server(&[(0, 7)], &[])]),
            pair([server(&[(8, 9)], &[]), server(&[(8, 9)], &[])]),
        ],
        seeding: [None, None],
        verifying: [None, None],
        policy: Policy {
            manual: false,
            approved: false,
            window: true,
            deadline: SignedDuration::from_secs(5),
            end_transactions_after: None,
            retain: SignedDuration::from_hours(24),
            retain_no_longer: false,
            verify_again: false,
        },
        memory: Memory::default(),
    }
}

/// Copies are made, and both channels run.
fn following() -> Observed {
    let mut o = begun();
    for change in [
        Change::Seeded {
            shards: moving(),
            gtid: gtids(5),
        },
        Change::Counted {
            end: FROM,
            gtid: gtids(5),
        },
        Change::Follow,
    ] {
        turn(&mut o, &change);
    }
    o.ends[1] = pair([server(&[(4, 9)], &[MOVING]), server(&[(4, 9)], &[MOVING])]);
    for end in [FROM, TO] {
        at(&mut o, a(end)).channel = Some(channel());
    }
    o
}

/// They were compared as well, and the next shards are fenced ahead.
fn verified() -> Observed {
    let mut o = following();
    turn(&mut o, &Change::Verified(moving()));
    at(&mut o, b(FROM)).shut = moving();
    o.verifying = [FROM, TO].map(|_| Some(compared(VerifyOutcome::Equal, 0)));
    o
}

/// A comparison of all rows of what moves that began so many seconds ago.
fn compared(outcome: VerifyOutcome, seconds_ago: i64) -> VerifyRun {
    VerifyRun {
        shards: moving(),
        since: None,
        position: gtids(9),
        when: ago(seconds_ago),
        outcome,
    }
}

/// One of what was changed since, that ended then.
fn short(outcome: VerifyOutcome, seconds_ago: i64) -> VerifyRun {
    VerifyRun {
        since: Some(gtids(7)),
        ..compared(outcome, seconds_ago)
    }
}

/// These were cut over.
fn moved(shards: &[(i32, i32)]) -> Observed {
    let mut o = verified();
    turn(&mut o, &Change::BeginBatch(set(shards)));
    let number = o.record.batches;
    turn(&mut o, &Change::CutOver { number });
    for place in [a(FROM), b(FROM)] {
        let s = at(&mut o, place);
        s.shut = s.shut.union(&set(shards));
    }
    for place in [a(TO), b(TO)] {
        let s = at(&mut o, place);
        s.shut = s.shut.minus(&set(shards));
    }
    o
}

/// All were, and the old copies are kept.
fn retaining() -> Observed {
    let mut o = moved(&[MOVING]);
    let until = now() + SignedDuration::from_secs(60);
    turn(&mut o, &Change::Retain { until });
    o
}

/// The move is being cleaned up.
fn cleaning() -> Observed {
    let mut o = retaining();
    turn(&mut o, &Change::CleanUp);
    for end in [FROM, TO] {
        at(&mut o, a(end)).channel = None;
    }
    o.verifying = [None, None];
    o
}

fn turn(o: &mut Observed, change: &Change) {
    o.record = change.apply(&o.record, &o.key).unwrap();
    if o.mv().is_some() {
        wish(o, &SpanSet::new(), &moving());
    }
}
fn end(o: &mut Observed, end: End) -> &mut PairSeen {
    &mut o.ends[end as usize]
}
fn at(o: &mut Observed, place: Place) -> &mut ServerSeen {
    o.ends[place.end as usize].servers[place.server].as_mut().unwrap()
}
/// The moving shards are wished there, as far as anybody knows; the others at no pair that counts.
fn wish(o: &mut Observed, at_from: &SpanSet, at_to: &SpanSet) {
    let m = o.mv().unwrap().clone();
    let third = moving().minus(at_from).minus(at_to);
    let c = Course {
        forward: o.copies(&m, TO).intersect(at_to),
        back: o.copies(&m, FROM).intersect(at_from),
        undecided: SpanSet::new(),
        early: None,
    };
    let early = if moves::moved(&o.record, &m).is_empty() {
        Some(Early::NothingMoved)
    } else {
        (!third.is_empty()).then_some(Early::WishedElsewhere)
    };
    let early = early.filter(|_| c.is_settled());
    o.course = Course { early, ..c };
}
fn record(change: Change) -> Vec<Action> {
    vec![Action::Record(change)]
}

/// Decides, and holds what comes of it to this row of the table.
#[track_caller]
fn row(o: &Observed, name: &str) -> Decision {
    let d = decide(o, now());
    assert_eq!(d.state.name(), name, "{d:#?}");
    let row = ROWS.iter().find(|r| r.name == name).unwrap();
    let mut record = o.record.clone();
    for action in &d.actions {
        if let Action::Record(change) = action {
            assert!(row.records.contains(&change.name()), "{change:?}");
            record = change.apply(&record, &o.key).unwrap();
        }
    }
    assert!(row.reason.contains(d.overall.reason()), "{:?}", d.overall);
    let stage = o.mv().map(|m| format!("{:?}", m.stage));
    let fits = |stage: String| row.stages.is_empty() || row.stages.contains(&stage.as_str());
    assert!(stage.is_none_or(fits), "{name}");
    if let Overall::Stalled { .. } = d.overall {
        assert!(row.reason.contains("Stalled"));
        assert!(o.memory.reason.is_some() || d.notes.iter().any(|n| n.warning));
    }
    d
}

/// The row, and exactly these steps.
#[track_caller]
fn does(o: &Observed, name: &str, steps: &[Action]) {
    assert_eq!(row(o, name).actions, steps);
}

/// Each row has its test.
#[test]
fn every_row_has_a_test_of_its_name() {
    let tests = [
        include_str!("tests/clone.rs"),
        include_str!("tests/link.rs"),
        include_str!("tests/cutover.rs"),
        include_str!("tests/rest.rs"),
    ];
    for r in ROWS {
        let snake: String = r
            .name
            .chars()
            .flat_map(|c| {
                let underscore = c.is_uppercase().then_some('_');
                underscore.into_iter().chain(c.to_lowercase())
            })
            .collect();
        let name = format!("fn {}(", snake.trim_start_matches('_'));
        assert!(tests.iter().any(|t| t.contains(&name)), "no `{name}`");
    }
    let mut names: Vec<_> = ROWS.iter().map(|r| r.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
}
