//! The hash of what the user specified for a pair's Pods: only a change of it rolls them (rule O2).
//!
//! It is made from the specification, never from what the operator makes of it, so that a newer operator restarts nothing.

use super::{canonical_json, my_cnf::UserConfig, quantity};
use crate::api::mysql_template::{MysqlTemplate, PullPolicy};
use k8s_openapi::api::core::v1::ResourceRequirements;
use serde_json::{Value, json};

/// 32 hexadecimal digits that differ when something differs that a running Pod would have to be replaced for.
///
/// `template` is the cluster's with the pair's overrides laid over it, `config` its parsed `config`. The volume is not part
/// of it: it grows under the running server. Nor is what the operator sets in the running server.
pub fn spec_hash(template: &MysqlTemplate, config: &UserConfig) -> String {
    let MysqlTemplate {
        image,
        image_pull_policy,
        image_pull_secrets,
        // Hashed as `config`, so that order, comments and ways of writing do not count.
        config: _,
        storage: _,
        durability: _,
        acknowledgement_timeout_seconds: _,
        replacement: _,
        resources,
        scheduling,
        pod_labels,
        pod_annotations,
    } = template;
    let mut parts = json!({
        "image": image,
        "imagePullPolicy": image_pull_policy.map(PullPolicy::as_str),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::LocalRef;
    use crate::api::mysql_template::{Durability, ReplacementMode, Scheduling};
    use k8s_openapi::api::core::v1::Toleration;

    fn template() -> MysqlTemplate {
        serde_json::from_value(json!({
            "image": "mysql:9.7",
            "imagePullPolicy": "IfNotPresent",
            "imagePullSecrets": [{"name": "registry"}],
            "config": "max_connections = 200\nsort_buffer_size = 1M\n",
            "storage": {"size": "10Gi"},
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "scheduling": {"nodeSelector": {"disk": "ssd"}},
            "podLabels": {"team": "shop"},
            "podAnnotations": {"note": "x"},
        }))
        .unwrap()
    }
    fn hash(t: &MysqlTemplate) -> String {
        let config = UserConfig::parse(t.config.as_deref().unwrap_or_default()).unwrap();
        spec_hash(t, &config)
    }
    fn changed(change: impl FnOnce(&mut MysqlTemplate)) -> bool {
        let mut t = template();
        change(&mut t);
        hash(&t) != hash(&template())
    }

    /// When this fails, the code as it is now would restart the servers of every fleet on an upgrade of the operator. Change
    /// the code, not the number.
    #[test]
    fn the_hash_is_pinned() {
        assert_eq!(hash(&template()), "486fe69637eddae2096a8147374a5b0e");
        let least: MysqlTemplate =
            serde_json::from_value(json!({"image": "mysql:9.7", "storage": {"size": "1Gi"}})).unwrap();
        assert_eq!(hash(&least), "21b3acbb95735a3b08745bcafd85a3d5");
    }

    #[test]
    fn what_a_running_pod_would_not_notice_does_not_count() {
        assert!(!changed(|t| t.storage.size.0 = "10240Mi".into()));
        assert!(!changed(|t| t.storage.size.0 = "20Gi".into()));
        assert!(!changed(|t| t.storage.class_name = Some("fast".into())));
        assert!(!changed(|t| t.durability = Durability::Available));
        assert!(!changed(|t| t.acknowledgement_timeout_seconds = Some(3)));
        assert!(!changed(|t| t.replacement.mode = ReplacementMode::Manual));
        assert!(!changed(|t| t.replacement.after_seconds = 60));
        assert!(!changed(|t| {
            t.config =
                Some("# tuned\n[mysqld]\nSORT-BUFFER-SIZE=1M\nmax_connections=1\nmax_connections=200".into());
        }));
        assert!(!changed(|t| {
            let memory = t
                .resources
                .as_mut()
                .unwrap()
                .limits
                .as_mut()
                .unwrap()
                .get_mut("memory");
            memory.unwrap().0 = "1024Mi".into();
        }));
        assert!(!changed(|t| t.resources.as_mut().unwrap().claims = Some(vec![])));
    }

    #[test]
    fn nothing_and_empty_are_the_same() {
        let mut a = template();
        (a.config, a.resources, a.scheduling) = (None, None, None);
        let mut b = a.clone();
        b.config = Some("# nothing\n".into());
        b.resources = Some(ResourceRequirements::default());
        b.scheduling = Some(Scheduling::default());
        assert_eq!(hash(&a), hash(&b));
    }

    #[test]
    fn everything_else_counts() {
        type Case = (&'static str, fn(&mut MysqlTemplate));
        let cases: [Case; 10] = [
            ("image", |t| t.image = "mysql:9.8".into()),
            ("pull policy", |t| t.image_pull_policy = Some(PullPolicy::Always)),
            ("no pull policy", |t| t.image_pull_policy = None),
            ("pull secrets", |t| {
                t.image_pull_secrets = vec![LocalRef::new("other")];
            }),
            ("config", |t| {
                t.config = Some("max_connections = 201\nsort_buffer_size = 1M".into());
            }),
            ("loose", |t| {
                t.config = Some("loose_max_connections = 200\nsort_buffer_size = 1M".into());
            }),
            ("resources", |t| t.resources.as_mut().unwrap().limits = None),
            ("tolerations", |t| {
                t.scheduling.as_mut().unwrap().tolerations = vec![Toleration {
                    key: Some("db".into()),
                    ..Toleration::default()
                }];
            }),
            ("labels", |t| t.pod_labels.clear()),
            ("annotations", |t| {
                drop(t.pod_annotations.insert("note".into(), "y".into()));
            }),
        ];
        for (what, change) in cases {
            assert!(changed(change), "{what}");
        }
    }
}
