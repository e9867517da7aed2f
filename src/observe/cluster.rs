//! Reads what a pass over a ShardCluster needs.

use crate::{
    act::{
        apply::{self, Error},
        publish,
    },
    api::{MySQLPair, ShardCluster, ShardClusterSpec, ShardRange, names},
    core::{
        cluster::observed::{Checked, Observed, PairSeen, RangeSeen, TablesSeen},
        tables,
    },
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, PersistentVolumeClaim},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams, runtime::reflector::Store};
use std::collections::{BTreeMap, BTreeSet};

/// What was read of a cluster.
pub struct Found {
    /// The cluster, read afresh: it is compared and swapped.
    pub cluster: ShardCluster,
    /// The map's ConfigMap, read afresh: it is replaced as it was seen.
    pub map: Option<ConfigMap>,
    /// All of it in our own words.
    pub observed: Observed,
}

/// Reads the cluster and its map afresh; pairs and ranges are in memory, and every change of them wakes the controller again. `None` when
/// there is no such cluster. The tables are read as not tried on a server yet.
///
/// # Errors
/// [`Error`].
pub async fn find(
    client: &Client,
    pairs: &Store<MySQLPair>,
    ranges: &Store<ShardRange>,
    seen: &ShardCluster,
) -> Result<Option<Found>, Error> {
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let (map_name, ddl_name) = (seen.shard_map_name(), ddl_from(&seen.spec));
    let (cluster, map, ddl) = futures::try_join!(
        apply::get::<ShardCluster>(client, &namespace, &name),
        apply::get::<ConfigMap>(client, &namespace, &map_name),
        config_map(client, &namespace, ddl_name),
    )?;
    let Some(cluster) = cluster else {
        return Ok(None);
    };
    // The names were taken from what was in memory: when they have changed since, the change wakes the controller again.
    let mut observed = Observed::new(&cluster);
    if observed.placement().is_none() {
        observed.volumes = volumes(client, &namespace, &name).await?;
    }
    observed.now = Timestamp::now().as_second();
    observed.map = publish::seen(
        &name,
        map.as_ref().filter(|_| cluster.shard_map_name() == map_name),
    );
    observed.tables = tables(&seen.spec, ddl.as_ref());
    observed.pairs = pairs_of(pairs, &namespace);
    observed.ranges = ranges
        .state()
        .iter()
        .filter(|r| r.namespace().as_deref() == Some(&namespace) && r.spec.cluster_ref.name == name)
        .map(|r| RangeSeen::from(&**r))
        .collect();
    observed.ranges.sort_by(|a, b| a.claim.name.cmp(&b.claim.name));
    Ok(Some(Found {
        cluster,
        map,
        observed,
    }))
}

/// The pairs that have volumes for a cluster: the claims outlive them.
async fn volumes(client: &Client, namespace: &str, cluster: &str) -> Result<BTreeSet<String>, Error> {
    let api = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let lp = ListParams::default().labels(&format!("{}={cluster}", names::CLUSTER_LABEL));
    let list = apply::call(
        "list",
        format!("PersistentVolumeClaim {namespace}"),
        api.list(&lp),
    )
    .await?;
    Ok(list
        .iter()
        .filter(|c| c.metadata.deletion_timestamp.is_none())
        .filter_map(|c| c.labels().get(names::PAIR_LABEL).cloned())
        .collect())
}

/// The pairs of a namespace, whatever cluster they name.
pub fn pairs_of(pairs: &Store<MySQLPair>, namespace: &str) -> BTreeMap<String, PairSeen> {
    pairs
        .state()
        .iter()
        .filter(|p| p.namespace().as_deref() == Some(namespace))
        .map(|p| (p.name_any(), PairSeen::from(&**p)))
        .collect()
}

/// Name of the ConfigMap of DDL.
pub fn ddl_from(spec: &ShardClusterSpec) -> Option<&str> {
    let from = spec.tables.as_ref()?.ddl_from.as_ref()?;
    Some(from.name.as_str())
}

/// A ConfigMap that may be named or not.
///
/// # Errors
/// [`Error`].
pub async fn config_map(
    client: &Client,
    namespace: &str,
    name: Option<&str>,
) -> Result<Option<ConfigMap>, Error> {
    match name {
        Some(name) => apply::get(client, namespace, name).await,
        None => Ok(None),
    }
}

/// The tables that the spec and the ConfigMap ask for. Those of the spec alone are our own statements and are good as they are; those of the
/// ConfigMap have to be tried on a server.
pub fn tables(spec: &ShardClusterSpec, ddl: Option<&ConfigMap>) -> TablesSeen {
    let name = ddl_from(spec);
    if let (Some(name), None) = (name, ddl) {
        return TablesSeen::ConfigMapMissing {
            name: name.to_owned(),
        };
    }
    let empty = BTreeMap::new();
    let data = ddl.map(|cm| cm.data.as_ref().unwrap_or(&empty));
    match tables::build(spec.tables.as_ref(), data) {
        Err(e) => TablesSeen::NotAdmitted(e),
        Ok(set) => TablesSeen::Set {
            checked: match name {
                None => Checked::Good,
                Some(_) => Checked::NotYet("the tables were not tried on a server yet".into()),
            },
            set,
        },
    }
}
