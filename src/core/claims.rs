//! Which ShardRange has which shards: verdicts on all ranges of a cluster, and the record that follows from them.
//!
//! The rules, by number in `docs/placement.md`: a claim on record wins (C1), unless its range is gone, is being deleted or does not
//! cover the shard any more (C2); among new claims the older range wins, then the name (C3); a range is accepted as a whole or not (C4);
//! what serves is assigned where it lies (C5); shards without a range stay served (C6); a shard whose database some pair has is placed
//! there and nowhere else (C7).

use super::{
    placement::{self, moves},
    spans::SpanSet,
};
use crate::api::placement::{PlacedSpan, Placement, ShardSpan, SpanState};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// What a ShardRange asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeClaim {
    /// Its name.
    pub name: String,
    /// When it was created, seconds since 1970.
    pub created: i64,
    /// The shards.
    pub span: ShardSpan,
    /// `spec.pairRef`: where they belong.
    pub pair: String,
    /// It has a deletionTimestamp.
    pub deleting: bool,
}

/// What a claim has to know of a MySQLPair of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PairFacts {
    /// The cluster that the pair names.
    pub cluster: String,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Shards whose databases its active server has; `None` when it was not asked yet.
    pub held: Option<SpanSet>,
}

/// What is said of a ShardRange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its claim is valid.
    Accepted,
    /// Another range has some of the shards.
    RangeOverlap {
        /// That range.
        with: String,
        /// Those shards.
        shards: SpanSet,
    },
    /// It ends beyond the last shard of the cluster.
    BeyondTotal {
        /// Number of shards of the cluster.
        total: i32,
    },
    /// There is no such pair, or it is being deleted.
    PairNotFound {
        /// Its name.
        pair: String,
        /// It exists, but goes.
        deleting: bool,
    },
    /// The pair belongs to another cluster.
    PairOfOtherCluster {
        /// Its name.
        pair: String,
        /// The cluster it names.
        cluster: String,
    },
    /// It is being deleted, and yields its shards to whoever claims them.
    Deleting,
}

impl Verdict {
    /// Whether the claim is valid.
    pub fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted)
    }
    /// Reason of the condition `Accepted`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::RangeOverlap { .. } => "RangeOverlap",
            Self::BeyondTotal { .. } => "BeyondTotal",
            Self::PairNotFound { .. } => "PairNotFound",
            Self::PairOfOtherCluster { .. } => "PairOfOtherCluster",
            Self::Deleting => "Deleting",
        }
    }
    /// The same for people.
    pub fn message(&self) -> String {
        match self {
            Self::Accepted => "the claim on the shards is valid".into(),
            Self::RangeOverlap { with, shards } => format!(
                "ShardRange {with} has the shards {shards}; this range is accepted as soon as that one yields them"
            ),
            Self::BeyondTotal { total } => format!(
                "the cluster has {total} shards: `last` must be at most {}",
                total - 1
            ),
            Self::PairNotFound {
                pair,
                deleting: false,
            } => format!("there is no MySQLPair {pair} in this namespace"),
            Self::PairNotFound { pair, deleting: true } => {
                format!("MySQLPair {pair} is being deleted and takes no new shards")
            }
            Self::PairOfOtherCluster { pair, cluster } => {
                format!("MySQLPair {pair} belongs to ShardCluster {cluster}")
            }
            Self::Deleting => {
                "it is being deleted and yields its shards to the range that claims them".into()
            }
        }
    }
}

/// What follows from all claims together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// One verdict a range, by name.
    pub verdicts: BTreeMap<String, Verdict>,
    /// The record as it has to be, equal to the present one when nothing changes; or why it can't be made.
    pub wanted: Result<Placement, placement::Error>,
    /// Unclaimed by the record, and on several pairs: nothing is decided about them (C7).
    pub ambiguous: SpanSet,
}

/// Judges all ranges of a cluster. The order of `ranges` does not matter; `pairs` are those of the namespace, by name.
pub fn evaluate(
    total: i32,
    ranges: &[RangeClaim],
    pairs: &BTreeMap<String, PairFacts>,
    cluster: &str,
    record: &Placement,
) -> Claims {
    let mut order: Vec<&RangeClaim> = ranges.iter().collect();
    order.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));

    // What each range has on record and still covers: a claim that nobody takes from it (C1, C2).
    let mut owners: Vec<(&str, SpanSet)> = order
        .iter()
        .filter(|r| !r.deleting)
        .map(|r| {
            (
                r.name.as_str(),
                placement::of_range(record, &r.name).intersect(&r.span.into()),
            )
        })
        .collect();

    let mut verdicts = BTreeMap::new();
    let mut accepted: Vec<&RangeClaim> = Vec::new();
    for r in order {
        let verdict = judge(total, r, pairs, cluster, &owners);
        if verdict.is_accepted() {
            match owners.iter_mut().find(|(name, _)| *name == r.name) {
                Some((_, has)) => *has = r.span.into(),
                None => owners.push((&r.name, r.span.into())),
            }
            accepted.push(r);
        }
        verdicts.insert(r.name.clone(), verdict);
    }
    let held: BTreeMap<String, Option<SpanSet>> = pairs
        .iter()
        .filter(|(_, p)| p.cluster == cluster)
        .map(|(name, p)| (name.clone(), p.held.clone()))
        .collect();
    let mut ambiguous = SpanSet::new();
    let wanted = settle(ranges, &accepted, &held, record, &mut ambiguous);
    Claims {
        verdicts,
        wanted,
        ambiguous,
    }
}

