//! The ShardCluster controller: what wakes it, and the rooms in their order.

use super::{
    Context,
    backoff::Backoff,
    watch::{CONCURRENCY, CONFLICT, HEALTHY, Scope, in_each_scope, unwinding},
};
use crate::{
    act::{apply, cluster as act, databases, placement as record_act, publish, secrets},
    api::{
        MySQLPair, Placement, ShardCluster, ShardRange,
        names::{self, MANAGER_CLUSTER},
    },
    core::{
        cluster::{
            self as core, Layout, Recorded, Stop,
            observed::{Checked, MapSeen, Observed, TablesSeen},
            reasons,
        },
        note::Note,
    },
    observe::{access, cluster as observe},
    report::{cluster as report, events},
};
use futures::{StreamExt as _, future};
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{
    Client, Resource as _, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        controller::{Action, Config, Controller},
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Name of the controller in metrics and logs.
const NAME: &str = "cluster";
/// Until a cluster is looked at again that waits for a server to try its tables on, or for volumes to be claimed or deleted.
const SOON: Duration = Duration::from_secs(2);

/// How long an answer of no server stands, so that what is written about it does not lead to the next try at once.
const ASKED: Duration = Duration::from_millis(500);

/// How long a refusal stands: what a server refuses depends on its version and its configuration as well.
const REFUSED: Duration = Duration::from_secs(50);

/// What a pass failed at.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] apply::Error),
    #[error(transparent)]
    Record(#[from] record_act::Error<Infallible>),
    #[error("not started yet")]
    Starting,
    #[error("the pass panicked; the log says where")]
    Panic,
}

impl Error {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Api(e) => e.is_conflict(),
            Self::Record(e) => e.is_conflict(),
            Self::Starting | Self::Panic => false,
        }
    }
    fn label(&self) -> &'static str {
        match self {
            e if e.is_conflict() => "conflict",
            Self::Api(_) => "api",
            Self::Record(_) => "record",
            Self::Starting => "starting",
            Self::Panic => "panic",
        }
    }
}

/// What a server said of a set of tables, by cluster and hash. Lost with the process, and then asked again.
type Verdicts = Mutex<HashMap<String, (String, Checked, Instant)>>;

struct Env {
    ctx: Arc<Context>,
    pairs: Store<MySQLPair>,
    ranges: Store<ShardRange>,
    backoff: Backoff<String>,
    tables: Verdicts,
}

/// Runs until `shutdown`, which lets running passes end.
pub async fn run(ctx: Arc<Context>, shutdown: impl Future<Output = ()> + Send + Sync + Clone + 'static) {
    in_each_scope(&ctx, |ctx, scope| run_in(ctx, scope, shutdown.clone())).await;
}

async fn run_in(ctx: Arc<Context>, scope: Scope, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
    let (pairs, pair_events) = scope.all::<MySQLPair>();
    let (ranges, range_events) = scope.all::<ShardRange>();
    let controller = Controller::new(scope.api::<ShardCluster>(), watcher::Config::default());
    let clusters = controller.store();
    let env = Arc::new(Env {
        ctx,
        pairs,
        ranges,
        backoff: Backoff::default(),
        tables: Mutex::default(),
    });
    controller
        .watches_stream(pair_events, |p: MySQLPair| {
            reference(p.namespace(), &p.spec.cluster_ref.name)
        })
        .watches_stream(range_events, |r: ShardRange| {
            reference(r.namespace(), &r.spec.cluster_ref.name)
        })
        // By name and without labels: an edit may take the labels off the map, and that of the DDL is anyone's. Metadata only.
        .watches(
            scope.api::<PartialObjectMeta<ConfigMap>>(),
            watcher::Config::default(),
            move |cm| naming(&clusters, &cm),
        )
        .with_config(Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(shutdown)
        .run(reconcile, failed, env)
        .for_each(|done| {
            if let Err(error) = done {
                tracing::debug!(%error, "{NAME} controller");
            }
            future::ready(())
        })
        .await;
}

fn reference(namespace: Option<String>, name: &str) -> Option<ObjectRef<ShardCluster>> {
    Some(ObjectRef::new(name).within(&namespace?))
}

/// The clusters that have to do with a ConfigMap.
fn naming(clusters: &Store<ShardCluster>, cm: &PartialObjectMeta<ConfigMap>) -> Vec<ObjectRef<ShardCluster>> {
    let (namespace, name) = (cm.namespace(), cm.name_any());
    clusters
        .state()
        .iter()
        .filter(|c| {
            c.namespace() == namespace
                && (c.shard_map_name() == name || observe::ddl_from(&c.spec) == Some(name.as_str()))
        })
        .map(|c| ObjectRef::from_obj(&**c))
        .collect()
}

fn key(cluster: &ShardCluster) -> String {
    format!(
        "{}/{}",
        cluster.namespace().unwrap_or_default(),
        cluster.name_any()
    )
}

async fn reconcile(cluster: Arc<ShardCluster>, env: Arc<Env>) -> Result<Action, Error> {
    let began = Instant::now();
    let done = unwinding(Box::pin(pass(&cluster, &env)))
        .await
        .unwrap_or(Err(Error::Panic));
    let outcome = done.as_ref().map_or_else(Error::label, |_| "ok");
    env.ctx.metrics.pass(NAME, outcome, began.elapsed());
    match done {
        Ok(action) => {
            env.backoff.succeeded(&key(&cluster));
            Ok(action)
        }
        // Somebody was faster: what they wrote is looked at as well.
        Err(e) if e.is_conflict() => Ok(Action::requeue(CONFLICT)),
        Err(e) => Err(e),
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature is that of kube's Controller"
)]
fn failed(cluster: Arc<ShardCluster>, error: &Error, env: Arc<Env>) -> Action {
    let wait = env.backoff.failed(key(&cluster));
    tracing::warn!(cluster = key(&cluster), %error, label = error.label(), ?wait, "pass failed");
    Action::requeue(wait)
}

async fn ready<K>(store: &Store<K>) -> Result<(), Error>
where
    K: kube::runtime::reflector::Lookup + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    match crate::deadline::within(crate::deadline::API, store.wait_until_ready()).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Error::Starting),
    }
}

