//! Deletion ends in every order, and never takes data along.

use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::moves::{MOVED, run};
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::wait::{self, BRING_UP, REPAIR, SOON, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use shardwright::api::{MySQLPair, ShardCluster, ShardRange, names};

/// The group.
pub fn group() -> Group {
    Group {
        name: "deleting",
        alone: false,
        fixture: Fixture::Empty,
        scenarios: vec![
            scenario!(
                Short,
                "delete-all-but-volumes",
                all_but_volumes,
                "everything but the namespace and the claims is deleted, map and passwords too; made again, the rows are there"
            ),
            scenario!(
                Full,
                "delete-and-make-again",
                make_again,
                "the three kinds are deleted, cluster first; made again, the rows and the passwords are there"
            ),
            scenario!(
                Full,
                "delete-and-swap-pairs",
                swap_pairs,
                "made again with the ranges' pairs swapped: each shard is found where its rows are, none is made empty, and goes to the other pair"
            ),
            scenario!(
                Full,
                "delete-other-orders",
                other_orders,
                "cluster, range, pair and range, cluster, pair: ends"
            ),
            scenario!(
                Full,
                "delete-pair-first",
                pair_first,
                "pair, range, cluster: ends"
            ),
            scenario!(
                Full,
                "delete-range-first",
                range_first,
                "range, pair, cluster: ends"
            ),
            scenario!(
                Full,
                "delete-all-at-once",
                at_once,
                "all at once, as kubectl delete -f does: ends"
            ),
            scenario!(
                Short,
                "delete-namespace",
                namespace,
                "the namespace is deleted: it ends, the volumes of a Retain class stay"
            ),
        ],
    }
}

const CLUSTER: &str = "cluster";
const ORDERS: [[&str; 3]; 3] = [
    ["pair", "range", CLUSTER],
    ["range", "pair", CLUSTER],
    [CLUSTER, "pair", "range"],
];

/// Deletes the three objects in that order, without waiting in between; everything ends and the claims are left.
async fn delete(f: &Fleet, order: [&str; 3]) -> Result<()> {
    delete_objects(f, order).await?;
    let claims = f
        .api::<PersistentVolumeClaim>()
        .list(&ListParams::default())
        .await?;
    let bound = claims
        .items
        .iter()
        .filter(|c| c.metadata.deletion_timestamp.is_none())
        .filter(|c| c.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound"))
        .count();
    ensure!(bound == 2, "{bound} claims are left");
    Ok(())
}

async fn delete_objects(f: &Fleet, order: [&str; 3]) -> Result<()> {
    for what in order {
        match what {
            "pair" => f.delete::<MySQLPair>(PAIR).await?,
            "range" => f.delete::<ShardRange>(RANGE).await?,
            _ => f.delete::<ShardCluster>(&f.cluster).await?,
        }
    }
    f.gone::<ShardRange>(RANGE, REPAIR).await?;
    f.gone::<MySQLPair>(PAIR, REPAIR).await?;
    f.gone::<ShardCluster>(&f.cluster, REPAIR).await?;
    f.gone::<StatefulSet>(PAIR, SOON).await?;
    for n in names::ORDINALS {
        f.gone::<Pod>(&names::pod(PAIR, n), REPAIR).await?;
    }
    Ok(())
}

/// The claims are all that is left of the fleet.
async fn all_but_volumes(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    let before = f.map().await?;
    delete(f, ORDERS[2]).await?;
    let kinds =
        "configmaps,secrets,services,statefulsets,poddisruptionbudgets,networkpolicies,endpointslices";
    crate::shell::kubectl(&["delete", kinds, "--all", "-n", &f.ns]).await?;
    // Nobody knows the version any more, so the next one may be any; the sampler would call a lower one a fault.
    f.sights.forget();
    f.apply(&bp::cluster(f)).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, bp::OPEN - 1, PAIR)).await?;
    f.all_ready(BRING_UP).await?;
    f.healthy(PAIR).await?;
    f.intact().await?;
    let after = f.map().await?;
    ensure!(
        after.shards() == before.shards(),
        "{} → {}",
        before.text,
        after.text
    );
    ensure!(
        after.version > before.version,
        "followers that have version {} would never take {}",
        before.version,
        after.version
    );
    f.write(&after.shards()).await?;
    f.intact().await
}

async fn swap_pairs(f: &Fleet) -> Result<()> {
    let range = |name: &str, first: i32, pair: &str| bp::range(f, name, first, first + 3, pair);
    bp::small(f).await?;
    f.apply(&range(RANGE, 0, PAIR)).await?;
    f.apply(&bp::pair(f, "p1")).await?;
    f.apply(&range("r4", 4, PAIR)).await?;
    f.apply(&range("r8", 8, "p1")).await?;
    f.all_ready(BRING_UP).await?;
    f.write(&(0..12).collect::<Vec<_>>()).await?;
    f.delete::<ShardRange>("r4").await?;
    f.delete::<ShardRange>("r8").await?;
    f.delete::<MySQLPair>("p1").await?;
    delete_objects(f, ORDERS[2]).await?;
    for name in ["r4", "r8"] {
        f.gone::<ShardRange>(name, REPAIR).await?;
    }
    f.gone::<MySQLPair>("p1", REPAIR).await?;
    f.delete::<ConfigMap>(&f.map_name()).await?;
    f.sights.forget();
    f.apply(&range(RANGE, 0, "p1")).await?;
    f.apply(&range("r4", 4, "p1")).await?;
    f.apply(&range("r8", 8, PAIR)).await?;
    f.apply(&bp::pair(f, "p1")).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::cluster(f)).await?;
    f.map_when("to have all shards", BRING_UP, |m| m.shards().len() == 12)
        .await?;
    // They are found where they are, and go from there to where they are wished.
    for (pair, first, last) in [("p1", 0, 7), (PAIR, 8, 11)] {
        f.at_home(&run(first, last), pair, MOVED).await?;
    }
    for name in [RANGE, "r4", "r8"] {
        f.edit::<ShardRange>(name, json!({"spec": {"retainSourceSeconds": 0}}))
            .await?;
    }
    f.nothing_left().await?;
    for (pair, first, last) in [("p1", 0, 7), (PAIR, 8, 11)] {
        f.healthy(pair).await?;
        let found = f
            .server(pair, f.active(pair).await?)
            .await?
            .databases("db")
            .await?;
        let wanted: Vec<String> = (first..=last).map(|n| format!("db{n:05}")).collect();
        ensure!(found == wanted, "{pair} has {found:?}");
    }
    f.intact().await?;
    f.write(&(0..12).collect::<Vec<_>>()).await
}

