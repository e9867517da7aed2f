//! Moves that would close a circle of links.

use super::*;

/// p0 → p1 and p2 → p0 are begun, and p1 → p2 is wished.
fn rotation() -> (Fleet, [MoveKey; 2]) {
    let f = Fleet::new()
        .policy(9, 9)
        .wish("r7", &span(0, 49), "p1")
        .wish("r8", &span(100, 149), "p2")
        .wish("r9", &span(200, 249), "p0");
    let plan = f.plan();
    assert_eq!(
        begins(&plan),
        ["p0 → p1 0-49 PerDatabase", "p2 → p0 200-249 PerDatabase"]
    );
    assert_eq!(held(&plan), ["p1 → p2 100-149 ClosesCircle"]);
    (f.begun(), [key("p0", "p1"), key("p2", "p0")])
}
fn arrived(f: Fleet, k: &MoveKey, set: &SpanSet) -> Fleet {
    f.verified(k).cut_over(k, set)
}
fn until(f: Fleet, k: &MoveKey, second: i64) -> Fleet {
    f.change(|p| moves::retain(p, k, Time(Timestamp::from_second(second).unwrap())))
}
fn early(f: &Fleet) -> Vec<Option<Early>> {
    let plan = f.plan();
    if f.p.moves.len() > 1 {
        assert_eq!(held(&plan), ["p1 → p2 100-149 ClosesCircle"]);
    }
    plan.courses.values().map(|c| c.early).collect()
}

#[test]
fn a_move_that_would_close_a_circle_waits_until_one_on_it_has_ended() {
    const WAY: Option<Early> = Some(Early::MakesWay);
    let (f, [one, two]) = rotation();
    let plan = f.plan();
    let why = &plan.held_back[0].why;
    assert!(
        why.message().contains("p0 → p1 and p2 → p0") && !why.is_refusal(),
        "{}",
        why.message()
    );
    // None has nothing left to do; then one has.
    assert_eq!(early(&f), [None, None]);
    let f = arrived(f, &two, &span(200, 249));
    assert_eq!(early(&f), [None, WAY]);
    // The one whose way back would end first ends; that of one that has just arrived has not begun.
    let f = arrived(f, &one, &span(0, 49));
    assert_eq!(early(&f), [WAY, None], "the first by name");
    assert_eq!(early(&until(f.clone(), &two, 9)), [None, WAY]);
    let f = until(f, &one, 9);
    assert_eq!(early(&f), [WAY, None]);
    assert_eq!(early(&until(f.clone(), &two, 9)), [WAY, None]);
    let f = until(f, &two, 8);
    assert_eq!(early(&f), [None, WAY]);
    // One is enough.
    let f = f.change(|p| moves::clean_up(p, &two));
    assert_eq!(early(&f), [None, None]);
    let f = f.change(|p| moves::end_move(p, &two));
    assert_eq!(early(&f), [None]);
    assert_eq!(begins(&f.plan()), ["p1 → p2 100-149 PerDatabase"]);
}

#[test]
fn a_way_back_ends_for_no_move_that_could_not_begin() {
    let (f, [one, two]) = rotation();
    let f = until(arrived(f, &one, &span(0, 49)), &one, 9);
    let f = until(arrived(f, &two, &span(200, 249)), &two, 9);
    let none = |f: Fleet, why: &str| {
        let plan = f.plan();
        assert!(
            held(&plan).contains(&format!("p1 → p2 100-149 {why}")),
            "{plan:?}"
        );
        assert!(plan.courses.values().all(|c| c.early != Some(Early::MakesWay)));
    };
    none(
        f.clone().pair("p2", |s| s.trouble = Some("x".into())),
        "PairNotReady",
    );
    none(f.clone().pair("p2", |s| s.facts.deleting = true), "PairDeleting");
    let busy = f.wish("r6", &span(150, 199), "p3").begun().policy(1, 9);
    none(busy, "PairBusy");
}

#[test]
fn a_rotation_comes_to_its_end_within_the_time_of_grace() {
    for limit in 1..4 {
        let mut f = Fleet::new().policy(limit, 9);
        f.lasting = true;
        for n in 0..3 {
            f = f.wish(
                &format!("r{n}"),
                &span(n * 100, n * 100 + 99),
                &format!("p{}", (n + 1) % 3),
            );
        }
        let mut left = 100;
        while f.stride() {
            left -= 1;
            assert!(left > 0, "{:?}", f.plan());
        }
        for n in 0..3 {
            let at = placement::shards(&f.p, |s| s.pair == format!("p{}", (n + 1) % 3));
            assert_eq!(at, span(n * 100, n * 100 + 99), "{limit}");
        }
        assert_eq!(f.p.moves.len(), 2);
    }
}
