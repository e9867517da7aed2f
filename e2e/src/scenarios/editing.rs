//! A fleet that serves is edited: ranges, tables, and mistakes. Whatever is applied, what serves goes on being served.

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE, TABLES};
use crate::fleet::Fleet;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Result, ensure};
use serde_json::json;
use shardwright::api::{MySQLPair, ShardCluster, ShardRange};
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "editing",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "second-range-later",
                second_range,
                "a range opened later: its tables are there, the map's version rises by one"
            ),
            scenario!(
                Short,
                "new-table-later",
                new_table,
                "tables added later are on every shard, also on shards opened after that"
            ),
            scenario!(
                Short,
                "removed-table-stays",
                removed_table,
                "a table taken out of the spec stays on the servers"
            ),
            scenario!(
                Short,
                "logical-split",
                logical_split,
                "one range becomes two on the same pair in one commit, nothing moves"
            ),
            scenario!(
                Short,
                "replace-one-by-two",
                replace,
                "a range is deleted and two others take its shards in one commit"
            ),
            scenario!(
                Short,
                "shrink-leaves-served",
                shrink,
                "shards that no range covers any more stay in the map and served"
            ),
            scenario!(
                Short,
                "delete-range-waits",
                delete_waits,
                "a deleted range waits until others have its shards; with Retain it goes at once"
            ),
            scenario!(
                Short,
                "pairref-changed",
                pairref_changed,
                "a changed pairRef says MigrationNotSupported and moves nothing"
            ),
            scenario!(
                Short,
                "bad-ranges",
                bad_ranges,
                "ranges that overlap, are too long, or name what is not there: not accepted, and nothing is lost"
            ),
            scenario!(
                Short,
                "good-range-made-bad",
                made_bad,
                "a good range edited into a bad one: what it had goes on being served"
            ),
        ],
    }
}

/// Every shard that is open, after the scenarios before.
async fn open(f: &Fleet) -> Result<Vec<i32>> {
    Ok(f.map().await?.shards())
}

/// Everything is Ready, every row is there, and every shard takes a new one.
async fn serves(f: &Fleet) -> Result<()> {
    f.all_ready(REPAIR).await?;
    let shards = open(f).await?;
    f.write(&shards).await?;
    f.intact().await
}

async fn second_range(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    f.apply(&bp::range(f, "r1", OPEN, OPEN + 3, PAIR)).await?;
    f.ready::<ShardRange>("r1", REPAIR).await?;
    let after = f
        .map_when("to have shard 11", SOON, |m| m.find(OPEN + 3).is_some())
        .await?;
    ensure!(
        after.version == before.version + 1,
        "the version went from {} to {}",
        before.version,
        after.version
    );
    f.tables_on_both(PAIR, &(OPEN..OPEN + 4).collect::<Vec<_>>(), &TABLES)
        .await?;
    serves(f).await
}

async fn new_table(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    let mut cluster = bp::cluster(f);
    if let Some(t) = cluster.spec.tables.as_mut() {
        t.objects.push(bp::object("users", 7));
        t.mappings.push(shardwright::api::shard_cluster::MappingTable {
            name: "user_has_boards".into(),
        });
    }
    f.apply(&cluster).await?;
    let new = ["users", "user_has_boards"];
    f.tables_on_both(PAIR, &open(f).await?, &new).await?;
    let map = f
        .map_when("to name the new type", SOON, |m| {
            m.json["types"]
                .as_array()
                .is_some_and(|t| t.iter().any(|t| t["typeId"] == 7 && t["table"] == "users"))
        })
        .await?;
    ensure!(
        map.version == before.version + 1,
        "{} → {}",
        before.version,
        map.version
    );
    f.all_ready(REPAIR).await?;
    f.apply(&bp::range(f, "r2", OPEN + 4, OPEN + 5, PAIR)).await?;
    f.ready::<ShardRange>("r2", REPAIR).await?;
    f.tables_on_both(PAIR, &[OPEN + 4, OPEN + 5], &new).await?;
    serves(f).await
}

async fn removed_table(f: &Fleet) -> Result<()> {
    f.apply(&bp::cluster(f)).await?;
    f.all_ready(REPAIR).await?;
    f.tables_on_both(PAIR, &open(f).await?, &["users", "user_has_boards"])
        .await?;
    serves(f).await
}

/// The map as seen by a shard: which pair, which hosts.
async fn homes(f: &Fleet) -> Result<Vec<(i32, String)>> {
    let map = f.map().await?;
    Ok(map
        .entries
        .iter()
        .flat_map(|e| (e.first..=e.last).map(|s| (s, e.active.host.clone())))
        .collect())
}