async fn other_orders(f: &Fleet) -> Result<()> {
    for order in [[CLUSTER, "range", "pair"], ["range", CLUSTER, "pair"]] {
        f.sights.forget();
        bp::small(f).await?;
        delete(f, order).await?;
    }
    Ok(())
}

async fn make_again(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    // A range by hand-over has another name than the first claim had.
    let before = f.map().await?;
    delete(f, ORDERS[2]).await?;
    // What outlives the cluster: the map, the passwords.
    f.get::<ConfigMap>(&f.map_name()).await.context("the map went")?;
    f.get::<Secret>(&names::credentials_secret(&f.cluster))
        .await
        .context("the passwords went")?;
    f.sights.forget();
    f.apply(&bp::cluster(f)).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, bp::OPEN - 1, PAIR)).await?;
    f.all_ready(BRING_UP).await?;
    f.healthy(PAIR).await?;
    f.intact().await?;
    let after = f.map().await?;
    ensure!(
        after.version > before.version,
        "the version is {} after {}: the cluster has another UID, so the map changed",
        after.version,
        before.version
    );
    ensure!(
        after.shards() == before.shards(),
        "{} → {}",
        before.text,
        after.text
    );
    f.write(&after.shards()).await?;
    f.intact().await
}

async fn pair_first(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    f.delete::<MySQLPair>(PAIR).await?;
    // It holds shards that are in the map: it says so and goes on serving.
    f.condition::<MySQLPair>(PAIR, "Ready", "False", "HoldsShards", SOON)
        .await?;
    f.write(&[0]).await?;
    f.intact().await?;
    delete(f, ORDERS[0]).await
}

async fn range_first(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    f.edit::<ShardRange>(RANGE, json!({"spec": {"deletionPolicy": "Retain"}}))
        .await?;
    f.delete::<ShardRange>(RANGE).await?;
    f.gone::<ShardRange>(RANGE, SOON).await?;
    f.intact().await?;
    delete(f, ORDERS[1]).await
}

async fn at_once(f: &Fleet) -> Result<()> {
    bp::small(f).await?;
    let ns = f.ns.as_str();
    let kinds = "mysqlpairs,shardranges,shardclusters";
    crate::shell::kubectl(&["delete", kinds, "--all", "-n", ns, "--wait=false"]).await?;
    delete(f, ORDERS[0]).await
}

async fn namespace(f: &Fleet) -> Result<()> {
    let class = &f.world.settings.retain_class;
    let mut c = bp::cluster(f);
    c.spec.mysql.storage.class_name = Some(class.clone());
    f.apply(&c).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, 3, PAIR)).await?;
    f.all_ready(BRING_UP).await?;
    f.write(&[0, 1, 2, 3]).await?;
    let claims = f
        .api::<PersistentVolumeClaim>()
        .list(&ListParams::default())
        .await?;
    let volumes: Vec<String> = claims
        .items
        .iter()
        .filter_map(|c| c.spec.as_ref()?.volume_name.clone())
        .collect();
    ensure!(volumes.len() == 2, "volumes {volumes:?}");
    let api = Api::<PersistentVolume>::all(f.world.client.clone());
    for name in &volumes {
        let policy = api
            .get(name)
            .await?
            .spec
            .and_then(|s| s.persistent_volume_reclaim_policy);
        ensure!(
            policy.as_deref() == Some("Retain"),
            "{name} of {class} has the policy {policy:?}"
        );
    }
    f.world.delete_namespace(&f.ns).await?;
    wait::until("the namespace to be gone", REPAIR, || async {
        let ns = f.world.namespaces().get_opt(&f.ns).await?;
        Ok(Seen::when(ns.is_none(), || {
            format!("{:?}", ns.and_then(|n| n.status))
        }))
    })
    .await?;
    for name in &volumes {
        wait::until("the volume to be released", SOON, || async {
            let phase = api.get(name).await?.status.and_then(|s| s.phase);
            Ok(Seen::when(phase.as_deref() == Some("Released"), || {
                format!("{phase:?}")
            }))
        })
        .await?;
    }
    // Nobody is to find them full for ever. The test bed makes others in their place; elsewhere the class's own provisioner
    // deletes what is told to be deleted.
    for name in &volumes {
        if f.world.settings.local {
            api.delete(name, &DeleteParams::default()).await?;
        } else {
            let patch = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
    }
    Ok(())
}
