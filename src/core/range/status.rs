//! What is said of a ShardRange.

use super::{
    decide::{Plan, Work},
    observed::{ClusterSeen, Observed},
    reasons,
};
use crate::{
    api::{
        MoveKey, MoveStage, Placement, ShardRangeStatus, ShardSpan,
        conditions::{self, Overall, Said as Condition},
        shard_range::{MoveHealth, MovePhase, RangeMigration, ServedSpan},
    },
    core::{
        claims::Verdict,
        cluster::observed::{Checked, TablesSeen},
        migration,
        note::Note,
        placement::{self, moves},
        spans::SpanSet,
    },
};
use k8s_openapi::jiff::Timestamp;
use std::{collections::BTreeSet, fmt::Write as _};

/// Most spans that `servedBy` lists.
const MAX_SERVED_BY: usize = 128;
/// Longest `servedBySummary`.
const MAX_SUMMARY: usize = 1000;

/// What came of the work of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The record afterwards; `None` when it was not touched.
    pub record: Option<Placement>,
    /// Shards that were put into the map.
    pub opened: SpanSet,
    /// Served shards without a database.
    pub missing: SpanSet,
    /// The served shards were looked at, so that `missing` and `undeclared` are the whole truth.
    pub looked: bool,
    /// Tables that nobody declares.
    pub undeclared: BTreeSet<String>,
    /// Every table was created in every served shard.
    pub rolled_out: bool,
    /// Tables that were created in shards that were served before.
    pub tables_created: usize,
    /// What went wrong, and with which work.
    pub failed: Option<(Work, String)>,
}

/// The status to write, and what to tell people of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The status.
    pub status: ShardRangeStatus,
    /// Events.
    pub notes: Vec<Note>,
    /// It is Ready but for the map, which has to be read to know more.
    pub publishing: bool,
}

/// What `status.progress` says: shards whose databases are made, of all.
pub fn progress(made: usize, of: usize) -> String {
    format!("{made}/{of}")
}

/// What is said of the range after a pass.
pub fn say(o: &Observed, plan: &Plan, outcome: &Outcome, now: Timestamp) -> Said {
    let mut status = o.before.clone();
    status.observed_generation = o.generation;
    let record = outcome.record.as_ref().or_else(|| o.record());
    let wanted = o.wanted();
    if let Some(record) = record {
        let mine = placement::of_range(record, &o.name);
        let serving = mine.intersect(&placement::serving(record));
        status.served_by = served_by(record, &serving);
        status.served_by_summary = summary(&status.served_by);
        status.progress = progress(serving.intersect(&wanted).len(), wanted.len());
        ended(record, &o.name, &mut status.migration);
        // Shards that came from another range may have other tables, until they were looked at.
        let before: SpanSet = spans(&o.before.served_by);
        if !serving.is_subset(&before) {
            status.tables_hash = None;
        }
        let pairs: BTreeSet<&str> = status.served_by.iter().map(|s| s.pair.as_str()).collect();
        status.active = match pairs.len() {
            1 => pairs
                .first()
                .and_then(|p| o.pairs.get(*p))
                .and_then(|p| p.active.clone()),
            _ => None,
        };
    } else if o.cluster.is_some() {
        status.served_by.clear();
        status.served_by_summary.clear();
        status.active = None;
        status.progress = progress(0, wanted.len());
    }
    if let (Some(tables), true) = (&plan.tables, outcome.rolled_out) {
        status.tables_hash = Some(tables.hash().to_owned());
    }
    let overall = overall(o, plan, outcome, record, &status);
    let accepted = accepted(o);
    let declared = declared(o, outcome);
    let notes = notes(o, outcome, &overall, &accepted, declared.as_ref());
    let mut said = vec![accepted];
    said.extend(overall.said());
    said.extend(declared);
    conditions::set(&mut status.conditions, &said, o.generation, now);
    Said {
        status,
        notes,
        publishing: overall.reason() == reasons::PUBLISHING_MAP,
    }
}

fn served_by(record: &Placement, serving: &SpanSet) -> Vec<ServedSpan> {
    let mut out: Vec<ServedSpan> = vec![];
    for s in placement::pieces(record, serving) {
        match out.last_mut() {
            Some(l) if l.pair == s.pair && l.last.checked_add(1) == Some(s.first) => l.last = s.last,
            _ => out.push(ServedSpan {
                first: s.first,
                last: s.last,
                pair: s.pair,
            }),
        }
    }
    out.truncate(MAX_SERVED_BY);
    out
}

