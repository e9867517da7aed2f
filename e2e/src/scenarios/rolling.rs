//! Changes of a running pair's specification: they roll it, the passive server first, or stop where they cannot go on.

use super::template::{OPEN_SHARDS, pod, quantities, resources};
use crate::blueprint::PAIR;
use crate::fleet::Fleet;
use crate::wait::{self, REPAIR, SOON, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, ResourceRequirements};
use k8s_openapi::api::policy::v1::Eviction;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shardwright::api::mysql_pair::ChangeKind;
use shardwright::api::{MySQLPair, ShardCluster, names};

/// Pods' UIDs, by ordinal.
async fn uids(f: &Fleet) -> Result<[Option<String>; 2]> {
    Ok([pod(f, 0).await?.uid(), pod(f, 1).await?.uid()])
}

pub(super) async fn config_refused(f: &Fleet) -> Result<()> {
    let before = uids(f).await?;
    for line in [
        "server_id = 5",
        "super-read-only = OFF",
        "loose_log_bin = elsewhere",
        "[client]",
    ] {
        f.edit::<MySQLPair>(PAIR, json!({"spec": {"mysql": {"config": line}}}))
            .await?;
        let said = f
            .condition::<MySQLPair>(PAIR, "Stalled", "True", "ConfigKeyNotAllowed", SOON)
            .await?;
        let key = line
            .split(' ')
            .next()
            .unwrap_or(line)
            .trim_start_matches("loose_");
        ensure!(
            said.message.replace('-', "_").contains(&key.replace('-', "_")),
            "{line:?} is not named: {}",
            said.message
        );
        f.write(&OPEN_SHARDS).await?;
    }
    f.edit::<MySQLPair>(
        PAIR,
        json!({"spec": {"mysql": {"config": "long_query_time = 7"}}}),
    )
    .await?;
    f.all_ready(REPAIR).await?;
    ensure!(uids(f).await? == before, "a Pod was replaced");
    f.intact().await
}

