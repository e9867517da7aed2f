//! What an edit of ShardRanges and MySQLPairs would do, told before it is made: `shardwright plan`.

use super::wish::{self, Course, Early, PairState, Policy, Why, Wishes};
use crate::{
    api::placement::{Move, MoveKey, MoveStage, Placement, Seed, ShardSpan, SpanState},
    core::{
        claims::{self, PairFacts, RangeClaim, Verdict},
        placement::{self, moves},
        spans::SpanSet,
    },
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// The ranges and pairs of a cluster, as they are or as they would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Number of shards of the cluster.
    pub total: i32,
    /// Its ranges.
    pub ranges: Vec<RangeClaim>,
    /// The pairs of the namespace.
    pub pairs: BTreeMap<String, PairState>,
}

/// What would become of some shards, or of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Action {
    /// The range is not accepted: nothing else becomes of it.
    Refuse,
    /// Shards get another range, where they lie: no data moves.
    HandOver,
    /// Served shards that no range covers any more: they stay, served.
    Uncover,
    /// Databases are created.
    Create,
    /// Shards move, with their data.
    Move,
    /// A move that was begun ends with every shard where it was; the copies that were made are dropped.
    Abort,
    /// The old copies of shards that were moved are dropped before their time: there is no quick way back any more.
    EndWayBack,
    /// A range is not deleted yet.
    Wait,
}

/// When a move sets out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum When {
    /// At once.
    Now,
    /// It is under way already.
    UnderWay,
    /// At once, over a move on record: the copies are there.
    TurnsRound,
    /// When what it waits for has passed.
    Later,
    /// Not before somebody changes something.
    Never,
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// What is done.
    pub action: Action,
    /// With which shards.
    pub shards: Vec<ShardSpan>,
    /// How many these are.
    pub count: usize,
    /// Bytes that are copied; absent when nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Where they are: a pair; of a hand-over, a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where they go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The ranges that have them then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
    /// How they are copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Why not at once, or not at all: one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The same for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Line {
    fn new(action: Action, shards: &SpanSet) -> Self {
        Self {
            action,
            shards: shards.to_vec(),
            count: shards.len(),
            // Nothing but a copy has anything to carry, and what a copy has, only the servers know.
            bytes: (action != Action::Move).then_some(0),
            from: None,
            to: None,
            ranges: vec![],
            seed: None,
            when: None,
            reason: None,
            message: String::new(),
        }
    }
    fn ends(mut self, from: Option<&str>, to: Option<&str>) -> Self {
        self.from = from.map(ToOwned::to_owned);
        self.to = to.map(ToOwned::to_owned);
        self
    }
    fn why(mut self, reason: &'static str, message: impl Into<String>) -> Self {
        self.reason = Some(reason);
        self.message = message.into();
        self
    }
}

/// What becomes of `record`, the cluster's record, when its ranges and pairs are `then` instead of `now`.
///
/// # Errors
/// When the record is malformed, or there is no room in it.
pub fn compare(
    cluster: &str,
    record: &Placement,
    now: &Fleet,
    then: &Fleet,
    policy: Policy,
) -> Result<Vec<Line>, placement::Error> {
    let (verdicts, before) = settle(cluster, record, now)?;
    let was = plan(cluster, &verdicts, &before, now, policy);
    let (verdicts, after) = settle(cluster, record, then)?;
    let will = plan(cluster, &verdicts, &after, then, policy);
    let mut lines = refused(then, &verdicts);
    lines.extend(hand_overs(record, &after));
    lines.extend(created(record, &after));
    lines.extend(under_way(&after, &was, &will));
    lines.extend(set_out(&after, &will));
    lines.extend(ended(&after, &was, &will));
    lines.extend(waiting(&after, then));
    lines.sort_by_key(|l| (l.action, l.when == Some(When::Never), l.shards.first().copied()));
    Ok(lines)
}

fn settle(
    cluster: &str,
    record: &Placement,
    fleet: &Fleet,
) -> Result<(BTreeMap<String, Verdict>, Placement), placement::Error> {
    let facts: BTreeMap<String, PairFacts> = fleet
        .pairs
        .iter()
        .map(|(name, p)| (name.clone(), p.facts.clone()))
        .collect();
    let claims = claims::evaluate(fleet.total, &fleet.ranges, &facts, cluster, record);
    Ok((claims.verdicts, claims.wanted?))
}

