use super::*;
use crate::core::placement::{claim, serve};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

fn span(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}
fn range(name: &str, first: i32, last: i32, pair: &str) -> RangeClaim {
    RangeClaim {
        name: name.into(),
        created: 1,
        span: ShardSpan::new(first, last),
        pair: pair.into(),
        deleting: false,
    }
}
fn fleet(ranges: &[RangeClaim]) -> Fleet {
    let held = [span(0, 511), span(512, 767), SpanSet::new(), SpanSet::new()];
    let pairs = held.into_iter().enumerate().map(|(n, held)| {
        let facts = PairFacts {
            cluster: "c".into(),
            deleting: false,
            held: Some(held),
        };
        (format!("p{n}"), PairState { facts, trouble: None })
    });
    Fleet {
        total: 1024,
        ranges: ranges.to_vec(),
        pairs: pairs.collect(),
    }
}
/// r0: 0 to 511 on p0; r1: 512 to 767 on p1; p2 and p3 are empty.
fn now() -> Fleet {
    fleet(&[range("r0", 0, 511, "p0"), range("r1", 512, 767, "p1")])
}
fn record() -> Placement {
    let mut p = Placement::default();
    for (set, pair, range) in [(span(0, 511), "p0", "r0"), (span(512, 767), "p1", "r1")] {
        p = serve(&claim(&p, &set, pair, Some(range)).unwrap(), &set, pair).unwrap();
    }
    p
}
fn show(l: &Line) -> String {
    let or = |t: &Option<String>| t.clone().unwrap_or_else(|| "-".into());
    let mut text = format!(
        "{:?} {} {}→{}",
        l.action,
        moves::set(&l.shards),
        or(&l.from),
        or(&l.to)
    );
    for more in [
        l.when.map(|w| format!("{w:?}")),
        l.seed.map(|s| format!("{s:?}")),
        l.reason.map(ToOwned::to_owned),
    ] {
        text.push_str(&more.map_or_else(String::new, |m| format!(" {m}")));
    }
    text
}
fn told(p: &Placement, before: &Fleet, then: &Fleet) -> Vec<String> {
    let lines = compare("c", p, before, then, Policy::default()).unwrap();
    for l in &lines {
        assert_eq!(l.count, moves::set(&l.shards).len());
    }
    lines.iter().map(show).collect()
}
/// The record after moves that p0 and p2 made: half of r0 was moved, and is retained.
fn split() -> (Placement, Fleet, MoveKey) {
    let now = fleet(&[
        range("r0", 0, 255, "p0"),
        range("r1", 512, 767, "p1"),
        range("r2", 256, 511, "p2"),
    ]);
    let k = MoveKey::new("p0", "p2");
    let (_, p) = settle("c", &record(), &now).unwrap();
    let p = moves::begin_move(&p, "p0", "p2", &span(256, 511), Seed::Physical).unwrap();
    let p = moves::follow(&moves::seeded(&p, &k, &span(256, 511), "").unwrap(), &k).unwrap();
    let p = moves::verified(&p, &k, &span(256, 511)).unwrap();
    let p = moves::cut_over(&moves::begin_batch(&p, &k, &span(256, 511)).unwrap(), &k, 1).unwrap();
    (
        moves::retain(&p, &k, Time(Timestamp::UNIX_EPOCH)).unwrap(),
        now,
        k,
    )
}

#[test]
fn no_edit_does_nothing() {
    assert_eq!(told(&record(), &now(), &now()), Vec::<String>::new());
    let (p, now, _) = split();
    assert_eq!(told(&p, &now, &now), Vec::<String>::new());
}

#[test]
fn a_split_is_a_hand_over_and_a_move() {
    let then = fleet(&[
        range("r0", 0, 255, "p0"),
        range("r1", 512, 767, "p1"),
        range("r2", 256, 511, "p2"),
    ]);
    assert_eq!(
        told(&record(), &now(), &then),
        ["HandOver 256-511 r0→r2", "Move 256-511 p0→p2 Now Physical"]
    );
    let lines = compare("c", &record(), &now(), &then, Policy::default()).unwrap();
    assert_eq!((lines[0].bytes, lines[1].bytes), (Some(0), None));
    assert_eq!(lines[1].ranges, ["r2"]);
}

#[test]
fn new_shards_are_created_and_those_that_nobody_wants_stay() {
    let then = fleet(&[range("r0", 0, 99, "p0"), range("r1", 512, 1023, "p1")]);
    assert_eq!(
        told(&record(), &now(), &then),
        ["Uncover 100-511 r0→-", "Create 768-1023 -→p1"]
    );
}

#[test]
fn what_is_refused_is_named_and_moves_nothing() {
    let then = fleet(&[
        range("r0", 0, 511, "p9"),
        range("r1", 512, 767, "p1"),
        range("r8", 700, 800, "p1"),
        range("r9", 900, 1024, "p1"),
    ]);
    assert_eq!(
        told(&record(), &now(), &then),
        [
            "Refuse 0-511 -→p9 PairNotFound",
            "Refuse 700-800 -→p1 RangeOverlap",
            "Refuse 900-1024 -→p1 BeyondTotal",
        ]
    );
}

#[test]
fn what_has_to_wait_says_for_what() {
    let then = fleet(&[
        range("r0", 0, 255, "p0"),
        range("r1", 512, 767, "p1"),
        range("r2", 256, 399, "p2"),
        range("r3", 400, 511, "p3"),
    ]);
    let lines = told(&record(), &now(), &then);
    assert_eq!(
        lines[2..],
        [
            "Move 256-399 p0→p2 Now Physical",
            "Move 400-511 p0→p3 Later PairBusy"
        ]
    );
}

