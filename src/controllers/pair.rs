//! The MySQLPair controller: what wakes it, and the four rooms in their order.

use super::{backoff::Backoff, context::Context};
use crate::{
    act::{self, apply, children, pair::key, secrets},
    api::{MySQLPair, ShardCluster, names},
    core::{
        credentials::{Credentials, OPERATOR_USER},
        pair::{
            self, Action as Step, Children, Observed,
            observed::{Before, Desired, Side},
            reasons,
        },
    },
    mysql::{Access, accounts},
    observe::{
        pair::{self as api, Found},
        servers::{Seen, Servers, Target},
    },
    report,
    resources::endpoint_slice,
};
use futures::{FutureExt as _, StreamExt as _, future};
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{ConfigMap, Pod, Service},
        discovery::v1::EndpointSlice,
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{
        controller::{self, Action, Controller},
        reflector::ObjectRef,
        watcher,
    },
};
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap,
    fmt::Debug,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Label of this controller in metrics.
const CONTROLLER: &str = "pair";
/// Pairs that are worked on at the same time.
const CONCURRENCY: u16 = 16;

/// A pass that was not finished.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] apply::Error),
    #[error(transparent)]
    Act(#[from] act::pair::Error),
    #[error(transparent)]
    Secrets(#[from] secrets::Error),
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
            Self::Act(_) => "server",
            Self::Secrets(_) => "credentials",
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
            _ => self.label() == "conflict",
        }
    }
}

/// What passes share. Nothing in it is needed for safety (rule O1).
struct Shared {
    ctx: Arc<Context>,
    servers: Servers,
    /// Since when the passive server of a pair, by UID, has not been following.
    adrift: Mutex<HashMap<String, Timestamp>>,
    backoff: Backoff<String>,
}

impl Shared {
    fn adrift(&self) -> std::sync::MutexGuard<'_, HashMap<String, Timestamp>> {
        self.adrift.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the controller until `shutdown`; passes that run then are finished.
pub async fn run(ctx: Arc<Context>, shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static) {
    let shared = Arc::new(Shared {
        ctx: ctx.clone(),
        servers: Servers::default(),
        adrift: Mutex::default(),
        backoff: Backoff::default(),
    });
    if ctx.namespaces.is_empty() {
        return drive(shared, None, shutdown).await;
    }
    let each = ctx
        .namespaces
        .iter()
        .map(|ns| drive(shared.clone(), Some(ns.clone()), shutdown.clone()));
    future::join_all(each).await;
}

fn scope<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    match namespace {
        Some(ns) => Api::namespaced(client.clone(), ns),
        None => Api::all(client.clone()),
    }
}

async fn drive(
    shared: Arc<Shared>,
    namespace: Option<String>,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let client = &shared.ctx.client;
    let ns = namespace.as_deref();
    let children = watcher::Config::default().labels(&format!(
        "app.kubernetes.io/managed-by={},{}",
        names::MANAGED_BY,
        names::PAIR_LABEL
    ));
    let pods = watcher::Config::default().labels(names::PAIR_LABEL);
    let controller = Controller::new(scope::<MySQLPair>(client, ns), watcher::Config::default());
    let pairs = controller.store();
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
        .owns(scope::<StatefulSet>(client, ns), children.clone())
        .owns(scope::<Service>(client, ns), children.clone())
        .owns(scope::<ConfigMap>(client, ns), children.clone())
        .owns(scope::<PodDisruptionBudget>(client, ns), children.clone())
        .owns(scope::<NetworkPolicy>(client, ns), children.clone())
        .owns(scope::<EndpointSlice>(client, ns), children)
        .watches(scope::<Pod>(client, ns), pods, |pod: Pod| {
            let name = pod.labels().get(names::PAIR_LABEL)?.clone();
            Some(ObjectRef::new(&name).within(&pod.namespace()?))
        })
        .watches(
            scope::<ShardCluster>(client, ns),
            watcher::Config::default(),
            of_cluster,
        )
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
    let wait = shared.backoff.failed(backoff_key(&pair));
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    if error.is_ordinary() {
        tracing::debug!(namespace, pair = name, %error, "pass not finished");
    } else {
        tracing::warn!(namespace, pair = name, %error, "pass not finished");
    }
    Action::requeue(wait)
}

