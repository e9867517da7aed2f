//! Whatever is wished, and wished otherwise in the middle of it, the fleet gets there, and nothing is left of the moves.

use super::*;
use crate::core::migration::fences;
use proptest::prelude::*;

/// An edit: these shards get a range of their own, wished at this pair.
type Edit = (SpanSet, usize);

fn edit() -> impl Strategy<Value = Edit> {
    (
        (0i32..60, 0i32..20).prop_map(|(f, n)| span(f * 5, (f + n).min(59) * 5 + 4)),
        0usize..5,
    )
}

impl Fleet {
    fn edited(&mut self, (shards, pair): &Edit) {
        let mine = shards.intersect(&placement::serving(&self.p));
        let range = format!("e{}", self.ranges.len());
        self.p = hand_over(&self.p, &mine, &range).unwrap();
        self.ranges.insert(range, format!("p{pair}"));
    }
    fn holds(&mut self, pair: &str, edit: impl Fn(&SpanSet) -> SpanSet) {
        let held = &mut self.pairs.get_mut(pair).unwrap().facts.held;
        *held = Some(edit(held.as_ref().unwrap()));
    }
    /// What the operator does next, in one stride for each move; `false` when there is nothing to do.
    pub(super) fn stride(&mut self) -> bool {
        self.stride_of(u32::MAX)
    }
    /// The same, with those moves alone whose bits are set getting on.
    fn stride_of(&mut self, mask: u32) -> bool {
        let plan = self.plan();
        let mut did = false;
        for b in &plan.begin {
            self.p = moves::begin_move(&self.p, &b.key.from, &b.key.to, &b.shards, b.seed).unwrap();
            did = true;
        }
        for (k, more) in &plan.widen {
            self.p = moves::widen(&self.p, k, more).unwrap();
            did = true;
        }
        for (n, (k, course)) in plan.courses.iter().enumerate() {
            if (mask >> (n % 32)) & 1 == 0 {
                continue;
            }
            let next = self.move_on(k, course);
            did |= next != self.p;
            self.p = next;
            placement::check(&self.p).unwrap();
            assert!(is_forest(&self.p), "{:?}", moves::keys(&self.p));
            for pair in self.pairs.keys() {
                let open = fences::open(&self.p, pair);
                let held = self.pairs[pair].facts.held.clone().unwrap();
                assert!(open.is_subset(&held), "{pair} serves {open} and has {held}");
            }
        }
        did
    }
    fn move_on(&mut self, k: &MoveKey, course: &Course) -> Placement {
        let p = self.p.clone();
        let m = moves::find(&p, k).unwrap().clone();
        if m.stage == MoveStage::CleaningUp {
            for pair in [&k.from, &k.to] {
                self.holds(pair, |held| held.minus(&moves::droppable(&p, &m, pair, held)));
            }
            return moves::end_move(&p, k).unwrap();
        }
        if course.early.is_some() {
            return moves::clean_up(&p, k).unwrap();
        }
        if m.stage == MoveStage::Seeding {
            let mut p = p;
            for (pair, other) in [(&k.from, &k.to), (&k.to, &k.from)] {
                let set = moves::placed_at(&p, &m, pair);
                let had = self.pairs[pair].facts.held.clone().unwrap();
                let copied = if m.seed == Seed::Physical {
                    had
                } else {
                    set.clone()
                };
                if !set.is_empty() {
                    self.holds(other, |held| held.union(&copied));
                }
                p = moves::seeded(&p, k, &set, "").unwrap();
            }
            return moves::follow(&p, k).unwrap();
        }
        let way = if course.forward.is_empty() {
            &course.back
        } else {
            &course.forward
        };
        match m.stage {
            MoveStage::Retaining if course.is_settled() && self.lasting => p,
            MoveStage::Retaining if course.is_settled() => moves::clean_up(&p, k).unwrap(),
            MoveStage::Retaining => moves::resume(&p, k).unwrap(),
            _ if !way.is_subset(&moves::set(&m.verified)) => moves::verified(&p, k, way).unwrap(),
            _ if !way.is_empty() => {
                // A part at a time, so that wishes change in the middle.
                let batch = way.shards().take(1 + way.len() / 2).collect();
                let p = moves::begin_batch(&p, k, &batch).unwrap();
                moves::cut_over(&p, k, p.batches).unwrap()
            }
            _ => moves::retain(&p, k, Time(Timestamp::UNIX_EPOCH)).unwrap(),
        }
    }
}

