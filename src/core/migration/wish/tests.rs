mod circle;
mod walk;

use super::*;
use crate::{
    api::placement::ShardSpan,
    core::placement::{claim, hand_over, release, serve},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::json;

fn span(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}
fn key(from: &str, to: &str) -> MoveKey {
    MoveKey::new(from, to)
}
/// A fleet as people see it: what is served where, and where its ranges say that it belongs.
#[derive(Clone)]
struct Fleet {
    p: Placement,
    ranges: BTreeMap<String, String>,
    pairs: BTreeMap<String, PairState>,
    policy: Policy,
    /// The time of grace of a move does not pass.
    lasting: bool,
}
impl Fleet {
    /// r0 to r3 have 100 shards each on p0, p1, p2, and nothing but a name: p3 and p4 are empty.
    fn new() -> Self {
        let mut p = Placement::default();
        let mut ranges = BTreeMap::new();
        for n in 0..3_i32 {
            let (set, pair, range) = (span(n * 100, n * 100 + 99), format!("p{n}"), format!("r{n}"));
            p = claim(&p, &set, &pair, Some(&range)).unwrap();
            p = serve(&p, &set, &pair).unwrap();
            ranges.insert(range, pair);
        }
        let pairs = (0..5_i32).map(|n| {
            let held = if n < 3 {
                span(n * 100, n * 100 + 99)
            } else {
                SpanSet::new()
            };
            let facts = PairFacts {
                cluster: "c".into(),
                deleting: false,
                held: Some(held),
            };
            (format!("p{n}"), PairState { facts, trouble: None })
        });
        Self {
            p,
            ranges,
            pairs: pairs.collect(),
            policy: Policy::default(),
            lasting: false,
        }
    }
    /// A new range has taken these shards where they lie, and wishes them at `pair`.
    fn wish(mut self, range: &str, set: &SpanSet, pair: &str) -> Self {
        self.p = hand_over(&self.p, set, range).unwrap();
        self.ranges.insert(range.into(), pair.into());
        self
    }
    fn pair(mut self, name: &str, edit: impl Fn(&mut PairState)) -> Self {
        edit(self.pairs.get_mut(name).unwrap());
        self
    }
    fn policy(mut self, per_pair: usize, per_cluster: usize) -> Self {
        self.policy = Policy {
            per_pair,
            per_cluster,
        };
        self
    }
    fn change(mut self, change: impl Fn(&Placement) -> Result<Placement, placement::Error>) -> Self {
        self.p = change(&self.p).unwrap();
        self
    }
    fn plan(&self) -> Plan {
        let wishes = Wishes::of(&self.p, self.ranges.iter().map(|(r, p)| (r.as_str(), p.as_str())));
        let plan = plan(&self.p, &wishes, &self.pairs, "c", self.policy);
        // Whatever is planned can be put on record.
        let mut p = self.p.clone();
        for b in &plan.begin {
            p = moves::begin_move(&p, &b.key.from, &b.key.to, &b.shards, b.seed).unwrap();
        }
        for (k, more) in &plan.widen {
            p = moves::widen(&p, k, more).unwrap();
        }
        plan
    }
    /// Every move that is planned is begun.
    fn begun(mut self) -> Self {
        for b in self.plan().begin {
            self.p = moves::begin_move(&self.p, &b.key.from, &b.key.to, &b.shards, b.seed).unwrap();
        }
        self
    }
    /// The move with these ends is seeded, followed and verified.
    fn verified(mut self, k: &MoveKey) -> Self {
        let m = moves::find(&self.p, k).unwrap().clone();
        for pair in [&k.from, &k.to] {
            self.p = moves::seeded(&self.p, k, &moves::placed_at(&self.p, &m, pair), "").unwrap();
        }
        self.p = moves::follow(&self.p, k).unwrap();
        self.p = moves::verified(&self.p, k, &moves::set(&m.shards)).unwrap();
        self
    }
    fn cut_over(mut self, k: &MoveKey, batch: &SpanSet) -> Self {
        self.p = moves::begin_batch(&self.p, k, batch).unwrap();
        self.p = moves::cut_over(&self.p, k, self.p.batches).unwrap();
        self
    }
    fn retained(self, k: &MoveKey) -> Self {
        self.change(|p| moves::retain(p, k, Time(Timestamp::UNIX_EPOCH)))
    }
}
fn begins(plan: &Plan) -> Vec<String> {
    let show = |b: &Begin| format!("{} {} {:?}", b.key, b.shards, b.seed);
    plan.begin.iter().map(show).collect()
}
fn held(plan: &Plan) -> Vec<String> {
    let show = |h: &HeldBack| format!("{} → {} {} {}", h.from, h.to, h.shards, h.why.reason());
    plan.held_back.iter().map(show).collect()
}
fn course<'a>(plan: &'a Plan, k: &MoveKey) -> &'a Course {
    &plan.courses[k]
}
fn none() -> Vec<String> {
    vec![]
}

