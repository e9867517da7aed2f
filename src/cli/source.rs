//! Where a shard map is read from: a file, or the cluster.

use super::Failure;
use crate::{
    api::{ShardCluster, names},
    core::shard_map::{SHARDMAP_KEY, ShardMap},
};
use anyhow::{Context as _, anyhow};
use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use std::{io::Read as _, path::Path, time::Duration};

/// How long the cluster may take to answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// Which map of the Kubernetes cluster.
#[derive(Args, Debug)]
pub(super) struct ClusterArgs {
    /// Name of the ShardCluster whose published map is read.
    #[arg(long)]
    pub(super) cluster: Option<String>,
    /// Namespace of the ShardCluster; the one of the current context when absent.
    #[arg(short, long, requires = "cluster")]
    pub(super) namespace: Option<String>,
}

/// The text of a file (`-` is standard input).
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?)
}

/// Reads the map of a file (`-` is standard input).
pub(super) fn from_file(path: &Path) -> Result<ShardMap, Failure> {
    ShardMap::parse(&text(path)?).map_err(|e| Failure::bad_input(format!("{}: {e}", path.display())))
}

/// Asks the cluster something, which has to answer in time.
pub(super) fn ask<T>(question: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(async { tokio::time::timeout(DEADLINE, question).await });
    answer.map_err(|_| anyhow!("the cluster did not answer within {} seconds", DEADLINE.as_secs()))?
}

/// Reads the map that a cluster publishes.
pub(super) fn from_cluster(namespace: Option<&str>, cluster: &str) -> Result<ShardMap, Failure> {
    ask(fetch(namespace, cluster))
}

async fn fetch(namespace: Option<&str>, cluster: &str) -> Result<ShardMap, Failure> {
    let client = Client::try_default()
        .await
        .context("no access to a Kubernetes cluster")?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace()).to_owned();
    let clusters = Api::<ShardCluster>::namespaced(client.clone(), &namespace);
    let name = match clusters.get(cluster).await {
        Ok(found) => found.shard_map_name(),
        // The map outlives its cluster, and services may be allowed to read the ConfigMap alone.
        Err(kube::Error::Api(s)) if s.is_not_found() || s.is_forbidden() => names::shard_map(cluster),
        Err(error) => return Err(anyhow!(error).context("cannot read the ShardCluster").into()),
    };
    let maps = Api::<ConfigMap>::namespaced(client, &namespace);
    let map = maps
        .get_opt(&name)
        .await
        .with_context(|| format!("cannot read ConfigMap {namespace}/{name}"))?;
    let map = map.with_context(|| {
        format!("there is no ConfigMap {namespace}/{name}: no ShardCluster `{cluster}` there has published a map yet")
    })?;
    let text = map.data.as_ref().and_then(|d| d.get(SHARDMAP_KEY));
    let text = text.with_context(|| format!("ConfigMap {namespace}/{name} has no key {SHARDMAP_KEY}"))?;
    let map = ShardMap::parse(text).with_context(|| format!("ConfigMap {namespace}/{name}"))?;
    if map.cluster.name != cluster || map.cluster.namespace != namespace {
        let other = format!("{}/{}", map.cluster.namespace, map.cluster.name);
        return Err(anyhow!("ConfigMap {namespace}/{name} has the map of {other}").into());
    }
    Ok(map)
}
