//! The ShardRange controller: what wakes it, and the rooms in their order.

use super::{
    Context,
    backoff::Backoff,
    watch::{CONCURRENCY, CONFLICT, HEALTHY, Scope, in_each_scope, unwinding},
};
use crate::{
    act::{apply, range as act},
    api::{MySQLPair, ShardCluster, ShardRange, names::FINALIZER},
    core::range::{self as core, Finalizer, Kind, Observed, Outcome, Work},
    observe::range::{self as observe, Stores},
    report::range as report,
};
use futures::{StreamExt as _, future};
use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt as _,
    runtime::{
        controller::{Action, Config, Controller},
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Name of the controller in metrics and logs.
const NAME: &str = "range";
/// Until the databases of served shards are looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// The same when a database was missing, which a person is restoring.
const MISSING: Duration = Duration::from_secs(15);

/// The same while the map is being published: the cluster's status tells of it, when it is written.
const PUBLISHING: Duration = Duration::from_secs(1);

/// What a pass failed at.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] apply::Error),
    #[error(transparent)]
    Work(#[from] act::Error),
    #[error("not started yet")]
    Starting,
    #[error("the pass panicked; the log says where")]
    Panic,
}

impl Error {
    fn is_conflict(&self) -> bool {
        match self {
            Self::Api(e) => e.is_conflict(),
            Self::Work(e) => e.is_conflict(),
            Self::Starting | Self::Panic => false,
        }
    }
    fn label(&self) -> &'static str {
        match self {
            e if e.is_conflict() => "conflict",
            Self::Api(_) => "api",
            Self::Work(_) => "work",
            Self::Starting => "starting",
            Self::Panic => "panic",
        }
    }
}

struct Env {
    ctx: Arc<Context>,
    stores: Stores,
    backoff: Backoff<String>,
    /// When the databases of a range were last looked at, by its UID. Lost with the process, and then looked at again.
    looked: Mutex<HashMap<String, Instant>>,
    /// Work that failed, by the range's UID.
    failed: Mutex<HashMap<String, Failed>>,
}

/// Work that failed and waits for its next try: events meanwhile, those of our own status among them, lead to none.
#[derive(Clone)]
struct Failed {
    generation: Option<i64>,
    work: Work,
    error: String,
    until: Instant,
}

