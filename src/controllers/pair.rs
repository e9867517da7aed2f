//! The MySQLPair controller: what wakes it, and the four rooms in their order.

mod asks;
mod change;
mod look;
mod memory;
mod pass;
mod seen;
mod slices;

use super::{
    backoff::Backoff,
    context::Context,
    watch::{Scope, in_each_scope},
};
use crate::{
    act::{self, apply, pair::key, secrets},
    api::{MySQLPair, ShardCluster, names},
    deadline,
    observe::{
        caches::{self, Caches, Nodes},
        sentinel::Sentinels,
        servers::Servers,
    },
};
use futures::{FutureExt as _, Stream, StreamExt as _, channel::mpsc, future, stream};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use memory::Memories;
use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Label of this controller in metrics.
const CONTROLLER: &str = "pair";
/// Pairs that are worked on at the same time: those whose servers are silent take seconds, and a node takes many with it.
const CONCURRENCY: u16 = 64;
/// Until the next pass after one that failed, or waited in vain, for the first times.
const AT_ONCE: Duration = Duration::from_millis(15);
/// How many passes in a row that waited, or gave a switchover up, are followed by one at once.
const AT_ONCE_IN_A_ROW: u32 = 3;
/// Most that is waited after one that waited for a server itself, for up to two seconds: it may be about to take over.
const BEHIND: Duration = Duration::from_millis(200);

/// A pass that was not finished.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] apply::Error),
    #[error(transparent)]
    Act(#[from] act::pair::Error),
    #[error(transparent)]
    Secrets(#[from] secrets::Error),
    #[error("not started yet")]
    Starting,
    #[error("the pass panicked")]
    Panic,
}

impl Error {
    /// For metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Api(e) | Self::Act(act::pair::Error::Api(e)) | Self::Secrets(secrets::Error::Api(e)) => {
                if e.is_conflict() { "conflict" } else { "api" }
            }
            Self::Act(act::pair::Error::Superseded) => "conflict",
            Self::Act(act::pair::Error::Busy(_)) => "busy",
            Self::Act(act::pair::Error::Aborted { .. }) => "aborted",
            Self::Act(e) if e.is_not_reached() => "behind",
            Self::Act(_) => "server",
            Self::Secrets(_) => "credentials",
            Self::Starting => "starting",
            Self::Panic => "panic",
        }
    }
    /// Somebody else wrote in between, or the whole namespace goes: that is ordinary, and the next pass sees it.
    fn is_ordinary(&self) -> bool {
        let ends = |e: &apply::Error| e.is_namespace_terminating();
        match self {
            Self::Api(e) | Self::Act(act::pair::Error::Api(e)) | Self::Secrets(secrets::Error::Api(e))
                if ends(e) =>
            {
                true
            }
            _ => ["conflict", "behind", "starting", "busy"].contains(&self.label()),
        }
    }
    /// It waited already, or what was done about it is not to wait.
    fn waited(&self) -> bool {
        ["behind", "aborted", "busy"].contains(&self.label())
    }
}

/// What the passes of one scope share. Nothing in it is needed for safety (rule O1).
struct Shared {
    ctx: Arc<Context>,
    servers: Servers,
    sentinels: Sentinels,
    caches: Caches,
    memories: Memories,
    backoff: Backoff<String>,
}

/// Runs the controller until `shutdown`; passes that run then are finished.
pub async fn run(ctx: Arc<Context>, shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static) {
    in_each_scope(&ctx, |ctx, scope| drive(ctx, scope, shutdown.clone())).await;
}

async fn drive(ctx: Arc<Context>, scope: Scope, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
    let children = watcher::Config::default().labels(&format!(
        "app.kubernetes.io/managed-by={},{}",
        names::MANAGED_BY,
        names::PAIR_LABEL
    ));
    let labelled = watcher::Config::default().labels(names::PAIR_LABEL);
    let (pods, pod_events) = scope.selected::<Pod>(labelled);
    let (clusters, cluster_events) = scope.all::<ShardCluster>();
    let (slices, slice_events) = scope.selected::<EndpointSlice>(children.clone());
    let (nodes, node_events) = watch_nodes(&ctx.client, pods.clone());
    // A wake-up goes by no watch: it is there within a moment.
    let (wake, woken) = mpsc::unbounded();
    let shared = Arc::new(Shared {
        ctx,
        servers: Servers::default(),
        sentinels: Sentinels::new(wake),
        caches: Caches {
            pods,
            clusters,
            nodes,
            slices,
        },
        memories: Memories::default(),
        backoff: Backoff::default(),
    });
    let (pairs, pair_events) = scope.all::<MySQLPair>();
    // What a pass tells of a pair is no reason for another one: a pair that is in one state at one look and in another at the next would keep
    // itself busy.
    let pair_events =
        pair_events.predicate_filter(|p: &MySQLPair| Some(asks::of_pair(p)), PredicateConfig::default());
    let cluster_events = cluster_events.predicate_filter(
        |c: &ShardCluster| Some(asks::of_cluster(c)),
        PredicateConfig::default(),
    );
    let controller = Controller::for_stream(pair_events, pairs.clone());
    let of_cluster = move |cluster: ShardCluster| {
        let (name, ns) = (cluster.name_any(), cluster.namespace());
        let mine = |p: &Arc<MySQLPair>| p.namespace() == ns && p.spec.cluster_ref.name == name;
        pairs
            .state()
            .iter()
            .filter(|p| mine(p))
            .map(|p| ObjectRef::from_obj(p.as_ref()))
            .collect::<Vec<_>>()
    };
    controller
        .owns(scope.api::<StatefulSet>(), children.clone())
        .owns(scope.api::<Service>(), children.clone())
        .owns(scope.api::<ConfigMap>(), children.clone())
        .owns(scope.api::<PodDisruptionBudget>(), children.clone())
        .owns(scope.api::<NetworkPolicy>(), children)
        .watches_stream(slice_events, |slice: EndpointSlice| {
            let name = slice.labels().get(names::PAIR_LABEL)?;
            Some(ObjectRef::new(name).within(&slice.namespace()?))
        })
        .watches_stream(pod_events, |pod: Pod| pair_of(&pod))
        .watches_stream(cluster_events, of_cluster)
        .reconcile_on(node_events)
        .reconcile_on(woken)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(shutdown)
        .run(reconcile, error_policy, shared.clone())
        .for_each(|result| {
            if let Err(error) = result {
                tracing::debug!(%error, controller = CONTROLLER, "stream");
            }
            future::ready(())
        })
        .await;
}

