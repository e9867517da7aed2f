//! `make demo-split`: half of a range of the demo fleet moves to a pair of its own while clients write to every shard of it, to be watched.

use crate::blueprint as bp;
use crate::crowd::{Crowd, Pace, blocks, quantile};
use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::world::World;
use crate::writer::Ending;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use shardwright::api::{MySQLPair, ShardRange};
use shardwright::core::placement;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// For the whole of it.
const LIMIT: Duration = Duration::from_secs(1800);

/// Which fleet, and which half.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Namespace of the fleet.
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Name of the ShardCluster.
    #[arg(long)]
    pub cluster: String,
    /// The range that is split.
    #[arg(long)]
    pub range: String,
    /// The new pair, and the name of the new range.
    #[arg(long)]
    pub to: String,
}

/// Splits it, shows how far it is, and says what the clients have noticed.
///
/// # Errors
/// When the shards do not arrive, or an acknowledged row is lost.
pub async fn run(world: &World, options: &Options) -> Result<()> {
    let fleet = Fleet::new(world.clone(), options.namespace.clone(), &options.cluster);
    let range: ShardRange = fleet.get(&options.range).await?;
    let there = fleet.get_opt::<MySQLPair>(&options.to).await?.is_some()
        || fleet.get_opt::<ShardRange>(&options.to).await?.is_some();
    ensure!(
        !there,
        "a pair or a range {0} is there already: the demo was split before. Begin anew (make demo-down, make demo), or give --to another name",
        options.to
    );
    let (first, last) = (range.spec.first, range.spec.last);
    ensure!(first < last, "{} has one shard", options.range);
    let middle = first + (last - first + 1) / 2;
    println!(
        "What is committed: a pair, the range {} made smaller, and another one:",
        options.range
    );
    println!("  MySQLPair  {}", options.to);
    println!("  ShardRange {}: {first} to {}", options.range, middle - 1);
    println!(
        "  ShardRange {}: {middle} to {last}, pairRef {}",
        options.to, options.to
    );
    fleet.apply(&bp::pair(&fleet, &options.to)).await?;
    fleet.ready::<MySQLPair>(&options.to, LIMIT).await?;
    let shards: Vec<i32> = (first..=last).collect();
    let crowd = fleet
        .crowd(
            &shards,
            Pace {
                clients: 8,
                pause: Duration::ZERO,
                chaser_pause: Duration::ZERO,
                chasers: 2,
            },
        )
        .await?;
    println!(
        "The pair is ready. Clients write to all {} shards, half of them in transactions.",
        shards.len()
    );
    let begun = Instant::now();
    fleet
        .edit::<ShardRange>(&options.range, json!({"spec": {"last": middle - 1}}))
        .await?;
    fleet
        .apply(&bp::range(&fleet, &options.to, middle, last, &options.to))
        .await?;
    follow(&fleet, options, &crowd, (middle, last), begun).await?;
    crowd.written_since(Instant::now(), wait::SOON).await?;
    fleet.ready::<ShardRange>(&options.to, LIMIT).await?;
    let said = fleet.migration(&options.to).await?;
    let tried = crowd.stop().await?;
    let whole = fleet.whole(&tried).await?;
    let blocked: Vec<Duration> = blocks(&tried).into_iter().map(|m| m.block).collect();
    let at = |share| quantile(&blocked, share).unwrap_or_default().as_millis();
    println!(
        "\n{} shards moved in {:.0} s.",
        blocked.len(),
        begun.elapsed().as_secs_f64()
    );
    println!(
        "By their clients' watch, from the last row at the old pair to the first one at the new pair: half of them {} ms, 99 of 100 {} ms, the longest {} ms.",
        at(50),
        at(99),
        at(100)
    );
    println!("By the operator's: {}", text(&said["writeBlock"]["summary"]));
    println!(
        "{} rows were acknowledged, none is lost; {} were refused, of {} nobody knows.",
        whole.acknowledged, whole.failed, whole.unknown
    );
    println!(
        "The old copies follow until {}: set pairRef back, and the shards come back with all that was written since.",
        text(&said["retainUntil"])
    );
    Ok(())
}

/// Prints what has changed, until all are there.
async fn follow(
    fleet: &Fleet,
    options: &Options,
    crowd: &Crowd,
    (middle, last): (i32, i32),
    begun: Instant,
) -> Result<()> {
    let shown = Mutex::new(String::new());
    wait::until("the shards to arrive", LIMIT, || async {
        let record = fleet.placement().await?;
        let there = placement::shards(&record, |s| s.pair == options.to);
        let left: Vec<i32> = (middle..=last).filter(|s| !there.contains(*s)).collect();
        crowd.chase(left.clone());
        let said = fleet.migration(&options.to).await?;
        let line = format!(
            "{:<12} {:<18} {}",
            text(&said["phase"]),
            text(&said["progress"]),
            more(&said)
        );
        if let Ok(mut shown) = shown.lock()
            && *shown != line
        {
            println!(
                "{:6.1}s  {line}  {} rows/s",
                begun.elapsed().as_secs_f64(),
                lately(crowd)
            );
            shown.clone_from(&line);
        }
        Ok(Seen::when(left.is_empty(), || line))
    })
    .await
    .context("the split")
}

fn more(said: &Value) -> String {
    let mut parts = vec![];
    if let Some(lag) = said["lagTransactions"].as_i64() {
        parts.push(format!("{lag} transactions behind"));
    }
    if let Some(eta) = said["etaSeconds"].as_i64() {
        parts.push(format!("{eta} s to go"));
    }
    if let Some(block) = said["writeBlock"]["summary"].as_str() {
        parts.push(format!("write block {block}"));
    }
    parts.join(", ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// Rows that were acknowledged in the last second.
fn lately(crowd: &Crowd) -> usize {
    let Some(since) = Instant::now().checked_sub(Duration::from_secs(1)) else {
        return 0;
    };
    let good = |one: &crate::crowd::OfShard| {
        let tries = one.book.since(since);
        tries.iter().filter(|t| t.ending == Ending::Acknowledged).count()
    };
    crowd.all().iter().map(good).sum()
}
