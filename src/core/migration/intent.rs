//! What the wishes come to, for the objects as the API has them.

use super::wish::{self, HeldBack, PairState, Plan, Policy, Wishes};
use crate::{
    api::{Placement, shard_cluster::Migration},
    core::{
        claims::{self, PairFacts, RangeClaim, Verdict},
        cluster::reasons,
        note::Note,
        placement::{self, moves},
        spans::SpanSet,
    },
};
use std::collections::BTreeMap;

impl From<&Migration> for Policy {
    fn from(m: &Migration) -> Self {
        let limit = |n: i32| usize::try_from(n).unwrap_or(1).max(1);
        Self {
            per_pair: limit(m.moves_per_pair),
            per_cluster: limit(m.moves_per_cluster),
        }
    }
}

/// What follows from the wishes for `record`, in which the claims were settled: `verdicts` are those of `ranges`.
pub fn plan(
    record: &Placement,
    ranges: &[RangeClaim],
    verdicts: &BTreeMap<String, Verdict>,
    pairs: &BTreeMap<String, PairState>,
    cluster: &str,
    policy: Policy,
) -> Plan {
    let accepted = ranges
        .iter()
        .filter(|r| verdicts.get(&r.name).is_some_and(Verdict::is_accepted));
    let wishes = Wishes::of(record, accepted.map(|r| (r.name.as_str(), r.pair.as_str())));
    wish::plan(record, &wishes, pairs, cluster, policy)
}

/// The same for a record as it stands: claims that are not settled yet count for nothing.
pub fn now(
    record: &Placement,
    total: i32,
    ranges: &[RangeClaim],
    pairs: &BTreeMap<String, PairState>,
    cluster: &str,
    policy: Policy,
) -> Plan {
    let facts: BTreeMap<String, PairFacts> = pairs
        .iter()
        .map(|(name, p)| (name.clone(), p.facts.clone()))
        .collect();
    let verdicts = claims::evaluate(total, ranges, &facts, cluster, record).verdicts;
    plan(record, ranges, &verdicts, pairs, cluster, policy)
}

/// Puts what sets out now on record. What a transition refuses waits: the next pass sees it again.
pub fn set_out(record: &Placement, plan: &Plan) -> Placement {
    let mut next = record.clone();
    for b in &plan.begin {
        if let Ok(p) = moves::begin_move(&next, &b.key.from, &b.key.to, &b.shards, b.seed) {
            next = p;
        }
    }
    for (key, more) in &plan.widen {
        if let Ok(p) = moves::widen(&next, key, more) {
            next = p;
        }
    }
    next
}

/// What people are told of moves that are on record in `after` and were not in `before`.
pub fn begun(before: &Placement, after: &Placement) -> Vec<Note> {
    let new = after
        .moves
        .iter()
        .filter(|m| moves::find(before, &m.key()).is_none());
    new.map(|m| {
        let shards = moves::set(&m.shards);
        Note::normal(
            reasons::MOVE_BEGUN,
            format!("shards {shards} set out: {} → {}", m.from, m.to),
        )
    })
    .collect()
}

/// Why shards that are wished elsewhere do not set out, for people; the refusals come first.
pub fn waits(plan: &Plan, shards: &SpanSet) -> Option<String> {
    let mut held: Vec<&HeldBack> = plan
        .held_back
        .iter()
        .filter(|h| h.shards.overlaps(shards))
        .collect();
    held.sort_by_key(|h| !h.why.is_refusal());
    let texts: Vec<String> = held
        .into_iter()
        .take(3)
        .map(|h| {
            format!(
                "shards {} ({} → {}): {}",
                h.shards.intersect(shards),
                h.from,
                h.to,
                h.why.message()
            )
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Whether any of them waits for a person.
pub fn refused(plan: &Plan, shards: &SpanSet) -> bool {
    plan.held_back
        .iter()
        .any(|h| h.why.is_refusal() && h.shards.overlaps(shards))
}

/// Shards of a range that are served by another pair than the one where they are wished.
pub fn misplaced(record: &Placement, range: &str, pair: &str) -> SpanSet {
    placement::of_range(record, range)
        .intersect(&placement::serving(record))
        .minus(&placement::shards(record, |s| s.pair == pair))
}