fn pair_of(pod: &Pod) -> Option<ObjectRef<MySQLPair>> {
    let name = pod.labels().get(names::PAIR_LABEL)?;
    Some(ObjectRef::new(name).within(&pod.namespace()?))
}

/// The nodes, kept in memory, and the pairs that have a Pod on one that is not ready, or not there any more. Without the right to look at
/// nodes nothing comes of it, and nothing is known of them.
fn watch_nodes(
    client: &Client,
    pods: Store<Pod>,
) -> (Nodes, impl Stream<Item = ObjectRef<MySQLPair>> + Send + use<>) {
    let (store, writer) = reflector::store::<Node>();
    let complete = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&complete);
    let events = watcher(Api::<Node>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(|node| {
            // Of a large node the rest is many kilobytes.
            node.metadata.managed_fields = None;
            if let Some(status) = &mut node.status {
                status.images = None;
            }
        })
        .reflect(writer)
        .flat_map(move |event| {
            let node = match event {
                Ok(watcher::Event::Delete(node)) => Some(node),
                Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                    Some(node).filter(|n| !caches::is_ready(n))
                }
                Ok(watcher::Event::InitDone) => {
                    seen.store(true, Ordering::Relaxed);
                    None
                }
                Ok(watcher::Event::Init) => None,
                Err(error) => {
                    tracing::debug!(%error, "watch of the nodes");
                    None
                }
            };
            let name = node.map(|n| n.name_any());
            let on = |p: &Arc<Pod>| p.spec.as_ref().and_then(|s| s.node_name.as_ref()) == name.as_ref();
            let pairs: Vec<_> = match &name {
                Some(_) => pods
                    .state()
                    .iter()
                    .filter(|p| on(p))
                    .filter_map(|p| pair_of(p))
                    .collect(),
                None => vec![],
            };
            stream::iter(pairs)
        });
    (Nodes { store, complete }, events)
}

/// Until the watches have told what there is.
async fn ready<K>(store: &Store<K>) -> Result<(), Error>
where
    K: reflector::Lookup + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    match deadline::within(deadline::API, store.wait_until_ready()).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Error::Starting),
    }
}

async fn pass(pair: &MySQLPair, shared: &Shared) -> Result<Action, Error> {
    ready(&shared.caches.pods).await?;
    ready(&shared.caches.clusters).await?;
    pass::pass(pair, shared).await
}

async fn reconcile(pair: Arc<MySQLPair>, shared: Arc<Shared>) -> Result<Action, Error> {
    let began = Instant::now();
    // A bug in one pass must not end the process, which looks after other pairs too.
    let result = AssertUnwindSafe(Box::pin(pass(&pair, &shared)))
        .catch_unwind()
        .await
        .unwrap_or(Err(Error::Panic));
    let outcome = result.as_ref().map_or_else(Error::label, |_| "ok");
    shared.ctx.metrics.pass(CONTROLLER, outcome, began.elapsed());
    if result.is_ok() {
        shared.backoff.succeeded(&backoff_key(&pair));
    }
    result
}

fn backoff_key(pair: &MySQLPair) -> String {
    key(&pair.namespace().unwrap_or_default(), &pair.name_any())
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is kube's")]
fn error_policy(pair: Arc<MySQLPair>, error: &Error, shared: Arc<Shared>) -> Action {
    let (failures, wait) = shared.backoff.counted(backoff_key(&pair));
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    if error.is_ordinary() {
        tracing::debug!(namespace, pair = name, %error, "pass not finished");
    } else {
        tracing::warn!(namespace, pair = name, %error, "pass not finished");
    }
    Action::requeue(pause(error, failures, wait))
}

/// Until the next pass after one that failed, the `failures`-th in a row; `wait` is what others would wait then.
fn pause(error: &Error, failures: u32, wait: Duration) -> Duration {
    let at_once = if error.waited() { AT_ONCE_IN_A_ROW } else { 1 };
    match error.label() {
        _ if failures <= at_once => AT_ONCE,
        "behind" => wait.min(BEHIND),
        _ => wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_vain_again_and_again_is_put_off_as_well() {
        let busy = Error::Act(act::pair::Error::Busy("saving"));
        let behind = Error::Act(act::pair::Error::Server(act::server_error::ServerError {
            pod: "p-0".into(),
            step: "apply",
            source: crate::mysql::Error::NotReached("behind".into()),
        }));
        let backoff = Backoff::default();
        let waits: Vec<_> = (0..6)
            .map(|_| {
                let (n, wait) = backoff.counted("p");
                [&busy, &behind, &Error::Starting].map(|e| pause(e, n, wait).as_millis())
            })
            .collect();
        let expected = [
            [15; 3],
            [15, 15, 400],
            [15, 15, 800],
            [1600, 200, 1600],
            [3200, 200, 3200],
        ];
        assert_eq!(waits[..5], expected);
    }
}
