//! What the API refuses at apply, with words that help; no fleet is needed.

use crate::blueprint as bp;
use crate::fleet::Fleet;
use crate::scenario;
use crate::scenario::{Fixture, Group};
use crate::shell;
use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use shardwright::api::shard_cluster::{HashAlgorithm, Layout, Routing, RoutingMode};
use shardwright::api::{MySQLPair, ShardCluster, ShardRange};
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "refused",
        alone: false,
        fixture: Fixture::Empty,
        scenarios: vec![
            scenario!(
                Short,
                "refused-clusters",
                clusters,
                "bad ShardClusters are refused at apply, with the reason"
            ),
            scenario!(
                Short,
                "refused-ranges-and-pairs",
                ranges_and_pairs,
                "bad ShardRanges and MySQLPairs are refused at apply, with the reason"
            ),
            scenario!(
                Short,
                "refused-changes",
                changes,
                "immutable fields stay, with the reason"
            ),
            scenario!(
                Short,
                "refused-by-kubectl",
                by_kubectl,
                "kubectl apply shows these words, and knows unknown fields"
            ),
        ],
    }
}

fn says(found: &str, expected: &str) -> Result<()> {
    ensure!(found.contains(expected), "expected {expected:?} in: {found}");
    Ok(())
}

async fn cluster(f: &Fleet, spoil: impl FnOnce(&mut ShardCluster), expected: &str) -> Result<()> {
    let mut c = bp::cluster(f);
    spoil(&mut c);
    says(&f.refused(&c).await?, expected)
}

fn layout(pairs: i32, open: i32) -> Layout {
    Layout { pairs, open }
}

fn routing(mode: RoutingMode, modulus: Option<i32>) -> Routing {
    Routing {
        mode,
        algorithm: modulus.map(|_| HashAlgorithm::MD5),
        modulus,
    }
}

async fn clusters(f: &Fleet) -> Result<()> {
    system_names(f).await?;
    let tables = |c: &mut ShardCluster| c.spec.tables.clone().unwrap_or_default();
    cluster(
        f,
        |c| c.metadata.name = Some("c".repeat(41)),
        "at most 40 characters",
    )
    .await?;
    cluster(
        f,
        |c| c.metadata.name = Some("0c".into()),
        "must begin with a letter",
    )
    .await?;
    cluster(f, |c| c.spec.shards.total = 0, "greater than or equal to 1").await?;
    cluster(f, |c| c.spec.shards.total = 65_537, "less than or equal to 65536").await?;
    cluster(f, |c| c.spec.shards.digits = 1, "`digits` must be enough").await?;
    cluster(f, |c| c.spec.shards.digits = 6, "digits").await?;
    cluster(
        f,
        |c| c.spec.shards.database_prefix = "DB`; DROP".into(),
        "databasePrefix",
    )
    .await?;
    cluster(
        f,
        |c| c.spec.layout = Some(layout(1, 65)),
        "`layout.open` must not exceed `shards.total`",
    )
    .await?;
    cluster(
        f,
        |c| c.spec.layout = Some(layout(9, 8)),
        "`pairs` must not exceed `open`",
    )
    .await?;
    cluster(
        f,
        |c| c.spec.routing = Some(routing(RoutingMode::KeyHash, Some(63))),
        "`routing.modulus` must equal",
    )
    .await?;
    cluster(
        f,
        |c| c.spec.routing = Some(routing(RoutingMode::KeyHash, None)),
        "must be set in mode KeyHash",
    )
    .await?;
    cluster(
        f,
        |c| c.spec.routing = Some(routing(RoutingMode::ID, Some(64))),
        "may not be set in mode ID",
    )
    .await?;
    cluster(
        f,
        |c| {
            let mut t = tables(c);
            t.objects.push(bp::object("users", 1));
            c.spec.tables = Some(t);
        },
        "`objects[].typeId` must be unique",
    )
    .await?;
    cluster(
        f,
        |c| {
            let mut t = tables(c);
            t.objects.push(bp::object("users", 1024));
            c.spec.tables = Some(t);
        },
        "less than or equal to 1023",
    )
    .await?;
    cluster(
        f,
        |c| {
            let mut t = tables(c);
            t.objects.push(bp::object("board_has_pins", 9));
            c.spec.tables = Some(t);
        },
        "may not have the same name",
    )
    .await?;
    cluster(f, |c| c.spec.mysql.image = String::new(), "image").await?;
    cluster(
        f,
        |c| c.spec.mysql.pod_labels = [("shardwright.dev/pair".to_owned(), "x".to_owned())].into(),
        "those are the operator's",
    )
    .await?;
    cluster(
        f,
        |c| c.spec.mysql.pod_annotations = [("shardwright.dev/spec-hash".to_owned(), "x".to_owned())].into(),
        "those are the operator's",
    )
    .await
}

/// A name for every shard that is also MySQL's own, so that a grant on it would be one on the accounts.
async fn system_names(f: &Fleet) -> Result<()> {
    for (prefix, digits) in [("mys", 2), ("s", 2), ("performance_s", 5)] {
        cluster(
            f,
            |c| {
                c.spec.shards.database_prefix = prefix.into();
                c.spec.shards.digits = digits;
            },
            "databasePrefix",
        )
        .await?;
    }
    Ok(())
}