async fn same_homes(f: &Fleet, before: &[(i32, String)]) -> Result<()> {
    let now = homes(f).await?;
    ensure!(now == before, "shards moved: {before:?} → {now:?}");
    Ok(())
}

async fn logical_split(f: &Fleet) -> Result<()> {
    let before = homes(f).await?;
    f.apply(&bp::range(f, RANGE, 0, 3, PAIR)).await?;
    f.apply(&bp::range(f, "r0b", 4, 7, PAIR)).await?;
    f.ready::<ShardRange>("r0b", SOON).await?;
    served_as(f, RANGE, "p0:0-3").await?;
    served_as(f, "r0b", "p0:4-7").await?;
    covered(f, "True").await?;
    same_homes(f, &before).await?;
    serves(f).await
}

/// `status.servedBySummary` of a range.
async fn served_as(f: &Fleet, range: &str, summary: &str) -> Result<()> {
    wait::until(&format!("{range} to be served by {summary}"), SOON, || async {
        let r: ShardRange = f.get(range).await?;
        let s = r.status.unwrap_or_default().served_by_summary;
        Ok(Seen::when(s == summary, || s))
    })
    .await
}

async fn covered(f: &Fleet, status: &str) -> Result<()> {
    f.condition::<ShardCluster>(&f.cluster, "ShardsCovered", status, "", SOON)
        .await
        .map(|_| ())
}

async fn replace(f: &Fleet) -> Result<()> {
    let before = homes(f).await?;
    // As one commit: the two are there before the deletion, or after it; both orders have to do.
    f.delete::<ShardRange>(RANGE).await?;
    f.apply(&bp::range(f, "ra", 0, 1, PAIR)).await?;
    f.apply(&bp::range(f, "rb", 2, 3, PAIR)).await?;
    f.gone::<ShardRange>(RANGE, SOON).await?;
    f.ready::<ShardRange>("ra", SOON).await?;
    f.ready::<ShardRange>("rb", SOON).await?;
    same_homes(f, &before).await?;
    f.apply(&bp::range(f, "r0b1", 4, 5, PAIR)).await?;
    f.apply(&bp::range(f, "r0b2", 6, 7, PAIR)).await?;
    f.condition::<ShardRange>("r0b1", "Accepted", "False", "RangeOverlap", SOON)
        .await?;
    f.delete::<ShardRange>("r0b").await?;
    f.gone::<ShardRange>("r0b", SOON).await?;
    f.ready::<ShardRange>("r0b1", SOON).await?;
    f.ready::<ShardRange>("r0b2", SOON).await?;
    covered(f, "True").await?;
    same_homes(f, &before).await?;
    serves(f).await
}

async fn shrink(f: &Fleet) -> Result<()> {
    let before = homes(f).await?;
    f.edit::<ShardRange>("rb", json!({"spec": {"last": 2}})).await?;
    covered(f, "False").await?;
    served_as(f, "rb", "p0:2").await?;
    same_homes(f, &before).await?;
    f.write(&[3]).await?;
    f.apply(&bp::range(f, "rc", 3, 3, PAIR)).await?;
    f.ready::<ShardRange>("rc", SOON).await?;
    covered(f, "True").await?;
    same_homes(f, &before).await?;
    serves(f).await
}

async fn delete_waits(f: &Fleet) -> Result<()> {
    let before = homes(f).await?;
    f.delete::<ShardRange>("rc").await?;
    // It has to be seen waiting: its conditions speak of the deletion.
    wait::until("rc to say that it waits", SOON, || async {
        let r: ShardRange = f.get("rc").await?;
        let said = crate::fleet::conditions(&r);
        let waits = said.iter().any(|c| c.type_ == "Ready" && c.status == "False");
        Ok(Seen::when(
            r.metadata.deletion_timestamp.is_some() && waits,
            || format!("{said:?}"),
        ))
    })
    .await?;
    same_homes(f, &before).await?;
    f.write(&[3]).await?;
    f.apply(&bp::range(f, "rd", 3, 3, PAIR)).await?;
    f.gone::<ShardRange>("rc", SOON).await?;
    f.ready::<ShardRange>("rd", SOON).await?;
    f.edit::<ShardRange>("rd", json!({"spec": {"deletionPolicy": "Retain"}}))
        .await?;
    f.delete::<ShardRange>("rd").await?;
    f.gone::<ShardRange>("rd", SOON).await?;
    covered(f, "False").await?;
    same_homes(f, &before).await?;
    f.write(&[3]).await?;
    f.apply(&bp::range(f, "re", 3, 3, PAIR)).await?;
    f.ready::<ShardRange>("re", SOON).await?;
    covered(f, "True").await?;
    serves(f).await
}

