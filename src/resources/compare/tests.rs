use super::*;
use crate::resources::pair::tests::context;
use crate::resources::{PairChildren, pair_children};
use serde::Serialize;
use serde_json::json;

fn stamped(object: &impl Serialize) -> Value {
    let mut v = serde_json::to_value(object).unwrap();
    stamp(&mut v);
    v
}

/// What an API server (1.36) adds to each kind, besides turning quantities into their canonical form.
fn as_stored(mut v: Value, at: &[(&str, Value)]) -> Value {
    let meta = v["metadata"].as_object_mut().unwrap();
    meta.insert("uid".into(), json!("5b2e9d0c-0000-4000-8000-000000000000"));
    meta.insert("resourceVersion".into(), json!("4711"));
    meta.insert("generation".into(), json!(1));
    meta.insert("creationTimestamp".into(), json!("2026-01-01T00:00:00Z"));
    meta.insert(
        "managedFields".into(),
        json!([{"manager": "shardwright.dev/pair"}]),
    );
    for (pointer, add) in at {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = v.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
        parent
            .as_object_mut()
            .unwrap()
            .insert(key.to_owned(), add.clone());
    }
    v
}

fn stateful_set() -> Value {
    stamped(&pair_children(&context()).stateful_set)
}

fn stored_stateful_set() -> Value {
    let pod = "/spec/template/spec";
    let main = format!("{pod}/containers/0");
    let claim = "/spec/volumeClaimTemplates/0";
    let probe = |p: &str, k: &str| format!("{main}/{p}/{k}");
    let keys = [
        (format!("{pod}/restartPolicy"), json!("Always")),
        (format!("{pod}/dnsPolicy"), json!("ClusterFirst")),
        (format!("{pod}/schedulerName"), json!("default-scheduler")),
        (
            format!("{main}/terminationMessagePath"),
            json!("/dev/termination-log"),
        ),
        (format!("{main}/resources/limits/memory"), json!("1Gi")),
        (format!("{main}/env/0/valueFrom/fieldRef/apiVersion"), json!("v1")),
        (probe("readinessProbe", "successThreshold"), json!(1)),
        (probe("startupProbe", "successThreshold"), json!(1)),
        ("/spec/updateStrategy/rollingUpdate".into(), json!(null)),
        (format!("{claim}/apiVersion"), json!("v1")),
        (format!("{claim}/kind"), json!("PersistentVolumeClaim")),
        (format!("{claim}/spec/volumeMode"), json!("Filesystem")),
        (format!("{claim}/spec/resources/requests/storage"), json!("1Gi")),
        (format!("{claim}/status"), json!({"phase": "Pending"})),
        ("/status".into(), json!({"replicas": 2})),
    ];
    let keys: Vec<_> = keys.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    as_stored(stateful_set(), &keys)
}

#[test]
fn what_the_api_server_adds_is_no_difference() {
    assert!(is_covered_by(&stateful_set(), &stored_stateful_set()));
    let PairChildren {
        config_map,
        headless_service,
        active_service,
        passive_service,
        pod_disruption_budget,
        network_policy,
        stateful_set: _,
    } = pair_children(&context());
    let cluster_ip = json!("10.96.0.7");
    let service = [
        ("/spec/clusterIP", cluster_ip.clone()),
        ("/spec/clusterIPs", json!([cluster_ip])),
        ("/spec/internalTrafficPolicy", json!("Cluster")),
        ("/spec/ipFamilies", json!(["IPv4"])),
        ("/spec/ipFamilyPolicy", json!("SingleStack")),
        ("/spec/sessionAffinity", json!("None")),
        ("/status", json!({"loadBalancer": {}})),
    ];
    let covered = |v: Value, add: &[(&str, Value)]| {
        let live = as_stored(v.clone(), add);
        assert!(is_covered_by(&v, &live), "{v:#}\n{live:#}");
    };
    covered(stamped(&config_map), &[]);
    covered(stamped(&headless_service), service.get(2..).unwrap());
    covered(stamped(&active_service), &service);
    covered(stamped(&passive_service), &service);
    covered(
        stamped(&pod_disruption_budget),
        &[("/status", json!({"currentHealthy": 2}))],
    );
    covered(
        stamped(&network_policy),
        &[("/spec/ingress/0/from/0/namespaceSelector", json!({}))],
    );
}

