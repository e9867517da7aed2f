//! From the record and the wishes to what has to move: which moves are begun now, and which way the shards of those on record go.
//!
//! A wish is the `pairRef` of an accepted ShardRange, for the shards that the record assigns to it. Shards of ranges that are not accepted, or
//! are being deleted, and shards without a range have none: they stay where they are.

pub(super) mod circle;
mod couple;
mod why;

#[cfg(test)]
mod tests;

pub use why::{Early, Why};

use couple::{Couple, Ends, couples};

use crate::{
    api::{
        MySQLPair,
        placement::{MAX_MOVE_SPANS, MAX_MOVES, Move, MoveKey, MoveStage, Placement, Seed},
    },
    core::{
        claims::PairFacts,
        cluster::observed::{Progress, facts},
        placement::{self, moves},
        spans::SpanSet,
    },
};
use std::collections::BTreeMap;

/// How many moves may be under way at once. One counts while it is being seeded or follows: not in its time of grace, and not while it is
/// cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Of one pair, as either end.
    pub per_pair: usize,
    /// Of the cluster.
    pub per_cluster: usize,
}

/// One at a pair, so that its passive server has one reader at a time; four in the cluster.
impl Default for Policy {
    fn default() -> Self {
        Self {
            per_pair: 1,
            per_cluster: 4,
        }
    }
}

impl Policy {
    /// Everything at once.
    pub fn unlimited() -> Self {
        Self {
            per_pair: usize::MAX,
            per_cluster: usize::MAX,
        }
    }
}

/// What has to be known of a MySQLPair of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PairState {
    /// What claims are judged by as well.
    pub facts: PairFacts,
    /// Why it is not Ready; `None` when it is.
    pub trouble: Option<String>,
}

impl PairState {
    /// Reads a pair. One that is being deleted is never Ready, and may still be emptied: then it does with both servers in sync.
    pub fn of(pair: &MySQLPair) -> Self {
        let facts = facts(pair);
        let status = pair.status.clone().unwrap_or_default();
        let two = status.active.is_some() && status.in_sync.len() == 2;
        let trouble = match Progress::of(&status.conditions, pair.metadata.generation) {
            Progress::Ready => None,
            _ if facts.deleting && two => None,
            Progress::Working(why) | Progress::Stalled(why) if !why.is_empty() => Some(why),
            _ => Some("it has not said anything yet".to_owned()),
        };
        Self { facts, trouble }
    }
}

/// The served shards that are wished at each pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wishes(BTreeMap<String, SpanSet>);

impl Wishes {
    /// The wishes of accepted ranges, each given as its name and its `pairRef`. `p` is the record after their claims were settled.
    pub fn of<'a>(p: &Placement, accepted: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let serving = placement::serving(p);
        let mut all: BTreeMap<String, SpanSet> = BTreeMap::new();
        for (range, pair) in accepted {
            let mine = placement::of_range(p, range).intersect(&serving);
            let at = all.entry(pair.to_owned()).or_default();
            *at = at.union(&mine);
        }
        all.retain(|_, set| !set.is_empty());
        Self(all)
    }
    /// What is wished at `pair`.
    pub fn at(&self, pair: &str) -> SpanSet {
        self.0.get(pair).cloned().unwrap_or_default()
    }
    /// What `pair` serves, and is wished elsewhere: what is going to leave it.
    pub fn leaving(&self, p: &Placement, pair: &str) -> SpanSet {
        let elsewhere = self.0.iter().filter(|(other, _)| *other != pair);
        elsewhere
            .fold(SpanSet::new(), |a, (_, set)| a.union(set))
            .intersect(&placement::shards(p, |s| s.pair == pair))
    }
    /// The shards whose range is there and says nothing that counts: it is not accepted, or is being deleted.
    fn undecided(&self, p: &Placement) -> SpanSet {
        let decided = self.0.values().fold(SpanSet::new(), |a, b| a.union(b));
        placement::shards(p, |s| s.range.is_some()).minus(&decided)
    }
}

/// A move to begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// Its ends.
    pub key: MoveKey,
    /// Its shards; those that are at `to` go the opposite way.
    pub shards: SpanSet,
    /// How the copies are made.
    pub seed: Seed,
}