#[test]
fn a_fleet_as_it_is_wished_has_nothing_to_do() {
    assert_eq!(Fleet::new().plan(), Plan::default());
}

#[test]
fn a_split_onto_an_empty_pair_is_cloned_and_one_beside_others_is_copied() {
    let f = Fleet::new().wish("r9", &span(50, 99), "p3");
    assert_eq!(begins(&f.plan()), ["p0 → p3 50-99 Physical"]);
    let f = Fleet::new().wish("r9", &span(50, 99), "p1");
    assert_eq!(begins(&f.plan()), ["p0 → p1 50-99 PerDatabase"]);
    // A clone copies everything: that is worth it when a quarter goes. What other moves keep there is part of everything.
    let f = Fleet::new().wish("r9", &span(75, 99), "p3");
    assert_eq!(begins(&f.plan()), ["p0 → p3 75-99 Physical"]);
    let f = Fleet::new().wish("r9", &span(76, 99), "p3");
    assert_eq!(begins(&f.plan()), ["p0 → p3 76-99 PerDatabase"]);
    let f = Fleet::new()
        .policy(9, 9)
        .wish("r8", &span(100, 149), "p0")
        .begun()
        .wish("r9", &span(70, 99), "p3");
    assert_eq!(begins(&f.plan()), ["p0 → p3 70-99 PerDatabase"]);
    // An empty pair on record, with databases that nobody knows: these would be lost.
    let f = Fleet::new()
        .wish("r9", &span(50, 99), "p3")
        .pair("p3", |s| s.facts.held = Some(span(900, 901)));
    assert_eq!(begins(&f.plan()), ["p0 → p3 50-99 PerDatabase"]);
}

#[test]
fn two_ranges_change_places_over_one_move() {
    let f = Fleet::new()
        .wish("r0", &span(0, 99), "p1")
        .wish("r8", &span(100, 149), "p0");
    assert_eq!(begins(&f.plan()), ["p0 → p1 0-149 PerDatabase"]);
    // The greater part says which way it goes.
    let f = Fleet::new()
        .wish("r9", &span(90, 99), "p1")
        .wish("r8", &span(100, 149), "p0");
    assert_eq!(begins(&f.plan()), ["p1 → p0 90-149 PerDatabase"]);
    let k = key("p1", "p0");
    let f = f.begun().verified(&k);
    let plan = f.plan();
    assert_eq!(
        (course(&plan, &k).forward.clone(), course(&plan, &k).back.clone()),
        (span(100, 149), span(90, 99))
    );
    let f = f.cut_over(&k, &span(100, 149)).cut_over(&k, &span(90, 99));
    let plan = f.plan();
    assert!(course(&plan, &k).is_settled() && course(&plan, &k).early.is_none());
}

