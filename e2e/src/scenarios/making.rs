//! Other ways to begin: a layout, and mod shards.

use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::fleet::Fleet;
use crate::scenario::{Fixture, Group};
use crate::wait::{BRING_UP, REPAIR, SOON, Seen};
use crate::{scenario, wait};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use shardwright::api::shard_cluster::{HashAlgorithm, Layout, Routing, RoutingMode};
use shardwright::api::{MySQLPair, ShardCluster, ShardRange};
use shardwright::core::key_hash;

/// The group.
pub fn group() -> Group {
    Group {
        name: "making",
        alone: false,
        fixture: Fixture::Empty,
        scenarios: vec![
            scenario!(
                Short,
                "quick-start-layout",
                layout,
                "a layout makes pairs and ranges once; afterwards they are ordinary objects"
            ),
            scenario!(
                Short,
                "keyhash",
                keyhash,
                "mod shards: the map says so, 1.2.3.4 is located at 1537 and written there"
            ),
        ],
    }
}

async fn layout(f: &Fleet) -> Result<()> {
    let mut c = bp::cluster(f);
    c.spec.layout = Some(Layout { pairs: 2, open: 9 });
    f.apply(&c).await?;
    f.ready::<ShardCluster>(&f.cluster, BRING_UP).await?;
    f.all_ready(SOON).await?;
    let pairs = f.api::<MySQLPair>().list(&ListParams::default()).await?;
    let mut names: Vec<_> = pairs.items.iter().map(kube::ResourceExt::name_any).collect();
    names.sort();
    ensure!(names == ["c-p0", "c-p1"], "pairs {names:?}");
    let ranges = f.api::<ShardRange>().list(&ListParams::default()).await?;
    let mut spans: Vec<_> = ranges
        .items
        .iter()
        .map(|r| {
            (
                r.name_any(),
                r.spec.first,
                r.spec.last,
                r.spec.pair_ref.name.clone(),
            )
        })
        .collect();
    spans.sort();
    let even = spans.len() == 2
        && spans[0].1 == 0
        && spans[0].2 + 1 == spans[1].1
        && spans[1].2 == 8
        && (4..=5).contains(&(spans[0].2 + 1));
    ensure!(even, "ranges {spans:?}");
    ensure!(
        pairs.items.iter().all(|p| p.owner_references().is_empty())
            && ranges.items.iter().all(|r| r.owner_references().is_empty()),
        "seeded objects are owned"
    );
    for pair in ["c-p0", "c-p1"] {
        f.healthy(pair).await?;
    }
    f.write(&(0..9).collect::<Vec<_>>()).await?;
    f.intact().await?;
    counts(f).await?;

    // It is carried out once: it cannot be changed, and a deleted range is not made again.
    let said = f
        .edit_refused::<ShardCluster>(&f.cluster, json!({"spec": {"layout": {"pairs": 3, "open": 12}}}))
        .await?;
    ensure!(said.contains("it is carried out once"), "it says {said}");
    f.edit::<ShardCluster>(&f.cluster, json!({"spec": {"layout": null}}))
        .await?;
    f.edit::<ShardRange>("c-r1", json!({"spec": {"last": 9}})).await?;
    f.all_ready(REPAIR).await?;
    f.map_when("to have shard 9", SOON, |m| m.find(9).is_some())
        .await?;
    f.edit::<ShardRange>("c-r0", json!({"spec": {"deletionPolicy": "Retain"}}))
        .await?;
    f.delete::<ShardRange>("c-r0").await?;
    f.gone::<ShardRange>("c-r0", SOON).await?;
    wait::throughout(
        "the number of pairs and ranges",
        std::time::Duration::from_secs(3),
        || async {
            let p = f
                .api::<MySQLPair>()
                .list(&ListParams::default())
                .await?
                .items
                .len();
            let r = f
                .api::<ShardRange>()
                .list(&ListParams::default())
                .await?
                .items
                .len();
            Ok(Seen::when(p == 2 && r == 1, || format!("{p} pairs, {r} ranges")))
        },
    )
    .await?;
    f.intact().await
}

async fn counts(f: &Fleet) -> Result<()> {
    let cluster: ShardCluster = f.get(&f.cluster).await?;
    let s = cluster.status.context("no status")?;
    ensure!(
        s.open_shards == 9 && s.ranges == 2 && s.pairs_ready == "2/2",
        "status: {} open, {} ranges, {} pairs",
        s.open_shards,
        s.ranges,
        s.pairs_ready
    );
    Ok(())
}

const MODULUS: i32 = 4096;
/// md5("1.2.3.4") mod 4096.
const SHARD: i32 = 1537;

async fn keyhash(f: &Fleet) -> Result<()> {
    let mut c = bp::cluster(f);
    c.spec.shards.total = MODULUS;
    c.spec.routing = Some(Routing {
        mode: RoutingMode::KeyHash,
        algorithm: Some(HashAlgorithm::MD5),
        modulus: Some(MODULUS),
    });
    f.apply(&c).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, SHARD - 1, SHARD + 1, PAIR)).await?;
    f.ready::<ShardRange>(RANGE, BRING_UP).await?;
    let map = f
        .map_when("to have the shard", SOON, |m| m.find(SHARD).is_some())
        .await?;
    let routing = &map.json["routing"];
    ensure!(
        routing["mode"] == "KeyHash" && routing["algorithm"] == "MD5" && routing["modulus"] == MODULUS,
        "the map says {routing}"
    );
    let shard = key_hash::shard(b"1.2.3.4", MODULUS).context("no shard")?;
    ensure!(shard == SHARD, "1.2.3.4 is at {shard}");
    let entry = map.entry(shard)?;
    let mut app = f.app(&entry.pair, entry.active_ordinal()?).await?;
    let id = app
        .insert("INSERT INTO db01537.pins (data) VALUES (JSON_OBJECT('key', '1.2.3.4'))")
        .await?;
    let found: String = app
        .one(&format!(
            "SELECT JSON_UNQUOTE(JSON_EXTRACT(data, '$.key')) FROM db01537.pins WHERE local_id = {id}"
        ))
        .await?;
    ensure!(found == "1.2.3.4", "read {found}");
    // The tool says the same.
    let args = [
        "locate",
        "--key",
        "1.2.3.4",
        "--cluster",
        &f.cluster,
        "--namespace",
        &f.ns,
        "-o",
        "json",
    ];
    let told: serde_json::Value = serde_json::from_str(&f.world.tool(&args).await?)?;
    ensure!(
        told["shard"] == SHARD && told["database"] == "db01537",
        "locate says {told}"
    );
    f.healthy(PAIR).await
}
