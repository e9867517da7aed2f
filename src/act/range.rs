//! Carries out what is planned for a ShardRange: databases and tables on the servers, then the record.

use super::{apply, databases, placement as record_act};
use crate::{
    api::{
        MySQLPair, Placement, ShardCluster, ShardRange,
        names::{FINALIZER, MANAGER_RANGE},
    },
    core::{
        databases::Naming,
        placement,
        range::{self as core, Kind, Observed, Outcome, Plan, Work},
        spans::SpanSet,
        tables::TableSet,
    },
    metrics::Metrics,
    observe::{access, range::Stores},
    report::range as report,
};
use futures::future;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use tokio::sync::watch;

/// Shards that go into the map together; a range of more is served in parts.
const SERVE: usize = 2048;
/// Most times that a bring-up writes its progress.
const PROGRESS_STEPS: usize = 8;
/// How often a part is done under one record of the pair after the other, before that is called a failure.
const RECORDS: usize = 4;

/// What a piece of work failed at, where nothing is said of it in the status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the API failed.
    #[error(transparent)]
    Api(#[from] apply::Error),
    /// The record was not changed.
    #[error(transparent)]
    Record(#[from] record_act::Error<placement::Error>),
}

impl Error {
    /// Whether it is worth to observe again at once.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Api(e) => e.is_conflict(),
            Self::Record(e) => e.is_conflict(),
        }
    }
}

/// What the work is done with.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The API.
    pub client: &'a Client,
    /// Counters.
    pub metrics: &'a Metrics,
    /// What is kept in memory.
    pub stores: &'a Stores,
    /// The cluster, as it was read for this pass.
    pub cluster: &'a ShardCluster,
}

/// Whether the pair's active server takes writes, as far as its status tells; the connection tells for certain.
pub fn reachable(o: &Observed, work: &Work) -> bool {
    o.pairs
        .get(&work.pair)
        .is_some_and(|p| p.trouble.is_none() && p.uuid.is_some())
}

fn key(range: &ShardRange) -> String {
    format!("{}/{}", range.namespace().unwrap_or_default(), range.name_any())
}

/// Puts the finalizer on or takes it off. Returns the range as it then is.
///
/// # Errors
/// [`apply::Error`].
pub async fn set_finalizer(
    client: &Client,
    range: &ShardRange,
    on: bool,
) -> Result<ShardRange, apply::Error> {
    let mut finalizers: Vec<String> = range
        .finalizers()
        .iter()
        .filter(|f| *f != FINALIZER)
        .cloned()
        .collect();
    if on {
        finalizers.push(FINALIZER.to_owned());
    }
    let body = serde_json::json!({
        "metadata": { "resourceVersion": range.resource_version(), "finalizers": finalizers },
    });
    let pp = PatchParams {
        field_manager: Some(MANAGER_RANGE.to_owned()),
        ..PatchParams::default()
    };
    let api = Api::<ShardRange>::namespaced(client.clone(), &range.namespace().unwrap_or_default());
    let patch = Patch::Merge(body);
    let name = range.name_any();
    let call = api.patch(&name, &pp, &patch);
    apply::call("set the finalizer of", apply::describe(range), call).await
}

/// Does the work of a plan. Returns the range as it then is.
pub async fn work(
    site: &Site<'_>,
    mut range: ShardRange,
    o: &Observed,
    plan: &Plan,
) -> Result<(ShardRange, Outcome), Error> {
    let mut outcome = Outcome::default();
    let Some(tables) = &plan.tables else {
        return Ok((range, outcome));
    };
    // Nothing to look at: all shards (none, or none that serve) have the tables.
    outcome.rolled_out = !plan
        .work
        .iter()
        .any(|w| w.kind != Kind::Create && !reachable(o, w))
        && !o.deleting
        && o.record().is_some();
    let mut seen = SpanSet::new();
    for w in plan.work.iter().filter(|w| reachable(o, w)) {
        for part in parts(w) {
            match one(site, &mut range, tables, o, &part).await? {
                Ok(done) => {
                    outcome.missing = outcome.missing.union(&done.missing);
                    outcome.undeclared.extend(done.undeclared);
                    if part.kind != Kind::Create {
                        outcome.tables_created += done.tables;
                    }
                    if !done.complete {
                        outcome.rolled_out = false;
                        return Ok((range, outcome));
                    }
                    if part.kind == Kind::Create {
                        let (record, opened) = serve(site, &o.name, &part).await?;
                        outcome.opened = outcome.opened.union(&opened);
                        outcome.record = Some(record);
                    }
                    seen = seen.union(&part.shards);
                }
                Err(error) => {
                    outcome.rolled_out &= part.kind == Kind::Look;
                    outcome.failed.get_or_insert((part, error));
                    break;
                }
            }
        }
    }
    outcome.rolled_out &= outcome.missing.is_empty();
    let mine = o
        .record()
        .map(|r| placement::of_range(r, &o.name))
        .unwrap_or_default();
    outcome.looked = !mine.is_empty() && mine.is_subset(&seen);
    Ok((range, outcome))
}

