mod circle;

use super::*;
use crate::core::placement::{
    self, claim, hand_over, of_range, publish, reclaim, recorded, release, serve, serving,
};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

fn span(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}
fn until() -> Time {
    Time(Timestamp::UNIX_EPOCH)
}
fn key(from: &str, to: &str) -> MoveKey {
    MoveKey::new(from, to)
}
/// p0 serves 0 to 99, p1 100 to 199, p2 and p3 nothing.
fn fleet() -> Placement {
    let p = claim(&Placement::default(), &span(0, 99), "p0", Some("r0")).unwrap();
    let p = claim(&p, &span(100, 199), "p1", Some("r1")).unwrap();
    let p = serve(&p, &span(0, 99), "p0").unwrap();
    serve(&p, &span(100, 199), "p1").unwrap()
}
fn at(p: &Placement, pair: &str) -> SpanSet {
    shards(p, |s| s.pair == pair)
}
/// 50 to 99 of p0 follow at p1, verified.
fn following() -> (Placement, MoveKey) {
    let k = key("p0", "p1");
    let p = begin_move(&fleet(), "p0", "p1", &span(50, 99), Seed::PerDatabase).unwrap();
    let p = seeded(&p, &k, &span(50, 99), "").unwrap();
    let p = follow(&p, &k).unwrap();
    (verified(&p, &k, &span(50, 99)).unwrap(), k)
}

#[test]
fn shards_go_there_and_back_over_one_move() {
    let (p, k) = following();
    let p = begin_batch(&p, &k, &span(50, 53)).unwrap();
    assert_eq!((p.batches, p.moves[0].batch_number), (1, 1));
    assert_eq!(at(&p, "p0"), span(0, 99), "nothing has changed sides yet");
    let p = cut_over(&p, &k, 1).unwrap();
    assert_eq!(at(&p, "p0"), span(0, 49).union(&span(54, 99)));
    assert_eq!(moved(&p, &p.moves[0]), span(50, 53));
    assert!(p.moves[0].batch.is_empty());
    // The range is the same, and the old copy is still as equal as it was.
    assert_eq!(of_range(&p, "r0"), span(0, 99));
    assert_eq!(set(&p.moves[0].verified), span(50, 99));
    let p = retain(&p, &k, until()).unwrap();
    let p = resume(&p, &k).unwrap();
    let p = begin_batch(&p, &k, &span(50, 53)).unwrap();
    let p = cut_over(&p, &k, 2).unwrap();
    assert_eq!(at(&p, "p0"), span(0, 99));
    assert!(moved(&p, &p.moves[0]).is_empty());
    let p = clean_up(&p, &k).unwrap();
    let p = end_move(&p, &k).unwrap();
    assert_eq!((p.moves.len(), p.batches), (0, 2));
    assert_eq!(p.spans, fleet().spans, "as if nothing had been");
}

#[test]
fn two_ranges_change_places_over_one_move() {
    let k = key("p0", "p1");
    let p = begin_move(&fleet(), "p0", "p1", &span(90, 119), Seed::PerDatabase).unwrap();
    assert_eq!(set(&p.moves[0].opposite), span(100, 119));
    let (a, b) = (
        "11111111-1111-1111-1111-111111111111",
        "22222222-2222-2222-2222-222222222222",
    );
    assert!(matches!(
        seeded(&p, &k, &span(99, 100), ""),
        Err(Error::TwoEnds { .. })
    ));
    let p = seeded(&p, &k, &span(90, 99), &format!("{a}:1-9")).unwrap();
    let p = seeded(&p, &k, &span(100, 119), &format!("{b}:1-5")).unwrap();
    let p = counted(&p, &k, "p0", &format!("{b}:6-7")).unwrap();
    assert_eq!(
        (&p.moves[0].seed_gtid, &p.moves[0].opposite_gtid),
        (&format!("{a}:1-9"), &format!("{b}:1-7"))
    );
    assert!(matches!(counted(&p, &k, "p2", ""), Err(Error::NotAnEnd { .. })));
    assert!(matches!(counted(&p, &k, "p0", "x"), Err(Error::BadGtid(_))));
    let p = follow(&p, &k).unwrap();
    let p = verified(&p, &k, &span(90, 119)).unwrap();
    assert!(matches!(
        begin_batch(&p, &k, &span(99, 100)),
        Err(Error::TwoEnds { .. })
    ));
    let p = cut_over(&begin_batch(&p, &k, &span(90, 99)).unwrap(), &k, 1).unwrap();
    let p = cut_over(&begin_batch(&p, &k, &span(100, 119)).unwrap(), &k, 2).unwrap();
    assert_eq!(at(&p, "p0"), span(0, 89).union(&span(100, 119)));
    assert_eq!(moved(&p, &p.moves[0]), span(90, 119));
}