/// Observe, decide, act, report.
async fn pass(pair: &MySQLPair, shared: &Shared) -> Result<Action, Error> {
    let client = &shared.ctx.client;
    let now = Timestamp::now();
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    let Some(mut found) = Box::pin(api::find(client, &namespace, &name, now)).await? else {
        forget(shared, &namespace, &name, pair);
        return Ok(Action::await_change());
    };
    if found.children() == Children::Apply {
        Box::pin(apply_children(shared, &mut found, now)).await?;
    }
    let own = api::credentials(client, &namespace, &names::pair_credentials_secret(&name)).await?;
    let credentials = own.copy.clone().ok().flatten();
    let naming = found.naming();
    let targets = names::ORDINALS.map(|i| target(&found, i, credentials.as_ref()));
    let mut seen = shared.servers.look(targets.clone(), naming.as_ref()).await;
    let observed = observed(shared, &found, &seen, credentials.as_ref(), own.since);
    let decision = pair::decide(&observed, now);
    track(shared, &found, decision.following, now);
    let hands = act::pair::Hands::new(
        client,
        &found,
        &mut seen,
        &shared.servers,
        credentials.as_ref(),
        naming.as_ref(),
    );
    let acted = hands.act(&decision).await;
    for (seen, target) in seen.into_iter().zip(targets) {
        if let (Some(session), Some(target)) = (seen.session, target) {
            shared.servers.hold(&target.key, &target.uid, session);
        }
    }
    let written = acted?;
    if decision.actions.contains(&Step::RemoveFinalizer) {
        forget(shared, &namespace, &name, pair);
        return Ok(Action::await_change());
    }
    let led = if decision.children == Children::Leave {
        Ok(())
    } else {
        lead(client, &found, &observed, now).await
    };
    let upon = written.as_ref().unwrap_or(&found.pair);
    report::pair::report(client, &shared.ctx.recorder, upon, &observed, &decision, now).await?;
    led?;
    Ok(Action::requeue(decision.requeue))
}

fn forget(shared: &Shared, namespace: &str, name: &str, pair: &MySQLPair) {
    for i in names::ORDINALS {
        shared.servers.forget(&key(namespace, &names::pod(name, i)));
    }
    shared.adrift().remove(&pair.uid().unwrap_or_default());
    shared.backoff.succeeded(&backoff_key(pair));
}

