//! What the API says of a pair.

use super::caches::Caches;
use crate::{
    act::apply::{self, Error},
    api::{
        MySQLPair, MySQLPairStatus, ShardCluster,
        mysql_pair::Reconciliation,
        mysql_template::{Durability, MysqlTemplate, Replacement, Storage},
        names,
    },
    core::{
        credentials::{Copy, Credentials},
        databases::Naming,
        my_cnf::UserConfig,
        pair::observed::{Deletion, Desired, Ordinal, PodState, Volume},
        pair::{
            self,
            moving::{self, Moving},
            reasons,
        },
        shard_map::{self, ShardMap},
    },
    resources::{PairContext, stateful_set},
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret},
    apimachinery::pkg::api::resource::Quantity,
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;

/// What the API says of a pair: everything but the servers.
#[derive(Debug)]
pub struct Found {
    /// The pair, read afresh.
    pub pair: MySQLPair,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its cluster, if that is there.
    pub cluster: Option<ShardCluster>,
    /// What the servers should be made of.
    pub desired: Desired,
    /// What children are made from; a placeholder of it where `desired` is not a specification.
    pub context: PairContext,
    /// Set when the pair is being deleted.
    pub deletion: Option<Deletion>,
    /// The Pods.
    pub pods: [Option<Pod>; 2],
    /// The same in our own words.
    pub pod_states: [Option<PodState>; 2],
    /// The claims, unless they are only remembered.
    pub claims: [Option<PersistentVolumeClaim>; 2],
    /// The same in our own words.
    pub volumes: [Volume; 2],
    /// The place that an earlier status, or the published map, calls active.
    pub hint: Option<Ordinal>,
}

impl Found {
    /// The status, empty when there is none yet.
    pub fn status(&self) -> MySQLPairStatus {
        self.pair.status.clone().unwrap_or_default()
    }
    /// Whether the operator keeps its hands off.
    pub fn paused(&self) -> bool {
        self.pair.spec.reconciliation == Reconciliation::Paused
    }
    /// Whether our finalizer is on the pair.
    pub fn finalizer(&self) -> bool {
        self.pair.finalizers().iter().any(|f| f == names::FINALIZER)
    }
    /// What the servers are made of, when that is known.
    pub fn template(&self) -> Option<&MysqlTemplate> {
        Some(&self.context.template).filter(|t| !t.image.is_empty())
    }
    /// How the databases are called.
    pub fn naming(&self) -> Option<Naming> {
        self.cluster.as_ref().map(|c| Naming::from(&c.spec.shards))
    }
    /// What moves of shards may ask of it, by the record of its cluster; `None` without one.
    pub fn moving(&self) -> Option<Moving> {
        let placement = self.cluster.as_ref()?.status.as_ref()?.placement.as_ref()?;
        Some(Moving::of(placement, &self.name))
    }
    /// What happens to the children.
    pub fn children(&self) -> pair::Children {
        pair::children(self.paused(), &self.desired, self.deletion, self.finalizer())
    }
}

/// Reads all of it but the pair itself, which was read just before.
///
/// # Errors
/// [`Error`].
pub async fn find(client: &Client, caches: &Caches, pair: MySQLPair, now: Timestamp) -> Result<Found, Error> {
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    let (namespace, name) = (namespace.as_str(), name.as_str());
    let pod = |i| apply_get::<Pod>(client, namespace, names::pod(name, i));
    let claim = |i| {
        apply_get::<PersistentVolumeClaim>(
            client,
            namespace,
            format!("{}-{}", stateful_set::CLAIM, names::pod(name, i)),
        )
    };
    let (cluster, pod_a, pod_b, claim_a, claim_b) = futures::try_join!(
        apply::get::<ShardCluster>(client, namespace, &pair.spec.cluster_ref.name),
        pod(0),
        pod(1),
        claim(0),
        claim(1),
    )?;
    let (desired, context) = desired(&pair, cluster.as_ref());
    let deletion = match pair.metadata.deletion_timestamp {
        None => None,
        Some(_) => Some(Deletion {
            holds_shards: holds_shards(client, namespace, name, cluster.as_ref()).await?,
        }),
    };
    let status = pair.status.clone().unwrap_or_default();
    let hint = match (pair::record(name, &status), pair::hint(name, &status), &cluster) {
        (None, Some(hint), _) => Some(hint),
        (None, None, Some(cluster)) => map_hint(client, namespace, name, cluster).await?,
        // Needed only where there is no record.
        _ => None,
    };
    let (pods, claims) = ([pod_a, pod_b], [claim_a, claim_b]);
    Ok(Found {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        desired,
        context,
        deletion,
        pod_states: caches.pod_states(&pods, now),
        pods,
        volumes: claims.each_ref().map(|c| pair::volume(c.as_ref())),
        claims,
        hint,
        cluster,
        pair,
    })
}

/// The same of a pair that has a record and is not being deleted, from what watches have told, without a call: what is urgent is decided
/// upon it. `None` when the watches have not seen everything yet.
pub fn recall(caches: &Caches, pair: MySQLPair, volumes: [Volume; 2], now: Timestamp) -> Option<Found> {
    let (namespace, name) = (pair.namespace()?, pair.name_any());
    pair::record(&name, &pair.status.clone().unwrap_or_default())?;
    if pair.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let cluster = caches.cluster(&namespace, &pair.spec.cluster_ref.name)?;
    let pods = names::ORDINALS.map(|i| caches.pod(&namespace, &names::pod(&name, i)));
    let (desired, context) = desired(&pair, Some(&cluster));
    Some(Found {
        namespace,
        name,
        desired,
        context,
        deletion: None,
        pod_states: caches.pod_states(&pods, now),
        pods,
        claims: [None, None],
        volumes,
        hint: None,
        cluster: Some(cluster),
        pair,
    })
}

