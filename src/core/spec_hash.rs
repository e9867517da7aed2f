//! The hash of what the user specified for a pair's Pods: only a change of it rolls them (rule O2).
//!
//! It is made from the specification, never from what the operator makes of it, so that a newer operator restarts nothing.

use super::{canonical_json, my_cnf::UserConfig, quantity};
use crate::api::mysql_template::MysqlTemplate;
use k8s_openapi::api::core::v1::ResourceRequirements;
use serde_json::{Value, json};

/// 32 hexadecimal digits that differ when something differs that a running Pod would have to be replaced for.
///
/// `template` is the cluster's with the pair's overrides laid over it, `config` its parsed `config`. The volume is not part
/// of it: it cannot change.
pub fn spec_hash(template: &MysqlTemplate, config: &UserConfig) -> String {
    let MysqlTemplate {
        image,
        image_pull_policy,
        image_pull_secrets,
        // Hashed as `config`, so that order, comments and ways of writing do not count.
        config: _,
        storage: _,
        resources,
        scheduling,
        pod_labels,
        pod_annotations,
    } = template;
    let mut parts = json!({
        "image": image,
        "imagePullPolicy": image_pull_policy.map(|p| p.as_str()),
        "imagePullSecrets": image_pull_secrets,
        "config": config.normalised(),
        "resources": resources.as_ref().map(by_value),
        "scheduling": scheduling,
        "podLabels": pod_labels,
        "podAnnotations": pod_annotations,
    });
    canonical_json::drop_empty(&mut parts);
    canonical_json::hash(&parts)
}

/// Requests and limits by value: `1Gi` and `1024Mi` are the same.
fn by_value(r: &ResourceRequirements) -> Value {
    let mut v = serde_json::to_value(r).unwrap_or_default();
    for part in ["limits", "requests"] {
        if let Some(Value::Object(map)) = v.get_mut(part) {
            for q in map.values_mut() {
                if let Some(n) = q.as_str().and_then(quantity::millis) {
                    *q = Value::String(format!("{n}m"));
                }
            }
        }
    }
    v
}