impl Env {
    fn forget(&self, uid: &str) {
        self.looked().remove(uid);
        self.failed().remove(uid);
    }
    fn failed(&self) -> std::sync::MutexGuard<'_, HashMap<String, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn looked(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until `shutdown`, which lets running passes end.
pub async fn run(ctx: Arc<Context>, shutdown: impl Future<Output = ()> + Send + Sync + Clone + 'static) {
    in_each_scope(&ctx, |ctx, scope| run_in(ctx, scope, shutdown.clone())).await;
}

async fn run_in(ctx: Arc<Context>, scope: Scope, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
    let (clusters, cluster_events) = scope.all::<ShardCluster>();
    let (pairs, pair_events) = scope.all::<MySQLPair>();
    let controller = Controller::new(scope.api::<ShardRange>(), watcher::Config::default());
    let ranges = controller.store();
    let siblings = Siblings::new(ranges.clone());
    let of_cluster = ranges.clone();
    let of_pair = ranges.clone();
    let env = Arc::new(Env {
        ctx,
        stores: Stores {
            clusters,
            pairs,
            ranges,
        },
        backoff: Backoff::default(),
        looked: Mutex::default(),
        failed: Mutex::default(),
    });
    controller
        .watches_stream(cluster_events, move |c: ShardCluster| {
            naming(&of_cluster, c.namespace().as_deref(), |r| {
                r.spec.cluster_ref.name == c.name_any()
            })
        })
        .watches_stream(pair_events, move |p: MySQLPair| {
            naming(&of_pair, p.namespace().as_deref(), |r| {
                r.spec.cluster_ref == p.spec.cluster_ref || r.spec.pair_ref.name == p.name_any()
            })
        })
        .watches(
            scope.api::<ShardRange>(),
            watcher::Config::default(),
            move |r: ShardRange| siblings.woken_by(&r),
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

fn naming(
    ranges: &Store<ShardRange>,
    namespace: Option<&str>,
    fits: impl Fn(&ShardRange) -> bool,
) -> Vec<ObjectRef<ShardRange>> {
    ranges
        .state()
        .iter()
        .filter(|r| r.namespace().as_deref() == namespace && fits(r))
        .map(|r| ObjectRef::from_obj(&**r))
        .collect()
}

/// The ranges that another one's claim concerns: only a change of the claim wakes them, not each of its statuses.
struct Siblings {
    ranges: Store<ShardRange>,
    seen: Mutex<HashMap<String, Claim>>,
}

/// What of a range concerns others: its generation, whether it is being deleted, and whether our finalizer is on it.
type Claim = (Option<i64>, bool, bool);

impl Siblings {
    fn new(ranges: Store<ShardRange>) -> Self {
        Self {
            ranges,
            seen: Mutex::default(),
        }
    }

    fn woken_by(&self, r: &ShardRange) -> Vec<ObjectRef<ShardRange>> {
        let (uid, deleting) = (
            r.uid().unwrap_or_default(),
            r.metadata.deletion_timestamp.is_some(),
        );
        // Without the finalizer it is on its way out, or not claimed yet.
        let held = r.finalizers().iter().any(|f| f == FINALIZER);
        let claim = (r.metadata.generation, deleting, held);
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.get(&uid) == Some(&claim) {
                return vec![];
            }
            if deleting && !held {
                seen.remove(&uid);
            } else {
                seen.insert(uid.clone(), claim);
            }
        }
        naming(&self.ranges, r.namespace().as_deref(), |other| {
            other.spec.cluster_ref == r.spec.cluster_ref && other.uid().as_deref() != Some(uid.as_str())
        })
    }
}

fn key(range: &ShardRange) -> String {
    format!("{}/{}", range.namespace().unwrap_or_default(), range.name_any())
}

async fn reconcile(range: Arc<ShardRange>, env: Arc<Env>) -> Result<Action, Error> {
    let began = Instant::now();
    let done = unwinding(Box::pin(pass(&range, &env)))
        .await
        .unwrap_or(Err(Error::Panic));
    let outcome = done.as_ref().map_or_else(Error::label, |_| "ok");
    env.ctx.metrics.pass(NAME, outcome, began.elapsed());
    match done {
        Ok(action) => Ok(action),
        Err(e) if e.is_conflict() => Ok(Action::requeue(CONFLICT)),
        Err(e) => Err(e),
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature is that of kube's Controller"
)]
fn failed(range: Arc<ShardRange>, error: &Error, env: Arc<Env>) -> Action {
    let wait = env.backoff.failed(key(&range));
    tracing::warn!(range = key(&range), %error, label = error.label(), ?wait, "pass failed");
    Action::requeue(wait)
}

async fn pass(range: &ShardRange, env: &Env) -> Result<Action, Error> {
    let ready = future::try_join(
        env.stores.clusters.wait_until_ready(),
        env.stores.pairs.wait_until_ready(),
    );
    let Ok(Ok(_)) = crate::deadline::within(crate::deadline::API, ready).await else {
        return Err(Error::Starting);
    };
    let client = &env.ctx.client;
    let uid = range.uid().unwrap_or_default();
    let look_due = env.looked().get(&uid).is_none_or(|at| at.elapsed() >= LOOK_EVERY);

    // From memory first: most passes find nothing to do, and ask nobody.
    let cluster = env.stores.cluster(
        &range.namespace().unwrap_or_default(),
        &range.spec.cluster_ref.name,
    );
    let o = observe::observe(client, &env.stores, range, cluster.as_ref(), look_due, false).await?;
    let plan = core::plan(&o);
    let pending = env.failed().get(&uid).cloned().filter(|f| {
        let same = |w: &Work| w.kind == f.work.kind && w.pair == f.work.pair && act::reachable(&o, w);
        f.generation == o.generation && plan.work.iter().any(same)
    });
    let waits = pending
        .as_ref()
        .and_then(|f| f.until.checked_duration_since(Instant::now()));
    let idle = Outcome {
        failed: pending.as_ref().map(|f| (f.work.clone(), f.error.clone())),
        ..Outcome::default()
    };
    let said = core::say(&o, &plan, &idle, Timestamp::now());
    if plan.finalizer == Finalizer::Keep
        && (waits.is_some() || plan.work.iter().all(|w| !act::reachable(&o, w)))
        && Some(&said.status) == range.status.as_ref()
        && !said.publishing
    {
        return Ok(Action::requeue(waits.unwrap_or(HEALTHY)));
    }

    // What changes anything is decided upon what is true now.
    let Some((range, cluster)) = observe::afresh(client, range).await? else {
        env.forget(&uid);
        return Ok(Action::await_change());
    };
    let o = observe::observe(client, &env.stores, &range, cluster.as_ref(), look_due, true).await?;
    let plan = core::plan(&o);
    let range = match plan.finalizer {
        Finalizer::Keep => range,
        Finalizer::Add => act::set_finalizer(client, &range, true).await?,
        Finalizer::Remove => {
            if o.finalizer {
                act::set_finalizer(client, &range, false).await?;
            }
            env.forget(&uid);
            return Ok(Action::await_change());
        }
    };
    if waits.is_some() {
        let said = core::say(&o, &plan, &idle, Timestamp::now());
        report::report(client, &env.ctx.recorder, &range, &said).await?;
        return Ok(Action::requeue(waits.unwrap_or(HEALTHY)));
    }
    // A bring-up or a roll-out takes a while: that it is under way is said before, unless it is a further try.
    let long = plan
        .work
        .iter()
        .any(|w| w.kind != Kind::Look && act::reachable(&o, w));
    let range = if long && pending.is_none() {
        let said = core::say(&o, &plan, &Outcome::default(), Timestamp::now());
        report::report(client, &env.ctx.recorder, &range, &said).await?
    } else {
        range
    };
    let before = range.status.clone().unwrap_or_default();
    let o = Observed { before, ..o };
    let (range, outcome) = match &cluster {
        Some(cluster) => {
            let site = act::Site {
                client,
                metrics: &env.ctx.metrics,
                stores: &env.stores,
                cluster,
            };
            act::work(&site, range, &o, &plan).await?
        }
        None => (range, Outcome::default()),
    };
    if outcome.looked && outcome.missing.is_empty() {
        env.looked().insert(uid.clone(), Instant::now());
    }
    let said = core::say(&o, &plan, &outcome, Timestamp::now());
    let Some((work, error)) = outcome.failed else {
        env.failed().remove(&uid);
        env.backoff.succeeded(&key(&range));
        report::report(client, &env.ctx.recorder, &range, &said).await?;
        return Ok(Action::requeue(match () {
            () if said.publishing => PUBLISHING,
            () if outcome.missing.is_empty() => HEALTHY,
            () => MISSING,
        }));
    };
    let wait = env.backoff.failed(key(&range));
    tracing::warn!(
        range = key(&range),
        pair = work.pair,
        error,
        ?wait,
        "work on a server failed"
    );
    // Before the status is written, which leads to the next pass.
    let failed = Failed {
        generation: o.generation,
        work,
        error,
        until: Instant::now() + wait,
    };
    env.failed().insert(uid, failed);
    report::report(client, &env.ctx.recorder, &range, &said).await?;
    Ok(Action::requeue(wait))
}
