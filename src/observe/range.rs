//! Reads what a pass over a ShardRange needs.

use super::{access, cluster};
use crate::{
    act::{
        apply::{self, Error},
        publish,
    },
    api::{MySQLPair, Placement, ShardCluster, ShardRange, ShardSpan, conditions, names},
    core::{
        claims,
        cluster::observed::{claim, facts},
        migration::{intent, wish::PairState},
        pair::states,
        placement,
        range::observed::{ClusterSeen, HeldBack, Observed, PairSeen},
        spans::SpanSet,
    },
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, ResourceExt as _, runtime::reflector::Store};
use std::collections::BTreeMap;

/// What is kept in memory, and wakes the controller when it changes.
#[derive(Clone)]
pub struct Stores {
    /// All clusters.
    pub clusters: Store<ShardCluster>,
    /// All pairs.
    pub pairs: Store<MySQLPair>,
    /// All ranges.
    pub ranges: Store<ShardRange>,
}

impl Stores {
    /// One cluster.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<ShardCluster> {
        let key = kube::runtime::reflector::ObjectRef::new(name).within(namespace);
        self.clusters.get(&key).map(|c| (*c).clone())
    }
    /// One pair.
    pub fn pair(&self, namespace: &str, name: &str) -> Option<MySQLPair> {
        let key = kube::runtime::reflector::ObjectRef::new(name).within(namespace);
        self.pairs.get(&key).map(|p| (*p).clone())
    }
}

/// What is known of `range` and of its `cluster`, which is what was in memory or what was read afresh. The published map is read only when
/// that is asked for.
///
/// # Errors
/// [`Error`].
pub async fn observe(
    client: &Client,
    stores: &Stores,
    range: &ShardRange,
    cluster: Option<&ShardCluster>,
    look_due: bool,
    with_map: bool,
) -> Result<Observed, Error> {
    let namespace = range.namespace().unwrap_or_default();
    let cluster = cluster.filter(|c| c.metadata.deletion_timestamp.is_none());
    let cluster_seen = match cluster {
        Some(c) => Some(cluster_seen(client, stores, range, c).await?),
        None => None,
    };
    let published = match cluster {
        Some(c) if with_map => Some(published(client, c).await?),
        _ => None,
    };
    Ok(Observed {
        published,
        name: range.name_any(),
        generation: range.metadata.generation,
        deleting: range.metadata.deletion_timestamp.is_some(),
        finalizer: range.finalizers().iter().any(|f| f == names::FINALIZER),
        spec: range.spec.clone(),
        before: range.status.clone().unwrap_or_default(),
        cluster: cluster_seen,
        pairs: stores
            .pairs
            .state()
            .iter()
            .filter(|p| p.namespace().as_deref() == Some(&namespace))
            .map(|p| (p.name_any(), pair_seen(p)))
            .collect(),
        look_due,
    })
}

/// The shards that the published map has where the record has them.
async fn published(client: &Client, c: &ShardCluster) -> Result<SpanSet, Error> {
    let (namespace, name) = (c.namespace().unwrap_or_default(), c.shard_map_name());
    let live = apply::get::<ConfigMap>(client, &namespace, &name).await?;
    let seen = publish::seen(&c.name_any(), live.as_ref());
    let record = c.status.as_ref().and_then(|s| s.placement.as_ref());
    let (Some(map), Some(record)) = (seen.content(), record) else {
        return Ok(SpanSet::new());
    };
    Ok(map
        .entries
        .iter()
        .map(|e| {
            let there = placement::shards(record, |s| s.pair == e.pair);
            SpanSet::of(ShardSpan::new(e.first, e.last)).intersect(&there)
        })
        .fold(SpanSet::new(), |a, b| a.union(&b)))
}