async fn ranges_and_pairs(f: &Fleet) -> Result<()> {
    says(
        &f.refused(&bp::range(f, "r", 5, 4, "p0")).await?,
        "`first` must not be greater than `last`",
    )?;
    says(
        &f.refused(&bp::range(f, "r", -1, 4, "p0")).await?,
        "greater than or equal to 0",
    )?;
    says(
        &f.refused(&bp::range(f, "r", 0, 65_536, "p0")).await?,
        "less than or equal to 65535",
    )?;
    says(&f.refused(&bp::range(f, "r", 0, 4, "")).await?, "pairRef.name")?;
    says(
        &f.refused(&bp::pair(f, &"p".repeat(46))).await?,
        "at most 45 characters",
    )?;
    says(
        &f.refused(&bp::pair(f, "p.0")).await?,
        "must begin with a letter and hold only a-z, 0-9 and -",
    )
}

async fn changes(f: &Fleet) -> Result<()> {
    // Nothing is to be made of it: no pair, no range.
    let c = f.cluster.clone();
    let mut with_layout = bp::cluster(f);
    with_layout.metadata.name = Some("laid-out".into());
    with_layout.spec.layout = Some(layout(1, 8));
    with_layout.spec.mysql.image = "mysql:there-is-none".into();
    f.apply(&with_layout).await?;
    let said = f
        .edit_refused::<ShardCluster>("laid-out", json!({"spec": {"layout": {"open": 9}}}))
        .await?;
    says(&said, "`layout` may not be changed")?;
    f.delete::<ShardCluster>("laid-out").await?;
    f.apply(&bp::cluster(f)).await?;
    for (patch, expected) in [
        (
            json!({"spec": {"shards": {"total": 128}}}),
            "`shards` is immutable",
        ),
        (
            json!({"spec": {"shards": {"databasePrefix": "x"}}}),
            "`shards` is immutable",
        ),
        (json!({"spec": {"shards": null}}), "shards"),
        (
            json!({"spec": {"routing": {"mode": "KeyHash", "algorithm": "MD5", "modulus": 64}}}),
            "`routing` is immutable",
        ),
        (
            json!({"spec": {"mysql": {"storage": {"size": "1023Mi"}}}}),
            "`size` may not shrink",
        ),
        (
            json!({"spec": {"mysql": {"acknowledgementTimeoutSeconds": 3}}}),
            "`acknowledgementTimeoutSeconds` may not be set with durability Strict",
        ),
        (
            json!({"spec": {"mysql": {"storage": {"className": "other"}}}}),
            "`className` is immutable",
        ),
    ] {
        says(&f.edit_refused::<ShardCluster>(&c, patch).await?, expected)?;
    }
    f.apply(&bp::paused_pair(f, "p0")).await?;
    for (patch, expected) in [
        (
            json!({"spec": {"clusterRef": {"name": "other"}}}),
            "`clusterRef` is immutable",
        ),
        (
            json!({"spec": {"mysql": {"storage": {"size": "2Gi"}}}}),
            "`mysql.storage` is immutable",
        ),
        (
            json!({"spec": {"mysql": {"durability": "Strict", "acknowledgementTimeoutSeconds": 3}}}),
            "`acknowledgementTimeoutSeconds` may not be set with durability Strict",
        ),
        (json!({"spec": {"preferredActive": "C"}}), "preferredActive"),
    ] {
        says(&f.edit_refused::<MySQLPair>("p0", patch).await?, expected)?;
    }
    f.apply(&bp::range(f, "r0", 60, 70, "p0")).await?;
    let patch = json!({"spec": {"clusterRef": {"name": "other"}}});
    says(
        &f.edit_refused::<ShardRange>("r0", patch).await?,
        "`clusterRef` is immutable",
    )?;
    f.delete::<ShardRange>("r0").await?;
    f.delete::<MySQLPair>("p0").await?;
    f.delete::<ShardCluster>(&c).await?;
    f.gone::<ShardRange>("r0", crate::wait::SOON).await?;
    f.gone::<MySQLPair>("p0", crate::wait::SOON).await?;
    f.gone::<ShardCluster>(&c, crate::wait::SOON).await
}

async fn by_kubectl(f: &Fleet) -> Result<()> {
    let apply = async |yaml: String| {
        let args = ["apply", "-n", &f.ns, "--dry-run=server", "-f", "-"];
        shell::say(Duration::from_secs(60), Some(&yaml), "kubectl", &args).await
    };
    let range = bp::range(f, "r", 5, 4, "p0");
    let said = apply(serde_saphyr::to_string(&range)?).await?;
    ensure!(!said.ok, "first > last was accepted");
    says(&said.err, "`first` must not be greater than `last`")?;
    let mut unknown = serde_json::to_value(bp::range(f, "r", 0, 4, "p0"))?;
    unknown["spec"]["lsat"] = json!(4);
    let said = apply(unknown.to_string()).await?;
    ensure!(!said.ok, "an unknown field was accepted");
    says(&said.err, "lsat")?;
    let mut wrong = serde_json::to_value(bp::cluster(f))?;
    wrong["spec"]["mysql"]["storage"]["size"] = json!("a lot");
    let said = apply(wrong.to_string()).await?;
    ensure!(!said.ok, "a size that is none was accepted: {}", said.out);
    let good = bp::cluster(f);
    ensure!(
        good.spec.mysql.storage.size == Quantity("1Gi".into()),
        "the blueprint changed"
    );
    let said = apply(serde_saphyr::to_string(&good)?).await?;
    ensure!(said.ok, "a good one was refused: {}", said.err);
    Ok(())
}