fn plan(
    cluster: &str,
    verdicts: &BTreeMap<String, Verdict>,
    settled: &Placement,
    fleet: &Fleet,
    policy: Policy,
) -> wish::Plan {
    let accepted = fleet
        .ranges
        .iter()
        .filter(|r| verdicts.get(&r.name).is_some_and(Verdict::is_accepted));
    let wishes = Wishes::of(settled, accepted.map(|r| (r.name.as_str(), r.pair.as_str())));
    wish::plan(settled, &wishes, &fleet.pairs, cluster, policy)
}

fn refused(then: &Fleet, verdicts: &BTreeMap<String, Verdict>) -> Vec<Line> {
    then.ranges
        .iter()
        .filter_map(|r| {
            let verdict = verdicts.get(&r.name)?;
            if verdict.is_accepted() || *verdict == Verdict::Deleting {
                return None;
            }
            let mut line = Line::new(Action::Refuse, &r.span.into()).ends(None, Some(&r.pair));
            line.ranges = vec![r.name.clone()];
            Some(line.why(verdict.reason(), verdict.message()))
        })
        .collect()
}

/// Served shards that get another range, or none.
fn hand_overs(before: &Placement, after: &Placement) -> Vec<Line> {
    let mut all: BTreeMap<(Option<String>, Option<String>, String), SpanSet> = BTreeMap::new();
    for old in before.spans.iter().filter(|s| s.state == SpanState::Serving) {
        let within = SpanSet::of(ShardSpan::new(old.first, old.last));
        for new in placement::pieces(after, &within) {
            if new.range != old.range {
                let key = (old.range.clone(), new.range, new.pair);
                all.entry(key)
                    .or_default()
                    .extend([ShardSpan::new(new.first, new.last)]);
            }
        }
    }
    all.into_iter()
        .map(|((from, to, pair), shards)| {
            let action = if to.is_some() {
                Action::HandOver
            } else {
                Action::Uncover
            };
            let mut line = Line::new(action, &shards).ends(from.as_deref(), to.as_deref());
            line.message = match &to {
                Some(_) => format!("where they lie, on {pair}: no data moves"),
                None => format!("they stay on {pair}, served, and no range has them"),
            };
            line.ranges = to.into_iter().collect();
            line
        })
        .collect()
}

/// Shards that come on record, or are created on another pair than they would have been.
fn created(before: &Placement, after: &Placement) -> Vec<Line> {
    let mut all: BTreeMap<(String, Option<String>, bool), SpanSet> = BTreeMap::new();
    for new in &after.spans {
        let mut set = SpanSet::of(ShardSpan::new(new.first, new.last));
        for old in placement::pieces(before, &set.clone()) {
            if old.state == SpanState::Serving || (&old.pair, &old.range) == (&new.pair, &new.range) {
                set = set.minus(&ShardSpan::new(old.first, old.last).into());
            }
        }
        if !set.is_empty() {
            let found = new.state == SpanState::Serving;
            let at = all
                .entry((new.pair.clone(), new.range.clone(), found))
                .or_default();
            *at = at.union(&set);
        }
    }
    all.into_iter()
        .map(|((pair, range, found), shards)| {
            let mut line = Line::new(Action::Create, &shards).ends(None, Some(&pair));
            line.ranges = range.into_iter().collect();
            if found {
                "the databases are there already, and are served as they are".clone_into(&mut line.message);
            }
            line
        })
        .collect()
}

/// The ranges of shards.
fn ranges(p: &Placement, shards: &SpanSet) -> Vec<String> {
    let all: BTreeSet<String> = placement::pieces(p, shards)
        .into_iter()
        .filter_map(|s| s.range)
        .collect();
    all.into_iter().collect()
}

fn moving(p: &Placement, shards: &SpanSet, from: &str, to: &str, when: When) -> Line {
    let mut line = Line::new(Action::Move, shards).ends(Some(from), Some(to));
    line.ranges = ranges(p, shards);
    line.when = Some(when);
    line
}

/// What goes over the moves on record.
fn under_way(p: &Placement, was: &wish::Plan, will: &wish::Plan) -> Vec<Line> {
    let none = Course::default();
    let mut lines = vec![];
    for m in &p.moves {
        let (a, b) = (course(was, m).unwrap_or(&none), course(will, m).unwrap_or(&none));
        for (before, after, from, to) in [
            (&a.forward, &b.forward, &m.from, &m.to),
            (&a.back, &b.back, &m.to, &m.from),
        ] {
            for (set, when) in [
                (after.intersect(before), When::UnderWay),
                (after.minus(before), When::TurnsRound),
            ] {
                if !set.is_empty() {
                    let mut line = moving(p, &set, from, to, when);
                    line.seed = Some(m.seed);
                    // What is copied already is not copied again.
                    if set.is_subset(&moves::set(&m.seeded)) {
                        line.bytes = Some(0);
                    }
                    if when == When::TurnsRound {
                        line.message = format!("over the move {} on record, whose copies follow", m.key());
                    }
                    lines.push(line);
                }
            }
        }
    }
    lines
}

