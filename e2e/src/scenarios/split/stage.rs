//! Where the scenarios of moves begin, and how they commit a split.

use super::watch::Ended;
use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::moves::{MOVED, run};
use crate::wait::{BRING_UP, SOON};
use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use shardwright::api::{Seed, ShardCluster, ShardRange};
use shardwright::core::placement::moves;
use shardwright::core::spans::SpanSet;

/// The pair that has nothing.
pub(super) const FRESH: &str = "p1";
/// A pair that serves others.
pub(super) const BUSY: &str = "p2";
/// The range of [`BUSY`].
pub(super) const OTHERS: &str = "rb";
/// The half of [`RANGE`] that moves in most scenarios.
pub(super) const HALF: &str = "r1";
/// Last shard of [`RANGE`].
pub(super) const LAST: i32 = 15;
/// First shard of [`HALF`].
pub(super) const MIDDLE: i32 = 8;

/// What [`RANGE`] has.
pub(super) fn all() -> SpanSet {
    run(0, LAST)
}
/// What [`HALF`] has.
pub(super) fn half() -> SpanSet {
    run(MIDDLE, LAST)
}
/// What [`OTHERS`] has.
pub(super) fn others() -> SpanSet {
    run(32, 35)
}
/// Every shard that is open.
pub(super) fn open() -> Vec<i32> {
    all().union(&others()).shards().collect()
}

/// Three pairs, two ranges, and a row in every shard.
///
/// # Errors
/// When they do not become ready.
pub(super) async fn fixture(f: &Fleet) -> Result<()> {
    f.apply(&cluster(f)).await?;
    for pair in [PAIR, FRESH, BUSY] {
        f.apply(&bp::pair(f, pair)).await?;
    }
    f.apply(&bp::range(f, RANGE, 0, LAST, PAIR)).await?;
    f.apply(&bp::range(f, OTHERS, 32, 35, BUSY)).await?;
    f.all_ready(BRING_UP * 2).await?;
    f.write(&open()).await
}

/// The clients of a crowd come on top of those of the operator and of the checks.
pub(super) fn cluster(f: &Fleet) -> ShardCluster {
    let mut cluster = bp::cluster(f);
    cluster.spec.mysql.config = Some(bp::SMALL.replace("max_connections = 60", "max_connections = 150"));
    cluster
}

/// Everything is where each scenario begins, and nothing is left of any move.
///
/// # Errors
/// When it is not in time.
pub(super) async fn begin(f: &Fleet) -> Result<()> {
    for range in f.api::<ShardRange>().list(&ListParams::default()).await?.items {
        let name = range.name_any();
        if name != RANGE && name != OTHERS {
            f.edit::<ShardRange>(&name, json!({"spec": {"deletionPolicy": "Retain"}}))
                .await?;
            f.delete::<ShardRange>(&name).await?;
            f.gone::<ShardRange>(&name, SOON).await?;
        }
    }
    f.edit::<ShardCluster>(&f.cluster, json!({"spec": {"migration": null}}))
        .await?;
    f.apply(&bp::range(f, RANGE, 0, LAST, PAIR)).await?;
    f.apply(&bp::range(f, OTHERS, 32, 35, BUSY)).await?;
    for range in [RANGE, OTHERS] {
        f.edit::<ShardRange>(range, json!({"spec": quick()})).await?;
    }
    f.at_home(&all(), PAIR, MOVED).await?;
    f.at_home(&others(), BUSY, MOVED).await?;
    let light = format!(
        "DELETE FROM {} WHERE JSON_EXTRACT(data, '$.filler') IS NOT NULL",
        f.table(MIDDLE).await?
    );
    f.server_of(MIDDLE).await?.within(SOON, &light).await?;
    f.nothing_left().await
}

/// Fields of a range's spec: nothing is waited for, and there is no time of grace.
pub(super) fn quick() -> Value {
    json!({
        "cutover": "Automatic", "cutoverWindow": null, "batchDeadlineSeconds": null, "transactionDeadlineSeconds": null,
        "retainSourceSeconds": 0,
    })
}

/// As [`quick`], and the way back stays open for longer than any scenario takes.
pub(super) fn retained() -> Value {
    let mut spec = quick();
    spec["retainSourceSeconds"] = json!(3600);
    spec
}

/// Splits [`RANGE`]: its second half is a range of its own, wished at `pair`. One commit, of two objects.
///
/// # Errors
/// What the API answered.
pub(super) async fn split(f: &Fleet, pair: &str, spec: Value) -> Result<()> {
    f.edit::<ShardRange>(RANGE, json!({"spec": {"last": MIDDLE - 1}}))
        .await?;
    apply_range(f, HALF, placed(f, MIDDLE, LAST, pair, spec)).await
}

/// Applies a range from all the fields of its spec, as a commit would; null fields are left out.
///
/// # Errors
/// What the API answered.
pub(super) async fn apply_range(f: &Fleet, name: &str, mut spec: Value) -> Result<()> {
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, v| !v.is_null());
    }
    let object = json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardRange",
        "metadata": {"name": name, "namespace": f.ns}, "spec": spec,
    });
    crate::shell::kubectl_with(
        &object.to_string(),
        &[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=strict",
            "-f",
            "-",
        ],
    )
    .await
    .map(|_| ())
}

/// Approves the cutover as a person does.
pub(super) async fn approve(f: &Fleet) -> Result<()> {
    f.world
        .tool(&["cutover", HALF, "--namespace", &f.ns])
        .await
        .map(|_| ())
}

/// Fields of the spec of a range of these shards at a pair, beside those in `spec`.
pub(super) fn placed(f: &Fleet, first: i32, last: i32, pair: &str, mut spec: Value) -> Value {
    spec["clusterRef"] = json!({"name": f.cluster});
    spec["first"] = json!(first);
    spec["last"] = json!(last);
    spec["pairRef"] = json!({"name": pair});
    spec
}

/// How the copies of the move between two pairs are made.
pub(super) async fn seeded_by(f: &Fleet, a: &str, b: &str, seed: Seed) -> Result<()> {
    f.between(a, b, "to be on record", SOON, |_, _| true).await?;
    let record = f.placement().await?;
    let found = moves::between(&record, a, b).map(|m| m.seed);
    ensure!(
        found == Some(seed),
        "the copies are made by {found:?} instead of {seed:?}"
    );
    Ok(())
}

/// Makes a shard that moves so large that copying it takes longer than a few looks; [`begin`] undoes it.
///
/// # Errors
/// What the server answered.
pub(super) async fn heavy(f: &Fleet) -> Result<()> {
    let table = f.table(MIDDLE).await?;
    let mut server = f.server_of(MIDDLE).await?;
    // The name in WITH is looked for in the default database first.
    server
        .within(SOON, &format!("USE {}", f.database(MIDDLE).await?))
        .await?;
    for _ in 0..3 {
        let sql = format!(
            "INSERT INTO {table} (data) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) \
             SELECT JSON_OBJECT('filler', REPEAT(SHA2(i, 256), 1600)) FROM n"
        );
        server.within(SOON, &sql).await?;
    }
    Ok(())
}

/// Each shard of [`HALF`] has gone once; its way back is ended, nothing is left of the move, and both pairs are whole.
///
/// # Errors
/// When it is not so.
pub(super) async fn moved_once(f: &Fleet, ended: &Ended) -> Result<()> {
    ensure!(
        ended.went.len() == 8,
        "8 shards were to move, once each: {:?}",
        ended.went
    );
    f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
        .await?;
    f.nothing_left().await?;
    f.recovered(PAIR).await?;
    f.recovered(FRESH).await?;
    f.intact().await
}