fn spans(served_by: &[ServedSpan]) -> SpanSet {
    served_by
        .iter()
        .map(|s| ShardSpan::new(s.first, s.last))
        .collect()
}

/// `p0:0-255,300 p1:256-299`.
fn summary(served_by: &[ServedSpan]) -> String {
    let pairs: BTreeSet<&str> = served_by.iter().map(|s| s.pair.as_str()).collect();
    let mut out = String::new();
    for pair in pairs {
        let set: SpanSet = served_by
            .iter()
            .filter(|s| s.pair == pair)
            .map(|s| ShardSpan::new(s.first, s.last))
            .collect();
        let gap = if out.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(out, "{gap}{pair}:{set}");
    }
    // Names and numbers are ASCII.
    if out.len() > MAX_SUMMARY {
        out.truncate(MAX_SUMMARY);
        out.push('…');
    }
    out
}

fn stalled(reason: &'static str, message: impl Into<String>) -> Overall {
    Overall::Stalled {
        reason,
        message: message.into(),
    }
}
fn working(reason: &'static str, message: impl Into<String>) -> Overall {
    Overall::Working {
        reason,
        message: message.into(),
    }
}

fn accepted(o: &Observed) -> Condition {
    match &o.cluster {
        None => Condition::no(conditions::ACCEPTED, reasons::CLUSTER_NOT_FOUND, no_cluster(o)),
        Some(c) if c.verdict.is_accepted() => {
            Condition::yes(conditions::ACCEPTED, c.verdict.reason(), c.verdict.message())
        }
        Some(c) => Condition::no(conditions::ACCEPTED, c.verdict.reason(), c.verdict.message()),
    }
}

fn no_cluster(o: &Observed) -> String {
    format!(
        "there is no ShardCluster {} in this namespace; what the range held is served as it was",
        o.spec.cluster_ref.name
    )
}

fn overall(
    o: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    record: Option<&Placement>,
    status: &ShardRangeStatus,
) -> Overall {
    let empty = Placement::default();
    let record_or_none = record.unwrap_or(&empty);
    let mine = placement::of_range(record_or_none, &o.name);
    let serving = mine.intersect(&placement::serving(record_or_none));
    if o.deleting {
        return if serving.is_empty() {
            working(reasons::DELETING, "nothing keeps it any more")
        } else {
            stalled(
                reasons::SHARDS_NOT_HANDED_OVER,
                format!(
                    "it holds the shards {serving}: let another ShardRange cover them, or set `spec.deletionPolicy` to Retain to leave them where they are, served and without a range"
                ),
            )
        };
    }
    let Some(cluster) = &o.cluster else {
        return working(reasons::CLUSTER_NOT_FOUND, no_cluster(o));
    };
    match &cluster.verdict {
        Verdict::Accepted | Verdict::Deleting => {}
        // It may come any moment: with GitOps, objects are made in any order.
        v @ Verdict::PairNotFound { .. } => return working(v.reason(), v.message()),
        v => return stalled(v.reason(), v.message()),
    }
    let misplaced = serving.intersect(&placement::shards(record_or_none, |s| {
        s.pair != o.spec.pair_ref.name
    }));
    if !misplaced.is_empty() {
        return moving(o, cluster, record_or_none, status, &misplaced);
    }
    let missing = match (outcome.looked, was_missing(o)) {
        (true, _) => (!outcome.missing.is_empty()).then(|| missing_message(&outcome.missing)),
        (false, before) => before,
    };
    if let Some(message) = missing {
        return stalled(reasons::DATABASE_MISSING, message);
    }
    let ambiguous = cluster.ambiguous.intersect(&o.wanted());
    if !ambiguous.is_empty() {
        return stalled(
            reasons::AMBIGUOUS_COPIES,
            format!("databases of the shards {ambiguous} are on several pairs, see the ShardCluster"),
        );
    }
    if record.is_none() || !o.wanted().is_subset(&mine) {
        return working(
            reasons::WAITING_FOR_RECORD,
            "the cluster records the claim; see its condition Ready for what it waits for",
        );
    }
    let creating = mine.minus(&serving);
    if !creating.is_empty() {
        return creating_overall(o, plan, outcome, &creating);
    }
    if let Some((work, error)) = &outcome.failed
        && work.kind != super::Kind::Look
    {
        return working(
            reasons::ROLLING_OUT_TABLES,
            format!("shards {} on {}: {error}", work.shards, work.pair),
        );
    }
    if let Some(tables) = &plan.tables
        && status.tables_hash.as_deref() != Some(tables.hash())
    {
        return working(
            reasons::ROLLING_OUT_TABLES,
            "tables are being created in served shards",
        );
    }
    let was_ready = conditions::is_true(&o.before.conditions, conditions::READY, None);
    let in_map = match &o.published {
        Some(published) => serving.is_subset(published),
        // Nobody looked: what was Ready is in the map, and no shard ever leaves it.
        None => was_ready && serving.is_subset(&spans(&o.before.served_by)),
    };
    if !in_map {
        return working(
            reasons::PUBLISHING_MAP,
            "the map with these shards is being published; see the cluster if this stays",
        );
    }
    let pair = &o.spec.pair_ref.name;
    match o.pairs.get(pair).map(|p| &p.trouble) {
        Some(None) => {}
        Some(Some(trouble)) => {
            return working(reasons::PAIR_NOT_SERVING, format!("MySQLPair {pair}: {trouble}"));
        }
        None => {
            return working(
                reasons::PAIR_NOT_SERVING,
                format!("MySQLPair {pair} is not there"),
            );
        }
    }
    let note = match &plan.tables {
        Some(_) => "",
        None => "; the tables that the cluster declares now are not used yet, see its condition Ready",
    };
    Overall::Ready {
        reason: reasons::SERVING,
        message: format!("{} shards are served by {pair}{note}", serving.len()),
    }
}