/// Makes a change and watches the Pods: the passive one is replaced first, then it is handed the writes, and only then the other one is
/// replaced.
async fn rolls(f: &Fleet, change: impl Future<Output = Result<()>>) -> Result<()> {
    let active = f.active(PAIR).await?;
    let before = uids(f).await?;
    change.await?;
    let passive = 1 - active;
    wait::until("the passive server to be replaced first", REPAIR, || async {
        let a = f.get_opt::<Pod>(&names::pod(PAIR, active)).await?;
        let untouched =
            a.is_some_and(|p| p.uid() == before[active] && p.metadata.deletion_timestamp.is_none());
        let b = f.get_opt::<Pod>(&names::pod(PAIR, passive)).await?;
        // Seen before the other: an order that is wrong fails here for want of time.
        let replaced = b.is_some_and(|p| p.uid() != before[passive]);
        Ok(Seen::when(replaced && untouched, || {
            format!("passive replaced: {replaced}, active untouched: {untouched}")
        }))
    })
    .await?;
    wait::until("the writes to be handed over", REPAIR, || async {
        let record = f.record(PAIR).await?;
        let a = f.get_opt::<Pod>(&names::pod(PAIR, active)).await?;
        // Seen before it is replaced: an order that is wrong fails here for want of time.
        let untouched = a.is_some_and(|p| p.uid() == before[active]);
        Ok(Seen::when(record.active == passive && untouched, || {
            format!("{record:?}, old active untouched: {untouched}")
        }))
    })
    .await?;
    wait::until("the old active server to be replaced", REPAIR, || async {
        let a = f.get_opt::<Pod>(&names::pod(PAIR, active)).await?;
        Ok(Seen::when(a.is_some_and(|p| p.uid() != before[active]), || {
            "not yet".into()
        }))
    })
    .await?;
    f.all_ready(REPAIR).await?;
    f.healthy(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(after.active == passive, "it was handed back: {after:?}");
    let change = f.status(PAIR).await?.last_change;
    ensure!(
        change.as_ref().is_some_and(|c| c.kind == ChangeKind::Switchover),
        "the roll was no switchover: {change:?}"
    );
    f.intact().await?;
    f.write(&OPEN_SHARDS).await
}

pub(super) async fn config_change(f: &Fleet) -> Result<()> {
    rolls(f, async {
        f.edit::<MySQLPair>(
            PAIR,
            json!({"spec": {"mysql": {"config": "long_query_time = 8"}}}),
        )
        .await?;
        Ok(())
    })
    .await?;
    for n in names::ORDINALS {
        let time: f64 = f
            .server(PAIR, n)
            .await?
            .one("SELECT @@GLOBAL.long_query_time")
            .await?;
        ensure!((time - 8.0).abs() < 0.01, "long_query_time is {time}");
    }
    Ok(())
}

pub(super) async fn image_change(f: &Fleet) -> Result<()> {
    let image = f.world.settings.mysql_image_b.clone();
    rolls(f, async {
        f.edit::<ShardCluster>(&f.cluster, json!({"spec": {"mysql": {"image": image}}}))
            .await?;
        Ok(())
    })
    .await?;
    for n in names::ORDINALS {
        let spec = pod(f, n).await?.spec.context("no spec")?;
        ensure!(
            spec.containers.iter().any(|c| c.image.as_deref() == Some(&image)),
            "{n} has another image than {image}"
        );
    }
    Ok(())
}

pub(super) async fn wrong_image(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let before = uids(f).await?;
    f.edit::<MySQLPair>(PAIR, json!({"spec": {"mysql": {"image": "mysql:there-is-none"}}}))
        .await?;
    let said = f
        .condition::<MySQLPair>(PAIR, "Ready", "False", "ImagePullFailed", REPAIR)
        .await?;
    ensure!(
        said.message.contains("there-is-none"),
        "the image is not named: {}",
        said.message
    );
    ensure!(
        uids(f).await?[active] == before[active],
        "the active server was replaced"
    );
    f.write(&OPEN_SHARDS).await?;
    f.edit::<MySQLPair>(
        PAIR,
        json!({"spec": {"mysql": {"image": f.world.settings.mysql_image}}}),
    )
    .await?;
    f.all_ready(REPAIR).await?;
    f.healthy(PAIR).await?;
    f.intact().await
}

pub(super) async fn config_breaks(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let before = uids(f).await?;
    f.edit::<MySQLPair>(
        PAIR,
        json!({"spec": {"mysql": {"config": "no_such_variable = 1"}}}),
    )
    .await?;
    f.condition::<MySQLPair>(PAIR, "Ready", "False", "ServerNotStarting", REPAIR)
        .await?;
    ensure!(
        uids(f).await?[active] == before[active],
        "the active server was replaced"
    );
    f.write(&OPEN_SHARDS).await?;
    f.edit::<MySQLPair>(
        PAIR,
        json!({"spec": {"mysql": {"config": "long_query_time = 7"}}}),
    )
    .await?;
    f.all_ready(REPAIR).await?;
    f.healthy(PAIR).await?;
    f.intact().await
}

/// The processor that the nodes have, by their label.
async fn architecture(f: &Fleet) -> Result<String> {
    let nodes: Api<Node> = Api::all(f.world.client.clone());
    let node = nodes.list(&ListParams::default()).await?.items.into_iter().next();
    node.and_then(|n| n.labels().get("kubernetes.io/arch").cloned())
        .context("a node without the label kubernetes.io/arch")
}

pub(super) async fn resources_change(f: &Fleet) -> Result<()> {
    rolls(f, async {
        let patch = json!({"spec": {"mysql": {
            "podLabels": {"team": "boards"},
            "podAnnotations": {"e2e.example/note": "changed"},
            "resources": {"requests": {"cpu": "30m", "memory": "300Mi"}, "limits": {"memory": "950Mi"}},
        }}});
        f.edit::<ShardCluster>(&f.cluster, patch).await?;
        Ok(())
    })
    .await?;
    for n in names::ORDINALS {
        let p = pod(f, n).await?;
        ensure!(
            p.labels().get("team").map(String::as_str) == Some("boards"),
            "labels {:?}",
            p.labels()
        );
        ensure!(
            p.annotations().get("e2e.example/note").map(String::as_str) == Some("changed"),
            "annotations"
        );
        let spec = p.spec.context("no spec")?;
        ensure!(
            spec.containers
                .iter()
                .any(|c| c.resources == Some(resources("30m", "950Mi"))),
            "resources of {n}"
        );
    }
    // A pair's own win over them.
    rolls(f, async {
        let arch = architecture(f).await?;
        let own = json!({"spec": {"mysql": {
            "resources": {"requests": {"cpu": "35m"}, "limits": {"memory": "1000Mi"}},
            "scheduling": {
                "nodeSelector": {"kubernetes.io/arch": arch},
                "tolerations": [{"key": "e2e.example/own", "operator": "Exists"}],
                "priorityClassName": "system-cluster-critical",
            },
        }}});
        f.edit::<MySQLPair>(PAIR, own).await?;
        Ok(())
    })
    .await?;
    let spec = pod(f, 0).await?.spec.context("no spec")?;
    let selector = spec.node_selector.unwrap_or_default();
    ensure!(
        selector.contains_key("kubernetes.io/arch") && !selector.contains_key("kubernetes.io/os"),
        "node selector {selector:?}"
    );
    let tolerated = spec.tolerations.unwrap_or_default();
    ensure!(
        tolerated
            .iter()
            .any(|t| t.key.as_deref() == Some("e2e.example/own")),
        "tolerations {tolerated:?}"
    );
    ensure!(
        spec.priority_class_name.as_deref() == Some("system-cluster-critical"),
        "priority {:?}",
        spec.priority_class_name
    );
    let own = ResourceRequirements {
        // What is not requested is requested as the limit says.
        requests: Some(quantities(&[("cpu", "35m"), ("memory", "1000Mi")])),
        limits: Some(quantities(&[("memory", "1000Mi")])),
        ..ResourceRequirements::default()
    };
    let given = spec
        .containers
        .iter()
        .find(|c| c.name == "mysqld")
        .and_then(|c| c.resources.clone());
    ensure!(given.as_ref() == Some(&own), "resources {given:?}");
    Ok(())
}

pub(super) async fn eviction(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    f.healthy(PAIR).await?;
    let before = uids(f).await?;
    // The budget has counted both Pods before it is asked.
    wait::until("the budget to allow one", SOON, || async {
        let b: k8s_openapi::api::policy::v1::PodDisruptionBudget = f.get(PAIR).await?;
        let allowed = b.status.map(|s| s.disruptions_allowed);
        Ok(Seen::when(allowed == Some(1), || format!("{allowed:?}")))
    })
    .await?;
    evict(f, 1 - active)
        .await
        .context("the first eviction was refused")?;
    match evict(f, active).await {
        Ok(()) => anyhow::bail!("both servers were evicted"),
        Err(kube::Error::Api(s)) if s.code == 429 => {}
        Err(e) => return Err(e.into()),
    }
    f.again::<Pod>(
        &names::pod(PAIR, 1 - active),
        before[1 - active].as_deref(),
        REPAIR,
    )
    .await?;
    f.all_ready(REPAIR).await?;
    f.healthy(PAIR).await?;
    f.intact().await
}

pub(super) async fn evict(f: &Fleet, n: usize) -> Result<(), kube::Error> {
    let name = names::pod(PAIR, n);
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(f.ns.clone()),
            ..ObjectMeta::default()
        },
        delete_options: None,
    };
    let body = serde_json::to_vec(&eviction).map_err(kube::Error::SerdeError)?;
    let request = kube::core::Request::new(format!("/api/v1/namespaces/{}/pods", f.ns))
        .create_subresource("eviction", &name, &PostParams::default(), body)
        .map_err(kube::Error::BuildRequest)?;
    // The client would go on trying for minutes on 429; one answer is what is asked for.
    let client = f
        .world
        .client_without_retries()
        .await
        .map_err(|e| kube::Error::Service(e.into()))?;
    client.request::<serde_json::Value>(request).await.map(|_| ())
}

