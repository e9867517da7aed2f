//! Reads the objects that a plan is made of: manifests, and what is live.

use crate::{
    api::{GROUP, MySQLPair, ShardCluster, ShardRange, VERSION},
    cli::{Failure, source},
};
use anyhow::{Context as _, anyhow};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    path::{Path, PathBuf},
};

/// Objects of one namespace, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) clusters: BTreeMap<String, ShardCluster>,
    pub(super) ranges: BTreeMap<String, ShardRange>,
    pub(super) pairs: BTreeMap<String, MySQLPair>,
}

impl Objects {
    /// These with `manifests` laid over them: specs are replaced, the rest stays as it is.
    pub(super) fn with(&self, manifests: &Self) -> Result<Self, Failure> {
        let mut all = self.clone();
        let mut wrong = vec![];
        for (name, new) in &manifests.clusters {
            match all.clusters.get_mut(name) {
                Some(old) if old.spec.shards != new.spec.shards => {
                    wrong.push(format!("ShardCluster {name}: `shards` is immutable"));
                }
                Some(old) => old.spec = new.spec.clone(),
                None => drop(all.clusters.insert(name.clone(), new.clone())),
            }
        }
        for (name, new) in &manifests.ranges {
            match all.ranges.get_mut(name) {
                Some(old) if old.spec.cluster_ref != new.spec.cluster_ref => {
                    wrong.push(format!("ShardRange {name}: `clusterRef` is immutable"));
                }
                Some(old) => old.spec = new.spec.clone(),
                None => drop(all.ranges.insert(name.clone(), new.clone())),
            }
        }
        for (name, new) in &manifests.pairs {
            match all.pairs.get_mut(name) {
                Some(old) if old.spec.cluster_ref != new.spec.cluster_ref => {
                    wrong.push(format!("MySQLPair {name}: `clusterRef` is immutable"));
                }
                Some(old) => old.spec = new.spec.clone(),
                None => drop(all.pairs.insert(name.clone(), new.clone())),
            }
        }
        if wrong.is_empty() {
            Ok(all)
        } else {
            Err(Failure::BadInput(wrong))
        }
    }

    /// Puts one object in; what is wrong with it, else.
    fn insert(&mut self, document: Value) -> Result<(), String> {
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
        let ours = version == format!("{GROUP}/{VERSION}");
        let new = match kind.as_str() {
            "ShardCluster" if ours => put(&mut self.clusters, document)?,
            "ShardRange" if ours => put(&mut self.ranges, document)?,
            "MySQLPair" if ours => put(&mut self.pairs, document)?,
            _ if kind.is_empty() => return Err("it has no `kind`: not a manifest".to_owned()),
            _ => {
                return Err(format!(
                    "kind {kind} of {version} is not planned with: give ShardClusters, ShardRanges and MySQLPairs of {GROUP}/{VERSION} alone"
                ));
            }
        };
        if let Some(name) = new {
            return Err(format!("{kind} {name} is there twice"));
        }
        Ok(())
    }
}

/// Puts an object in; its name, when there is one of that name already.
fn put<K>(into: &mut BTreeMap<String, K>, document: Value) -> Result<Option<String>, String>
where
    K: Resource + DeserializeOwned,
{
    let name = document.pointer("/metadata/name").and_then(Value::as_str);
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
    let name = name
        .map(ToOwned::to_owned)
        .ok_or_else(|| format!("a {kind} without `metadata.name`"))?;
    let what = format!("{kind} {name}");
    let object = serde_json::from_value(document).map_err(|e| format!("{what}: {e}"))?;
    Ok(into.insert(name.clone(), object).map(|_| name))
}

/// The documents of a file, lists taken apart.
fn documents(path: &Path) -> Result<Vec<Value>, Failure> {
    let text = source::text(path)?;
    let bad = |e: &dyn std::fmt::Display| Failure::bad_input(format!("{}: {e}", path.display()));
    let all: Vec<Value> = if text.trim_start().starts_with('{') {
        let stream = serde_json::Deserializer::from_str(&text).into_iter();
        stream.collect::<Result<_, _>>().map_err(|e| bad(&e))?
    } else {
        serde_saphyr::from_multiple(&text).map_err(|e| bad(&e))?
    };
    let mut flat = vec![];
    for document in all.into_iter().filter(|d| !d.is_null()) {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => flat.extend(items.iter().cloned()),
            None => flat.push(document),
        }
    }
    Ok(flat)
}

