//! Publishes the shard map: the ConfigMap is created, or replaced when it is not what it should be, and only as it was seen.

use super::apply::{self, Error, call, describe};
use crate::{
    api::names::{MANAGER_CLUSTER, MAP_LABEL},
    core::{cluster::observed::MapSeen, shard_map::ShardMap},
    resources::shard_map::{
        CLUSTER_UID_ANNOTATION, MAP_VERSION_ANNOTATION, PublishedMap, SHARD_MAP_KEY, config_map,
    },
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt as _, api::PostParams};

/// A version above this one is no version that counting led to: somebody typed it.
const ABSURD: i64 = 1 << 52;

/// What a ConfigMap of the map's name is to the cluster called `cluster`.
pub fn seen(cluster: &str, live: Option<&ConfigMap>) -> MapSeen {
    let Some(live) = live else {
        return MapSeen::Absent;
    };
    let map = live
        .data
        .as_ref()
        .and_then(|d| d.get(SHARD_MAP_KEY))
        .and_then(|text| ShardMap::parse(text).ok());
    if let Some(other) = live.labels().get(MAP_LABEL).filter(|l| *l != cluster) {
        return MapSeen::Foreign {
            why: format!(
                "the ConfigMap {} has the map of ShardCluster {other}",
                live.name_any()
            ),
        };
    }
    let ours = live.labels().contains_key(MAP_LABEL)
        || live.annotations().contains_key(CLUSTER_UID_ANNOTATION)
        || map.as_ref().is_some_and(|m| m.cluster.name == cluster);
    if !ours {
        return MapSeen::Foreign {
            why: format!("the ConfigMap {} exists and is no shard map", live.name_any()),
        };
    }
    let annotated = live
        .annotations()
        .get(MAP_VERSION_ANNOTATION)
        .and_then(|v| v.parse::<i64>().ok());
    let version = annotated
        .into_iter()
        .chain(map.as_ref().map(|m| m.version))
        .filter(|v| (0..ABSURD).contains(v))
        .max()
        .unwrap_or(0);
    MapSeen::Ours {
        version,
        map: map.filter(|m| m.cluster.name == cluster).map(Box::new),
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Done {
    /// It was as it should be.
    Nothing,
    /// It was not there.
    Created,
    /// It said something else.
    Replaced,
}

/// Makes the ConfigMap called `name` say `map`. `live` is what was seen there; when somebody wrote in between, it fails with a conflict:
/// an operator that was paused does not put an old map over a new one.
///
/// # Errors
/// [`Error`].
pub async fn publish(
    client: &Client,
    name: &str,
    map: &ShardMap,
    live: Option<&ConfigMap>,
) -> Result<Done, Error> {
    let (ranges_json, shardmap_json) = (map.ranges_json(), map.shardmap_json());
    let mut desired = config_map(&PublishedMap {
        namespace: &map.cluster.namespace,
        name,
        cluster: &map.cluster.name,
        uid: &map.cluster.uid,
        version: map.version,
        ranges_json: &ranges_json,
        shardmap_json: &shardmap_json,
    });
    let api = Api::<ConfigMap>::namespaced(client.clone(), &map.cluster.namespace);
    let pp = PostParams {
        field_manager: Some(MANAGER_CLUSTER.to_owned()),
        ..PostParams::default()
    };
    let Some(live) = live else {
        call("create", describe(&desired), api.create(&pp, &desired)).await?;
        return Ok(Done::Created);
    };
    if says(live, &desired) {
        return Ok(Done::Nothing);
    }
    // What others added (labels of a GitOps tool) stays; the data is ours alone.
    let mut labels = live.labels().clone();
    labels.extend(desired.labels().clone());
    let mut annotations = live.annotations().clone();
    annotations.extend(desired.annotations().clone());
    desired.metadata.labels = Some(labels);
    desired.metadata.annotations = Some(annotations);
    desired
        .metadata
        .owner_references
        .clone_from(&live.metadata.owner_references);
    desired.metadata.finalizers.clone_from(&live.metadata.finalizers);
    desired.metadata.resource_version = live.resource_version();
    desired.metadata.uid = live.uid();
    if live.immutable == Some(true) {
        // Its content can't be changed any more: the watchers see one deletion, and the map at once again.
        apply::delete(client, live).await?;
        desired.metadata.resource_version = None;
        desired.metadata.uid = None;
        call("create", describe(&desired), api.create(&pp, &desired)).await?;
        return Ok(Done::Replaced);
    }
    call("replace", describe(&desired), api.replace(name, &pp, &desired)).await?;
    Ok(Done::Replaced)
}

/// Whether `live` says exactly what `desired` does, labels and annotations of others aside.
fn says(live: &ConfigMap, desired: &ConfigMap) -> bool {
    live.data == desired.data
        && live
            .binary_data
            .as_ref()
            .is_none_or(std::collections::BTreeMap::is_empty)
        && desired
            .labels()
            .iter()
            .all(|(k, v)| live.labels().get(k) == Some(v))
        && desired
            .annotations()
            .iter()
            .all(|(k, v)| live.annotations().get(k) == Some(v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::shard_map::{ClusterId, Databases, IdLayout, Routing, SCHEMA};

    fn map(cluster: &str, version: i64) -> ShardMap {
        ShardMap {
            schema: SCHEMA.into(),
            cluster: ClusterId {
                namespace: "ns".into(),
                name: cluster.into(),
                uid: "u".into(),
            },
            version,
            routing: Routing::ID {
                id_layout: IdLayout::OURS,
            },
            databases: Databases {
                prefix: "db".into(),
                digits: 5,
                total: 16,
            },
            types: vec![],
            entries: vec![],
        }
    }
    fn published(m: &ShardMap) -> ConfigMap {
        config_map(&PublishedMap {
            namespace: "ns",
            name: "c-shard-map",
            cluster: &m.cluster.name,
            uid: "u",
            version: m.version,
            ranges_json: &m.ranges_json(),
            shardmap_json: &m.shardmap_json(),
        })
    }

    #[test]
    fn a_published_map_is_read_back() {
        let m = map("c", 7);
        assert_eq!(
            seen("c", Some(&published(&m))),
            MapSeen::Ours {
                version: 7,
                map: Some(Box::new(m))
            }
        );
        assert_eq!(seen("c", None), MapSeen::Absent);
    }

    #[test]
    fn an_edited_map_keeps_the_highest_version_that_it_was_given() {
        let mut cm = published(&map("c", 7));
        cm.data
            .as_mut()
            .unwrap()
            .insert(SHARD_MAP_KEY.into(), "garbage".into());
        assert_eq!(
            seen("c", Some(&cm)),
            MapSeen::Ours {
                version: 7,
                map: None
            }
        );
        cm.metadata.annotations = None;
        assert_eq!(
            seen("c", Some(&cm)),
            MapSeen::Ours {
                version: 0,
                map: None
            }
        );
        let mut cm = published(&map("c", 7));
        cm.annotations_mut()
            .insert(MAP_VERSION_ANNOTATION.into(), i64::MAX.to_string());
        assert_eq!(seen("c", Some(&cm)).version(), 7);
    }

    #[test]
    fn what_is_somebody_elses_is_left_alone() {
        assert!(matches!(
            seen("c", Some(&published(&map("d", 7)))),
            MapSeen::Foreign { .. }
        ));
        let mut cm = published(&map("c", 7));
        cm.metadata.labels = None;
        cm.metadata.annotations = None;
        // The content still says whose it is.
        assert!(matches!(seen("c", Some(&cm)), MapSeen::Ours { .. }));
        cm.data = None;
        assert!(matches!(seen("c", Some(&cm)), MapSeen::Foreign { .. }));
    }

    #[test]
    fn labels_of_others_are_no_difference() {
        let desired = published(&map("c", 7));
        let mut live = desired.clone();
        live.labels_mut().insert("argocd".into(), "x".into());
        assert!(says(&live, &desired));
        live.data.as_mut().unwrap().insert("extra".into(), String::new());
        assert!(!says(&live, &desired));
    }
}