pub(super) async fn paused(f: &Fleet) -> Result<()> {
    let before = uids(f).await?;
    f.edit::<MySQLPair>(PAIR, json!({"spec": {"reconciliation": "Paused"}}))
        .await?;
    wait::until("the pair to say that it is paused", SOON, || async {
        let p: MySQLPair = f.get(PAIR).await?;
        let said = crate::fleet::conditions(&p);
        let observed = p.status.as_ref().and_then(|s| s.observed_generation) == p.metadata.generation;
        Ok(Seen::when(
            observed && said.iter().any(|c| c.reason == "Paused"),
            || format!("{said:?}"),
        ))
    })
    .await?;
    let name = names::passive_service(PAIR);
    f.delete::<k8s_openapi::api::core::v1::Service>(&name).await?;
    f.edit::<MySQLPair>(
        PAIR,
        json!({"spec": {"mysql": {"config": "long_query_time = 9"}}}),
    )
    .await?;
    wait::throughout("a paused pair", std::time::Duration::from_secs(4), || async {
        let made = f
            .get_opt::<k8s_openapi::api::core::v1::Service>(&name)
            .await?
            .is_some();
        let touched = uids(f).await? != before;
        Ok(Seen::when(!made && !touched, || {
            format!("Service made: {made}, Pods touched: {touched}")
        }))
    })
    .await?;
    f.write(&OPEN_SHARDS).await?;
    rolls(f, async {
        f.edit::<MySQLPair>(PAIR, json!({"spec": {"reconciliation": "Enabled"}}))
            .await?;
        Ok(())
    })
    .await?;
    f.get::<k8s_openapi::api::core::v1::Service>(&name).await?;
    Ok(())
}