#[test]
fn a_three_way_split_runs_at_once_if_the_policy_says_so() {
    let f = Fleet::new()
        .wish("r8", &span(30, 59), "p3")
        .wish("r9", &span(60, 99), "p4");
    let plan = f.plan();
    assert_eq!(begins(&plan), ["p0 → p3 30-59 Physical"]);
    assert_eq!(held(&plan), ["p0 → p4 60-99 PairBusy"]);
    let plan = f.clone().policy(2, 4).plan();
    assert_eq!(
        begins(&plan),
        ["p0 → p3 30-59 Physical", "p0 → p4 60-99 Physical"]
    );
    let plan = f.clone().policy(2, 1).plan();
    assert_eq!(held(&plan), ["p0 → p4 60-99 ClusterBusy"]);
    // One that is only being retained does not count.
    let k = key("p0", "p3");
    let f = f.begun().verified(&k).cut_over(&k, &span(30, 59));
    assert_eq!(held(&f.plan()), ["p0 → p4 60-99 PairBusy"]);
    assert_eq!(begins(&f.retained(&k).plan()), ["p0 → p4 60-99 Physical"]);
}

#[test]
fn two_pairs_are_not_cloned_over_one() {
    let f = Fleet::new()
        .wish("r0", &span(0, 99), "p3")
        .wish("r1", &span(100, 199), "p3")
        .policy(9, 9);
    let plan = f.plan();
    assert_eq!(begins(&plan), ["p0 → p3 0-99 Physical"]);
    assert_eq!(held(&plan), ["p1 → p3 100-199 BeingCloned"]);
    let f = f.begun();
    assert_eq!(held(&f.plan()), ["p1 → p3 100-199 BeingCloned"]);
    let f = f.verified(&key("p0", "p3"));
    assert_eq!(begins(&f.plan()), ["p1 → p3 100-199 PerDatabase"]);
}

#[test]
fn what_comes_in_pieces_goes_in_one_move_while_it_is_seeded() {
    let k = key("p0", "p3");
    let f = Fleet::new().wish("r8", &span(60, 99), "p3").begun();
    let f = f.wish("r9", &span(40, 49), "p3");
    assert_eq!(f.plan().widen, [(k.clone(), span(40, 49))]);
    let f = f.change(|p| moves::widen(p, &k, &span(40, 49)));
    assert_eq!(f.plan().widen, []);
    assert_eq!(course(&f.plan(), &k).forward, span(40, 49).union(&span(60, 99)));
    // Later it waits, and the way back of the others ends for it as soon as they are there.
    let f = f.verified(&k).wish("r7", &span(30, 39), "p3");
    let plan = f.plan();
    assert_eq!(
        (held(&plan), course(&plan, &k).early),
        (vec!["p0 → p3 30-39 LinkInUse".to_owned()], None)
    );
    let f = f
        .cut_over(&k, &span(40, 49))
        .cut_over(&k, &span(60, 99))
        .retained(&k);
    assert_eq!(course(&f.plan(), &k).early, Some(Early::LinkWanted));
    // But not for one that could not set out anyway.
    let stuck = f.clone().pair("p3", |s| s.trouble = Some("x".into()));
    assert_eq!(course(&stuck.plan(), &k).early, None);
    let f = f.change(|p| moves::clean_up(p, &k));
    assert_eq!(held(&f.plan()), ["p0 → p3 30-39 LinkInUse"]);
    let f = f
        .change(|p| moves::end_move(p, &k))
        .pair("p3", |s| s.facts.held = Some(span(40, 99).minus(&span(50, 59))));
    assert_eq!(begins(&f.plan()), ["p0 → p3 30-39 PerDatabase"]);
}

#[test]
fn a_wish_that_is_taken_back_ends_the_move_or_turns_it() {
    let k = key("p0", "p1");
    let f = Fleet::new().wish("r9", &span(50, 99), "p1").begun();
    let home = |f: Fleet| f.wish("r9", &span(50, 99), "p0");
    assert_eq!(
        course(&home(f.clone()).plan(), &k).early,
        Some(Early::NothingMoved)
    );
    let f = f.verified(&k);
    assert_eq!(
        course(&home(f.clone()).plan(), &k).early,
        Some(Early::NothingMoved)
    );
    let f = home(f.cut_over(&k, &span(50, 53)));
    let plan = f.plan();
    assert_eq!(
        (course(&plan, &k).back.clone(), course(&plan, &k).early),
        (span(50, 53), None)
    );
    let f = f.cut_over(&k, &span(50, 53));
    assert_eq!(course(&f.plan(), &k).early, Some(Early::NothingMoved));
}