#[test]
fn a_batch_is_ended_only_by_who_knows_its_number() {
    let (p, k) = following();
    let p = begin_batch(&p, &k, &span(50, 50)).unwrap();
    assert!(matches!(
        begin_batch(&p, &k, &span(51, 51)),
        Err(Error::BatchOpen { .. })
    ));
    let p = undo_batch(&p, &k, 1).unwrap();
    assert!(matches!(undo_batch(&p, &k, 1), Err(Error::OtherBatch { .. })));
    // The same shards once more: whoever fenced them for the first batch is too late.
    let p = begin_batch(&p, &k, &span(50, 50)).unwrap();
    assert!(matches!(cut_over(&p, &k, 1), Err(Error::OtherBatch { .. })));
    for wrong in [
        retain(&p, &k, until()),
        clean_up(&p, &k),
        unverified(&p, &k, &span(50, 60)),
    ] {
        assert!(matches!(wrong, Err(Error::BatchOpen { .. })), "{wrong:?}");
    }
    unverified(&p, &k, &span(51, 60)).unwrap();
    cut_over(&p, &k, 2).unwrap();
}

#[test]
fn numbers_go_on_after_a_move_has_ended() {
    let (p, k) = following();
    let p = undo_batch(&begin_batch(&p, &k, &span(50, 50)).unwrap(), &k, 1).unwrap();
    let p = end_move(&clean_up(&p, &k).unwrap(), &k).unwrap();
    let p = begin_move(&p, "p0", "p1", &span(50, 50), Seed::PerDatabase).unwrap();
    let p = follow(&seeded(&p, &k, &span(50, 50), "").unwrap(), &k).unwrap();
    let p = begin_batch(&verified(&p, &k, &span(50, 50)).unwrap(), &k, &span(50, 50)).unwrap();
    assert_eq!(p.moves[0].batch_number, 2);
}

#[test]
fn nothing_is_skipped() {
    let k = key("p0", "p1");
    let p = begin_move(&fleet(), "p0", "p1", &span(50, 99), Seed::PerDatabase).unwrap();
    assert!(matches!(
        verified(&p, &k, &span(50, 50)),
        Err(Error::WrongStage { .. })
    ));
    assert!(matches!(
        begin_batch(&p, &k, &span(50, 50)),
        Err(Error::WrongStage { .. })
    ));
    assert!(matches!(end_move(&p, &k), Err(Error::WrongStage { .. })));
    assert!(
        matches!(seeded(&p, &k, &span(49, 50), ""), Err(Error::NotAs { shards, .. }) if shards == span(49, 49))
    );
    let p = seeded(&p, &k, &span(50, 98), "").unwrap();
    assert!(matches!(follow(&p, &k), Err(Error::NotAs { shards, .. }) if shards == span(99, 99)));
    let p = widen(&p, &k, &span(40, 49)).unwrap();
    let p = seeded(&p, &k, &span(40, 99), "").unwrap();
    let p = follow(&p, &k).unwrap();
    assert!(matches!(
        widen(&p, &k, &span(30, 39)),
        Err(Error::WrongStage { .. })
    ));
    let p = verified(&p, &k, &span(40, 49)).unwrap();
    assert!(
        matches!(begin_batch(&p, &k, &span(49, 50)), Err(Error::NotAs { shards, .. }) if shards == span(50, 50))
    );
    assert!(matches!(
        begin_batch(&p, &k, &SpanSet::new()),
        Err(Error::NothingToDo(_))
    ));
    assert!(matches!(
        verified(&p, &key("p1", "p0"), &span(50, 50)),
        Err(Error::NoMove(_))
    ));
}

