use super::*;
use proptest::prelude::*;

fn range(name: &str, created: i64, first: i32, last: i32, pair: &str) -> RangeClaim {
    RangeClaim {
        name: name.into(),
        created,
        span: ShardSpan::new(first, last),
        pair: pair.into(),
        deleting: false,
    }
}
fn deleting(mut r: RangeClaim) -> RangeClaim {
    r.deleting = true;
    r
}
fn pairs(names: &[&str]) -> BTreeMap<String, PairFacts> {
    names
        .iter()
        .map(|n| {
            let facts = PairFacts {
                cluster: "c".into(),
                deleting: false,
                held: Some(SpanSet::new()),
            };
            ((*n).to_owned(), facts)
        })
        .collect()
}
fn set(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}
fn show(p: &Placement) -> Vec<String> {
    p.spans
        .iter()
        .map(|s| {
            let state = if s.state == SpanState::Serving { "" } else { "*" };
            format!(
                "{}-{} {}{state} {}",
                s.first,
                s.last,
                s.pair,
                s.range.as_deref().unwrap_or("-")
            )
        })
        .collect()
}
fn run(ranges: &[RangeClaim], record: &Placement) -> (BTreeMap<String, &'static str>, Placement) {
    let c = evaluate(1024, ranges, &pairs(&["p0", "p1"]), "c", record);
    let verdicts = c.verdicts.iter().map(|(n, v)| (n.clone(), v.reason())).collect();
    (verdicts, c.wanted.unwrap())
}
/// `r0` has 0 to 511 on p0, served.
fn served() -> Placement {
    let p = placement::claim(&Placement::default(), &set(0, 511), "p0", Some("r0")).unwrap();
    placement::serve(&p, &set(0, 511), "p0").unwrap()
}

#[test]
fn a_new_range_is_claimed_at_its_pair() {
    let (v, p) = run(
        &[range("r0", 5, 0, 511, "p0"), range("r1", 5, 512, 1023, "p1")],
        &Placement::default(),
    );
    assert_eq!(v.values().collect::<Vec<_>>(), [&"Accepted", &"Accepted"]);
    assert_eq!(show(&p), ["0-511 p0* r0", "512-1023 p1* r1"]);
    // And then nothing more.
    let (_, again) = run(
        &[range("r0", 5, 0, 511, "p0"), range("r1", 5, 512, 1023, "p1")],
        &p,
    );
    assert_eq!(again, p);
}

#[test]
fn among_new_ones_the_older_wins_and_then_the_name() {
    let (v, p) = run(
        &[
            range("b", 5, 0, 99, "p0"),
            range("a", 6, 50, 149, "p0"),
            range("c", 5, 99, 120, "p0"),
        ],
        &Placement::default(),
    );
    assert_eq!(
        (v["b"], v["a"], v["c"]),
        ("Accepted", "RangeOverlap", "RangeOverlap")
    );
    assert_eq!(show(&p), ["0-99 p0* b"]);
}

#[test]
fn the_record_wins_over_an_older_range() {
    let (v, p) = run(
        &[range("old", 1, 256, 600, "p1"), range("r0", 9, 0, 511, "p0")],
        &served(),
    );
    assert_eq!((v["old"], v["r0"]), ("RangeOverlap", "Accepted"));
    assert_eq!(p, served());
}

#[test]
fn a_split_hands_over_where_the_shards_lie() {
    let (v, p) = run(
        &[range("r0", 1, 0, 255, "p0"), range("r1", 2, 256, 511, "p1")],
        &served(),
    );
    assert_eq!((v["r0"], v["r1"]), ("Accepted", "Accepted"));
    assert_eq!(show(&p), ["0-255 p0 r0", "256-511 p0 r1"]);
}

#[test]
fn one_is_replaced_by_two_in_any_order() {
    let (a, b) = (range("a", 2, 0, 255, "p0"), range("b", 2, 256, 511, "p0"));
    let old = range("r0", 1, 0, 511, "p0");
    // The new ones first: rejected while the old one covers the shards.
    let (v, p) = run(&[a.clone(), b.clone(), old.clone()], &served());
    assert_eq!((v["a"], v["b"], p), ("RangeOverlap", "RangeOverlap", served()));
    // It yields when it is being deleted, or when it is gone.
    for ranges in [
        vec![a.clone(), b.clone(), deleting(old.clone())],
        vec![a.clone(), b.clone()],
    ] {
        let (v, p) = run(&ranges, &served());
        assert_eq!((v["a"], v["b"]), ("Accepted", "Accepted"));
        assert_eq!(show(&p), ["0-255 p0 a", "256-511 p0 b"]);
    }
    // The deletion first: it keeps them until they are taken, one by one.
    let (v, p) = run(&[deleting(old.clone())], &served());
    assert_eq!((v["r0"], &p), ("Deleting", &served()));
    let (_, p) = run(&[deleting(old), b], &p);
    assert_eq!(show(&p), ["0-255 p0 r0", "256-511 p0 b"]);
}