#[test]
fn a_wish_for_a_third_pair_waits_for_the_end_of_the_way_back() {
    let k = key("p0", "p1");
    let f = Fleet::new().wish("r9", &span(50, 99), "p1").begun().verified(&k);
    let f = f.cut_over(&k, &span(50, 69)).wish("r8", &span(60, 69), "p2");
    let plan = f.plan();
    // The others go on first.
    assert_eq!(
        (course(&plan, &k).forward.clone(), course(&plan, &k).early),
        (span(70, 99), None)
    );
    assert_eq!(held(&plan), ["p1 → p2 60-69 InOtherMove"]);
    let f = f.cut_over(&k, &span(70, 99));
    assert_eq!(course(&f.plan(), &k).early, Some(Early::WishedElsewhere));
    let refused = f.clone().pair("p2", |s| s.facts.deleting = true);
    assert_eq!(
        course(&refused.plan(), &k).early,
        None,
        "it cannot go there, so the way back stays"
    );
    let f = f.change(|p| moves::end_move(&moves::clean_up(p, &k)?, &k));
    assert_eq!(begins(&f.plan()), ["p1 → p2 60-69 PerDatabase"]);
}

#[test]
fn a_range_that_is_not_accepted_for_a_moment_ends_nothing() {
    let k = key("p0", "p1");
    let mut f = Fleet::new().wish("r9", &span(50, 99), "p1").begun();
    f.ranges.remove("r9");
    let plan = f.plan();
    assert_eq!(course(&plan, &k).undecided, span(50, 99));
    assert!(!course(&plan, &k).is_settled() && course(&plan, &k).early.is_none());
    // Its successor goes on with it.
    let f = f.wish("r9b", &span(50, 99), "p1");
    assert_eq!(course(&f.plan(), &k).forward, span(50, 99));
    // Nobody has them any more: they stay where they are.
    let f = f.change(|p| release(p, &span(50, 99)));
    assert_eq!(course(&f.plan(), &k).early, Some(Early::NothingMoved));
}

#[test]
fn pairs_that_take_nothing_are_told_apart() {
    let f = Fleet::new().wish("r9", &span(50, 99), "p3");
    let why = |f: Fleet| {
        let plan = f.plan();
        assert!(plan.begin.is_empty());
        let h = &plan.held_back[0];
        (h.why.reason(), h.why.is_refusal())
    };
    assert_eq!(
        why(f.clone().pair("p3", |s| s.facts.deleting = true)),
        ("PairDeleting", true)
    );
    assert_eq!(
        why(f.clone().pair("p3", |s| s.facts.cluster = "d".into())),
        ("PairOfOtherCluster", true)
    );
    assert_eq!(
        why(f.clone().pair("p3", |s| s.trouble = Some("one server".into()))),
        ("PairNotReady", false)
    );
    assert_eq!(
        why(f.clone().pair("p0", |s| s.trouble = Some("one server".into()))),
        ("PairNotReady", false)
    );
    assert_eq!(
        why(f.clone().pair("p3", |s| s.facts.held = None)),
        ("AskingServers", false)
    );
    let mut gone = f.clone();
    gone.pairs.remove("p3");
    assert_eq!(why(gone), ("PairNotFound", true));
    // A pair that is being deleted is emptied.
    let leaving = f.pair("p0", |s| s.facts.deleting = true);
    assert_eq!(begins(&leaving.plan()), ["p0 → p3 50-99 Physical"]);
}

#[test]
fn databases_of_unknown_origin_are_not_copied_over() {
    let f = Fleet::new()
        .wish("r9", &span(50, 99), "p1")
        .pair("p1", |s| s.facts.held = Some(span(90, 199)));
    let plan = f.plan();
    assert_eq!(begins(&plan), ["p0 → p1 50-89 PerDatabase"]);
    assert_eq!(held(&plan), ["p0 → p1 90-99 UnknownCopies"]);
    // A pair that was cloned has those of its source, until that move has ended.
    let k = key("p0", "p3");
    let f = Fleet::new().wish("r9", &span(50, 99), "p3").begun().verified(&k);
    let f = f.cut_over(&k, &span(50, 99)).retained(&k);
    let f = f
        .pair("p3", |s| s.facts.held = Some(span(0, 99)))
        .wish("r8", &span(0, 9), "p3");
    assert_eq!(held(&f.plan()), ["p0 → p3 0-9 LinkInUse"]);
}

