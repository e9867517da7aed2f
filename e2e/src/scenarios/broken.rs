//! Fleets that cannot start as they are applied, and start once they are mended.

use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::scenario::{Fixture, Group};
use crate::wait::{BRING_UP, REPAIR, SOON, Seen};
use crate::{scenario, wait};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServicePort, ServiceSpec};
use kube::api::ObjectMeta;
use serde_json::json;
use shardwright::api::mysql_template::{MysqlOverrides, Scheduling, Storage};
use shardwright::api::shard_cluster::Tables;
use shardwright::api::{LocalRef, MySQLPair, ShardCluster, ShardRange, names};

/// The group.
pub fn group() -> Group {
    Group {
        name: "broken",
        alone: false,
        fixture: Fixture::Empty,
        scenarios: vec![
            scenario!(
                Short,
                "cannot-start",
                cannot_start,
                "unschedulable, then a wrong image, then mended: each is said, and it comes up"
            ),
            scenario!(
                Short,
                "volume-never-binds",
                volume,
                "a volume that never binds is said, and deletion ends all the same"
            ),
            scenario!(
                Short,
                "ddl-from-configmap",
                ddl,
                "a ConfigMap of DDL: missing, malformed, forbidden, then right; the fleet serves meanwhile"
            ),
            scenario!(
                Short,
                "foreign-objects",
                foreign,
                "an object of somebody else in the place of a child is said and left alone; when it is gone the pair comes up"
            ),
            scenario!(
                Full,
                "wrong-image-at-first",
                image_at_first,
                "an image that never starts, then the right one"
            ),
            scenario!(
                Full,
                "image-without-mysql",
                no_mysql,
                "an image that is no MySQL is said"
            ),
        ],
    }
}

async fn apply(f: &Fleet, spoil: impl FnOnce(&mut ShardCluster)) -> Result<()> {
    let mut c = bp::cluster(f);
    spoil(&mut c);
    f.apply(&c).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, 7, PAIR)).await?;
    Ok(())
}

async fn not_ready(f: &Fleet, reason: &str, word: &str) -> Result<()> {
    let said = f
        .condition::<MySQLPair>(PAIR, "Ready", "False", reason, REPAIR)
        .await?;
    ensure!(
        said.message.contains(word),
        "{reason} does not name {word}: {}",
        said.message
    );
    f.condition::<ShardRange>(RANGE, "Ready", "False", "", SOON)
        .await?;
    f.condition::<ShardCluster>(&f.cluster, "Ready", "False", "", SOON)
        .await?;
    Ok(())
}

async fn comes_up(f: &Fleet) -> Result<()> {
    f.all_ready(BRING_UP).await?;
    f.healthy(PAIR).await?;
    f.write(&(0..8).collect::<Vec<_>>()).await?;
    f.intact().await
}

async fn cannot_start(f: &Fleet) -> Result<()> {
    apply(f, |c| {
        c.spec.mysql.scheduling = Some(Scheduling {
            node_selector: [("e2e.example/no".to_owned(), "such-node".to_owned())].into(),
            ..Scheduling::default()
        });
    })
    .await?;
    not_ready(f, "Unschedulable", "").await?;
    // The fix of one mistake is another one.
    let patch = json!({"spec": {"mysql": {"scheduling": null, "image": "mysql:there-is-none"}}});
    f.edit::<ShardCluster>(&f.cluster, patch).await?;
    not_ready(f, "ImagePullFailed", "there-is-none").await?;
    let image = &f.world.settings.mysql_image;
    f.edit::<ShardCluster>(&f.cluster, json!({"spec": {"mysql": {"image": image}}}))
        .await?;
    comes_up(f).await
}

async fn image_at_first(f: &Fleet) -> Result<()> {
    apply(f, |c| c.spec.mysql.image = "mysql:there-is-none".into()).await?;
    not_ready(f, "ImagePullFailed", "there-is-none").await?;
    let image = &f.world.settings.mysql_image;
    f.edit::<ShardCluster>(&f.cluster, json!({"spec": {"mysql": {"image": image}}}))
        .await?;
    comes_up(f).await
}

async fn no_mysql(f: &Fleet) -> Result<()> {
    let operator = f.world.settings.operator_image.clone();
    apply(f, |c| c.spec.mysql.image = operator).await?;
    not_ready(f, "ServerNotStarting", "").await?;
    let image = &f.world.settings.mysql_image;
    f.edit::<ShardCluster>(&f.cluster, json!({"spec": {"mysql": {"image": image}}}))
        .await?;
    comes_up(f).await
}

async fn volume(f: &Fleet) -> Result<()> {
    f.apply(&bp::cluster(f)).await?;
    let mut pair = bp::pair(f, PAIR);
    pair.spec.mysql = Some(MysqlOverrides {
        storage: Some(Storage {
            class_name: Some("e2e-there-is-none".into()),
            ..bp::cluster(f).spec.mysql.storage
        }),
        ..MysqlOverrides::default()
    });
    f.apply(&pair).await?;
    f.apply(&bp::range(f, RANGE, 0, 7, PAIR)).await?;
    not_ready(f, "VolumeNotBound", "").await?;
    let claim: PersistentVolumeClaim = f.get("data-p0-0").await?;
    let class = claim.spec.and_then(|s| s.storage_class_name);
    ensure!(
        class.as_deref() == Some("e2e-there-is-none"),
        "the claim's class is {class:?}"
    );
    // What never served holds nothing up, also while its cluster stays.
    f.delete::<ShardRange>(RANGE).await?;
    f.gone::<ShardRange>(RANGE, REPAIR).await?;
    f.delete::<MySQLPair>(PAIR).await?;
    f.gone::<MySQLPair>(PAIR, REPAIR).await?;
    f.delete::<ShardCluster>(&f.cluster).await?;
    f.gone::<ShardCluster>(&f.cluster, REPAIR).await?;
    // The claims are left, as ever: they are the user's to delete.
    let claims = f
        .api::<PersistentVolumeClaim>()
        .list(&kube::api::ListParams::default())
        .await?;
    ensure!(claims.items.len() == 2, "{} claims are left", claims.items.len());
    Ok(())
}