/// Links to pairs that have no other are taken away until there are none: what is left closes a circle.
fn is_forest(p: &Placement) -> bool {
    let mut links = moves::keys(p);
    loop {
        let many = |pair: &String| links.iter().filter(|l| [&l.from, &l.to].contains(&pair)).count() > 1;
        let left: Vec<MoveKey> = links
            .iter()
            .filter(|l| many(&l.from) && many(&l.to))
            .cloned()
            .collect();
        if left.len() == links.len() {
            return left.is_empty();
        }
        links = left;
    }
}

/// An edit, and which moves get on, stride by stride, before the next one.
type Walked = (Edit, Vec<u32>);

fn edits() -> impl Strategy<Value = Vec<Walked>> {
    prop::collection::vec((edit(), prop::collection::vec(any::<u32>(), 0..12)), 1..10)
}

/// Nobody's time of grace passes, and every wish comes true all the same. Each pair keeps a few shards, so that none is cloned over: what a clone
/// has brought along stands in the way for that time. Returns how often a move had to wait for a circle.
fn walk(edits: &[Walked], per_pair: usize) -> usize {
    let mut f = Fleet::new().policy(per_pair, 4);
    f.lasting = true;
    for n in 3..5 {
        let (set, pair, range) = (span(n * 100, n * 100 + 4), format!("p{n}"), format!("r{n}"));
        f.p = claim(&f.p, &set, &pair, Some(&range)).unwrap();
        f.p = serve(&f.p, &set, &pair).unwrap();
        f.holds(&pair, |_| set.clone());
        f.ranges.insert(range, pair);
    }
    let stay = (0..3).fold(SpanSet::new(), |all, n| all.union(&span(n * 100, n * 100 + 4)));
    let circles = |f: &Fleet| {
        let closes = |h: &HeldBack| matches!(h.why, Why::ClosesCircle { .. });
        usize::from(f.plan().held_back.iter().any(closes))
    };
    let mut met = 0;
    for ((shards, pair), strides) in edits {
        f.edited(&(shards.minus(&stay), *pair));
        for mask in strides {
            f.stride_of(*mask);
            met += circles(&f);
        }
    }
    let mut left = 1000;
    while f.stride() {
        met += circles(&f);
        left -= 1;
        assert!(left > 0, "it goes on for ever: {:?}", f.plan());
    }
    for s in &f.p.spans {
        assert_eq!(s.pair, f.ranges[s.range.as_ref().unwrap()], "{:?}", f.plan());
    }
    assert!(f.p.moves.iter().all(|m| m.stage == MoveStage::Retaining));
    met
}

/// What the test of them proves nothing without.
#[test]
fn the_walks_meet_circles() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut next = || edits().new_tree(&mut runner).unwrap().current();
    let met: usize = (0..50).map(|n| walk(&next(), 1 + n % 3)).sum();
    assert!(met > 50, "{met}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_links_are_a_forest_and_no_two_moves_wait_for_each_other(edits in edits(), per_pair in 1usize..4) {
        walk(&edits, per_pair);
    }
    #[test]
    fn every_wish_comes_true(
        edits in prop::collection::vec((edit(), 0usize..12), 1..10),
        per_pair in 1usize..4,
        per_cluster in 1usize..5,
    ) {
        let mut f = Fleet::new().policy(per_pair, per_cluster);
        for (edit, strides) in &edits {
            f.edited(edit);
            for _ in 0..*strides {
                f.stride();
            }
        }
        let mut left = 1000;
        while f.stride() {
            left -= 1;
            prop_assert!(left > 0, "it goes on for ever: {:?}", f.plan());
        }
        prop_assert_eq!(&f.p.moves, &vec![]);
        prop_assert_eq!(f.plan(), Plan::default());
        for s in &f.p.spans {
            prop_assert_eq!(&s.pair, &f.ranges[s.range.as_ref().unwrap()]);
        }
        // Each shard is where it is served, and nowhere else.
        for (pair, state) in &f.pairs {
            prop_assert_eq!(state.facts.held.clone().unwrap(), placement::shards(&f.p, |s| s.pair == *pair));
        }
    }
}