/// A piece of work in parts that are served together.
fn parts(work: &Work) -> Vec<Work> {
    let mut out: Vec<SpanSet> = vec![];
    let step = i32::try_from(SERVE).unwrap_or(i32::MAX);
    for span in work.shards.spans() {
        let mut first = span.first;
        while first <= span.last {
            let room = out.last().map_or(0, |p| SERVE.saturating_sub(p.len()));
            let take = if room == 0 {
                out.push(SpanSet::new());
                step
            } else {
                i32::try_from(room).unwrap_or(i32::MAX)
            };
            let last = span.last.min(first.saturating_add(take - 1));
            if let Some(p) = out.last_mut() {
                p.extend([crate::api::ShardSpan::new(first, last)]);
            }
            first = last.saturating_add(1);
        }
    }
    out.into_iter()
        .map(|shards| Work {
            shards,
            ..work.clone()
        })
        .collect()
}

/// Does one part. The inner error is for people: the server or the way to it. What was done counts only if the pair's record is then still what
/// it was: otherwise the server may have been told to give up waiting for the other one, and what it said was done is nowhere else. It is
/// looked for, and made if need be, on the one that is active now.
async fn one(
    site: &Site<'_>,
    range: &mut ShardRange,
    tables: &TableSet,
    o: &Observed,
    part: &Work,
) -> Result<Result<databases::Done, String>, Error> {
    let namespace = site.cluster.namespace().unwrap_or_default();
    let Some(pair) = site.stores.pair(&namespace, &part.pair) else {
        return Ok(Err(format!("MySQLPair {} is not there", part.pair)));
    };
    let mut pair = MySQLPair::clone(&pair);
    for _ in 0..RECORDS {
        let done = match on(site, range, tables, o, part, &pair).await? {
            Ok(done) => done,
            Err(e) => return Ok(Err(e)),
        };
        match access::superseded(site.client, &pair).await {
            Ok(None) => return Ok(Ok(done)),
            Ok(Some(now)) => pair = now,
            Err(access::Error::Api(e)) => return Err(e.into()),
            Err(e) => return Ok(Err(e.to_string())),
        }
        tracing::info!(
            range = key(range),
            pair = part.pair,
            "the pair's record changed, once more"
        );
    }
    Ok(Err(format!(
        "the record of MySQLPair {} changed again and again meanwhile",
        part.pair
    )))
}