#[test]
fn two_ranges_swap_their_shards_one_edit_at_a_time() {
    let record = placement::hand_over(&served(), &set(256, 511), "r1").unwrap();
    let first = [range("r0", 1, 256, 511, "p0"), range("r1", 2, 256, 511, "p0")];
    let (v, p) = run(&first, &record);
    assert_eq!((v["r0"], v["r1"]), ("RangeOverlap", "Accepted"));
    assert_eq!(show(&p), ["0-255 p0 -", "256-511 p0 r1"]);
    let (v, p) = run(
        &[range("r0", 1, 256, 511, "p0"), range("r1", 2, 0, 255, "p0")],
        &p,
    );
    assert_eq!((v["r0"], v["r1"]), ("Accepted", "Accepted"));
    assert_eq!(show(&p), ["0-255 p0 r1", "256-511 p0 r0"]);
}

#[test]
fn what_no_range_covers_stays_served() {
    let (v, p) = run(&[range("r0", 1, 0, 99, "p0")], &served());
    assert_eq!(v["r0"], "Accepted");
    assert_eq!(show(&p), ["0-99 p0 r0", "100-511 p0 -"]);
    let (_, p) = run(&[], &p);
    assert_eq!(show(&p), ["0-511 p0 -"]);
}

#[test]
fn a_bad_claim_changes_nothing_of_what_it_has() {
    for (bad, reason) in [
        (range("r0", 1, 0, 1024, "p0"), "BeyondTotal"),
        (range("r0", 1, 0, 511, "nope"), "PairNotFound"),
    ] {
        let (v, p) = run(std::slice::from_ref(&bad), &served());
        assert_eq!((v["r0"], p), (reason, served()));
        let (v, p) = run(&[bad], &Placement::default());
        assert_eq!((v["r0"], p), (reason, Placement::default()));
    }
    let mut other = pairs(&["p0"]);
    other.get_mut("p0").unwrap().cluster = "d".into();
    let c = evaluate(1024, &[range("r0", 1, 0, 511, "p0")], &other, "c", &served());
    assert_eq!(
        (c.verdicts["r0"].reason(), c.wanted),
        ("PairOfOtherCluster", Ok(served()))
    );
}

#[test]
fn a_pair_that_goes_keeps_what_it_has_and_takes_nothing_new() {
    let mut going = pairs(&["p0", "p1"]);
    going.get_mut("p0").unwrap().deleting = true;
    let c = evaluate(
        1024,
        &[range("r0", 1, 0, 511, "p0"), range("r1", 2, 512, 600, "p0")],
        &going,
        "c",
        &served(),
    );
    assert_eq!(
        (c.verdicts["r0"].reason(), c.verdicts["r1"].reason()),
        ("Accepted", "PairNotFound")
    );
    assert_eq!(c.wanted, Ok(served()));
}

#[test]
fn a_changed_pair_moves_only_what_was_never_served() {
    let p = placement::claim(&Placement::default(), &set(0, 511), "p0", Some("r0")).unwrap();
    let (_, moved) = run(&[range("r0", 1, 0, 511, "p1")], &p);
    assert_eq!(show(&moved), ["0-511 p1* r0"]);
    let half = placement::serve(&p, &set(0, 255), "p0").unwrap();
    let (v, moved) = run(&[range("r0", 1, 0, 511, "p1")], &half);
    assert_eq!(v["r0"], "Accepted");
    assert_eq!(show(&moved), ["0-255 p0 r0", "256-511 p1* r0"]);
}

#[test]
fn a_deleted_range_gives_up_what_was_never_served() {
    let p = placement::claim(&served(), &set(512, 600), "p0", Some("r0")).unwrap();
    let (_, p) = run(&[deleting(range("r0", 1, 0, 600, "p0"))], &p);
    assert_eq!(show(&p), ["0-511 p0 r0", "512-600 p0* -"]);
    // Nothing is in there, so that a later range may have it elsewhere.
    let (_, p) = run(
        &[
            range("r2", 3, 512, 600, "p1"),
            deleting(range("r0", 1, 0, 600, "p0")),
        ],
        &p,
    );
    assert_eq!(show(&p), ["0-511 p0 r0", "512-600 p1* r2"]);
}

#[test]
fn shards_are_where_their_databases_are() {
    let mut facts = pairs(&["p0", "p1", "p2"]);
    facts.get_mut("p1").unwrap().held = Some(set(100, 199));
    facts.get_mut("p2").unwrap().held = Some(set(150, 199));
    let c = evaluate(
        1024,
        &[range("r0", 1, 0, 299, "p0")],
        &facts,
        "c",
        &Placement::default(),
    );
    assert_eq!(
        show(&c.wanted.unwrap()),
        ["0-99 p0* r0", "100-149 p1 r0", "200-299 p0* r0"]
    );
    assert_eq!(c.ambiguous, set(150, 199));
}

