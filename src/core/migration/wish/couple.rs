//! What changes places between two pairs, and what stands in its way.

use super::{PairState, Plan, Why, Wishes};
use crate::{
    api::placement::{Placement, Seed, ShardSpan, SpanState},
    core::{
        placement::{self, moves},
        spans::SpanSet,
    },
};
use std::collections::BTreeMap;

/// What changes places between two pairs; `a` is the first by name.
pub(super) struct Couple {
    pub(super) a: String,
    pub(super) b: String,
    /// Served by `a`, wished at `b`.
    pub(super) to_b: SpanSet,
    /// Served by `b`, wished at `a`.
    pub(super) to_a: SpanSet,
}

/// Every two pairs between which anything is wished to move, in the order of their names.
pub(super) fn couples(p: &Placement, wishes: &Wishes) -> Vec<Couple> {
    let mut all: BTreeMap<(String, String), [Vec<ShardSpan>; 2]> = BTreeMap::new();
    for (to, set) in &wishes.0 {
        for s in placement::pieces(p, set) {
            if s.pair == *to || s.state != SpanState::Serving {
                continue;
            }
            let (key, back) = if s.pair < *to {
                ((s.pair, to.clone()), false)
            } else {
                ((to.clone(), s.pair), true)
            };
            let [to_b, to_a] = all.entry(key).or_default();
            (if back { to_a } else { to_b }).push(ShardSpan::new(s.first, s.last));
        }
    }
    all.into_iter()
        .map(|((a, b), [to_b, to_a])| Couple {
            a,
            b,
            to_b: moves::set(&to_b),
            to_a: moves::set(&to_a),
        })
        .collect()
}

impl Couple {
    pub(super) fn all(&self) -> SpanSet {
        self.to_b.union(&self.to_a)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.to_b.is_empty() && self.to_a.is_empty()
    }
    pub(super) fn goes_from(&self, pair: &str) -> bool {
        !self.from(pair).is_empty()
    }
    /// Says of `some` of them why they do not set out.
    pub(super) fn hold(&self, plan: &mut Plan, some: &SpanSet, why: &Why) {
        for (from, to) in self.directions() {
            plan.hold(&from, &to, &self.from(&from).intersect(some), why);
        }
    }
    /// Those that are in a move: over this couple's own they go already, and another one has to end first.
    pub(super) fn take_out_moving(&mut self, p: &Placement, plan: &mut Plan) {
        for m in &p.moves {
            let set = moves::set(&m.shards);
            if m.other_end(&self.a) != Some(&self.b) {
                self.hold(plan, &set, &Why::InOtherMove { key: m.key() });
            }
            self.take_out(&set);
        }
    }
    /// Those that cannot go, whatever happens.
    pub(super) fn take_out_refused(&mut self, ends: &Ends<'_>, plan: &mut Plan) {
        for (from, to) in self.directions() {
            if let Some(why) = ends.refuses(&from, &to) {
                self.take_out_with(&self.from(&from), plan, &why);
            }
        }
    }
    /// None goes while either pair has trouble.
    pub(super) fn take_out_troubled(&mut self, ends: &Ends<'_>, plan: &mut Plan) {
        let trouble = ends.trouble(&self.a).or_else(|| ends.trouble(&self.b));
        if let Some(why) = trouble {
            self.take_out_with(&self.all(), plan, &why);
        }
    }
    /// Those of which the pair where they go has databases already, and no move of theirs made these. A pair that is or was cloned over by
    /// a move has databases of everything that its source had, until that move is cleaned up.
    pub(super) fn take_out_unknown(&mut self, p: &Placement, ends: &Ends<'_>, plan: &mut Plan) {
        for (from, to) in self.directions() {
            let clone = moves::of_pair(p, &to).find(|m| m.seed == Seed::Physical && m.to == to);
            let why = match clone {
                Some(m) if m.from == from => continue,
                Some(m) => Why::InOtherMove { key: m.key() },
                None => Why::UnknownCopies { pair: to.clone() },
            };
            let held = ends.held(&to).cloned().unwrap_or_default();
            self.take_out_with(&held.intersect(&self.from(&from)), plan, &why);
        }
    }

    fn directions(&self) -> [(String, String); 2] {
        let (a, b) = (self.a.clone(), self.b.clone());
        [(a.clone(), b.clone()), (b, a)]
    }
    /// Those that leave `pair`.
    fn from(&self, pair: &str) -> SpanSet {
        (if pair == self.a { &self.to_b } else { &self.to_a }).clone()
    }
    fn take_out(&mut self, some: &SpanSet) {
        self.to_b = self.to_b.minus(some);
        self.to_a = self.to_a.minus(some);
    }
    fn take_out_with(&mut self, some: &SpanSet, plan: &mut Plan, why: &Why) {
        self.hold(plan, some, why);
        self.take_out(some);
    }
}

/// The pairs of the namespace, as the ends of moves of one cluster.
pub(super) struct Ends<'a> {
    pub(super) pairs: &'a BTreeMap<String, PairState>,
    pub(super) cluster: &'a str,
}

impl Ends<'_> {
    /// Shards whose databases are at `pair`; `None` when that is not known.
    pub(super) fn held(&self, pair: &str) -> Option<&SpanSet> {
        self.pairs.get(pair)?.facts.held.as_ref()
    }
    /// Why nothing can go from `from` to `to`, whatever happens. A pair that is being deleted may be emptied.
    pub(super) fn refuses(&self, from: &str, to: &str) -> Option<Why> {
        for name in [from, to] {
            let pair = name.to_owned();
            match self.pairs.get(name) {
                None => return Some(Why::PairNotFound { pair }),
                Some(s) if s.facts.cluster != self.cluster => {
                    return Some(Why::PairOfOtherCluster {
                        pair,
                        cluster: s.facts.cluster.clone(),
                    });
                }
                Some(s) if s.facts.deleting && name == to => return Some(Why::PairDeleting { pair }),
                Some(_) => {}
            }
        }
        None
    }
    /// Whether a pair is being deleted, or is gone.
    pub(super) fn leaves(&self, pair: &str) -> bool {
        self.pairs.get(pair).is_none_or(|s| s.facts.deleting)
    }
    /// What stands in the way of a pair that is an end of a new move, until it passes.
    pub(super) fn trouble(&self, pair: &str) -> Option<Why> {
        let state = self.pairs.get(pair)?;
        let name = pair.to_owned();
        match &state.trouble {
            Some(trouble) => Some(Why::PairNotReady {
                pair: name,
                trouble: trouble.clone(),
            }),
            None if state.facts.held.is_none() => Some(Why::AskingServers { pair: name }),
            None => None,
        }
    }
}
