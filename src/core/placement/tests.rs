use super::*;
use proptest::prelude::*;

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

#[test]
fn a_range_is_claimed_served_and_split_where_it_lies() {
    let p = claim(&Placement::default(), &set(0, 511), "p0", Some("r0")).unwrap();
    assert_eq!(show(&p), ["0-511 p0* r0"]);
    let p = serve(&p, &set(0, 511), "p0").unwrap();
    let p = hand_over(&p, &set(256, 511), "r1").unwrap();
    assert_eq!(show(&p), ["0-255 p0 r0", "256-511 p0 r1"]);
    let p = release(&p, &set(0, 127)).unwrap();
    assert_eq!(show(&p), ["0-127 p0 -", "128-255 p0 r0", "256-511 p0 r1"]);
    let p = hand_over(&p, &set(0, 255), "r1").unwrap();
    assert_eq!(show(&p), ["0-511 p0 r1"]);
}

#[test]
fn what_is_on_record_is_not_claimed_again_and_what_serves_is_not_reclaimed() {
    let p = claim(&Placement::default(), &set(0, 9), "p0", Some("r0")).unwrap();
    assert_eq!(
        claim(&p, &set(5, 14), "p1", Some("r1")),
        Err(Error::Taken(set(5, 9)))
    );
    let p = serve(&p, &set(0, 4), "p0").unwrap();
    assert!(matches!(
        reclaim(&p, &set(0, 9), "p1", "r0"),
        Err(Error::NotAs { shards, .. }) if shards == set(0, 4)
    ));
    let p = reclaim(&p, &set(5, 9), "p1", "r0").unwrap();
    assert_eq!(show(&p), ["0-4 p0 r0", "5-9 p1* r0"]);
    // A worker that comes late with the databases it made on the first pair.
    assert!(serve(&p, &set(5, 9), "p0").is_err());
    assert!(serve(&p, &set(5, 10), "p1").is_err());
}

#[test]
fn the_record_has_a_limit() {
    let odd: SpanSet = (0..=2048).map(|n| n * 2).collect();
    assert_eq!(
        claim(&Placement::default(), &odd, "p0", Some("r")),
        Err(Error::TooManySpans(2049))
    );
}

#[test]
fn a_malformed_record_is_not_worked_on() {
    let mut p = claim(&Placement::default(), &set(0, 9), "p0", None).unwrap();
    p.spans.push(p.spans[0].clone());
    assert_eq!(release(&p, &set(0, 0)), Err(Error::Malformed(0)));
}

#[test]
fn the_version_rises_with_the_content_and_never_falls() {
    let p = publish(&Placement::default(), "a", 0);
    assert_eq!((p.map_version, p.map_hash.as_str()), (1, "a"));
    assert_eq!(publish(&p, "a", 0), p);
    assert_eq!(publish(&p, "a", 1), p);
    assert_eq!(publish(&p, "b", 0).map_version, 2);
    // A map of an earlier life of the cluster goes on being counted.
    assert_eq!(publish(&p, "a", 41).map_version, 42);
    assert_eq!(publish(&Placement::default(), "a", 7).map_version, 8);
}

fn held(pairs: &[(&str, Option<SpanSet>)]) -> BTreeMap<String, Option<SpanSet>> {
    pairs.iter().map(|(p, s)| ((*p).to_owned(), s.clone())).collect()
}

#[test]
fn a_lost_record_is_made_from_the_servers() {
    let p = seed(
        None,
        &held(&[
            ("p0", Some(set(0, 511))),
            ("p1", Some(set(512, 1023))),
            ("p2", None),
        ]),
        0,
    )
    .unwrap();
    assert_eq!(show(&p), ["0-511 p0 -", "512-1023 p1 -"]);
}

#[test]
fn of_two_copies_the_map_chooses_and_without_it_nobody() {
    let both = held(&[("p0", Some(set(0, 511))), ("p1", Some(set(256, 511)))]);
    let no_map = seed(None, &both, 0).unwrap_err();
    assert_eq!(
        (no_map.shards, no_map.pairs),
        (set(256, 511), vec!["p0".to_owned(), "p1".to_owned()])
    );
    let map = [
        (ShardSpan::new(0, 255), "p0".to_owned()),
        (ShardSpan::new(256, 511), "p1".to_owned()),
    ];
    let p = seed(Some(&map), &both, 9).unwrap();
    assert_eq!(show(&p), ["0-255 p0 -", "256-511 p1 -"]);
    assert_eq!(p.map_version, 9);
}

