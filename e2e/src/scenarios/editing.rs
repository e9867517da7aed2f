//! A fleet that serves is edited: ranges, tables, and mistakes. Whatever is applied, what serves goes on being served.

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE, TABLES};
use crate::fleet::Fleet;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use shardwright::api::shard_cluster::MappingTable;
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
                "tables added later are on every shard, also on shards opened after that; taken out of the spec they stay"
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
                "pairref-to-paused-pair",
                pairref_to_paused,
                "a range that is wished at a pair that has no servers stays where it is, says so, and is Ready again when the wish is taken back"
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

/// What each scenario begins with, whatever there was before: `r0` has the first 8 shards, `rest` all further ones that are
/// open. Gives the first shard that is not open.
async fn begin(f: &Fleet) -> Result<i32> {
    let last = open(f).await?.into_iter().max().unwrap_or(0);
    for range in f.api::<ShardRange>().list(&ListParams::default()).await?.items {
        let name = range.name_any();
        if name != RANGE && name != "rest" {
            f.edit::<ShardRange>(&name, json!({"spec": {"deletionPolicy": "Retain"}}))
                .await?;
            f.delete::<ShardRange>(&name).await?;
            f.gone::<ShardRange>(&name, SOON).await?;
        }
    }
    f.apply(&bp::range(f, RANGE, 0, OPEN - 1, PAIR)).await?;
    if last >= OPEN {
        f.apply(&bp::range(f, "rest", OPEN, last, PAIR)).await?;
    }
    f.apply(&bp::cluster(f)).await?;
    f.all_ready(REPAIR).await?;
    Ok(last + 1)
}

/// Everything is Ready, every row is there, and every shard takes a new one.
async fn serves(f: &Fleet) -> Result<()> {
    f.all_ready(REPAIR).await?;
    let shards = open(f).await?;
    f.write(&shards).await?;
    f.intact().await
}

async fn second_range(f: &Fleet) -> Result<()> {
    let next = begin(f).await?;
    let before = f.map().await?;
    f.apply(&bp::range(f, "r1", next, next + 3, PAIR)).await?;
    f.ready::<ShardRange>("r1", REPAIR).await?;
    let after = f
        .map_when("to have the new shards", SOON, |m| m.find(next + 3).is_some())
        .await?;
    ensure!(
        after.version == before.version + 1,
        "the version went from {} to {}",
        before.version,
        after.version
    );
    f.tables_on_both(PAIR, &(next..next + 4).collect::<Vec<_>>(), &TABLES)
        .await?;
    serves(f).await
}

/// Tables that are added, and taken out again.
const NEW: [&str; 2] = ["users", "user_has_boards"];

async fn new_table(f: &Fleet) -> Result<()> {
    let next = begin(f).await?;
    let before = f.map().await?;
    let mut cluster = bp::cluster(f);
    if let Some(t) = cluster.spec.tables.as_mut() {
        t.objects.push(bp::object(NEW[0], 7));
        t.mappings.push(MappingTable { name: NEW[1].into() });
    }
    f.apply(&cluster).await?;
    f.tables_on_both(PAIR, &open(f).await?, &NEW).await?;
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
    f.apply(&bp::range(f, "r2", next, next + 1, PAIR)).await?;
    f.ready::<ShardRange>("r2", REPAIR).await?;
    f.tables_on_both(PAIR, &[next, next + 1], &NEW).await?;
    // Taken out of the spec again, they stay where they are.
    f.apply(&bp::cluster(f)).await?;
    f.all_ready(REPAIR).await?;
    f.tables_on_both(PAIR, &open(f).await?, &NEW).await?;
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
    begin(f).await?;
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
    begin(f).await?;
    let before = homes(f).await?;
    // As one commit: the two are there after the deletion, or before it; both orders have to do.
    f.delete::<ShardRange>(RANGE).await?;
    f.apply(&bp::range(f, "ra", 0, 3, PAIR)).await?;
    f.apply(&bp::range(f, "rb", 4, 7, PAIR)).await?;
    f.gone::<ShardRange>(RANGE, SOON).await?;
    f.ready::<ShardRange>("ra", SOON).await?;
    f.ready::<ShardRange>("rb", SOON).await?;
    same_homes(f, &before).await?;
    f.apply(&bp::range(f, "rb1", 4, 5, PAIR)).await?;
    f.apply(&bp::range(f, "rb2", 6, 7, PAIR)).await?;
    f.condition::<ShardRange>("rb1", "Accepted", "False", "RangeOverlap", SOON)
        .await?;
    f.delete::<ShardRange>("rb").await?;
    f.gone::<ShardRange>("rb", SOON).await?;
    f.ready::<ShardRange>("rb1", SOON).await?;
    f.ready::<ShardRange>("rb2", SOON).await?;
    covered(f, "True").await?;
    same_homes(f, &before).await?;
    serves(f).await
}

