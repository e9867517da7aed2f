//! Each field of the servers' template and of a pair's overrides is seen on a server or a child; changes roll the servers.

use super::rolling;
use crate::blueprint::{self as bp, PAIR, RANGE, SMALL};
use crate::fleet::Fleet;
use crate::scenario::Group;
use crate::wait;
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceRequirements, Toleration};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
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
                rolling::config_refused,
                "a my.cnf key that the operator owns is refused by name, no server is touched"
            ),
            scenario!(
                Short,
                "config-change-rolls",
                rolling::config_change,
                "a changed my.cnf takes effect on both servers, the passive one first"
            ),
            scenario!(
                Short,
                "image-change-rolls",
                rolling::image_change,
                "a changed image rolls the passive server first, then the active one"
            ),
            scenario!(
                Short,
                "wrong-image-later",
                rolling::wrong_image,
                "a wrong image stops the roll at the passive server; the active one serves; the right one heals it"
            ),
            scenario!(
                Short,
                "config-that-breaks-mysqld",
                rolling::config_breaks,
                "a my.cnf with which mysqld does not start stops the roll; taken back, the pair heals"
            ),
            scenario!(
                Full,
                "resources-change-rolls",
                rolling::resources_change,
                "changed labels, annotations, resources and scheduling reach the Pods"
            ),
            scenario!(
                Short,
                "eviction",
                rolling::eviction,
                "the budget lets one server be evicted and refuses the other"
            ),
            scenario!(
                Short,
                "pair-paused",
                rolling::paused,
                "a paused pair is left as it is and goes on serving"
            ),
        ],
    }
}

const PRIORITY: &str = "shardwright-e2e";
pub(super) const OPEN_SHARDS: [i32; 4] = [0, 1, 2, 3];

pub(super) fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), Quantity((*v).to_owned())))
        .collect()
}

pub(super) fn resources(cpu: &str, memory: &str) -> ResourceRequirements {
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

pub(super) async fn pod(f: &Fleet, n: usize) -> Result<Pod> {
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