async fn cluster_seen(
    client: &Client,
    stores: &Stores,
    range: &ShardRange,
    c: &ShardCluster,
) -> Result<ClusterSeen, Error> {
    let (namespace, name) = (c.namespace().unwrap_or_default(), c.name_any());
    let ddl = cluster::config_map(client, &namespace, cluster::ddl_from(&c.spec)).await?;
    let status = c.status.clone().unwrap_or_default();
    let in_namespace = |n: Option<String>| n.as_deref() == Some(namespace.as_str());
    let pairs: BTreeMap<_, _> = stores
        .pairs
        .state()
        .iter()
        .filter(|p| in_namespace(p.namespace()))
        .map(|p| (p.name_any(), facts(p)))
        .collect();
    let mut claims_of_all: Vec<_> = stores
        .ranges
        .state()
        .iter()
        .filter(|r| {
            in_namespace(r.namespace()) && r.spec.cluster_ref.name == name && r.name_any() != range.name_any()
        })
        .map(|r| claim(r))
        .collect();
    claims_of_all.push(claim(range));
    let record = status.placement.clone().unwrap_or_default();
    let mut judged = claims::evaluate(c.spec.shards.total, &claims_of_all, &pairs, &name, &record);
    let held_back = held_back(stores, range, c, &claims_of_all, &record);
    Ok(ClusterSeen {
        record: status.placement,
        verdict: judged
            .verdicts
            .remove(&range.name_any())
            .unwrap_or(claims::Verdict::Deleting),
        ambiguous: judged.ambiguous,
        tables_hash: status.tables_hash,
        tables: cluster::tables(&c.spec, ddl.as_ref()),
        held_back,
    })
}

/// Why shards of the range that are wished elsewhere do not set out; asked only when there are some.
fn held_back(
    stores: &Stores,
    range: &ShardRange,
    c: &ShardCluster,
    ranges: &[claims::RangeClaim],
    record: &Placement,
) -> Option<HeldBack> {
    let (namespace, name) = (range.namespace(), c.name_any());
    let misplaced = intent::misplaced(record, &range.name_any(), &range.spec.pair_ref.name);
    if misplaced.is_empty() {
        return None;
    }
    let pairs: BTreeMap<_, _> = stores
        .pairs
        .state()
        .iter()
        .filter(|p| p.namespace() == namespace)
        .map(|p| (p.name_any(), PairState::of(p)))
        .collect();
    let policy = (&c.spec.migration).into();
    let plan = intent::now(record, c.spec.shards.total, ranges, &pairs, &name, policy);
    intent::waits(&plan, &misplaced).map(|why| HeldBack {
        why,
        refused: intent::refused(&plan, &misplaced),
    })
}

fn pair_seen(p: &MySQLPair) -> PairSeen {
    let (active, uuid) = access::recorded(p).unzip();
    PairSeen {
        trouble: trouble(p),
        active: active.or_else(|| p.status.as_ref().and_then(|s| s.active.clone())),
        uuid,
    }
}

/// What keeps the pair's recorded active server from taking writes. A passive server that is away keeps nobody from that.
fn trouble(p: &MySQLPair) -> Option<String> {
    let status = p.status.clone().unwrap_or_default();
    let said = || {
        status
            .conditions
            .iter()
            .find(|c| c.type_ == conditions::READY)
            .map_or_else(
                || "not looked at yet".to_owned(),
                |c| format!("{}: {}", c.reason, c.message),
            )
    };
    let Some((active, _)) = access::recorded(p) else {
        return Some(said());
    };
    match status.servers.iter().find(|s| s.name == active) {
        Some(s) if s.state == states::SERVING => None,
        _ => Some(said()),
    }
}

/// The range and its cluster, read afresh; `None` when the range is gone.
///
/// # Errors
/// [`Error`].
pub async fn afresh(
    client: &Client,
    range: &ShardRange,
) -> Result<Option<(ShardRange, Option<ShardCluster>)>, Error> {
    let (namespace, name) = (range.namespace().unwrap_or_default(), range.name_any());
    let (found, cluster) = futures::try_join!(
        apply::get::<ShardRange>(client, &namespace, &name),
        apply::get::<ShardCluster>(client, &namespace, &range.spec.cluster_ref.name),
    )?;
    Ok(found
        .filter(|f| f.metadata.uid == range.metadata.uid)
        .map(|f| (f, cluster)))
}