#[test]
fn there_is_one_move_between_two_pairs_and_a_shard_is_in_one() {
    let (p, _) = following();
    let begin = |from: &str, to: &str, s: SpanSet| begin_move(&p, from, to, &s, Seed::PerDatabase);
    assert!(matches!(
        begin("p1", "p0", span(100, 101)),
        Err(Error::MoveExists(_))
    ));
    assert!(
        matches!(begin("p0", "p2", span(49, 50)), Err(Error::InMove { shards, .. }) if shards == span(50, 50))
    );
    assert!(matches!(
        begin("p0", "p2", span(100, 100)),
        Err(Error::NotAs { .. })
    ));
    assert!(matches!(
        begin("p0", "p0", span(0, 0)),
        Err(Error::NothingToDo(_))
    ));
    let p = begin("p0", "p2", span(0, 49)).unwrap();
    assert_eq!(
        p.moves.iter().map(|m| m.to.as_str()).collect::<Vec<_>>(),
        ["p1", "p2"]
    );
}

#[test]
fn a_pair_that_is_cloned_over_takes_nothing_else() {
    let begin = |p: &Placement, from: &str, to: &str, s: SpanSet| begin_move(p, from, to, &s, Seed::Physical);
    assert_eq!(
        begin(&fleet(), "p0", "p1", span(0, 9)),
        Err(Error::NotEmpty("p1".into()))
    );
    let p = begin(&fleet(), "p0", "p2", span(0, 9)).unwrap();
    let taken = Err(Error::BeingCloned("p2".to_owned()));
    assert_eq!(claim(&p, &span(300, 309), "p2", None), taken);
    assert_eq!(begin(&p, "p1", "p2", span(100, 109)), taken);
    assert_eq!(
        begin_move(&p, "p1", "p2", &span(100, 109), Seed::PerDatabase),
        taken
    );
    let creating = claim(&p, &span(300, 309), "p3", None).unwrap();
    assert_eq!(reclaim(&creating, &span(300, 309), "p2", "r"), taken);
    // A pair with databases that are only being created is not empty either.
    assert_eq!(
        begin(&creating, "p1", "p3", span(100, 109)),
        Err(Error::NotEmpty("p3".into()))
    );
    let k = key("p0", "p2");
    let p = widen(&p, &k, &span(10, 19)).unwrap();
    let p = follow(&seeded(&p, &k, &span(0, 19), "").unwrap(), &k).unwrap();
    claim(&p, &span(300, 309), "p2", None).unwrap();
}

#[test]
fn shards_stay_in_their_move_whoever_has_them() {
    let (p, k) = following();
    let was = p.moves.clone();
    let p = hand_over(&p, &span(50, 60), "r9").unwrap();
    let p = release(&p, &span(70, 99)).unwrap();
    let p = publish(&p, "x", 0);
    assert_eq!(p.moves, was);
    let p = cut_over(&begin_batch(&p, &k, &span(59, 71)).unwrap(), &k, 1).unwrap();
    assert_eq!(
        of_range(&p, "r9").intersect(&at(&p, "p1")),
        span(59, 60),
        "the range goes with its shard"
    );
    assert!(
        p.spans
            .iter()
            .any(|s| (s.first, s.pair.as_str(), s.range.is_none()) == (70, "p1", true)),
        "and who has none stays without"
    );
}

