use super::*;
use crate::resources::endpoint_slice::{Target, endpoint_slice};
use serde_json::json;

fn cluster() -> ShardCluster {
    serde_json::from_value(json!({
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "ShardCluster",
        "metadata": {"name": "main", "namespace": "shop", "uid": "c-uid"},
        "spec": {
            "shards": {"total": 1024},
            "mysql": {
                "image": "mysql:9.7",
                "imagePullPolicy": "IfNotPresent",
                "imagePullSecrets": [{"name": "registry"}],
                "config": "max_connections = 200\n",
                "storage": {"size": "1Gi", "className": "fast"},
                "scheduling": {
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "db", "operator": "Exists"}],
                    "priorityClassName": "high",
                },
                "podLabels": {"team": "shop"},
                "podAnnotations": {"note": "x"},
            },
        },
    }))
    .unwrap()
}

fn pair() -> MySQLPair {
    serde_json::from_value(json!({
        "apiVersion": "shardwright.dev/v1alpha1",
        "kind": "MySQLPair",
        "metadata": {"name": "main-p0", "namespace": "shop", "uid": "p-uid"},
        "spec": {
            "clusterRef": {"name": "main"},
            "mysql": {
                "config": "replica_net_timeout = 20\n",
                "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1024Mi"}},
            },
        },
    }))
    .unwrap()
}

/// A pair with everything that can be specified.
pub(crate) fn context() -> PairContext {
    PairContext::new(&pair(), &cluster()).unwrap()
}

/// A pair with nothing that need not be specified.
fn least() -> PairContext {
    let mut ctx = context();
    ctx.template = serde_json::from_value(json!({"image": "mysql:9.7", "storage": {"size": "1Gi"}})).unwrap();
    ctx.config = UserConfig::default();
    ctx
}

#[test]
fn the_children_of_a_pair() {
    let PairChildren {
        config_map,
        headless_service,
        active_service,
        passive_service,
        pod_disruption_budget,
        network_policy,
        stateful_set,
    } = pair_children(&context());
    // The files themselves are the snapshots of core::my_cnf.
    let keys: Vec<_> = config_map
        .data
        .iter()
        .flatten()
        .map(|(k, _)| k.as_str())
        .collect();
    assert_eq!(keys, ["main-p0-0.cnf", "main-p0-1.cnf"]);
    insta::assert_yaml_snapshot!("headless_service", headless_service);
    insta::assert_yaml_snapshot!("active_service", active_service);
    insta::assert_yaml_snapshot!("passive_service", passive_service);
    insta::assert_yaml_snapshot!("pod_disruption_budget", pod_disruption_budget);
    insta::assert_yaml_snapshot!("network_policy", network_policy);
    insta::assert_yaml_snapshot!("stateful_set", stateful_set);
    insta::assert_yaml_snapshot!("stateful_set_least", pair_children(&least()).stateful_set);
}

#[test]
fn the_endpoint_slices_of_a_pair() {
    let target = |ip: &str| Target {
        pod: "main-p0-0".into(),
        uid: "pod-uid".into(),
        ip: ip.parse().unwrap(),
        node: Some("node-1".into()),
    };
    let ctx = context();
    let slice = |t: Option<&Target>| endpoint_slice(&ctx, "main-p0-active", t);
    insta::assert_yaml_snapshot!("endpoint_slice", slice(Some(&target("10.1.2.3"))));
    insta::assert_yaml_snapshot!("endpoint_slice_empty", slice(None));
    let v6 = slice(Some(&target("fd00::1")));
    assert_eq!(
        (v6.metadata.name.as_deref(), v6.address_type.as_str()),
        (Some("main-p0-active-v6"), "IPv6")
    );
}

#[test]
fn overrides_are_laid_over_the_template() {
    let ctx = context();
    let lines: Vec<_> = ctx.config.lines().iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["max_connections = 200", "replica_net_timeout = 20"]);
    assert_eq!(ctx.memory(), Some(1 << 30), "the limit");
    assert_eq!(least().memory(), None);
    let mut requests_only = ctx;
    let r = requests_only.template.resources.as_mut().unwrap();
    r.requests = r.limits.take();
    assert_eq!(requests_only.memory(), Some(1 << 30), "the request");
}

#[test]
fn a_key_that_the_operator_owns_makes_no_children() {
    let mut bad = pair();
    bad.spec.mysql.as_mut().unwrap().config = Some("server_id = 1".into());
    let e = PairContext::new(&bad, &cluster()).unwrap_err();
    assert!(e.to_string().contains("line 2: `server_id` is owned"), "{e}");
}

#[test]
fn every_container_fits_the_restricted_pod_security_standard() {
    for ctx in [context(), least()] {
        let pod = pair_children(&ctx)
            .stateful_set
            .spec
            .unwrap()
            .template
            .spec
            .unwrap();
        let sc = pod.security_context.unwrap();
        assert_eq!((sc.run_as_non_root, sc.run_as_user), (Some(true), Some(999)));
        assert_eq!(sc.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (None, None, None));
        for v in pod.volumes.unwrap() {
            assert!(v.host_path.is_none(), "{}", v.name);
        }
        for c in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
            let sc = c.security_context.as_ref().unwrap();
            assert_eq!(sc.allow_privilege_escalation, Some(false), "{}", c.name);
            assert_eq!(sc.read_only_root_filesystem, Some(true), "{}", c.name);
            assert_eq!(
                sc.capabilities.as_ref().unwrap().drop,
                Some(vec!["ALL".to_owned()])
            );
            assert_eq!(sc.capabilities.as_ref().unwrap().add, None);
        }
    }
}

/// In the command of a container two dollars are one, and a variable of the container in `$()` is put in its place.
#[test]
fn scripts_reach_the_shell_as_they_are_written() {
    let children = pair_children(&context());
    let set = serde_json::to_value(&children.stateful_set).unwrap();
    let text = set["spec"]["template"]["spec"].to_string();
    assert!(!text.contains("$$"), "{text}");
}

#[test]
fn no_password_is_in_what_is_not_a_secret() {
    let text = format!("{:?}", pair_children(&context()));
    for word in ["PASSWORD", "Password", "BEGIN"] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn names_fit_their_limits_at_the_longest() {
    let mut ctx = context();
    ctx.pair = "p".repeat(crate::api::names::MAX_PAIR_NAME);
    ctx.cluster = "c".repeat(crate::api::names::MAX_CLUSTER_NAME);
    let c = pair_children(&ctx);
    let metas = [
        &c.headless_service.metadata,
        &c.active_service.metadata,
        &c.passive_service.metadata,
        &c.stateful_set.metadata,
        &c.pod_disruption_budget.metadata,
        &c.network_policy.metadata,
    ];
    for m in metas {
        assert!(m.name.as_ref().unwrap().len() <= 63);
        assert!(m.labels.iter().flatten().all(|(_, v)| v.len() <= 63));
    }
    // The controller labels Pods with a revision: the set's name and a hash of up to ten characters.
    assert!(ctx.pair.len() + 11 <= 63);
}
