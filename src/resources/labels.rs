//! Labels, owners and the metadata of children.

use crate::api::names::{CLUSTER_LABEL, MANAGED_BY, PAIR_LABEL};
use crate::api::{GROUP, VERSION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

fn labels(list: &[(&str, &str)]) -> Labels {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

/// Labels of everything that belongs to the cluster itself.
pub fn of_cluster(cluster: &str) -> Labels {
    labels(&[
        ("app.kubernetes.io/name", "shardwright"),
        ("app.kubernetes.io/instance", cluster),
        ("app.kubernetes.io/component", "cluster"),
        ("app.kubernetes.io/part-of", cluster),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
        (CLUSTER_LABEL, cluster),
    ])
}

/// Labels of everything that belongs to a pair.
pub fn of_pair(cluster: &str, pair: &str) -> Labels {
    labels(&[
        ("app.kubernetes.io/name", "mysql"),
        ("app.kubernetes.io/instance", pair),
        ("app.kubernetes.io/component", "pair"),
        ("app.kubernetes.io/part-of", cluster),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
        (CLUSTER_LABEL, cluster),
        (PAIR_LABEL, pair),
    ])
}

/// What the Pods of a pair are found by. It can never change, so it holds no more than it must.
pub fn pair_selector(pair: &str) -> Labels {
    labels(&[(PAIR_LABEL, pair)])
}

/// [`pair_selector`] as a LabelSelector.
pub fn pair_label_selector(pair: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some(pair_selector(pair)),
        ..LabelSelector::default()
    }
}

/// The object that its children go with: it is their controller, and its deletion waits for them where one asks for that.
pub fn owner(kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Metadata of a child; `owner` is `None` for what outlives everything.
pub fn metadata(namespace: &str, name: String, labels: Labels, owner: Option<OwnerReference>) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name),
        labels: Some(labels),
        owner_references: owner.map(|o| vec![o]),
        ..ObjectMeta::default()
    }
}