async fn shrink(f: &Fleet) -> Result<()> {
    begin(f).await?;
    let before = homes(f).await?;
    f.edit::<ShardRange>(RANGE, json!({"spec": {"last": 5}})).await?;
    covered(f, "False").await?;
    served_as(f, RANGE, "p0:0-5").await?;
    same_homes(f, &before).await?;
    f.write(&[6, 7]).await?;
    f.apply(&bp::range(f, "rc", 6, 7, PAIR)).await?;
    f.ready::<ShardRange>("rc", SOON).await?;
    covered(f, "True").await?;
    same_homes(f, &before).await?;
    serves(f).await
}

async fn delete_waits(f: &Fleet) -> Result<()> {
    begin(f).await?;
    f.apply(&bp::range(f, RANGE, 0, 5, PAIR)).await?;
    f.apply(&bp::range(f, "rc", 6, 7, PAIR)).await?;
    f.ready::<ShardRange>("rc", SOON).await?;
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
    f.write(&[6, 7]).await?;
    f.apply(&bp::range(f, "rd", 6, 7, PAIR)).await?;
    f.gone::<ShardRange>("rc", SOON).await?;
    f.ready::<ShardRange>("rd", SOON).await?;
    f.edit::<ShardRange>("rd", json!({"spec": {"deletionPolicy": "Retain"}}))
        .await?;
    f.delete::<ShardRange>("rd").await?;
    f.gone::<ShardRange>("rd", SOON).await?;
    covered(f, "False").await?;
    same_homes(f, &before).await?;
    f.write(&[6, 7]).await?;
    f.apply(&bp::range(f, "re", 6, 7, PAIR)).await?;
    f.ready::<ShardRange>("re", SOON).await?;
    covered(f, "True").await?;
    serves(f).await
}

async fn pairref_to_paused(f: &Fleet) -> Result<()> {
    begin(f).await?;
    let before = homes(f).await?;
    let map = f.map().await?;
    f.apply(&bp::paused_pair(f, "p9")).await?;
    f.edit::<ShardRange>(RANGE, json!({"spec": {"pairRef": {"name": "p9"}}}))
        .await?;
    f.condition::<ShardRange>(RANGE, "Ready", "False", "", SOON)
        .await?;
    wait::throughout("the shards", Duration::from_secs(5), || async {
        let now = homes(f).await?;
        Ok(Seen::when(now == before, || format!("{before:?} → {now:?}")))
    })
    .await?;
    served_as(f, RANGE, "p0:0-7").await?;
    f.write(&[0, 1]).await?;
    f.edit::<ShardRange>(RANGE, json!({"spec": {"pairRef": {"name": PAIR}}}))
        .await?;
    f.ready::<ShardRange>(RANGE, SOON).await?;
    f.no_moves(SOON).await?;
    ensure!(f.map().await?.version == map.version, "the map changed");
    f.delete::<MySQLPair>("p9").await?;
    f.gone::<MySQLPair>("p9", SOON).await?;
    serves(f).await
}

async fn bad_ranges(f: &Fleet) -> Result<()> {
    begin(f).await?;
    let before = f.map().await?;
    let mut other = bp::paused_pair(f, "stranger");
    other.spec.cluster_ref.name = "elsewhere".into();
    f.apply(&other).await?;
    let mut no_cluster = bp::range(f, "bad-cluster", 50, 51, PAIR);
    no_cluster.spec.cluster_ref.name = "nobody".into();
    let cases = [
        (bp::range(f, "bad-overlap", 7, 40, PAIR), "RangeOverlap"),
        (bp::range(f, "bad-total", 60, 64, PAIR), "BeyondTotal"),
        (bp::range(f, "bad-pair", 52, 53, "nobody"), "PairNotFound"),
        (
            bp::range(f, "bad-stranger", 54, 55, "stranger"),
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
    begin(f).await?;
    f.apply(&bp::range(f, RANGE, 0, 3, PAIR)).await?;
    f.apply(&bp::range(f, "rm", 4, 7, PAIR)).await?;
    f.ready::<ShardRange>("rm", SOON).await?;
    let before = f.map().await?;
    for (patch, reason) in [
        (json!({"spec": {"first": 0, "last": 4}}), "RangeOverlap"),
        (json!({"spec": {"first": 0, "last": 64}}), "BeyondTotal"),
    ] {
        f.edit::<ShardRange>(RANGE, patch).await?;
        f.condition::<ShardRange>(RANGE, "Accepted", "False", reason, SOON)
            .await?;
        f.write(&[0, 1]).await?;
        wait::throughout("the map", Duration::from_secs(1), || async {
            let now = f.map().await?;
            Ok(Seen::when(now.entries == before.entries, || now.text))
        })
        .await?;
    }
    f.edit::<ShardRange>(RANGE, json!({"spec": {"first": 0, "last": 3}}))
        .await?;
    f.ready::<ShardRange>(RANGE, SOON).await?;
    serves(f).await
}