#[test]
fn a_field_that_somebody_changed_is_noticed() {
    let cases: [(&str, Value); 10] = [
        ("/spec/replicas", json!(3)),
        ("/spec/template/spec/containers/0/image", json!("mysql:8.4")),
        ("/spec/template/spec/containers/0/args", json!([])),
        (
            "/spec/template/spec/containers/0/args",
            json!(["--skip-grant-tables"]),
        ),
        ("/spec/template/spec/containers", json!([])),
        ("/spec/template/spec/volumes", json!(null)),
        ("/spec/updateStrategy/type", json!("RollingUpdate")),
        ("/spec/template/spec/automountServiceAccountToken", json!(true)),
        ("/metadata/ownerReferences", json!(null)),
        ("/metadata/labels/shardwright.dev~1pair", json!("other")),
    ];
    for (pointer, value) in cases {
        let mut live = stored_stateful_set();
        *live.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
        assert!(!is_covered_by(&stateful_set(), &live), "{pointer}");
    }
}

#[test]
fn what_others_added_is_left_alone() {
    let mut live = stored_stateful_set();
    let containers = live
        .pointer_mut("/spec/template/spec/containers")
        .unwrap()
        .as_array_mut()
        .unwrap();
    containers.insert(0, json!({"name": "injected", "image": "mesh:1"}));
    live["metadata"]["labels"]["example.com/team"] = json!("a");
    assert!(is_covered_by(&stateful_set(), &live));
}

#[test]
fn a_field_that_is_wanted_no_longer_changes_the_stamp() {
    let mut without = context();
    without.template.scheduling = None;
    let desired = stamped(&pair_children(&without).stateful_set);
    let mut bare = desired.clone();
    bare["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(DESIRED_HASH_ANNOTATION);
    // Without the stamp the node selector would stay for ever.
    bare["spec"]["template"]["metadata"]["annotations"] = Value::Null;
    assert!(is_covered_by(&bare, &stored_stateful_set()));
    assert!(!is_covered_by(&desired, &stored_stateful_set()));
}

#[test]
fn secrets_are_not_stamped() {
    let mut v = json!({"kind": "Secret", "metadata": {"name": "a"}, "data": {"p": "cA=="}});
    let before = v.clone();
    stamp(&mut v);
    assert_eq!(v, before);
}

#[test]
fn empty_is_absent_and_quantities_have_values() {
    for (desired, live, want) in [
        (json!({"a": ""}), json!({}), true),
        (json!({"a": []}), json!({"a": null}), true),
        (json!({"a": {}}), json!({}), true),
        (json!({"a": {}}), json!({"a": {"b": 1}}), true),
        (json!({"a": []}), json!({"a": [1]}), false),
        (json!({"a": ""}), json!({"a": "x"}), false),
        (json!({"a": {"b": null}}), json!({}), true),
        (json!({"a": {"b": 1}}), json!({}), false),
        (json!({"a": 0}), json!({}), false),
        (json!({"a": false}), json!({}), false),
        (json!({"a": null}), json!({"a": 1}), true),
        (
            json!({"limits": {"cpu": "1000m"}}),
            json!({"limits": {"cpu": "1"}}),
            true,
        ),
        (
            json!({"limits": {"cpu": "999m"}}),
            json!({"limits": {"cpu": "1"}}),
            false,
        ),
        (
            json!({"data": {"cpu": "1000m"}}),
            json!({"data": {"cpu": "1"}}),
            false,
        ),
        (
            json!({"requests": {"storage": "1024Mi"}}),
            json!({"requests": {"storage": "1Gi"}}),
            true,
        ),
        (json!({"a": [1, 2]}), json!({"a": [2, 1]}), false),
        (
            json!({"a": [{"name": "x", "v": 1}]}),
            json!({"a": [{"name": "y"}, {"name": "x", "v": 1}]}),
            true,
        ),
        (
            json!({"a": [{"name": "x", "v": 1}]}),
            json!({"a": [{"name": "x", "v": 2}]}),
            false,
        ),
        (json!({"a": [{"v": 1}]}), json!({"a": [{"v": 1, "w": 2}]}), true),
        (
            json!({"a": [{"v": 1}]}),
            json!({"a": [{"v": 1}, {"v": 1}]}),
            false,
        ),
    ] {
        assert_eq!(is_covered_by(&desired, &live), want, "{desired} {live}");
    }
}