async fn pass(cluster: &ShardCluster, env: &Env) -> Result<Action, Error> {
    ready(&env.pairs).await?;
    ready(&env.ranges).await?;
    let client = &env.ctx.client;
    let Some(found) = observe::find(client, &env.pairs, &env.ranges, cluster).await? else {
        return Ok(Action::await_change());
    };
    // A cluster that is being deleted lets everything go; the map and the passwords stay where they are.
    if found.cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let mut o = found.observed;

    // First what others wait for: the record and the map. People are told at once what was done, once the map is out: a later step may
    // fail.
    let (latest, recorded) = record(client, &o, found.cluster).await?;
    let mut refused = None;
    let published = publish_map(env, &latest, &o, &recorded, found.map.as_ref()).await;
    tell(env, &latest, &core::changes(o.placement(), &recorded)).await;
    tell(
        env,
        &latest,
        &unless_refused(published, &mut refused)?.unwrap_or_default(),
    )
    .await;

    let credentials = credentials(client, &latest, &o).await;
    o.credentials = unless_refused(credentials, &mut refused)?.flatten();
    let layout = core::layout(&o);
    let seeded = seed(env, &latest, layout).await;
    let seeded = unless_refused(seeded, &mut refused)?.unwrap_or_default();
    o.refused = refused;
    check_tables(env, &mut o, &latest).await;

    let said = core::say(&o, &recorded, seeded, Timestamp::now());
    report::report(client, &env.ctx.recorder, &latest, &said).await?;
    let waits = match &o.tables {
        TablesSeen::Set { checked, .. } => matches!(checked, Checked::NotYet(_)) && !o.ranges.is_empty(),
        _ => false,
    };
    // Neither is told by a watch.
    let waits = waits || recorded.stops.iter().any(|s| matches!(s, Stop::Volumes(_)));
    let retry = if waits { SOON } else { HEALTHY };
    Ok(Action::requeue(retry))
}

async fn tell(env: &Env, cluster: &ShardCluster, notes: &[Note]) {
    events::publish(&env.ctx.recorder, &cluster.object_ref(&()), "Reconcile", notes).await;
}