async fn apply_get<K: apply::Object>(
    client: &Client,
    namespace: &str,
    name: String,
) -> Result<Option<K>, Error> {
    apply::get(client, namespace, &name).await
}

/// What the servers should be made of.
fn desired(pair: &MySQLPair, cluster: Option<&ShardCluster>) -> (Desired, PairContext) {
    let name = pair.name_any();
    let owner = &pair.spec.cluster_ref.name;
    let Some(cluster) = cluster else {
        let missing = Desired::ClusterMissing {
            cluster: owner.clone(),
        };
        return (missing, placeholder(pair));
    };
    if name.len() > names::MAX_PAIR_NAME || owner.len() > names::MAX_CLUSTER_NAME {
        let refused = Desired::Refused {
            reason: reasons::INVALID_NAME,
            message: format!(
                "a pair's name may have {} characters, a cluster's {}: names of Pods, Services and Secrets are made from them",
                names::MAX_PAIR_NAME,
                names::MAX_CLUSTER_NAME
            ),
        };
        return (refused, placeholder(pair));
    }
    match PairContext::new(pair, cluster) {
        Ok(context) => {
            let hash = context.spec_hash();
            (Desired::Spec { hash }, context)
        }
        Err(e) => {
            let refused = Desired::Refused {
                reason: reasons::CONFIG_KEY_NOT_ALLOWED,
                message: e.to_string(),
            };
            (refused, placeholder(pair))
        }
    }
}

/// Enough for children that say nothing of the servers, such as EndpointSlices.
fn placeholder(pair: &MySQLPair) -> PairContext {
    PairContext {
        namespace: pair.namespace().unwrap_or_default(),
        pair: pair.name_any(),
        uid: pair.uid().unwrap_or_default(),
        cluster: pair.spec.cluster_ref.name.clone(),
        template: MysqlTemplate {
            image: String::new(),
            image_pull_policy: None,
            image_pull_secrets: vec![],
            config: None,
            storage: Storage {
                size: Quantity::default(),
                class_name: None,
            },
            durability: Durability::default(),
            acknowledgement_timeout_seconds: None,
            replacement: Replacement::default(),
            resources: None,
            scheduling: None,
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
        },
        config: UserConfig::default(),
    }
}

/// A pair waits with its deletion while the record of a live cluster names it, as the home of shards or as the end of a move, in a namespace that
/// stays.
async fn holds_shards(
    client: &Client,
    namespace: &str,
    name: &str,
    cluster: Option<&ShardCluster>,
) -> Result<bool, Error> {
    let Some(cluster) = cluster.filter(|c| c.metadata.deletion_timestamp.is_none()) else {
        return Ok(false);
    };
    let placement = cluster.status.as_ref().and_then(|s| s.placement.as_ref());
    if !placement.is_some_and(|p| moving::holds(p, name)) {
        return Ok(false);
    }
    let api = Api::<Namespace>::all(client.clone());
    let ns = apply::call("get", format!("Namespace {namespace}"), api.get_opt(namespace)).await?;
    Ok(ns.is_some_and(|ns| ns.metadata.deletion_timestamp.is_none()))
}

/// The place that the published map calls active.
async fn map_hint(
    client: &Client,
    namespace: &str,
    name: &str,
    cluster: &ShardCluster,
) -> Result<Option<Ordinal>, Error> {
    let map = apply::get::<ConfigMap>(client, namespace, &cluster.shard_map_name()).await?;
    let text = map
        .and_then(|m| m.data)
        .and_then(|mut d| d.remove(shard_map::SHARDMAP_KEY))
        .unwrap_or_default();
    let Ok(map) = ShardMap::parse(&text) else {
        return Ok(None);
    };
    let entry = map.entries.iter().find(|e| e.pair == name);
    Ok(entry.and_then(|e| {
        names::ORDINALS
            .into_iter()
            .find(|i| names::host(namespace, name, *i) == e.active.host)
    }))
}

/// One copy of the credentials, and when it was last written.
#[derive(Clone)]
pub struct FoundCopy {
    /// What is in it.
    pub copy: Copy,
    /// When it was last written by anyone.
    pub since: Option<Timestamp>,
}

/// Reads the Secret called `name`.
///
/// # Errors
/// [`Error`].
pub async fn credentials(client: &Client, namespace: &str, name: &str) -> Result<FoundCopy, Error> {
    let secret = apply::get::<Secret>(client, namespace, name).await?;
    Ok(FoundCopy {
        since: secret.as_ref().and_then(written),
        copy: secret
            .map(|s| Credentials::from_data(name, &s.data.unwrap_or_default()))
            .transpose(),
    })
}

fn written(secret: &Secret) -> Option<Timestamp> {
    let fields = secret.metadata.managed_fields.iter().flatten();
    fields
        .filter_map(|f| f.time.as_ref())
        .chain(&secret.metadata.creation_timestamp)
        .map(|t| t.0)
        .max()
}
