//! What is to be done for a ShardRange. Pure.

use super::observed::Observed;
use crate::{
    api::{SpanState, shard_range::DeletionPolicy},
    core::{cluster::observed::TablesSeen, placement, spans::SpanSet, tables::TableSet},
};
use std::collections::BTreeSet;

/// What is done about the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finalizer {
    /// It is as it should be.
    Keep,
    /// It is put on, before anything is created.
    Add,
    /// It is taken off: nothing keeps the range any more.
    Remove,
}

/// What is to be done on the servers of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The pair.
    pub pair: String,
    /// The shards.
    pub shards: SpanSet,
    /// What.
    pub kind: Kind,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Databases and tables are created; then the shards go into the map.
    Create,
    /// The shards are served: tables that are missing are created. A missing database is reported and never created: an empty one in
    /// the place of a full one would hide the loss.
    Tables,
    /// As [`Kind::Tables`], but only to look whether anything went missing; when the server can't be asked, it is asked later.
    Look,
}

/// What is to be done for a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// About the finalizer.
    pub finalizer: Finalizer,
    /// On the servers, new shards first.
    pub work: Vec<Work>,
    /// The tables that they get; `None` while there are none that may be used.
    pub tables: Option<TableSet>,
}

/// What is to be done for a range.
pub fn plan(o: &Observed) -> Plan {
    let mut plan = Plan {
        finalizer: finalizer(o),
        work: vec![],
        tables: usable_tables(o),
    };
    if plan.finalizer == Finalizer::Remove {
        return plan;
    }
    let (Some(cluster), Some(record), Some(tables)) = (&o.cluster, o.record(), &plan.tables) else {
        return plan;
    };
    if o.deleting {
        return plan;
    }
    let mine = placement::of_range(record, &o.name);
    let at = |pair: &str, state: SpanState| {
        placement::shards(record, |s| s.pair == pair && s.state == state).intersect(&mine)
    };
    let pairs: BTreeSet<String> = placement::pieces(record, &mine)
        .into_iter()
        .map(|s| s.pair)
        .collect();
    // Every shard was seen to have these tables, and no shard came from another range since.
    let seen: SpanSet = o
        .before
        .served_by
        .iter()
        .map(|s| crate::api::ShardSpan::new(s.first, s.last))
        .collect();
    let up_to_date = o.before.tables_hash.as_deref() == Some(tables.hash())
        && placement::serving(record).intersect(&mine).is_subset(&seen);
    for pair in pairs {
        let (creating, serving) = (at(&pair, SpanState::Creating), at(&pair, SpanState::Serving));
        if !creating.is_empty() && cluster.verdict.is_accepted() {
            plan.work.push(Work {
                pair: pair.clone(),
                shards: creating,
                kind: Kind::Create,
            });
        }
        if !serving.is_empty() && (!up_to_date || o.look_due) {
            plan.work.push(Work {
                pair,
                shards: serving,
                kind: if up_to_date { Kind::Look } else { Kind::Tables },
            });
        }
    }
    plan.work.sort_by_key(|w| w.kind);
    plan
}

/// The tables that may be created: those that are asked for now, once the cluster has found them good.
fn usable_tables(o: &Observed) -> Option<TableSet> {
    let cluster = o.cluster.as_ref()?;
    match &cluster.tables {
        TablesSeen::Set { set, .. } if cluster.tables_hash.as_deref() == Some(set.hash()) => {
            Some(set.clone())
        }
        _ => None,
    }
}

fn finalizer(o: &Observed) -> Finalizer {
    if !o.deleting {
        return if o.finalizer {
            Finalizer::Keep
        } else {
            Finalizer::Add
        };
    }
    // Without a cluster there is no record that it could hold anything in; a namespace that goes takes its clusters along.
    let held = o
        .record()
        .map(|r| placement::of_range(r, &o.name).intersect(&placement::serving(r)))
        .unwrap_or_default();
    if held.is_empty() || o.spec.deletion_policy == DeletionPolicy::Retain {
        Finalizer::Remove
    } else {
        Finalizer::Keep
    }
}