fn namespaces<'a>(documents: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let of = |d: &Value| {
        d.pointer("/metadata/namespace")
            .and_then(Value::as_str)
            .map(ToOwned::to_owned)
    };
    documents.into_iter().filter_map(of).collect()
}

/// Reads the manifests, and which namespace they are for, as far as they or `--namespace` say it.
pub(super) fn manifests(
    files: &[PathBuf],
    namespace: Option<&str>,
) -> Result<(Objects, Option<String>), Failure> {
    let (mut objects, mut wrong, mut named) = (Objects::default(), vec![], BTreeSet::new());
    for file in files {
        let documents = documents(file)?;
        named.extend(namespaces(&documents));
        for (i, document) in documents.into_iter().enumerate() {
            if let Err(why) = objects.insert(document) {
                wrong.push(format!("{}: object {}: {why}", file.display(), i + 1));
            }
        }
    }
    for r in objects.ranges.values().filter(|r| r.spec.first > r.spec.last) {
        wrong.push(format!(
            "ShardRange {}: `first` must not be greater than `last`",
            r.name_any()
        ));
    }
    named.extend(namespace.map(ToOwned::to_owned));
    if named.len() > 1 {
        let all: Vec<_> = named.iter().map(String::as_str).collect();
        wrong.push(format!(
            "the namespaces {}: a plan is made for one at a time",
            all.join(" and ")
        ));
    }
    if wrong.is_empty() {
        Ok((objects, named.into_iter().next()))
    } else {
        Err(Failure::BadInput(wrong))
    }
}

/// The live objects of a file, and their namespace.
pub(super) fn from_file(path: &Path, namespace: Option<String>) -> Result<(Objects, String), Failure> {
    let documents = documents(path)?;
    let namespace = match (namespace, namespaces(&documents)) {
        (Some(namespace), _) => namespace,
        (None, named) if named.len() > 1 => {
            let all: Vec<_> = named.iter().map(String::as_str).collect();
            return Err(Failure::bad_input(format!(
                "{} has the namespaces {}: give --namespace",
                path.display(),
                all.join(" and ")
            )));
        }
        (None, named) => named.into_iter().next().unwrap_or_else(|| "default".to_owned()),
    };
    let (mut objects, mut wrong) = (Objects::default(), vec![]);
    for (i, document) in documents.into_iter().enumerate() {
        let elsewhere = document
            .pointer("/metadata/namespace")
            .is_some_and(|n| n.as_str() != Some(&namespace));
        if !elsewhere && let Err(why) = objects.insert(document) {
            wrong.push(format!("{}: object {}: {why}", path.display(), i + 1));
        }
    }
    if wrong.is_empty() {
        Ok((objects, namespace))
    } else {
        Err(Failure::BadInput(wrong))
    }
}

/// The live objects of a namespace of the cluster; of the context's, when none is given.
pub(super) fn from_cluster(namespace: Option<String>) -> Result<(Objects, String), Failure> {
    source::ask(async {
        let client = Client::try_default()
            .await
            .context("no access to a Kubernetes cluster")?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let (clusters, ranges, pairs) = futures::try_join!(
            list::<ShardCluster>(&client, &namespace),
            list::<ShardRange>(&client, &namespace),
            list::<MySQLPair>(&client, &namespace),
        )?;
        let objects = Objects {
            clusters,
            ranges,
            pairs,
        };
        Ok((objects, namespace))
    })
}

async fn list<K>(client: &Client, namespace: &str) -> Result<BTreeMap<String, K>, Failure>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let all = Api::<K>::namespaced(client.clone(), namespace)
        .list(&ListParams::default())
        .await
        .map_err(|e| anyhow!(e).context(format!("cannot list the {} of {namespace}", K::plural(&()))))?;
    Ok(all.items.into_iter().map(|o| (o.name_any(), o)).collect())
}