/// Shards are served by another pair than the one where they are wished.
fn moving(
    o: &Observed,
    cluster: &ClusterSeen,
    record: &Placement,
    status: &ShardRangeStatus,
    misplaced: &SpanSet,
) -> Overall {
    let wished = &o.spec.pair_ref.name;
    let found = record.moves.iter().find(|m| {
        m.other_end(wished).is_some()
            && m.stage != MoveStage::CleaningUp
            && moves::set(&m.shards).overlaps(misplaced)
    });
    // What the move itself says of it, once it has.
    if let Some(m) = found {
        let said = status
            .migration
            .as_ref()
            .filter(|s| (&s.from, &s.to) == (&m.from, &m.to));
        let Some((said, reason)) = said.and_then(|s| Some((s, migration::reasons::known(&s.reason)?))) else {
            return working(
                migration::reasons::SEEDING,
                format!("shards {misplaced} set out for {wished}"),
            );
        };
        return match said.state {
            MoveHealth::Stalled => stalled(reason, said.waits_for.clone()),
            _ => working(reason, said.waits_for.clone()),
        };
    }
    match &cluster.held_back {
        Some(h) if h.refused => stalled(reasons::MOVE_REFUSED, h.why.clone()),
        Some(h) => working(reasons::WAITING_FOR_MOVE, h.why.clone()),
        None => working(
            reasons::WAITING_FOR_MOVE,
            format!("shards {misplaced} set out for {wished} in a moment"),
        ),
    }
}

/// A move that is over says so, and what it said of the write block stays.
fn ended(record: &Placement, range: &str, migration: &mut Option<RangeMigration>) {
    let Some(m) = migration else {
        return;
    };
    let mine = placement::of_range(record, range);
    let on_record = moves::find(record, &MoveKey::new(&m.from, &m.to))
        .is_some_and(|found| moves::set(&found.shards).overlaps(&mine));
    if !on_record {
        m.phase = MovePhase::Ended;
        m.state = MoveHealth::Ready;
        migration::reasons::NOT_MOVING.clone_into(&mut m.reason);
        "Ended".clone_into(&mut m.progress);
        m.waits_for.clear();
        (m.eta_seconds, m.lag_transactions, m.retain_until) = (None, None, None);
    }
}

fn creating_overall(o: &Observed, plan: &Plan, outcome: &Outcome, creating: &SpanSet) -> Overall {
    if plan.tables.is_none() {
        let cluster = o.cluster.as_ref().map(|c| &c.tables);
        return match cluster {
            Some(TablesSeen::Set {
                checked: Checked::Good | Checked::NotYet(_),
                ..
            }) => working(
                reasons::WAITING_FOR_TABLES,
                "the cluster's tables are tried on a server before the first shard gets them",
            ),
            _ => stalled(
                reasons::TABLES_UNUSABLE,
                "the cluster's tables cannot be created, see its condition Ready; new shards wait for that",
            ),
        };
    }
    if let Some((work, error)) = &outcome.failed {
        return working(
            reasons::CREATING_DATABASES,
            format!("{} on {}: {error}", work.shards, work.pair),
        );
    }
    let pair = &o.spec.pair_ref.name;
    if let Some(trouble) = o.pairs.get(pair).and_then(|p| p.trouble.clone()) {
        return working(reasons::WAITING_FOR_PAIR, format!("MySQLPair {pair}: {trouble}"));
    }
    working(
        reasons::CREATING_DATABASES,
        format!("databases of the shards {creating} are being created on {pair}"),
    )
}

