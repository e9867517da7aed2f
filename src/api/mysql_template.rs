//! How the servers of a pair are made: the template in ShardCluster, and the overrides in MySQLPair.

use super::schemas;
use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

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

/// What is given up when only one server is left. Strict: a commit is acknowledged only when every server in `status.inSync` has it,
/// however long that takes. Available: after `acknowledgementTimeoutSeconds` without an answer of the passive server, the active one
/// acknowledges alone; what it acknowledges so may be lost with it, and the condition `Durable` says so. No server is restarted for a change.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum Durability {
    /// Nothing that was acknowledged is ever on one server only, unless the record says that there is only one.
    #[default]
    Strict,
    /// The active server goes on alone after a while.
    Available,
}

/// Who replaces a passive server whose node or volume is gone. Automatic: the operator. Manual: a person, as the condition says.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum ReplacementMode {
    /// The operator, after `afterSeconds`.
    #[default]
    Automatic,
    /// A person, by deleting the claim and the Pod.
    Manual,
}

/// When a passive server that is gone for good gets a new volume. The active server, and a passive one that is a member of `inSync`, are
/// never replaced. The old volume is kept (its reclaim policy becomes `Retain`).
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// Who does it.
    #[serde(default)]
    pub mode: ReplacementMode,
    /// How long it is away, in seconds, with its node not Ready or not there for as long, or its volume lost, before it is replaced on
    /// another node. Has no effect in mode Manual.
    #[serde(default = "replacement_after")]
    #[schemars(range(min = 60, max = 604_800))]
    pub after_seconds: i32,
}

impl Default for Replacement {
    fn default() -> Self {
        Self {
            mode: ReplacementMode::default(),
            after_seconds: replacement_after(),
        }
    }
}

/// Long enough for a node to be restarted or mended.
fn replacement_after() -> i32 {
    1800
}

/// How long the active server of a pair with durability Available waits for an acknowledgement when nobody says, in seconds.
pub const ACKNOWLEDGEMENT_TIMEOUT_SECONDS: i32 = 10;

/// The template of the servers of every pair of a cluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.acknowledgementTimeoutSeconds) || self.durability == 'Available'").message("`acknowledgementTimeoutSeconds` may not be set with durability Strict: it waits without end").field_path(".acknowledgementTimeoutSeconds"))]
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
    /// What is given up when only one server is left. Strict: a commit is acknowledged only when every server in a pair's `status.inSync` has
    /// it, however long that takes. Available: after `acknowledgementTimeoutSeconds` without an answer of the passive server, the active one
    /// acknowledges alone; what it acknowledges so may be lost with it, and the condition `Durable` says so. No server is restarted for a change.
    #[serde(default)]
    pub durability: Durability,
    /// With durability Available: how long a commit waits for the passive server's acknowledgement before the active one goes on
    /// alone, in seconds; 10 when absent. No server is restarted for a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub acknowledgement_timeout_seconds: Option<i32>,
    /// When a passive server that is gone for good gets a new volume. The active server, and a passive one that is a member of a pair's
    /// `status.inSync`, are never replaced. The old volume is kept: its reclaim policy becomes `Retain`.
    #[serde(default)]
    pub replacement: Replacement,
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
    /// Size, a Kubernetes quantity such as `10Gi`. It may grow, where the StorageClass allows it (`allowVolumeExpansion`); where it does not,
    /// the condition `StorageAsSpecified` says so. It may not shrink.
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0").message("`size` may not shrink").reason(Reason::FieldValueForbidden))]
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
#[x_kube(validation = Rule::new("!has(self.acknowledgementTimeoutSeconds) || !has(self.durability) || self.durability == 'Available'").message("`acknowledgementTimeoutSeconds` may not be set with durability Strict: it waits without end").field_path(".acknowledgementTimeoutSeconds"))]
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
    /// Volume instead of the template's. It may be given only when the pair is made; its size may grow later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Durability instead of the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Timeout instead of the template's, in seconds; has no effect on a pair whose durability is Strict by the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub acknowledgement_timeout_seconds: Option<i32>,
    /// Replacement instead of the template's, as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
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
        t.durability = o.durability.unwrap_or(t.durability);
        t.acknowledgement_timeout_seconds = o
            .acknowledgement_timeout_seconds
            .or(t.acknowledgement_timeout_seconds);
        if let Some(replacement) = &o.replacement {
            t.replacement = replacement.clone();
        }
        t
    }

    /// How long a commit waits for an acknowledgement before the active server goes on alone; `None`: without end.
    pub fn acknowledgement_timeout(&self) -> Option<Duration> {
        let seconds = self
            .acknowledgement_timeout_seconds
            .unwrap_or(ACKNOWLEDGEMENT_TIMEOUT_SECONDS);
        match self.durability {
            Durability::Strict => None,
            Durability::Available => Some(Duration::from_secs(seconds.unsigned_abs().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(more: &serde_json::Value) -> MysqlTemplate {
        let mut all = json!({ "image": "mysql:9.7", "storage": { "size": "1Gi" } });
        let more = more.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(more);
        serde_json::from_value(all).unwrap()
    }
    fn over(it: serde_json::Value) -> MysqlOverrides {
        serde_json::from_value(it).unwrap()
    }

    #[test]
    fn strict_waits_without_end_and_available_for_its_seconds() {
        let timeout = |t: &MysqlTemplate| t.acknowledgement_timeout().map(|d| d.as_secs());
        let strict = template(&json!({}));
        assert_eq!(timeout(&strict), None);
        let available = template(&json!({ "durability": "Available", "acknowledgementTimeoutSeconds": 3 }));
        assert_eq!(timeout(&available), Some(3));
        for (base, pair, expected) in [
            (&strict, json!({ "durability": "Available" }), Some(10)),
            (&strict, json!({ "acknowledgementTimeoutSeconds": 5 }), None),
            (&available, json!({ "acknowledgementTimeoutSeconds": 5 }), Some(5)),
            (&available, json!({ "durability": "Strict" }), None),
            (&available, json!({}), Some(3)),
        ] {
            assert_eq!(timeout(&base.with(Some(&over(pair.clone())))), expected, "{pair}");
        }
    }

    #[test]
    fn replacement_is_overridden_as_a_whole() {
        let t = template(&json!({ "replacement": { "afterSeconds": 60 } }));
        assert_eq!(
            (t.replacement.mode, t.replacement.after_seconds),
            (ReplacementMode::Automatic, 60)
        );
        let t = t.with(Some(&over(json!({ "replacement": { "mode": "Manual" } }))));
        assert_eq!(
            (t.replacement.mode, t.replacement.after_seconds),
            (ReplacementMode::Manual, 1800)
        );
    }
}