async fn pairref_changed(f: &Fleet) -> Result<()> {
    let before = homes(f).await?;
    let map = f.map().await?;
    f.apply(&bp::paused_pair(f, "p9")).await?;
    f.edit::<ShardRange>("ra", json!({"spec": {"pairRef": {"name": "p9"}}}))
        .await?;
    let said = f
        .condition::<ShardRange>("ra", "Stalled", "True", "MigrationNotSupported", SOON)
        .await?;
    ensure!(
        said.message.contains(PAIR),
        "it does not say where the shards are: {}",
        said.message
    );
    same_homes(f, &before).await?;
    served_as(f, "ra", "p0:0-1").await?;
    f.write(&[0, 1]).await?;
    f.edit::<ShardRange>("ra", json!({"spec": {"pairRef": {"name": PAIR}}}))
        .await?;
    f.ready::<ShardRange>("ra", SOON).await?;
    ensure!(f.map().await?.version == map.version, "the map changed");
    f.delete::<MySQLPair>("p9").await?;
    f.gone::<MySQLPair>("p9", SOON).await?;
    serves(f).await
}

async fn bad_ranges(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    let mut other = bp::paused_pair(f, "stranger");
    other.spec.cluster_ref.name = "elsewhere".into();
    f.apply(&other).await?;
    let mut no_cluster = bp::range(f, "bad-cluster", 20, 21, PAIR);
    no_cluster.spec.cluster_ref.name = "nobody".into();
    let cases = [
        (bp::range(f, "bad-overlap", 7, 20, PAIR), "RangeOverlap"),
        (bp::range(f, "bad-total", 60, 64, PAIR), "BeyondTotal"),
        (bp::range(f, "bad-pair", 30, 31, "nobody"), "PairNotFound"),
        (
            bp::range(f, "bad-stranger", 32, 33, "stranger"),
            "PairOfOtherCluster",
        ),
        (no_cluster, "ClusterNotFound"),
    ];
    for (range, reason) in &cases {
        f.apply(range).await?;
        let name = range.metadata.name.as_deref().unwrap_or_default();
        let said = f
            .condition::<ShardRange>(name, "Accepted", "False", reason, SOON)
            .await?;
        ensure!(!said.message.is_empty(), "{reason} has no message");
        f.condition::<ShardRange>(name, "Ready", "False", "", SOON)
            .await?;
    }
    // What is good goes on; nothing was made for what is bad.
    f.write(&open(f).await?).await?;
    let databases = f
        .server(PAIR, f.active(PAIR).await?)
        .await?
        .databases("db")
        .await?;
    ensure!(
        databases.len() == before.shards().len(),
        "databases were made: {databases:?}"
    );
    ensure!(f.map().await?.text == before.text, "the map changed");
    for (range, _) in &cases {
        let name = range.metadata.name.as_deref().unwrap_or_default();
        f.delete::<ShardRange>(name).await?;
        f.gone::<ShardRange>(name, SOON).await?;
    }
    f.delete::<MySQLPair>("stranger").await?;
    f.gone::<MySQLPair>("stranger", SOON).await?;
    serves(f).await
}

async fn made_bad(f: &Fleet) -> Result<()> {
    let before = f.map().await?;
    for (patch, reason) in [
        (json!({"spec": {"first": 0, "last": 4}}), "RangeOverlap"),
        (json!({"spec": {"first": 0, "last": 64}}), "BeyondTotal"),
    ] {
        f.edit::<ShardRange>("ra", patch).await?;
        let said = f
            .condition::<ShardRange>("ra", "Accepted", "False", "", SOON)
            .await?;
        f.note(format!("expected {reason}, said {said:?}"));
        f.write(&[0, 1]).await?;
        wait::throughout("the map", Duration::from_secs(1), || async {
            let now = f.map().await?;
            Ok(Seen::when(now.entries == before.entries, || now.text))
        })
        .await?;
    }
    f.edit::<ShardRange>("ra", json!({"spec": {"first": 0, "last": 1}}))
        .await?;
    f.ready::<ShardRange>("ra", SOON).await?;
    serves(f).await
}