#[test]
fn a_pair_that_is_deleted_ends_the_moves_that_go_there() {
    let k = key("p0", "p3");
    let f = Fleet::new().wish("r9", &span(50, 99), "p3").begun();
    let gone = f.clone().pair("p3", |s| s.facts.deleting = true);
    let plan = gone.plan();
    assert_eq!(held(&plan), ["p0 → p3 50-99 PairDeleting"]);
    assert_eq!(course(&plan, &k).early, Some(Early::NothingMoved));
    // Half-way: what is there stays there, and nothing more comes.
    let f = f
        .verified(&k)
        .cut_over(&k, &span(50, 59))
        .pair("p3", |s| s.facts.deleting = true);
    let plan = f.plan();
    assert_eq!(held(&plan), ["p0 → p3 60-99 PairDeleting"]);
    assert_eq!(course(&plan, &k).early, Some(Early::PairLeaves));
    // And it goes back if that is wished, which empties the pair.
    let f = f.wish("r9", &span(50, 99), "p0");
    let plan = f.plan();
    assert_eq!(
        (course(&plan, &k).back.clone(), course(&plan, &k).early),
        (span(50, 59), None)
    );
}

#[test]
fn many_small_runs_go_one_after_the_other() {
    let mut f = Fleet::new();
    let odd: SpanSet = (1000..2200).step_by(2).collect();
    f.p = serve(&claim(&f.p, &odd, "p0", Some("r9")).unwrap(), &odd, "p0").unwrap();
    f.ranges.insert("r9".into(), "p1".into());
    let plan = f.plan();
    assert_eq!(plan.begin[0].shards.len(), 256);
    assert_eq!(
        (plan.held_back[0].shards.len(), plan.held_back[0].why.clone()),
        (600 - 256, Why::TooManyRuns)
    );
}

#[test]
fn what_leaves_a_pair_is_what_is_wished_elsewhere() {
    let f = Fleet::new()
        .wish("r9", &span(50, 99), "p1")
        .wish("r8", &span(0, 9), "p2");
    let wishes = Wishes::of(&f.p, f.ranges.iter().map(|(r, p)| (r.as_str(), p.as_str())));
    assert_eq!(wishes.leaving(&f.p, "p0"), span(0, 9).union(&span(50, 99)));
    assert_eq!(wishes.leaving(&f.p, "p1"), SpanSet::new());
    assert_eq!(held(&f.clone().policy(9, 9).plan()), none());
}

#[test]
fn a_pair_that_is_being_deleted_is_ready_enough_with_both_servers() {
    let pair = |deleting: bool, members: usize, ready: &str| -> PairState {
        let member = |n: usize| json!({ "name": format!("p0-{n}"), "serverUuid": format!("u{n}") });
        let mut v = json!({
            "apiVersion": "shardwright.dev/v1alpha1", "kind": "MySQLPair",
            "metadata": { "name": "p0", "namespace": "ns", "generation": 1 },
            "spec": { "clusterRef": { "name": "c" } },
            "status": {
                "active": "p0-0", "inSync": (0..members).map(member).collect::<Vec<_>>(), "shards": [],
                "conditions": [{ "type": "Ready", "status": ready, "reason": "R", "message": "m", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            },
        });
        if deleting {
            v["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        PairState::of(&serde_json::from_value(v).unwrap())
    };
    assert_eq!(pair(false, 2, "True").trouble, None);
    assert_eq!(pair(false, 2, "False").trouble.as_deref(), Some("R: m"));
    assert_eq!(pair(true, 2, "False").trouble, None);
    assert_eq!(pair(true, 1, "False").trouble.as_deref(), Some("R: m"));
}