fn course<'a>(plan: &'a wish::Plan, m: &Move) -> Option<&'a Course> {
    plan.courses.get(&m.key())
}

/// What is begun, what joins a move, and what cannot set out.
fn set_out(p: &Placement, will: &wish::Plan) -> Vec<Line> {
    let mut lines = vec![];
    let mut both = |key: &MoveKey, shards: &SpanSet, seed: Seed, message: &str| {
        for (from, to) in [(&key.from, &key.to), (&key.to, &key.from)] {
            let set = shards.intersect(&placement::shards(p, |s| s.pair == *from));
            if !set.is_empty() {
                let mut line = moving(p, &set, from, to, When::Now);
                line.seed = Some(seed);
                message.clone_into(&mut line.message);
                lines.push(line);
            }
        }
    };
    for b in &will.begin {
        both(&b.key, &b.shards, b.seed, "");
    }
    for (key, more) in &will.widen {
        let seed = moves::find(p, key).map_or(Seed::PerDatabase, |m| m.seed);
        both(
            key,
            more,
            seed,
            &format!("joins the move {key}, which is being seeded"),
        );
    }
    for h in &will.held_back {
        let when = if h.why.is_refusal() {
            When::Never
        } else {
            When::Later
        };
        let mut line = moving(p, &h.shards, &h.from, &h.to, when).why(h.why.reason(), h.why.message());
        if let Why::LinkInUse { key } | Why::InOtherMove { key } = &h.why
            && moves::find(p, key)
                .is_some_and(|m| matches!(m.stage, MoveStage::Seeding | MoveStage::Following))
        {
            line.message.push_str(", and that one keeps no way back then");
        }
        if let Why::ClosesCircle { path } = &h.why
            && !path.iter().any(|key| wish::circle::ends(p, &will.courses, key))
        {
            line.message
                .push_str(", and the first that is through keeps no way back then");
        }
        lines.push(line);
    }
    lines
}

/// Moves on record that end before their time, and did not before.
fn ended(p: &Placement, was: &wish::Plan, will: &wish::Plan) -> Vec<Line> {
    p.moves
        .iter()
        .filter(|m| m.stage != MoveStage::CleaningUp)
        .filter_map(|m| {
            let early = course(will, m)?.early?;
            if course(was, m).is_some_and(|c| c.early.is_some()) {
                return None;
            }
            let key = m.key();
            if early == Early::NothingMoved {
                let line = Line::new(Action::Abort, &moves::set(&m.shards)).ends(Some(&m.from), Some(&m.to));
                return Some(line.why(
                    early.reason(),
                    format!("the move {key} ends, and the copies that it made are dropped"),
                ));
            }
            let until = m.retain_until.as_ref().map_or_else(String::new, |t| {
                format!(
                    ", which would be kept until {}",
                    t.0.strftime("%Y-%m-%d %H:%M:%S UTC")
                )
            });
            let why = match early {
                Early::WishedElsewhere => "shards of it are wished at a third pair",
                Early::LinkWanted => "other shards are wished to move between its pairs",
                Early::MakesWay => "a move that is wished would close a circle of links with it",
                Early::PairLeaves | Early::NothingMoved => "one of its pairs is being deleted",
            };
            let line = Line::new(Action::EndWayBack, &moves::moved(p, m)).ends(Some(&m.from), Some(&m.to));
            Some(line.why(
                early.reason(),
                format!("the way back of the move {key}{until}, ends at once: {why}"),
            ))
        })
        .collect()
}

/// Ranges that are being deleted and have served shards that nobody takes.
fn waiting(p: &Placement, then: &Fleet) -> Vec<Line> {
    then.ranges
        .iter()
        .filter(|r| r.deleting)
        .filter_map(|r| {
            let left = placement::of_range(p, &r.name).intersect(&placement::serving(p));
            if left.is_empty() {
                return None;
            }
            let mut line = Line::new(Action::Wait, &left);
            line.ranges = vec![r.name.clone()];
            Some(line.why(
                "ShardsNotHandedOver",
                "the range is deleted when other ranges have taken these; until then they stay and do not move",
            ))
        })
        .collect()
}