/// Which way the shards of a move on record go now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Course {
    /// Placed at `from`, wished at `to`.
    pub forward: SpanSet,
    /// Placed at `to`, wished at `from`.
    pub back: SpanSet,
    /// Their range is not accepted, or is being deleted, so that nobody knows where they are wished: they stay where they are, and the move with
    /// them. A range that is replaced by another one in the same commit ends nothing.
    pub undecided: SpanSet,
    /// It is cleaned up as soon as its batch has ended, without waiting for `retainUntil`, and why.
    pub early: Option<Early>,
}

impl Course {
    /// Every shard is where it is wished, as far as this move goes: nothing is left but to retain the old copies.
    pub fn is_settled(&self) -> bool {
        self.forward.is_empty() && self.back.is_empty() && self.undecided.is_empty()
    }
}

/// Shards that do not set out now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldBack {
    /// Where they are.
    pub from: String,
    /// Where they are wished.
    pub to: String,
    /// Those shards.
    pub shards: SpanSet,
    /// Why not.
    pub why: Why,
}

/// What follows from the wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Moves to put on record, within the policy.
    pub begin: Vec<Begin>,
    /// Shards that come into a move which is still being seeded.
    pub widen: Vec<(MoveKey, SpanSet)>,
    /// One course for each move on record.
    pub courses: BTreeMap<MoveKey, Course>,
    /// What is wished elsewhere and does not set out, and why.
    pub held_back: Vec<HeldBack>,
}

/// What follows from the wishes for the record `p` of `cluster`. `pairs` are those of the namespace.
pub fn plan(
    p: &Placement,
    wishes: &Wishes,
    pairs: &BTreeMap<String, PairState>,
    cluster: &str,
    policy: Policy,
) -> Plan {
    let mut plan = Plan::default();
    let ends = Ends { pairs, cluster };
    let mut couples = couples(p, wishes);
    let mut wanted = Vec::new();
    let undecided = wishes.undecided(p);
    for m in &p.moves {
        let mut course = Course {
            forward: moves::placed_at(p, m, &m.from).intersect(&wishes.at(&m.to)),
            back: moves::placed_at(p, m, &m.to).intersect(&wishes.at(&m.from)),
            undecided: undecided.intersect(&moves::set(&m.shards)),
            early: None,
        };
        // A pair that goes, or is another cluster's by now, takes nothing more; what is there already is its own affair.
        for (set, (from, to)) in [
            (&mut course.forward, (&m.from, &m.to)),
            (&mut course.back, (&m.to, &m.from)),
        ] {
            let why = match ends.refuses(from, to) {
                None if m.stage == MoveStage::CleaningUp => Why::LinkInUse { key: m.key() },
                None => continue,
                Some(why) => why,
            };
            plan.hold(from, to, &std::mem::take(set), &why);
        }
        plan.courses.insert(m.key(), course);
    }
    for couple in &mut couples {
        couple.take_out_moving(p, &mut plan);
        couple.take_out_refused(&ends, &mut plan);
        couple.take_out_troubled(&ends, &mut plan);
        if couple.is_empty() {
            continue;
        }
        match moves::between(p, &couple.a, &couple.b) {
            Some(m)
                if m.stage == MoveStage::Seeding
                    && !(m.seed == Seed::Physical && couple.goes_from(&m.to)) =>
            {
                couple.take_out_unknown(p, &ends, &mut plan);
                let room = (MAX_MOVE_SPANS / 2).saturating_sub(m.shards.len());
                let (more, rest) = first_runs(&couple.all(), room);
                couple.hold(&mut plan, &rest, &Why::TooManyRuns);
                if !more.is_empty() {
                    plan.widen.push((m.key(), more));
                }
            }
            Some(m) => {
                wanted.push(m.key());
                couple.hold(&mut plan, &couple.all(), &Why::LinkInUse { key: m.key() });
            }
            None => {
                couple.take_out_unknown(p, &ends, &mut plan);
                begin(p, couple, &ends, policy, &mut plan);
            }
        }
    }
    for m in &p.moves {
        if let Some(course) = plan.courses.get_mut(&m.key())
            && course.is_settled()
        {
            course.early = early(p, m, wishes, &ends, wanted.contains(&m.key()));
        }
    }
    circle::make_way(p, &mut plan);
    plan
}