#[test]
fn a_swap_is_one_line_a_direction() {
    let then = fleet(&[range("r0", 0, 511, "p1"), range("r1", 512, 767, "p0")]);
    assert_eq!(
        told(&record(), &now(), &then),
        [
            "Move 0-511 p0→p1 Now PerDatabase",
            "Move 512-767 p1→p0 Now PerDatabase"
        ]
    );
}

#[test]
fn going_back_copies_nothing() {
    let (p, now, _) = split();
    let mut then = now.clone();
    then.ranges[2].pair = "p0".into();
    let lines = compare("c", &p, &now, &then, Policy::default()).unwrap();
    assert_eq!(
        lines.iter().map(show).collect::<Vec<_>>(),
        ["Move 256-511 p2→p0 TurnsRound Physical"]
    );
    assert_eq!(lines[0].bytes, Some(0));
}

#[test]
fn a_way_back_that_would_end_is_told() {
    let (p, now, k) = split();
    let mut then = now.clone();
    then.ranges[2].pair = "p3".into();
    assert_eq!(
        told(&p, &now, &then),
        [
            "Move 256-511 p2→p3 Later InOtherMove",
            "EndWayBack 256-511 p0→p2 WishedElsewhere"
        ]
    );
    // Another range that takes the same way.
    let mut then = now.clone();
    then.ranges[0].pair = "p2".into();
    let lines = compare("c", &p, &now, &then, Policy::default()).unwrap();
    assert_eq!(
        lines.iter().map(show).collect::<Vec<_>>(),
        [
            "Move 0-255 p0→p2 Later LinkInUse",
            "EndWayBack 256-511 p0→p2 LinkWanted"
        ]
    );
    assert!(
        lines[1].message.contains("until 1970-01-01 00:00:00 UTC"),
        "{}",
        lines[1].message
    );
    // The same while that move is under way: it will keep none.
    let p = moves::resume(&p, &k).unwrap();
    let lines = compare("c", &p, &now, &then, Policy::default()).unwrap();
    assert!(
        lines[0].message.ends_with("keeps no way back then"),
        "{}",
        lines[0].message
    );
}

#[test]
fn what_makes_way_for_a_move_that_would_close_a_circle_is_told() {
    let (p, mut now, _) = split();
    now.ranges[1] = range("r1", 512, 699, "p1");
    now.ranges.push(range("r9", 700, 767, "p0"));
    let (_, p) = settle("c", &p, &now).unwrap();
    let p = moves::begin_move(&p, "p1", "p0", &span(700, 767), Seed::PerDatabase).unwrap();
    let mut then = now.clone();
    then.ranges[1].pair = "p2".into();
    let lines = compare("c", &p, &now, &then, Policy::unlimited()).unwrap();
    assert_eq!(
        lines.iter().map(show).collect::<Vec<_>>(),
        [
            "Move 512-699 p1→p2 Later ClosesCircle",
            "Move 700-767 p1→p0 UnderWay PerDatabase",
            "EndWayBack 256-511 p0→p2 MakesWay"
        ]
    );
    assert!(
        lines[0].message.contains("p1 → p0 and p0 → p2"),
        "{}",
        lines[0].message
    );
    // While both have something left to do, nobody knows yet which it will be.
    then.ranges[2].pair = "p0".into();
    let lines = compare("c", &p, &now, &then, Policy::unlimited()).unwrap();
    let waits = lines.iter().find(|l| l.reason == Some("ClosesCircle")).unwrap();
    assert!(
        waits.message.ends_with("keeps no way back then"),
        "{}",
        waits.message
    );
    assert!(lines.iter().all(|l| l.action == Action::Move));
}

#[test]
fn a_move_that_would_be_aborted_is_told() {
    let wished = fleet(&[range("r0", 0, 511, "p2"), range("r1", 512, 767, "p1")]);
    let p = moves::begin_move(&record(), "p0", "p2", &span(0, 511), Seed::Physical).unwrap();
    assert_eq!(told(&p, &wished, &wished), ["Move 0-511 p0→p2 UnderWay Physical"]);
    assert_eq!(told(&p, &wished, &now()), ["Abort 0-511 p0→p2 NothingMoved"]);
    // More of the same joins it.
    let more = fleet(&[range("r0", 0, 511, "p2"), range("r1", 512, 767, "p2")]);
    assert_eq!(
        told(&p, &wished, &more),
        [
            "Move 0-511 p0→p2 UnderWay Physical",
            "Move 512-767 p1→p2 Later BeingCloned"
        ]
    );
}

#[test]
fn a_range_that_is_deleted_waits_for_who_takes_its_shards() {
    let mut then = now();
    then.ranges[0].deleting = true;
    assert_eq!(
        told(&record(), &now(), &then),
        ["Wait 0-511 -→- ShardsNotHandedOver"]
    );
    then.ranges.push(RangeClaim {
        created: i64::MAX,
        ..range("r9", 0, 511, "p2")
    });
    assert_eq!(
        told(&record(), &now(), &then),
        ["HandOver 0-511 r0→r9", "Move 0-511 p0→p2 Now Physical"]
    );
}

#[test]
fn a_malformed_record_is_an_error() {
    let mut p = record();
    p.spans.reverse();
    assert!(compare("c", &p, &now(), &now(), Policy::default()).is_err());
}
