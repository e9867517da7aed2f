//! Fills the registry: ShardClusters give the record, labelled ConfigMaps the map.

use super::{Key, Maps, Published};
use crate::{
    api::{ShardCluster, names},
    core::shard_map::ShardMap,
    deadline,
};
use futures::{Stream, StreamExt, future, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Follows the maps of `namespaces` (all, when empty) for as long as the process runs. `synced` is called once for each of the
/// watches when it has seen everything that there was at the start.
pub async fn follow(client: Client, namespaces: Vec<String>, maps: Arc<Maps>, synced: impl Fn() + Clone) {
    let scopes: Vec<Option<String>> = if namespaces.is_empty() {
        vec![None]
    } else {
        namespaces.into_iter().map(Some).collect()
    };
    let watches = scopes.into_iter().map(|scope| {
        let (client, maps, synced) = (client.clone(), Arc::clone(&maps), synced.clone());
        async move { follow_one(client, scope, &maps, synced).await }
    });
    future::join_all(watches).await;
}

/// Between two questions whether the API server is there, and for its answer.
const TOUCH: Duration = Duration::from_millis(500);
const TOUCH_ANSWER: Duration = Duration::from_secs(1);
/// Without an answer for so long a replica is out of touch. A watch does not tell: a server that is cut off from this process sends
/// nothing, and so does one that has nothing to tell.
const OUT_OF_TOUCH: Duration = Duration::from_millis(1500);

/// Asks the API server again and again whether it is there, for as long as the process runs.
pub async fn keep_in_touch(client: Client, maps: Arc<Maps>) {
    let mut heard = Instant::now();
    loop {
        if let Ok(Ok(_)) = deadline::within(TOUCH_ANSWER, client.apiserver_version()).await {
            heard = Instant::now();
        }
        maps.in_touch(heard.elapsed() < OUT_OF_TOUCH);
        tokio::time::sleep(TOUCH).await;
    }
}

/// How many times `follow` calls `synced` for that many namespaces.
pub fn watches(namespaces: usize) -> usize {
    2 * namespaces.max(1)
}

async fn follow_one(client: Client, namespace: Option<String>, maps: &Maps, synced: impl Fn() + Clone) {
    let (clusters, config_maps) = match &namespace {
        Some(ns) => (
            Api::<ShardCluster>::namespaced(client.clone(), ns),
            Api::<ConfigMap>::namespaced(client, ns),
        ),
        None => (
            Api::<ShardCluster>::all(client.clone()),
            Api::<ConfigMap>::all(client),
        ),
    };
    let clusters = watcher(clusters, watcher::Config::default()).default_backoff();
    let labelled = watcher::Config::default().labels(names::MAP_LABEL);
    let config_maps = watcher(config_maps, labelled).default_backoff();
    let read = {
        let synced = synced.clone();
        move || {
            maps.records_read();
            synced();
        }
    };
    let records = drain(clusters, read, |cluster, gone| {
        saw_cluster(maps, &cluster, gone);
    });
    let published = drain(config_maps, synced, |map, gone| {
        // A deleted one is made again by the leader; until then the last one is served.
        if !gone {
            saw_config_map(maps, &map);
        }
    });
    future::join(records, published).await;
}

async fn drain<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    synced: impl Fn(),
    mut see: impl FnMut(K, bool),
) {
    pin_mut!(events);
    let mut first = true;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(k) | watcher::Event::InitApply(k)) => see(k, false),
            Ok(watcher::Event::Delete(k)) => see(k, true),
            Ok(watcher::Event::Init) => {}
            Ok(watcher::Event::InitDone) => {
                if std::mem::take(&mut first) {
                    synced();
                }
            }
            Err(error) => tracing::debug!(%error, "watch of the shard maps"),
        }
    }
}

fn saw_cluster(maps: &Maps, cluster: &ShardCluster, gone: bool) {
    let key = Key {
        namespace: cluster.namespace().unwrap_or_default(),
        cluster: cluster.name_any(),
    };
    let placement = cluster.status.as_ref().and_then(|s| s.placement.as_ref());
    let record = placement
        .filter(|p| !gone && p.map_version > 0)
        .map(|p| (p.map_version, p.map_hash.clone()));
    maps.saw_record(&key, record);
}

fn saw_config_map(maps: &Maps, config_map: &ConfigMap) {
    let Some(cluster) = config_map.labels().get(names::MAP_LABEL) else {
        return;
    };
    let key = Key {
        namespace: config_map.namespace().unwrap_or_default(),
        cluster: cluster.clone(),
    };
    let body = config_map.data.as_ref().and_then(|d| d.get("shardmap.json"));
    let parsed = body.and_then(|b| ShardMap::parse(b).ok().map(|m| (m, b)));
    let Some((map, body)) = parsed else {
        tracing::debug!(
            namespace = key.namespace,
            cluster = key.cluster,
            "a ConfigMap labelled as shard map holds none"
        );
        return;
    };
    maps.saw_map(
        &key,
        Published {
            version: map.version,
            hash: map.content_hash(),
            body: body.clone(),
        },
    );
}