/// The ConfigMap of DDL.
async fn ddl_is(f: &Fleet, data: &[(&str, &str)]) -> Result<()> {
    let cm = ConfigMap {
        metadata: ObjectMeta {
            name: Some("ddl".into()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        ),
        ..ConfigMap::default()
    };
    f.apply(&cm).await?;
    Ok(())
}

/// Something says so about the tables, on the cluster or on the range.
async fn complains(f: &Fleet, words: &[&str]) -> Result<()> {
    wait::until(&format!("a condition that names {words:?}"), SOON, || async {
        let c: ShardCluster = f.get(&f.cluster).await?;
        let r: ShardRange = f.get(RANGE).await?;
        let said: Vec<_> = [crate::fleet::conditions(&c), crate::fleet::conditions(&r)].concat();
        let found = said.iter().any(|c| {
            c.type_ == "Stalled" && c.status == "True" && words.iter().all(|w| c.message.contains(w))
        });
        Ok(Seen::when(found, || format!("{said:?}")))
    })
    .await
}

async fn ddl(f: &Fleet) -> Result<()> {
    let with_ddl = Tables {
        ddl_from: Some(LocalRef::new("ddl")),
        ..bp::cluster(f).spec.tables.unwrap_or_default()
    };
    bp::small(f).await?;
    let before = f.map().await?;
    let mut c = bp::cluster(f);
    c.spec.tables = Some(with_ddl);
    f.apply(&c).await?;
    complains(f, &["ddl"]).await?;
    let good = "CREATE TABLE IF NOT EXISTS settings (\n  k VARCHAR(64) PRIMARY KEY, -- a key; and a semicolon\n  v JSON\n);";
    for (bad, words) in [
        ("CREATE TABLE IF NOT EXISTS broken (id INT PRIMARY;", vec![]),
        (
            "CREATE TABLE IF NOT EXISTS broken (id INTEGGER PRIMARY KEY);",
            vec![],
        ),
        ("DROP TABLE pins;", vec!["DROP"]),
        (
            "CREATE TABLE IF NOT EXISTS t (i INT); DELETE FROM pins;",
            vec!["DELETE"],
        ),
        ("CREATE TABLE IF NOT EXISTS mysql.evil (i INT);", vec!["mysql"]),
        ("ALTER TABLE pins ADD COLUMN x INT;", vec!["ALTER"]),
    ] {
        ddl_is(f, &[("10-settings.sql", good), ("20-bad.sql", bad)]).await?;
        let mut words = words;
        words.push("20-bad.sql");
        complains(f, &words).await?;
        f.write(&[0]).await?;
    }
    ensure!(f.map().await?.entries == before.entries, "the map changed");
    ddl_is(
        f,
        &[
            ("10-settings.sql", good),
            (
                "20-index.sql",
                "CREATE INDEX by_ts ON pins (ts);\nCREATE TABLE IF NOT EXISTS `audit` (id INT PRIMARY KEY);",
            ),
        ],
    )
    .await?;
    f.all_ready(REPAIR).await?;
    let shards: Vec<i32> = (0..8).collect();
    f.tables_on_both(PAIR, &shards, &["settings", "audit", "pins"])
        .await?;
    let index: i64 = f
        .server(PAIR, f.active(PAIR).await?)
        .await?
        .one("SELECT COUNT(DISTINCT TABLE_SCHEMA) FROM information_schema.STATISTICS WHERE INDEX_NAME = 'by_ts'")
        .await?;
    ensure!(index == 8, "the index is on {index} shards");
    // A range that is opened later has them too.
    f.apply(&bp::range(f, "r1", 8, 9, PAIR)).await?;
    f.all_ready(REPAIR).await?;
    f.tables_on_both(PAIR, &[8, 9], &["settings", "audit", "pins"])
        .await?;
    f.intact().await
}

async fn foreign(f: &Fleet) -> Result<()> {
    let theirs = Service {
        metadata: ObjectMeta {
            name: Some(names::active_service(PAIR)),
            labels: Some([("app".to_owned(), "web".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            selector: Some([("app".to_owned(), "web".to_owned())].into()),
            ports: Some(vec![ServicePort {
                port: 80,
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    f.apply(&theirs).await?;
    let before: Service = f.get(&names::active_service(PAIR)).await?;
    apply(f, |_| {}).await?;
    let said = f
        .condition::<MySQLPair>(PAIR, "Stalled", "True", "ChildRefused", REPAIR)
        .await?;
    ensure!(
        said.message.contains(&names::active_service(PAIR)),
        "the object is not named: {}",
        said.message
    );
    let after: Service = f.get(&names::active_service(PAIR)).await?;
    ensure!(
        after.metadata.resource_version == before.metadata.resource_version,
        "somebody else's Service was written to"
    );
    f.delete::<Service>(&names::active_service(PAIR)).await?;
    comes_up(f).await
}