#[test]
fn a_clean_up_drops_neither_what_is_served_nor_what_others_copied() {
    let k = key("p0", "p2");
    let all = span(0, 199);
    let p = begin_move(&fleet(), "p0", "p2", &span(50, 99), Seed::Physical).unwrap();
    let p = follow(&seeded(&p, &k, &span(50, 99), "").unwrap(), &k).unwrap();
    let p = verified(&p, &k, &span(50, 99)).unwrap();
    let p = cut_over(&begin_batch(&p, &k, &span(50, 69)).unwrap(), &k, 1).unwrap();
    // Others are copied to the pair meanwhile, beside those that the clone brought along.
    let p = begin_move(&p, "p1", "p2", &span(100, 109), Seed::PerDatabase).unwrap();
    let drops = |p: &Placement, pair: &str| droppable(p, find(p, &k).unwrap(), pair, &all).to_string();
    assert_eq!(drops(&p, "p2"), "", "not before the clean-up");
    let p = clean_up(&p, &k).unwrap();
    assert_eq!(drops(&p, "p2"), "0-49,70-99,110-199");
    assert_eq!(drops(&p, "p0"), "50-69");
    assert_eq!(drops(&p, "p1"), "");
}

#[test]
fn a_malformed_move_is_not_worked_on() {
    let (good, k) = following();
    let spoil: [fn(&mut Placement); 11] = [
        |p| p.moves[0].to = "p0".into(),
        |p| p.moves[0].shards = vec![ShardSpan::new(0, 99), ShardSpan::new(50, 60)],
        |p| p.moves[0].shards = vec![],
        |p| p.moves[0].shards = vec![ShardSpan::new(50, 300)],
        |p| p.moves[0].seeded = vec![ShardSpan::new(60, 99)],
        |p| p.moves[0].batch = vec![ShardSpan::new(50, 50)],
        |p| p.moves[0].batch_number = 7,
        |p| p.moves[0].retain_until = Some(until()),
        |p| p.moves[0].stage = MoveStage::Retaining,
        |p| p.moves[0].stage = MoveStage::Seeding,
        |p| {
            let mut twin = p.moves[0].clone();
            std::mem::swap(&mut twin.from, &mut twin.to);
            p.moves.push(twin);
        },
    ];
    for (i, spoil) in spoil.into_iter().enumerate() {
        let mut p = good.clone();
        spoil(&mut p);
        let e = release(&p, &span(0, 0)).unwrap_err();
        assert!(
            matches!(e, Error::MalformedMove { .. }) && e.is_malformed(),
            "{i}: {e}"
        );
        assert!(clean_up(&p, &k).is_err());
    }
}

