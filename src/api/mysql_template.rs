//! How the servers of a pair are made: the template in ShardCluster, and the overrides in MySQLPair.

use super::schemas;
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When the kubelet pulls the image: Always (at every start of a Pod), IfNotPresent (when it is not on the node), Never. When absent,
/// Always for the tag `latest`, else IfNotPresent. A change rolls the servers.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum PullPolicy {
    /// At every start of a Pod.
    Always,
    /// When it is not on the node.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// The word that Kubernetes uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// The template of the servers of every pair of a cluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MysqlTemplate {
    /// Image of MySQL 8.4 or 9.x, the stock one or one like it. A change rolls the passive server first, then the active one.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// When the kubelet pulls the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Secrets of type `kubernetes.io/dockerconfigjson` to pull the image with. A change rolls the servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::object_refs")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub image_pull_secrets: Vec<super::LocalRef>,
    /// Lines for my.cnf, `key = value`, section `[mysqld]` only. Keys that the operator owns are refused (condition `Stalled`,
    /// reason `ConfigKeyNotAllowed`, which names the key). A change rolls the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub config: Option<String>,
    /// The volume of each server.
    pub storage: Storage,
    /// Compute resources of each server. A change rolls the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Where the Pods may run. The two servers of a pair are always kept on different nodes. A change rolls the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Labels added to the Pods; keys of `shardwright.dev/` and `app.kubernetes.io/` are the operator's and are refused.
    /// A change rolls the servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('shardwright.dev/') && !k.startsWith('app.kubernetes.io/'))").message("keys may not begin with `shardwright.dev/` or `app.kubernetes.io/`, those are the operator's"))]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations added to the Pods; keys of `shardwright.dev/` are refused. A change rolls the servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::annotations")]
    #[x_kube(validation = Rule::new("self.all(k, !k.startsWith('shardwright.dev/'))").message("keys may not begin with `shardwright.dev/`, those are the operator's"))]
    pub pod_annotations: BTreeMap<String, String>,
}

/// The volume of one server.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.className) == has(oldSelf.className)").message("`className` is immutable: it may not be added or removed").reason(Reason::FieldValueForbidden))]
pub struct Storage {
    /// Size, a Kubernetes quantity such as `10Gi`. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("`size` is immutable").reason(Reason::FieldValueForbidden))]
    #[schemars(schema_with = "schemas::quantity")]
    pub size: Quantity,
    /// StorageClass; the cluster's default when absent. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("`className` is immutable").reason(Reason::FieldValueForbidden))]
    pub class_name: Option<String>,
}

/// Where the Pods may run.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels that a node must have, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schemas::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are tolerated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// PriorityClass of the Pods; the one that is the default of the Kubernetes cluster when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// What one pair has otherwise than the template; a field that is absent is the template's.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MysqlOverrides {
    /// Image instead of the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Lines for my.cnf after the template's: a key that stands in both has this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub config: Option<String>,
    /// Resources instead of the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Scheduling instead of the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Volume instead of the template's. Immutable: it may be given only when the pair is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

impl MysqlTemplate {
    /// The template with one pair's overrides laid over it.
    #[must_use]
    pub fn with(&self, over: Option<&MysqlOverrides>) -> Self {
        let mut t = self.clone();
        let Some(o) = over else { return t };
        if let Some(image) = &o.image {
            t.image.clone_from(image);
        }
        if let Some(config) = &o.config {
            t.config = Some(match &t.config {
                Some(base) => format!("{}\n{config}", base.trim_end()),
                None => config.clone(),
            });
        }
        if o.resources.is_some() {
            t.resources.clone_from(&o.resources);
        }
        if o.scheduling.is_some() {
            t.scheduling.clone_from(&o.scheduling);
        }
        if let Some(storage) = &o.storage {
            t.storage = storage.clone();
        }
        t
    }
}