fn judge(
    total: i32,
    r: &RangeClaim,
    pairs: &BTreeMap<String, PairFacts>,
    cluster: &str,
    owners: &[(&str, SpanSet)],
) -> Verdict {
    if r.deleting {
        return Verdict::Deleting;
    }
    if r.span.last >= total {
        return Verdict::BeyondTotal { total };
    }
    let span = SpanSet::of(r.span);
    let mine = owners
        .iter()
        .find(|(name, _)| *name == r.name)
        .map(|(_, has)| has);
    match pairs.get(&r.pair) {
        None => {
            return Verdict::PairNotFound {
                pair: r.pair.clone(),
                deleting: false,
            };
        }
        Some(p) if p.cluster != cluster => {
            return Verdict::PairOfOtherCluster {
                pair: r.pair.clone(),
                cluster: p.cluster.clone(),
            };
        }
        // What a range has already, it keeps; a pair that goes takes nothing new.
        Some(p) if p.deleting && mine != Some(&span) => {
            return Verdict::PairNotFound {
                pair: r.pair.clone(),
                deleting: true,
            };
        }
        Some(_) => {}
    }
    for (name, has) in owners {
        let both = has.intersect(&span);
        if *name != r.name && !both.is_empty() {
            return Verdict::RangeOverlap {
                with: (*name).to_owned(),
                shards: both,
            };
        }
    }
    Verdict::Accepted
}

/// The record that follows, through the transitions of [`placement`] alone.
fn settle(
    ranges: &[RangeClaim],
    accepted: &[&RangeClaim],
    held: &BTreeMap<String, Option<SpanSet>>,
    record: &Placement,
    ambiguous: &mut SpanSet,
) -> Result<Placement, placement::Error> {
    placement::check(record)?;
    let mut p = record.clone();
    // First what is given up: the range is gone, or does not cover the shard any more. A range that is being deleted keeps what serves
    // until somebody takes it (its finalizer waits for that), and gives up what was never served. That stays on record as well: the
    // record alone knows that such databases are empty.
    let keeps = |s: &PlacedSpan| -> SpanSet {
        let all = SpanSet::of(ShardSpan::new(s.first, s.last));
        match s
            .range
            .as_deref()
            .and_then(|n| ranges.iter().find(|r| r.name == n))
        {
            Some(r) if r.deleting && s.state == SpanState::Creating => SpanSet::new(),
            Some(r) => all.intersect(&r.span.into()),
            None => SpanSet::new(),
        }
    };
    let given_up = record
        .spans
        .iter()
        .filter(|s| s.range.is_some())
        .map(|s| SpanSet::of(ShardSpan::new(s.first, s.last)).minus(&keeps(s)))
        .fold(SpanSet::new(), |a, b| a.union(&b));
    if !given_up.is_empty() {
        p = placement::release(&p, &given_up)?;
    }
    for r in accepted {
        let span = SpanSet::of(r.span);
        let (mut hand_over, mut reclaim) = (SpanSet::new(), SpanSet::new());
        for s in placement::pieces(&p, &span) {
            let piece = ShardSpan::new(s.first, s.last);
            // Never in the map, so that they may follow the range's `pairRef`. A pair that is being cloned over takes them when that is done.
            if s.state == SpanState::Creating && s.pair != r.pair && !moves::cloned_over(&p, &r.pair) {
                reclaim.extend([piece]);
            } else if s.range.as_deref() != Some(r.name.as_str()) {
                hand_over.extend([piece]);
            }
        }
        if !hand_over.is_empty() {
            p = placement::hand_over(&p, &hand_over, &r.name)?;
        }
        if !reclaim.is_empty() {
            p = placement::reclaim(&p, &reclaim, &r.pair, &r.name)?;
        }
        let new = span.minus(&placement::recorded(&p));
        if new.is_empty() {
            continue;
        }
        // C7: where the databases are, there the shards are. Nobody knows what is in them, so they serve and follow no `pairRef`.
        let (elsewhere, several) = placement::holders(&new, held);
        ambiguous.extend(several.spans());
        let mut here = new.minus(&several);
        for (pair, there) in elsewhere.iter().filter(|(pair, _)| **pair != r.pair) {
            here = here.minus(there);
            if !moves::cloned_over(&p, pair) {
                p = placement::claim(&p, there, pair, Some(&r.name))?;
                p = placement::serve(&p, there, pair)?;
            }
        }
        if !here.is_empty() && !moves::cloned_over(&p, &r.pair) {
            p = placement::claim(&p, &here, &r.pair, Some(&r.name))?;
        }
    }
    Ok(p)
}