/// Does one part on the server that is active as `pair` has it.
async fn on(
    site: &Site<'_>,
    range: &mut ShardRange,
    tables: &TableSet,
    o: &Observed,
    part: &Work,
    pair: &MySQLPair,
) -> Result<Result<databases::Done, String>, Error> {
    let active = match access::active(site.client, pair).await {
        Ok(active) => active,
        Err(access::Error::Api(e)) => return Err(e.into()),
        Err(e) => return Ok(Err(e.to_string())),
    };
    let naming = Naming::from(&site.cluster.spec.shards);
    let stop = AtomicBool::new(false);
    let (made, making) = watch::channel(0);
    let served = o
        .record()
        .map(|r| {
            placement::of_range(r, &o.name)
                .intersect(&placement::serving(r))
                .len()
        })
        .unwrap_or_default();
    let began = Instant::now();
    let creating = async {
        let job = databases::Job {
            server: &active,
            naming: &naming,
            tables,
            done: &|n| {
                made.send_replace(n);
            },
            stop: &stop,
        };
        let done = databases::carry_out(&job, part).await;
        // The reporter ends with it.
        drop(made);
        done
    };
    let reporting = async {
        if part.kind == Kind::Create {
            progress(site, range, making, served, o.wanted().len(), &stop).await;
        }
    };
    let (done, ()) = future::join(creating, reporting).await;
    Ok(match done {
        Ok(done) => {
            if done.databases + done.tables > 0 {
                let n = u64::try_from(done.databases).unwrap_or(u64::MAX);
                site.metrics.databases_created.inc_by(n);
                tracing::info!(
                    range = key(range),
                    pair = part.pair,
                    shards = %part.shards,
                    databases = done.databases,
                    tables = done.tables,
                    took = ?began.elapsed(),
                    "databases made"
                );
            }
            Ok(done)
        }
        Err(e) => Err(e.to_string()),
    })
}

/// Writes the progress of a bring-up a few times, and stops the work when the range has become another one.
async fn progress(
    site: &Site<'_>,
    range: &mut ShardRange,
    mut made: watch::Receiver<usize>,
    served: usize,
    of: usize,
    stop: &AtomicBool,
) {
    let every = (of / PROGRESS_STEPS).max(1);
    let mut last = 0;
    let me = ObjectRef::from_obj(&*range);
    while made.changed().await.is_ok() {
        let now = *made.borrow_and_update();
        let other = site.stores.ranges.get(&me).is_none_or(|r| {
            r.metadata.generation != range.metadata.generation || r.metadata.deletion_timestamp.is_some()
        });
        if other {
            stop.store(true, Ordering::Relaxed);
            continue;
        }
        if now < last + every || now + served >= of {
            continue;
        }
        last = now;
        match report::progress(site.client, range, core::progress(served + now, of)).await {
            Ok(Some(r)) => *range = r,
            Ok(None) => {}
            // Progress is a courtesy; what matters of the conflict is seen above.
            Err(error) => tracing::debug!(%error, "progress not written"),
        }
    }
}

/// Puts shards into the map whose databases are made. Returns the record, and the shards that were put in.
async fn serve(site: &Site<'_>, range: &str, part: &Work) -> Result<(Placement, SpanSet), Error> {
    let (namespace, name) = (
        site.cluster.namespace().unwrap_or_default(),
        site.cluster.name_any(),
    );
    let mut opened = SpanSet::new();
    let uid = site.cluster.uid().unwrap_or_default();
    let after = record_act::update(site.client, MANAGER_RANGE, &namespace, &name, &uid, None, |c| {
        let Some(record) = c.status.as_ref().and_then(|s| s.placement.as_ref()) else {
            opened = SpanSet::new();
            return Ok(None);
        };
        // What the range was meanwhile relieved of is not put into the map on its account.
        let still = placement::shards(record, |s| {
            s.pair == part.pair && s.range.as_deref() == Some(range)
        })
        .intersect(&part.shards);
        opened = still.minus(&placement::serving(record));
        placement::serve(record, &still, &part.pair).map(Some)
    })
    .await?;
    let record = after.status.and_then(|s| s.placement).unwrap_or_default();
    Ok((record, opened))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ShardSpan;

    #[test]
    fn a_large_range_is_served_in_parts() {
        let work = |spans: &[(i32, i32)]| Work {
            pair: "p0".into(),
            shards: spans.iter().map(|&(f, l)| ShardSpan::new(f, l)).collect(),
            kind: Kind::Create,
        };
        let lens = |w: &Work| parts(w).iter().map(|p| p.shards.len()).collect::<Vec<_>>();
        assert_eq!(lens(&work(&[(0, 511)])), [512]);
        assert_eq!(lens(&work(&[(0, 1023), (2000, 5000)])), [2048, 1977]);
        let all = work(&[(0, 65535)]);
        let joined = parts(&all).iter().fold(SpanSet::new(), |a, p| a.union(&p.shards));
        assert_eq!((lens(&all).len(), joined), (32, all.shards));
    }
}
