//! The ConfigMap that a shard map is published in.

use super::labels;
use crate::api::names::MAP_LABEL;
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;

/// Annotation: UID of the ShardCluster that the map is of.
pub const CLUSTER_UID_ANNOTATION: &str = "shardwright.dev/cluster-uid";
/// Annotation: version of the map.
pub const MAP_VERSION_ANNOTATION: &str = "shardwright.dev/map-version";
/// Key of the plain form.
pub const RANGES_KEY: &str = "ranges.json";
/// Key of the full form.
pub const SHARD_MAP_KEY: &str = "shardmap.json";

/// A map to be published.
#[derive(Clone, Copy, Debug)]
pub struct PublishedMap<'a> {
    /// Namespace of the cluster.
    pub namespace: &'a str,
    /// Name of the ConfigMap.
    pub name: &'a str,
    /// Name of the ShardCluster.
    pub cluster: &'a str,
    /// UID of the ShardCluster.
    pub uid: &'a str,
    /// Version of the map.
    pub version: i64,
    /// The plain form.
    pub ranges_json: &'a str,
    /// The full form.
    pub shardmap_json: &'a str,
}

/// The ConfigMap. Nothing owns it: when the cluster is deleted the map goes on saying where the data is, and is asked when it
/// is made again.
pub fn config_map(map: &PublishedMap<'_>) -> ConfigMap {
    let mut labels = labels::of_cluster(map.cluster);
    labels.insert(MAP_LABEL.to_owned(), map.cluster.to_owned());
    let mut metadata = labels::metadata(map.namespace, map.name.to_owned(), labels, None);
    metadata.annotations = Some(BTreeMap::from([
        (CLUSTER_UID_ANNOTATION.to_owned(), map.uid.to_owned()),
        (MAP_VERSION_ANNOTATION.to_owned(), map.version.to_string()),
    ]));
    ConfigMap {
        metadata,
        data: Some(BTreeMap::from([
            (RANGES_KEY.to_owned(), map.ranges_json.to_owned()),
            (SHARD_MAP_KEY.to_owned(), map.shardmap_json.to_owned()),
        ])),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map() {
        insta::assert_yaml_snapshot!(config_map(&PublishedMap {
            namespace: "shop",
            name: "main-shard-map",
            cluster: "main",
            uid: "c-uid",
            version: 7,
            ranges_json: "[]",
            shardmap_json: "{}",
        }));
    }
}
