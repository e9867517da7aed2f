//! Each field of the servers' template and of a pair's overrides is seen on a server or a child; changes roll the servers.

use crate::blueprint::{self as bp, PAIR, RANGE, SMALL};
use crate::fleet::Fleet;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements, Toleration};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shardwright::api::mysql_template::{MysqlOverrides, PullPolicy, Scheduling, Storage};
use shardwright::api::shard_cluster::{ShardMapTarget, Shards};
use shardwright::api::{LocalRef, MySQLPair, ShardCluster, names};
use std::collections::BTreeMap;

/// The group.
pub fn group() -> Group {
    Group {
        name: "template",
        alone: false,
        fixture: shared!(all_fields),
        scenarios: vec![
            scenario!(
                Short,
                "template-fields",
                fields,
                "every field of the template is seen on the Pods, the volumes or the servers"
            ),
            scenario!(
                Short,
                "pair-overrides",
                overrides,
                "a pair's overrides win over the template"
            ),
            scenario!(
                Short,
                "names-of-databases",
                databases,
                "databasePrefix, digits and the map's name"
            ),
            scenario!(
                Short,
                "config-key-refused",
                config_refused,
                "a my.cnf key that the operator owns is refused by name, no server is touched"
            ),
            scenario!(
                Short,
                "config-change-rolls",
                config_change,
                "a changed my.cnf takes effect on both servers, the passive one first"
            ),
            scenario!(
                Short,
                "image-change-rolls",
                image_change,
                "a changed image rolls the passive server first, then the active one"
            ),
            scenario!(
                Short,
                "wrong-image-later",
                wrong_image,
                "a wrong image stops the roll at the passive server; the active one serves; the right one heals it"
            ),
            scenario!(
                Full,
                "resources-change-rolls",
                resources_change,
                "changed labels, annotations, resources and scheduling reach the Pods"
            ),
            scenario!(
                Short,
                "eviction",
                eviction,
                "the budget lets one server be evicted and refuses the other"
            ),
            scenario!(
                Short,
                "pair-paused",
                paused,
                "a paused pair is left as it is and goes on serving"
            ),
        ],
    }
}

const PRIORITY: &str = "shardwright-e2e";
const OPEN_SHARDS: [i32; 4] = [0, 1, 2, 3];

fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned())))
        .collect()
}

fn resources(cpu: &str, memory: &str) -> ResourceRequirements {
    ResourceRequirements {
        requests: Some(quantities(&[("cpu", cpu), ("memory", "300Mi")])),
        limits: Some(quantities(&[("memory", memory)])),
        ..ResourceRequirements::default()
    }
}

fn scheduling() -> Scheduling {
    Scheduling {
        node_selector: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
        tolerations: vec![Toleration {
            key: Some("e2e.example/dedicated".into()),
            operator: Some("Exists".into()),
            effect: Some("NoSchedule".into()),
            ..Toleration::default()
        }],
        priority_class_name: Some(PRIORITY.into()),
    }
}

fn cluster(f: &Fleet) -> ShardCluster {
    let mut c = bp::cluster(f);
    let m = &mut c.spec.mysql;
    m.image_pull_policy = Some(PullPolicy::IfNotPresent);
    m.image_pull_secrets = vec![LocalRef::new("regcred")];
    m.config = Some(format!("{SMALL}\nlong_query_time = 6\nlock_wait_timeout = 77"));
    m.resources = Some(resources("20m", "900Mi"));
    m.scheduling = Some(scheduling());
    m.pod_labels = [("team".to_owned(), "pins".to_owned())].into();
    m.pod_annotations = [("e2e.example/note".to_owned(), "seen".to_owned())].into();
    c.spec.shards = Shards {
        total: 100,
        database_prefix: "shard_".into(),
        digits: 2,
    };
    c.spec.shard_map = Some(ShardMapTarget {
        config_map_name: "where.is.what".into(),
    });
    c
}

fn pair(f: &Fleet) -> MySQLPair {
    let mut p = bp::pair(f, PAIR);
    p.spec.mysql = Some(MysqlOverrides {
        config: Some("long_query_time = 7".into()),
        storage: Some(Storage {
            size: Quantity("2Gi".into()),
            class_name: f.world.settings.storage_class.clone(),
        }),
        ..MysqlOverrides::default()
    });
    p
}

async fn all_fields(f: &Fleet) -> Result<()> {
    let class = PriorityClass {
        metadata: ObjectMeta {
            name: Some(PRIORITY.into()),
            ..ObjectMeta::default()
        },
        value: 1000,
        ..PriorityClass::default()
    };
    Api::<PriorityClass>::all(f.world.client.clone())
        .patch(PRIORITY, &PatchParams::apply("e2e"), &Patch::Apply(&class))
        .await?;
    f.map_is_called("where.is.what");
    f.apply(&cluster(f)).await?;
    f.apply(&pair(f)).await?;
    f.apply(&bp::range(f, RANGE, 0, 3, PAIR)).await?;
    f.all_ready(wait::BRING_UP).await?;
    f.write(&OPEN_SHARDS).await
}

async fn pod(f: &Fleet, n: usize) -> Result<Pod> {
    f.get(&names::pod(PAIR, n)).await
}

