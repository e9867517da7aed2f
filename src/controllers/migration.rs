//! The controller of moves: a task for each move on record, which goes from pass to pass, and the watches that wake them.

pub mod pass;

use super::{
    Context,
    backoff::Backoff,
    watch::{Scope, in_each_scope, unwinding},
};
use crate::{
    api::{MySQLPair, ShardCluster, ShardRange, names},
    deadline,
    observe::migration::{Site, Stores},
};
use futures::{
    FutureExt as _, Stream, StreamExt as _, future,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, runtime::watcher};
use pass::{Local, Next};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinSet};

/// Label of this controller in metrics.
const CONTROLLER: &str = "move";
/// Between two passes over a move, at the least, however often it is woken.
const BETWEEN: Duration = Duration::from_millis(10);

/// Until the next pass after one in which a server was not as far as it should be.
const NOT_YET: Duration = Duration::from_millis(500);

/// What the moves of one scope share.
pub struct Shared {
    /// What every controller has.
    pub ctx: Arc<Context>,
    /// What watches have told.
    pub stores: Stores,
    /// Failures in a row.
    pub backoff: Backoff<Site>,
}

/// Runs until `shutdown`, which lets running passes end.
pub async fn run(ctx: Arc<Context>, shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static) {
    in_each_scope(&ctx, |ctx, scope| run_in(ctx, scope, shutdown.clone())).await;
}

async fn run_in(
    ctx: Arc<Context>,
    scope: Scope,
    shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static,
) {
    let labelled = watcher::Config::default().labels(names::PAIR_LABEL);
    let (clusters, cluster_events) = scope.all::<ShardCluster>();
    let (ranges, range_events) = scope.all::<ShardRange>();
    let (pairs, pair_events) = scope.all::<MySQLPair>();
    let (pods, pod_events) = scope.selected::<Pod>(labelled);
    let mut events = stream::select_all([
        namespaces(cluster_events),
        namespaces(range_events),
        namespaces(pair_events),
        namespaces(pod_events),
    ]);
    let shared = Arc::new(Shared {
        ctx,
        stores: Stores {
            clusters,
            ranges,
            pairs,
            pods,
        },
        backoff: Backoff::default(),
    });
    // What there was before the first event that tells of it: the memory has nothing while it is filled.
    let filled = Arc::clone(&shared);
    let filled = async move { filled.stores.clusters.wait_until_ready().await.is_ok() };
    tokio::pin!(filled);
    let mut begun = false;
    let mut moves: HashMap<Site, Arc<Notify>> = HashMap::new();
    // Dropped with the controller, and every task with it.
    let mut tasks: JoinSet<Site> = JoinSet::new();
    let stop = shutdown.clone();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            ready = &mut filled, if !begun => {
                begun = true;
                if ready {
                    wake(&shared, None, &mut moves, &mut tasks, &shutdown);
                }
            }
            event = events.next() => {
                let Some(namespace) = event else { break };
                wake(&shared, Some(&namespace), &mut moves, &mut tasks, &shutdown);
            }
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if let Ok(site) = ended {
                    moves.remove(&site);
                } else {
                    // A task that panicked outside of its passes: all are looked at with the next event.
                    moves.retain(|_, wake| Arc::strong_count(wake) > 1);
                }
            }
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// The namespaces in which something changed.
fn namespaces<K: ResourceExt + 'static>(
    events: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
) -> BoxStream<'static, String> {
    events
        .filter_map(|e| future::ready(e.ok().and_then(|o| o.namespace())))
        .boxed()
}

/// Wakes the tasks of all moves on record, of one namespace or of all; one that has none gets one.
fn wake(
    shared: &Arc<Shared>,
    namespace: Option<&str>,
    moves: &mut HashMap<Site, Arc<Notify>>,
    tasks: &mut JoinSet<Site>,
    shutdown: &(impl Future<Output = ()> + Clone + Send + Sync + 'static),
) {
    for site in on_record(shared, namespace) {
        let wake = moves.entry(site.clone()).or_insert_with(|| {
            let wake = Arc::new(Notify::new());
            tasks.spawn(drive(shared.clone(), site, wake.clone(), shutdown.clone()));
            wake
        });
        wake.notify_one();
    }
}

/// The moves on record in a namespace, or in all, as far as memory goes.
fn on_record(shared: &Shared, namespace: Option<&str>) -> Vec<Site> {
    let clusters = shared.stores.clusters.state();
    let moves_of = |c: &Arc<ShardCluster>| -> Vec<Site> {
        let Some(here) = c.namespace() else { return vec![] };
        let record = c.status.as_ref().and_then(|s| s.placement.as_ref());
        let all = record.into_iter().flat_map(|p| &p.moves);
        all.map(|m| Site {
            namespace: here.clone(),
            cluster: c.name_any(),
            key: m.key(),
        })
        .collect()
    };
    let all = clusters
        .iter()
        .filter(|c| namespace.is_none() || c.namespace().as_deref() == namespace);
    all.flat_map(moves_of).collect()
}

/// Goes from pass to pass until the move is off the record.
async fn drive(
    shared: Arc<Shared>,
    site: Site,
    wake: Arc<Notify>,
    shutdown: impl Future<Output = ()> + Clone + Send,
) -> Site {
    let mut local = Local::default();
    let stores = &shared.stores;
    let ready = async {
        stores.clusters.wait_until_ready().await.is_ok()
            && stores.ranges.wait_until_ready().await.is_ok()
            && stores.pairs.wait_until_ready().await.is_ok()
            && stores.pods.wait_until_ready().await.is_ok()
    };
    if !deadline::within(deadline::API, ready).await.unwrap_or(false) {
        return site;
    }
    while shutdown.clone().now_or_never().is_none() {
        let began = Instant::now();
        let done = unwinding(Box::pin(pass::pass(&shared, &site, &mut local))).await;
        let (outcome, wait) = match done {
            Some(Ok(Next::Gone)) => {
                shared.ctx.metrics.pass(CONTROLLER, "ok", began.elapsed());
                break;
            }
            Some(Ok(Next::After(wait))) => {
                shared.backoff.succeeded(&site);
                ("ok", wait)
            }
            Some(Err(error)) => {
                let wait = shared.backoff.failed(site.clone());
                if error.is_void() || error.is_not_reached() {
                    tracing::debug!(r#move = %site.key, %error, "pass not finished");
                } else {
                    tracing::warn!(namespace = site.namespace, r#move = %site.key, %error, ?wait, "pass not finished");
                }
                let wait = match () {
                    () if error.is_void() => BETWEEN * 2,
                    () if error.is_not_reached() => wait.max(NOT_YET),
                    () => wait,
                };
                (error.label(), wait)
            }
            None => {
                // What it held in the middle of something is given up.
                local = Local::default();
                ("panic", shared.backoff.failed(site.clone()))
            }
        };
        shared.ctx.metrics.pass(CONTROLLER, outcome, began.elapsed());
        tokio::time::sleep(BETWEEN.min(wait)).await;
        tokio::select! {
            () = tokio::time::sleep(wait.saturating_sub(BETWEEN)) => {}
            // A failure is not tried again before its time for what others write.
            () = wake.notified(), if outcome == "ok" => {}
            () = shutdown.clone() => {}
        }
    }
    site
}