#[test]
fn the_map_is_overruled_only_by_a_pair_that_was_asked_and_has_nothing() {
    let map = [(ShardSpan::new(0, 9), "p0".to_owned())];
    let p = seed(
        Some(&map),
        &held(&[("p0", Some(set(0, 3))), ("p1", Some(set(4, 6)))]),
        0,
    )
    .unwrap();
    // 7 to 9 are nowhere: the map's pair it stays, where the loss is reported rather than covered up.
    assert_eq!(show(&p), ["0-3 p0 -", "4-6 p1 -", "7-9 p0 -"]);
    let p = seed(Some(&map), &held(&[("p0", None), ("p1", Some(set(4, 6)))]), 0).unwrap();
    assert_eq!(show(&p), ["0-9 p0 -"]);
    // Not in the map, but on a server: served rather than forgotten.
    let p = seed(Some(&map), &held(&[("p0", Some(set(0, 12)))]), 0).unwrap();
    assert_eq!(show(&p), ["0-12 p0 -"]);
}

#[derive(Clone, Debug)]
enum Step {
    Claim(SpanSet, usize, usize),
    HandOver(SpanSet, usize),
    Release(SpanSet),
    Reclaim(SpanSet, usize, usize),
    Serve(SpanSet, usize),
    Publish(u8, i64),
}
const PAIRS: [&str; 3] = ["p0", "p1", "p2"];
const RANGES: [&str; 3] = ["r0", "r1", "r2"];

fn step() -> impl Strategy<Value = Step> {
    let span = || (0i32..40, 0i32..12).prop_map(|(f, n)| set(f, f + n));
    prop_oneof![
        (span(), 0usize..3, 0usize..3).prop_map(|(s, p, r)| Step::Claim(s, p, r)),
        (span(), 0usize..3).prop_map(|(s, r)| Step::HandOver(s, r)),
        span().prop_map(Step::Release),
        (span(), 0usize..3, 0usize..3).prop_map(|(s, p, r)| Step::Reclaim(s, p, r)),
        (span(), 0usize..3).prop_map(|(s, p)| Step::Serve(s, p)),
        (0u8..3, 0i64..50).prop_map(|(h, v)| Step::Publish(h, v)),
    ]
}

proptest! {
    #[test]
    fn no_sequence_breaks_the_record(steps in prop::collection::vec(step(), 1..60)) {
        let mut p = Placement::default();
        for s in steps {
            // A step may be made on the whole span, or on the part of it that fits: both have to be safe.
            let next = match &s {
                Step::Claim(s, a, r) => claim(&p, &s.minus(&recorded(&p)), PAIRS[*a], Some(RANGES[*r])),
                Step::HandOver(s, r) => hand_over(&p, &s.intersect(&recorded(&p)), RANGES[*r]),
                Step::Release(s) => release(&p, s),
                Step::Reclaim(s, a, r) => reclaim(&p, &s.minus(&serving(&p)).intersect(&recorded(&p)), PAIRS[*a], RANGES[*r]),
                Step::Serve(s, a) => serve(&p, &s.intersect(&shards(&p, |x| x.pair == PAIRS[*a])), PAIRS[*a]),
                Step::Publish(h, v) => Ok(publish(&p, &h.to_string(), *v)),
            };
            let Ok(next) = next else { continue };
            check(&next).unwrap();
            prop_assert!(next.spans.windows(2).all(|w| w[0].last + 1 < w[1].first
                || (&w[0].pair, w[0].state, &w[0].range) != (&w[1].pair, w[1].state, &w[1].range)), "not merged: {:?}", show(&next));
            prop_assert!(next.map_version >= p.map_version);
            prop_assert!(recorded(&p).is_subset(&recorded(&next)));
            for pair in PAIRS {
                let at = |p: &Placement| shards(p, |s| s.pair == pair && s.state == SpanState::Serving);
                prop_assert!(at(&p).is_subset(&at(&next)), "{s:?}: {:?} -> {:?}", show(&p), show(&next));
            }
            p = next;
        }
    }

    #[test]
    fn a_seed_is_a_sound_record(
        map in prop::collection::vec((0i32..40, 0i32..12, 0usize..3), 0..6),
        a in prop::collection::vec((0i32..40, 0i32..12), 0..4),
        b in prop::collection::vec((0i32..40, 0i32..12), 0..4),
        with_map in any::<bool>(),
    ) {
        let map: Vec<_> = map.into_iter().map(|(f, n, p)| (ShardSpan::new(f, f + n), PAIRS[p].to_owned())).collect();
        let spans = |v: Vec<(i32, i32)>| v.into_iter().map(|(f, n)| ShardSpan::new(f, f + n)).collect::<SpanSet>();
        let held = held(&[("p0", Some(spans(a))), ("p1", Some(spans(b))), ("p2", None)]);
        if let Ok(p) = seed(with_map.then_some(map.as_slice()), &held, 3) {
            check(&p).unwrap();
            let mapped: SpanSet = map.iter().map(|(s, _)| *s).collect();
            if with_map {
                prop_assert!(mapped.is_subset(&serving(&p)));
            }
        }
    }
}