async fn fields(f: &Fleet) -> Result<()> {
    for n in names::ORDINALS {
        let p = pod(f, n).await?;
        let spec = p.spec.clone().context("no spec")?;
        let c = spec
            .containers
            .iter()
            .find(|c| c.name == "mysqld")
            .context("no mysqld")?;
        ensure!(
            c.image.as_deref() == Some(&f.world.settings.mysql_image),
            "image {:?}",
            c.image
        );
        for c in spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
        {
            ensure!(
                c.image_pull_policy.as_deref() == Some("IfNotPresent"),
                "pull policy {:?}",
                c.image_pull_policy
            );
        }
        let secrets = spec.image_pull_secrets.clone().unwrap_or_default();
        ensure!(
            secrets.iter().any(|s| s.name == "regcred"),
            "pull secrets {secrets:?}"
        );
        ensure!(
            c.resources == Some(resources("20m", "900Mi")),
            "resources {:?}",
            c.resources
        );
        ensure!(
            spec.node_selector
                .as_ref()
                .and_then(|s| s.get("kubernetes.io/os"))
                .map(String::as_str)
                == Some("linux"),
            "node selector {:?}",
            spec.node_selector
        );
        ensure!(
            spec.tolerations
                .iter()
                .flatten()
                .any(|t| t.key.as_deref() == Some("e2e.example/dedicated")),
            "tolerations {:?}",
            spec.tolerations
        );
        ensure!(
            spec.priority_class_name.as_deref() == Some(PRIORITY),
            "priority {:?}",
            spec.priority_class_name
        );
        ensure!(
            p.labels().get("team").map(String::as_str) == Some("pins"),
            "labels {:?}",
            p.labels()
        );
        ensure!(
            p.annotations().get("e2e.example/note").map(String::as_str) == Some("seen"),
            "annotations {:?}",
            p.annotations()
        );
        let timeout: i64 = f
            .server(PAIR, n)
            .await?
            .one("SELECT @@GLOBAL.lock_wait_timeout")
            .await?;
        ensure!(timeout == 77, "lock_wait_timeout is {timeout}");
    }
    let (a, b) = (pod(f, 0).await?, pod(f, 1).await?);
    let node = |p: &Pod| p.spec.as_ref().and_then(|s| s.node_name.clone());
    ensure!(
        node(&a).is_some() && node(&a) != node(&b),
        "both on {:?}",
        node(&a)
    );
    Ok(())
}

async fn overrides(f: &Fleet) -> Result<()> {
    for n in names::ORDINALS {
        let time: f64 = f
            .server(PAIR, n)
            .await?
            .one("SELECT @@GLOBAL.long_query_time")
            .await?;
        ensure!((time - 7.0).abs() < 0.01, "long_query_time is {time}");
        let claim: PersistentVolumeClaim = f.get(&format!("data-{}", names::pod(PAIR, n))).await?;
        let wanted = claim
            .spec
            .and_then(|s| s.resources)
            .and_then(|r| r.requests)
            .unwrap_or_default();
        ensure!(
            wanted.get("storage") == Some(&Quantity("2Gi".into())),
            "the claim asks for {wanted:?}"
        );
    }
    Ok(())
}

async fn databases(f: &Fleet) -> Result<()> {
    let map = f.map().await?;
    let says = &map.json["databases"];
    ensure!(
        says["prefix"] == "shard_" && says["digits"] == 2 && says["total"] == 100,
        "the map says {says}"
    );
    let found = f.server(PAIR, 0).await?.databases("shard_").await?;
    ensure!(
        found == ["shard_00", "shard_01", "shard_02", "shard_03"],
        "databases {found:?}"
    );
    f.intact().await
}

/// Pods' UIDs, by ordinal.
async fn uids(f: &Fleet) -> Result<[Option<String>; 2]> {
    Ok([pod(f, 0).await?.uid(), pod(f, 1).await?.uid()])
}

async fn config_refused(f: &Fleet) -> Result<()> {
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

/// Makes a change and watches the Pods: the passive one is replaced first, the active one only when that is Ready again, and
/// afterwards the same server is active.
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
    wait::until("the active server to be replaced", REPAIR, || async {
        let a = f.get_opt::<Pod>(&names::pod(PAIR, active)).await?;
        Ok(Seen::when(a.is_some_and(|p| p.uid() != before[active]), || {
            "not yet".into()
        }))
    })
    .await?;
    f.all_ready(REPAIR).await?;
    f.healthy(PAIR).await?;
    ensure!(f.active(PAIR).await? == active, "another server is active");
    f.intact().await?;
    f.write(&OPEN_SHARDS).await
}

async fn config_change(f: &Fleet) -> Result<()> {
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

async fn image_change(f: &Fleet) -> Result<()> {
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

async fn wrong_image(f: &Fleet) -> Result<()> {
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

async fn resources_change(f: &Fleet) -> Result<()> {
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
        let own = json!({"spec": {"mysql": {
            "resources": {"requests": {"cpu": "35m"}, "limits": {"memory": "1000Mi"}},
            "scheduling": {
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
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

async fn eviction(f: &Fleet) -> Result<()> {
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

async fn evict(f: &Fleet, n: usize) -> Result<(), kube::Error> {
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

async fn paused(f: &Fleet) -> Result<()> {
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