/// Secrets first, they are mounted. What the API refuses is told as a condition, and the servers are looked after all the same.
async fn apply_children(shared: &Shared, found: &mut Found, now: Timestamp) -> Result<(), Error> {
    let client = &shared.ctx.client;
    let cluster = found.pair.spec.cluster_ref.name.clone();
    let made = async {
        let credentials =
            secrets::of_cluster(client, names::MANAGER_PAIR, &found.namespace, &cluster, now).await?;
        secrets::of_pair(client, names::MANAGER_PAIR, &found.context, &credentials, now).await?;
        Box::pin(children::of_pair(client, names::MANAGER_PAIR, &found.context)).await?;
        Ok(())
    };
    let error = match made.await {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let reason = match &error {
        Error::Secrets(e) if e.is_unusable() => reasons::CREDENTIALS_UNUSABLE,
        Error::Secrets(e) if e.is_refused() => reasons::CHILD_REFUSED,
        Error::Api(e) if e.is_refused() => reasons::CHILD_REFUSED,
        _ => return Err(error),
    };
    found.desired = Desired::Refused {
        reason,
        message: error.to_string(),
    };
    Ok(())
}

/// How the server at `i` is reached, when it has an address and there are credentials.
fn target(found: &Found, i: usize, credentials: Option<&Credentials>) -> Option<Target> {
    let pod = found.pod_states.get(i)?.as_ref()?;
    let credentials = credentials?;
    let name = names::pod(&found.name, i);
    Some(Target {
        key: key(&found.namespace, &name),
        uid: pod.uid.clone(),
        access: Access {
            address: pod.ip.clone().filter(|_| pod.running)?,
            port: names::MYSQL_PORT,
            tls_name: names::host(&found.namespace, &found.name, i),
            user: OPERATOR_USER.to_owned(),
            password: credentials.operator_password.clone(),
            ca_pem: credentials.ca_crt.clone(),
        },
    })
}

fn observed(
    shared: &Shared,
    found: &Found,
    seen: &[Seen; 2],
    credentials: Option<&Credentials>,
    credentials_since: Option<Timestamp>,
) -> Observed {
    let status = found.status();
    let [seen_a, seen_b] = seen;
    let [pod_a, pod_b] = found.pod_states.clone();
    let [volume_a, volume_b] = found.volumes.clone();
    let side = |pod, volume, seen: &Seen| Side {
        pod,
        volume,
        server: seen.server.clone(),
    };
    Observed {
        namespace: found.namespace.clone(),
        pair: found.name.clone(),
        finalizer: found.finalizer(),
        deletion: found.deletion,
        paused: found.paused(),
        desired: found.desired.clone(),
        record: pair::record(&found.name, &status),
        epoch: status.epoch,
        hint: found.hint,
        account_mark: credentials
            .zip(found.naming().as_ref())
            .map(|(c, naming)| accounts::mark(c, naming)),
        credentials_since,
        adrift_since: shared
            .adrift()
            .get(&found.pair.uid().unwrap_or_default())
            .copied(),
        sides: [side(pod_a, volume_a, seen_a), side(pod_b, volume_b, seen_b)],
        before: Before::of(&found.name, &status),
    }
}

fn track(shared: &Shared, found: &Found, following: bool, now: Timestamp) {
    let uid = found.pair.uid().unwrap_or_default();
    if following {
        shared.adrift().remove(&uid);
    } else {
        shared.adrift().entry(uid).or_insert(now);
    }
}

/// Services and the Pods' readiness follow the record.
async fn lead(client: &Client, found: &Found, observed: &Observed, now: Timestamp) -> Result<(), Error> {
    slices(client, found, observed).await?;
    let record = observed.record.as_ref();
    act::readiness::of_pair(client, names::MANAGER_PAIR, &found.pods, record, now).await?;
    Ok(())
}

/// The EndpointSlices follow the record and the Pods. The active one leads to a server that is not known to be closed.
async fn slices(client: &Client, found: &Found, observed: &Observed) -> Result<(), Error> {
    let record = observed.record.as_ref();
    let leads_to = |i: usize, open: bool| {
        let side = observed.side(i);
        let pod = side.pod.as_ref().filter(|p| p.ready && !p.deleting)?;
        if open && side.up().is_some_and(|s| !s.writable()) {
            return None;
        }
        let node = found.pods.get(i)?.as_ref()?.spec.as_ref()?.node_name.clone();
        Some(endpoint_slice::Target {
            pod: names::pod(&found.name, i),
            uid: pod.uid.clone(),
            ip: pod.ip.as_ref()?.parse().ok()?,
            node,
        })
    };
    let active = record.and_then(|r| leads_to(r.active, true));
    let passive = record.and_then(|r| leads_to(r.passive(), false));
    for (service, target) in [
        (names::active_service(&found.name), active),
        (names::passive_service(&found.name), passive),
    ] {
        let slice = endpoint_slice::endpoint_slice(&found.context, &service, target.as_ref());
        children::ensure(client, names::MANAGER_PAIR, &slice).await?;
    }
    Ok(())
}