#[test]
fn too_many_spans_change_nothing() {
    let odd: SpanSet = (0..2048).map(|n| n * 2).collect();
    let record = placement::claim(&Placement::default(), &odd, "p0", None).unwrap();
    let ranges: Vec<_> = (0..3)
        .map(|n| range(&format!("r{n}"), 1, 10_000 + n * 10, 10_001 + n * 10, "p0"))
        .collect();
    let c = evaluate(65536, &ranges, &pairs(&["p0"]), "c", &record);
    assert_eq!(c.wanted, Err(placement::Error::TooManySpans(2049)));
}

fn any_ranges() -> impl Strategy<Value = Vec<RangeClaim>> {
    prop::collection::vec(
        (0i64..3, 0i32..60, 0i32..30, 0usize..4, prop::bool::weighted(0.2)),
        0..7,
    )
    .prop_map(|v| {
        v.into_iter()
            .enumerate()
            .map(|(i, (created, f, n, p, deleting))| RangeClaim {
                name: format!("r{i}"),
                created,
                span: ShardSpan::new(f, f + n),
                pair: format!("p{p}"),
                deleting,
            })
            .collect()
    })
}
fn at(p: &Placement, pair: &str) -> SpanSet {
    placement::shards(p, |s| s.pair == pair && s.state == SpanState::Serving)
}

#[test]
fn a_pair_that_is_cloned_over_is_claimed_when_that_is_done() {
    use crate::{
        api::placement::{MoveKey, Seed},
        core::placement::moves,
    };
    let p = moves::begin_move(&served(), "p0", "p1", &set(256, 511), Seed::Physical).unwrap();
    let ranges = [
        range("r0", 5, 0, 511, "p0"),
        range("r1", 6, 512, 767, "p1"),
        range("r2", 6, 768, 1023, "p0"),
    ];
    let (v, next) = run(&ranges, &p);
    assert_eq!(v["r1"], "Accepted");
    assert_eq!(show(&next), ["0-511 p0 r0", "768-1023 p0* r2"]);
    let k = MoveKey::new("p0", "p1");
    let p = moves::follow(&moves::seeded(&next, &k, &set(256, 511), "").unwrap(), &k).unwrap();
    let (_, next) = run(&ranges, &p);
    assert_eq!(show(&next), ["0-511 p0 r0", "512-767 p1* r1", "768-1023 p0* r2"]);
}

proptest! {
    /// A life: the ranges are edited again and again, and some of what is claimed comes to be served in between.
    #[test]
    fn no_edit_unserves_a_shard_and_a_newcomer_takes_nothing(
        lives in prop::collection::vec((any_ranges(), 0i32..80, 0i32..40, 0usize..3), 1..6),
        seed in 0usize..720,
    ) {
        let mut facts = pairs(&["p0", "p1", "p2"]);
        facts.get_mut("p2").unwrap().held = Some(set(70, 75));
        let mut record = Placement::default();
        for (ranges, first, n, pair) in lives {
            let c = evaluate(80, &ranges, &facts, "c", &record);
            // The order of the input does not matter.
            let mut shuffled = ranges.clone();
            let len = shuffled.len().max(1);
            shuffled.rotate_left(seed % len);
            if len > 2 { shuffled.swap(0, 1 + seed % (len - 1)); }
            prop_assert_eq!(&evaluate(80, &shuffled, &facts, "c", &record), &c);

            let wanted = c.wanted.unwrap();
            placement::check(&wanted).unwrap();
            prop_assert!(placement::recorded(&record).is_subset(&placement::recorded(&wanted)));
            for p in ["p0", "p1", "p2"] {
                prop_assert!(at(&record, p).is_subset(&at(&wanted, p)));
            }
            for r in &ranges {
                let keeps = placement::of_range(&record, &r.name).intersect(&r.span.into());
                if !r.deleting {
                    prop_assert!(keeps.is_subset(&placement::of_range(&wanted, &r.name)), "{} lost its shards", r.name);
                }
                if c.verdicts[&r.name].is_accepted() {
                    let has = placement::of_range(&wanted, &r.name).union(&c.ambiguous);
                    prop_assert!(SpanSet::of(r.span).is_subset(&has));
                }
                prop_assert!(r.deleting || placement::of_range(&wanted, &r.name).is_subset(&r.span.into()));
            }
            // Decided once, it stays.
            prop_assert_eq!(evaluate(80, &ranges, &facts, "c", &wanted).wanted.unwrap(), wanted.clone());
            let pair = format!("p{pair}");
            let ready = set(first, first + n).intersect(&placement::shards(&wanted, |s| s.pair == pair));
            record = placement::serve(&wanted, &ready, &pair).unwrap();
        }
    }
}