#[test]
fn the_moves_have_limits() {
    let odd: SpanSet = (0..600).map(|n| n * 2).collect();
    let p = claim(&Placement::default(), &span(0, 1200), "p0", None).unwrap();
    let p = serve(&p, &span(0, 1200), "p0").unwrap();
    let e = begin_move(&p, "p0", "p1", &odd, Seed::Physical).unwrap_err();
    assert!(matches!(e, Error::MovesTooLarge(_)) && !e.is_malformed(), "{e}");
    let mut p = p;
    for n in 0..64 {
        p = begin_move(&p, "p0", &format!("q{n}"), &span(n, n), Seed::Physical).unwrap();
    }
    assert!(begin_move(&p, "p0", "q64", &span(64, 64), Seed::Physical).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Begin(usize, usize, SpanSet, bool),
    Widen(usize, SpanSet),
    Seeded(usize, SpanSet),
    Follow(usize),
    Verified(usize, SpanSet),
    Unverified(usize, SpanSet),
    Batch(usize, SpanSet),
    Undo(usize, i64),
    CutOver(usize, i64),
    Retain(usize),
    Resume(usize),
    CleanUp(usize),
    End(usize),
    Claim(SpanSet, usize),
    Serve(SpanSet, usize),
    Reclaim(SpanSet, usize),
    HandOver(SpanSet),
    Release(SpanSet),
    Publish(u8),
}
const PAIRS: [&str; 4] = ["p0", "p1", "p2", "p3"];

fn step() -> impl Strategy<Value = Step> {
    let s = || (0i32..40, 0i32..16).prop_map(|(f, n)| span(f, f + n));
    let m = || 0usize..3;
    let pair = || 0usize..4;
    prop_oneof![
        6 => (pair(), pair(), s(), any::<bool>()).prop_map(|(a, b, s, c)| Step::Begin(a, b, s, c)),
        1 => (m(), s()).prop_map(|(m, s)| Step::Widen(m, s)),
        3 => (m(), s()).prop_map(|(m, s)| Step::Seeded(m, s)),
        8 => m().prop_map(Step::Follow),
        8 => (m(), s()).prop_map(|(m, s)| Step::Verified(m, s)),
        1 => (m(), s()).prop_map(|(m, s)| Step::Unverified(m, s)),
        12 => (m(), s()).prop_map(|(m, s)| Step::Batch(m, s)),
        2 => (m(), 0i64..2).prop_map(|(m, n)| Step::Undo(m, n)),
        9 => (m(), 0i64..2).prop_map(|(m, n)| Step::CutOver(m, n)),
        1 => m().prop_map(Step::Retain),
        1 => m().prop_map(Step::Resume),
        1 => m().prop_map(Step::CleanUp),
        2 => m().prop_map(Step::End),
        1 => (s(), pair()).prop_map(|(s, a)| Step::Claim(s, a)),
        1 => (s(), pair()).prop_map(|(s, a)| Step::Serve(s, a)),
        1 => (s(), pair()).prop_map(|(s, a)| Step::Reclaim(s, a)),
        1 => s().prop_map(Step::HandOver),
        1 => s().prop_map(Step::Release),
        1 => (0u8..3).prop_map(Step::Publish),
    ]
}

/// Makes the step on the part of its shards that fits: both what is made and what is refused has to be safe.
fn take(p: &Placement, step: &Step) -> Result<Placement, Error> {
    let nth = |n: &usize| p.moves.get(n % p.moves.len().max(1)).cloned();
    let ends = |n: &usize| nth(n).map_or_else(|| key("p0", "p1"), |m| m.key());
    let all = |n: &usize, f: fn(&Move) -> &Vec<ShardSpan>| nth(n).map_or_else(SpanSet::new, |m| set(f(&m)));
    // Shards of one end only.
    let half = |n: &usize, s: SpanSet| {
        nth(n).map_or_else(SpanSet::new, |m| {
            let a = s.intersect(&at(p, &m.from));
            if a.is_empty() { s } else { a }
        })
    };
    let number = |n: &usize, off: &i64| nth(n).map_or(0, |m| m.batch_number) - off;
    match step {
        Step::Begin(a, b, s, physical) => {
            let ends = serving(p).intersect(&at(p, PAIRS[*a]).union(&at(p, PAIRS[*b])));
            let seed = if *physical {
                Seed::Physical
            } else {
                Seed::PerDatabase
            };
            begin_move(p, PAIRS[*a], PAIRS[*b], &s.intersect(&ends), seed)
        }
        Step::Widen(n, s) => widen(p, &ends(n), s),
        Step::Seeded(n, s) => seeded(p, &ends(n), &half(n, s.intersect(&all(n, |m| &m.shards))), ""),
        // What is left is seeded with it, one end after the other.
        Step::Follow(n) => {
            let mut p = p.clone();
            for _ in 0..2 {
                let left =
                    all(n, |m| &m.shards).minus(&p.moves.iter().flat_map(|m| m.seeded.clone()).collect());
                p = seeded(&p, &ends(n), &half(n, left), "")?;
            }
            follow(&p, &ends(n))
        }
        Step::Verified(n, s) => {
            let seeded = all(n, |m| &m.seeded);
            verified(
                p,
                &ends(n),
                &if s.contains(1) {
                    s.intersect(&seeded)
                } else {
                    seeded
                },
            )
        }
        Step::Unverified(n, s) => unverified(p, &ends(n), s),
        Step::Batch(n, s) => begin_batch(p, &ends(n), &half(n, s.intersect(&all(n, |m| &m.verified)))),
        Step::Undo(n, off) => undo_batch(p, &ends(n), number(n, off)),
        Step::CutOver(n, off) => cut_over(p, &ends(n), number(n, off)),
        Step::Retain(n) => retain(p, &ends(n), until()),
        Step::Resume(n) => resume(p, &ends(n)),
        Step::CleanUp(n) => clean_up(p, &ends(n)),
        Step::End(n) => end_move(p, &ends(n)),
        Step::Claim(s, a) => claim(p, &s.minus(&recorded(p)), PAIRS[*a], Some("r2")),
        Step::Serve(s, a) => serve(p, &s.intersect(&at(p, PAIRS[*a])), PAIRS[*a]),
        Step::Reclaim(s, a) => reclaim(p, &s.minus(&serving(p)).intersect(&recorded(p)), PAIRS[*a], "r2"),
        Step::HandOver(s) => hand_over(p, &s.intersect(&recorded(p)), "r3"),
        Step::Release(s) => release(p, &s.intersect(&recorded(p))),
        Step::Publish(h) => Ok(publish(p, &h.to_string(), 0)),
    }
}

fn start() -> Placement {
    let p = claim(&Placement::default(), &span(0, 39), "p0", Some("r0")).unwrap();
    let p = serve(&p, &span(0, 39), "p0").unwrap();
    let p = claim(&p, &span(40, 55), "p1", Some("r1")).unwrap();
    serve(&p, &span(40, 55), "p1").unwrap()
}

/// What the next test proves nothing without: its sequences get as far as cutovers, and moves that end.
#[test]
fn the_sequences_get_far() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let sequences = prop::collection::vec(step(), 1..160);
    let (mut cut, mut ended, mut both) = (0, 0, 0);
    for _ in 0..512 {
        let mut p = start();
        for s in sequences.new_tree(&mut runner).unwrap().current() {
            let Ok(next) = take(&p, &s) else { continue };
            cut += usize::from(matches!(s, Step::CutOver(..)));
            ended += usize::from(matches!(s, Step::End(_)));
            both += usize::from(next.moves.iter().any(|m| !m.opposite.is_empty()));
            p = next;
        }
    }
    assert!(cut > 100 && ended > 100 && both > 100, "{cut} {ended} {both}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn no_sequence_breaks_the_moves(steps in prop::collection::vec(step(), 1..160)) {
        let mut p = start();
        for s in steps {
            let Ok(next) = take(&p, &s) else { continue };
            // Sorted, merged, apart; no shard in two moves; batch ⊆ verified ⊆ seeded ⊆ shards; one batch at one end.
            placement::check(&next).unwrap();
            prop_assert!(next.spans.windows(2).all(|w| w[0].last + 1 < w[1].first
                || (&w[0].pair, w[0].state, &w[0].range) != (&w[1].pair, w[1].state, &w[1].range)), "not merged: {:?}", next.spans);
            // Only a cutover changes the pair of a served shard: that of its batch, all of it, to the other end.
            for pair in PAIRS {
                let served = |p: &Placement| shards(p, |x| x.pair == pair && x.state == SpanState::Serving);
                let gone = served(&p).minus(&served(&next));
                match &s {
                    Step::CutOver(n, _) => {
                        let m = &p.moves[n % p.moves.len()];
                        let left = one_end(&p, m, &set(&m.batch)).unwrap().unwrap();
                        prop_assert!(!m.batch.is_empty());
                        prop_assert_eq!(gone, if pair == left { set(&m.batch) } else { SpanSet::new() });
                        let to = m.other_end(&left).unwrap();
                        prop_assert!(set(&m.batch).is_subset(&at(&next, to)));
                    }
                    _ => prop_assert!(gone.is_empty(), "{s:?} took {gone} from {pair}"),
                }
            }
            // Only publishing changes the version, and numbers of batches only rise.
            if !matches!(s, Step::Publish(_)) {
                prop_assert_eq!((next.map_version, &next.map_hash), (p.map_version, &p.map_hash));
            }
            prop_assert!(next.map_version >= p.map_version && next.batches >= p.batches);
            // The rest of the record leaves the moves alone.
            if matches!(s, Step::Claim(..) | Step::Serve(..) | Step::Reclaim(..) | Step::HandOver(_) | Step::Release(_) | Step::Publish(_)) {
                prop_assert_eq!(&next.moves, &p.moves);
            }
            p = next;
        }
    }
}