/// What the API refuses, it refuses of this one object: it is said in the status, and the pass goes on.
fn unless_refused<T>(done: Result<T, Error>, refused: &mut Option<String>) -> Result<Option<T>, Error> {
    match done {
        Ok(t) => Ok(Some(t)),
        Err(Error::Api(e)) if e.is_refused() => {
            refused.get_or_insert(e.to_string());
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Carries out the layout. Whether it is done with.
async fn seed(env: &Env, cluster: &ShardCluster, layout: Layout) -> Result<bool, Error> {
    let note = match layout {
        Layout::Done => return Ok(false),
        Layout::Seed => match act::seed_layout(&env.ctx.client, cluster).await? {
            0 => return Ok(true),
            made => Note::normal(
                reasons::LAYOUT_SEEDED,
                format!(
                    "{made} pairs and ranges were made from spec.layout; from now on they are edited like any other"
                ),
            ),
        },
        Layout::Skip => Note::warning(
            reasons::LAYOUT_SKIPPED,
            "spec.layout was passed over: the cluster has pairs or ranges already",
        ),
    };
    tell(env, cluster, &[note]).await;
    Ok(true)
}

/// Makes the record what it has to be. Returns the cluster as it then is, and what was decided.
async fn record(
    client: &Client,
    o: &Observed,
    cluster: ShardCluster,
) -> Result<(ShardCluster, Recorded), Error> {
    let present = |c: &ShardCluster| -> Option<Placement> { c.status.as_ref()?.placement.clone() };
    let mut decided = core::record(o, present(&cluster).as_ref());
    if decided.placement == present(&cluster) {
        return Ok((cluster, decided));
    }
    let latest = record_act::update(
        client,
        MANAGER_CLUSTER,
        &o.namespace,
        &o.name,
        &o.uid,
        Some(cluster),
        |c| {
            decided = core::record(o, present(c).as_ref());
            Ok::<_, Infallible>(decided.placement.clone())
        },
    )
    .await?;
    Ok((latest, decided))
}

/// Makes the ConfigMap say what was recorded.
async fn publish_map(
    env: &Env,
    cluster: &ShardCluster,
    o: &Observed,
    recorded: &Recorded,
    live: Option<&ConfigMap>,
) -> Result<Vec<Note>, Error> {
    let Some(map) = &recorded.map else {
        return Ok(vec![]);
    };
    let done = publish::publish(&env.ctx.client, &cluster.shard_map_name(), map, live).await?;
    if done == publish::Done::Nothing {
        return Ok(vec![]);
    }
    env.ctx.metrics.maps_published.inc();
    let before = o.placement().map_or(0, |p| p.map_version);
    let restored = before > 0
        && map.version == before
        && !matches!(&o.map, MapSeen::Ours { version, .. } if *version < before);
    tracing::info!(
        cluster = key(cluster),
        version = map.version,
        ?done,
        "shard map published"
    );
    Ok(vec![if restored {
        Note::warning(
            reasons::SHARD_MAP_RESTORED,
            format!(
                "the ConfigMap {} was deleted or edited by hand; it says version {} again",
                cluster.shard_map_name(),
                map.version
            ),
        )
    } else {
        Note::normal(
            reasons::SHARD_MAP_PUBLISHED,
            format!(
                "version {}: {} shards in {} entries",
                map.version,
                map.shards().len(),
                map.entries.len()
            ),
        )
    }])
}

/// Sees to the Secrets. What is wrong with them, if it needs a person.
async fn credentials(client: &Client, cluster: &ShardCluster, o: &Observed) -> Result<Option<String>, Error> {
    let got = secrets::of_cluster(client, MANAGER_CLUSTER, &o.namespace, &o.name, Timestamp::now());
    match got.await {
        Ok(credentials) => {
            let made = act::app_secret(client, cluster, &credentials).await?;
            let name = names::app_secret(&o.name);
            Ok((!made).then(|| {
                format!("Secret {name} exists and is not the operator's: it is left alone, and applications get no password; delete or rename it")
            }))
        }
        Err(secrets::Error::Api(e)) => Err(e.into()),
        Err(e) => Ok(Some(e.to_string())),
    }
}

/// Asks a server whether the tables can be created, once for each set.
async fn check_tables(env: &Env, o: &mut Observed, cluster: &ShardCluster) {
    let before = o.before.tables_hash.clone();
    let TablesSeen::Set { set, checked } = &mut o.tables else {
        return;
    };
    if *checked == Checked::Good {
        return;
    }
    if before.as_deref() == Some(set.hash()) {
        *checked = Checked::Good;
        return;
    }
    let known = {
        let verdicts = env.tables.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts
            .get(&key(cluster))
            .filter(|(h, c, at)| h == set.hash() && at.elapsed() < stands(c))
            .map(|(_, c, _)| c.clone())
    };
    if let Some(known) = known {
        *checked = known;
        return;
    }
    *checked = ask(env, cluster, set).await;
    let mut verdicts = env.tables.lock().unwrap_or_else(PoisonError::into_inner);
    verdicts.insert(
        key(cluster),
        (set.hash().to_owned(), checked.clone(), Instant::now()),
    );
}

/// How long an answer stands.
fn stands(checked: &Checked) -> Duration {
    match checked {
        Checked::Good => Duration::MAX,
        Checked::Refused(_) => REFUSED,
        Checked::NotYet(_) => ASKED,
    }
}

/// Asks the active server of the first pair that answers.
async fn ask(env: &Env, cluster: &ShardCluster, set: &crate::core::tables::TableSet) -> Checked {
    let (namespace, name) = (cluster.namespace(), cluster.name_any());
    let mut why =
        "no pair of the cluster has an active server yet, on which the tables could be tried".to_owned();
    for pair in env.pairs.state() {
        if pair.namespace() != namespace
            || pair.spec.cluster_ref.name != name
            || access::recorded(&pair).is_none()
        {
            continue;
        }
        let server = match access::active(&env.ctx.client, &pair).await {
            Ok(server) => server,
            Err(e) => {
                why = e.to_string();
                continue;
            }
        };
        match databases::try_tables(&server, set).await {
            Ok(None) => return Checked::Good,
            Ok(Some(refused)) => return Checked::Refused(refused.to_string()),
            Err(e) => why = format!("the tables could not be tried on {}: {e}", pair.name_any()),
        }
    }
    Checked::NotYet(why)
}