fn missing_message(missing: &SpanSet) -> String {
    format!(
        "the active server has no database of the shards {missing}, which are in the map: restore them from a copy; an empty database is not created in their place (create it by hand if the loss is accepted, and its tables follow)"
    )
}

/// What an earlier pass said of missing databases, when nobody has looked since.
fn was_missing(o: &Observed) -> Option<String> {
    o.before
        .conditions
        .iter()
        .find(|c| {
            c.type_ == conditions::STALLED && c.status == "True" && c.reason == reasons::DATABASE_MISSING
        })
        .and_then(|_| o.before.conditions.iter().find(|c| c.type_ == conditions::READY))
        .map(|c| c.message.clone())
}

fn declared(o: &Observed, outcome: &Outcome) -> Option<Condition> {
    if outcome.looked && !outcome.undeclared.is_empty() {
        let names = outcome
            .undeclared
            .iter()
            .take(8)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        return Some(Condition::no(
            reasons::TABLES_DECLARED,
            reasons::TABLE_NOT_DECLARED,
            format!(
                "shards have tables that the cluster does not declare, and which are left alone: {names}"
            ),
        ));
    }
    let before = o
        .before
        .conditions
        .iter()
        .find(|c| c.type_ == reasons::TABLES_DECLARED);
    if outcome.looked {
        return Some(Condition::yes(
            reasons::TABLES_DECLARED,
            "Declared",
            "the shards have the declared tables and no other",
        ));
    }
    // Nobody has looked: what was said stands, for the present generation.
    before.map(|c| match c.status.as_str() {
        "False" => Condition::no(
            reasons::TABLES_DECLARED,
            reasons::TABLE_NOT_DECLARED,
            c.message.clone(),
        ),
        _ => Condition::yes(reasons::TABLES_DECLARED, "Declared", c.message.clone()),
    })
}

fn notes(
    o: &Observed,
    outcome: &Outcome,
    overall: &Overall,
    accepted: &Condition,
    declared: Option<&Condition>,
) -> Vec<Note> {
    let mut notes = vec![];
    let before = |type_: &str| o.before.conditions.iter().find(|c| c.type_ == type_);
    let changed = |c: &Condition| before(c.type_).is_none_or(|b| b.reason != c.reason);
    match accepted.status {
        Some(true) if changed(accepted) => {
            notes.push(Note::normal(reasons::RANGE_ACCEPTED, accepted.message.clone()));
        }
        Some(false) if changed(accepted) && !o.deleting => {
            notes.push(Note::warning(accepted.reason, accepted.message.clone()));
        }
        _ => {}
    }
    if !outcome.opened.is_empty() {
        notes.push(Note::normal(
            reasons::SHARDS_OPENED,
            format!("the shards {} are in the map", outcome.opened),
        ));
    }
    if outcome.tables_created > 0 {
        notes.push(Note::normal(
            reasons::TABLES_CREATED,
            format!(
                "{} tables and indexes were created in served shards",
                outcome.tables_created
            ),
        ));
    }
    if let Some(d) = declared
        && d.status == Some(false)
        && (changed(d) || before(d.type_).is_some_and(|b| b.message != d.message))
    {
        notes.push(Note::warning(d.reason, d.message.clone()));
    }
    match overall {
        Overall::Ready { reason, message }
            if !conditions::is_true(&o.before.conditions, conditions::READY, None) =>
        {
            let _ = reason;
            notes.push(Note::normal(reasons::RANGE_READY, message.clone()));
        }
        // The verdict was told above.
        Overall::Stalled { reason, message } if *reason != accepted.reason => {
            let said = before(conditions::STALLED).is_some_and(|c| c.status == "True" && c.reason == *reason);
            if !said {
                notes.push(Note::warning(reason, message.clone()));
            }
        }
        _ => {}
    }
    notes
}