/// Why a move without a way to go is cleaned up at once.
fn early(p: &Placement, m: &Move, wishes: &Wishes, ends: &Ends<'_>, wanted: bool) -> Option<Early> {
    if moves::moved(p, m).is_empty() {
        return Some(Early::NothingMoved);
    }
    let third = wishes.0.iter().any(|(goal, set)| {
        let here = [&m.from, &m.to]
            .map(|at| moves::placed_at(p, m, at).overlaps(set) && ends.refuses(at, goal).is_none());
        m.other_end(goal).is_none() && here.contains(&true)
    });
    if third {
        return Some(Early::WishedElsewhere);
    }
    if [&m.from, &m.to].iter().any(|pair| ends.leaves(pair)) {
        return Some(Early::PairLeaves);
    }
    wanted.then_some(Early::LinkWanted)
}

/// A pair is cloned when one shard in so many moves: reading all files is several times as fast as reading rows, and what is not wanted is dropped in
/// the end.
const CLONED_FOR: usize = 4;

/// Begins a move for a couple, when the policy allows one more.
fn begin(p: &Placement, couple: &Couple, ends: &Ends<'_>, policy: Policy, plan: &mut Plan) {
    let (all, rest) = first_runs(&couple.all(), MAX_MOVE_SPANS / 2);
    if all.is_empty() {
        return;
    }
    // The direction that has more to carry is the move's own.
    let swapped = couple.to_a.len() > couple.to_b.len();
    let (from, to) = if swapped {
        (&couple.b, &couple.a)
    } else {
        (&couple.a, &couple.b)
    };
    let cloned = |pair: &str| {
        moves::cloned_over(p, pair)
            || plan
                .begin
                .iter()
                .any(|b| b.seed == Seed::Physical && b.key.to == pair)
    };
    let under_way = |pair: Option<&str>| {
        let on = |a: &str, b: &str| pair.is_none_or(|pair| pair == a || pair == b);
        let recorded = p
            .moves
            .iter()
            .filter(|m| matches!(m.stage, MoveStage::Seeding | MoveStage::Following) && on(&m.from, &m.to));
        recorded.count() + plan.begin.iter().filter(|b| on(&b.key.from, &b.key.to)).count()
    };
    let limit = policy.per_cluster.min(MAX_MOVES);
    let why = if let Some(pair) = [from, to].into_iter().find(|pair| cloned(pair)) {
        Some(Why::BeingCloned { pair: pair.clone() })
    } else if let Some(pair) = [from, to]
        .into_iter()
        .find(|pair| under_way(Some(pair)) >= policy.per_pair)
    {
        Some(Why::PairBusy {
            pair: pair.clone(),
            limit: policy.per_pair,
        })
    } else if under_way(None) >= limit || p.moves.len() + plan.begin.len() >= MAX_MOVES {
        Some(Why::ClusterBusy { limit })
    } else {
        // Asked last: a way back ends early only for what could set out.
        circle::path(p, &plan.begin, from, to).map(|path| Why::ClosesCircle { path })
    };
    if let Some(why) = why {
        couple.hold(plan, &couple.all(), &why);
        return;
    }
    let empty = placement::shards(p, |s| s.pair == *to).is_empty()
        && moves::of_pair(p, to).next().is_none()
        && !plan.begin.iter().any(|b| b.key.to == *to || b.key.from == *to)
        && ends.held(to).is_some_and(SpanSet::is_empty);
    let seed = if empty && is_worth_cloning(p, from, &all) {
        Seed::Physical
    } else {
        Seed::PerDatabase
    };
    plan.begin.push(Begin {
        key: MoveKey::new(from, to),
        shards: all,
        seed,
    });
    couple.hold(plan, &rest, &Why::TooManyRuns);
}

/// Of the shards that the servers of `from` have, those that move are one in [`CLONED_FOR`] at least. What other moves keep there counts: a clone copies
/// everything.
fn is_worth_cloning(p: &Placement, from: &str, moving: &SpanSet) -> bool {
    let placed = placement::shards(p, |s| s.pair == from);
    let held = moves::of_pair(p, from).fold(placed, |all, m| all.union(&moves::set(&m.shards)));
    moving.len() * CLONED_FOR >= held.len()
}

impl Plan {
    fn hold(&mut self, from: &str, to: &str, shards: &SpanSet, why: &Why) {
        if !shards.is_empty() {
            self.held_back.push(HeldBack {
                from: from.to_owned(),
                to: to.to_owned(),
                shards: shards.clone(),
                why: why.clone(),
            });
        }
    }
}

/// The first `n` runs, and the rest.
fn first_runs(set: &SpanSet, n: usize) -> (SpanSet, SpanSet) {
    let first: SpanSet = set.spans().take(n).collect();
    let rest = set.minus(&first);
    (first, rest)
}
