//! How fast shards are copied and compared, without clients: to a pair that has nothing, which is cloned over, and to one that serves others. Beside
//! each, on the same servers, what does the same without an operator.

use super::ground::on_fleet;
use super::rivals::{self, Which};
use super::speed::{Cloned, Size, Speed, Stage};
use super::{HALF, LIMIT, TARGET};
use crate::bench::fleet::{exec, template};
use crate::blueprint as bp;
use crate::fleet::Fleet;
use crate::ledger::TABLE;
use crate::moves::run as run_of;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use futures::future;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use shardwright::api::shard_range::Cutover;
use shardwright::api::{MoveStage, Seed, ShardRange, names};
use shardwright::core::databases::Naming;
use shardwright::core::placement::moves;
use shardwright::core::spans::SpanSet;
use shardwright::resources::stateful_set::CONFIG_DIR;
use std::time::{Duration, Instant};

/// The pair that serves a shard of its own.
const BUSY: &str = "p2";
/// Its range, and the shard in it.
const OTHERS: (&str, i32) = ("rb", 65_535);
/// Connections that make rows.
const WRITERS: usize = 4;
/// Rows that are made by one statement.
const ROWS_AT_ONCE: u64 = 2000;
/// For a statement that makes them.
const MADE: Duration = Duration::from_secs(120);
/// For what takes longer the more there is of it: old copies of thousands of shards are dropped four a second.
const LONG: Duration = Duration::from_secs(7200);
/// A volume of the test bed says that it is of so many GiB, and takes as much as the machine has.
const BED_VOLUME: u64 = 10;

/// Measures one size after the other, each on a fleet of its own.
///
/// # Errors
/// When a fleet does not come up, shards are not copied, or a row is lost; what was measured until then is in `speeds`.
pub(super) async fn measure(
    world: &World,
    keep: bool,
    sizes: &[Size],
    speeds: &mut Vec<Speed>,
) -> Result<()> {
    for size in sizes {
        println!("{size}: {} shards move", size.shards);
        let mut speed = Speed::new(*size);
        let done = on_fleet(world, keep, async |f| {
            Box::pin(of_size(f, *size, &mut speed)).await
        })
        .await;
        speed.figures().iter().for_each(crate::bench::print);
        speeds.push(speed);
        done.with_context(|| size.to_string())?;
    }
    Ok(())
}

/// The shards that move.
fn half(size: Size) -> SpanSet {
    run_of(size.shards, 2 * size.shards - 1)
}

async fn of_size(f: &Fleet, size: Size, speed: &mut Speed) -> Result<()> {
    set_up(f, size).await?;
    physical(f, size, speed).await.context("copied by CLONE")?;
    taken_back(f).await?;
    per_database(f, size, speed)
        .await
        .context("copied database by database")?;
    taken_back(f).await?;
    let naming = f.naming().await?;
    let databases: Vec<String> = half(size).shards().map(|s| naming.name(s)).collect();
    let from = (bp::PAIR, f.record(bp::PAIR).await?.passive());
    let to = (BUSY, f.active(BUSY).await?);
    let took = rivals::mysqldump(f, from, to, &databases, TABLE, speed.rows)
        .await
        .context("mysqldump")?;
    speed.mysqldump = Some(took);
    Ok(())
}

/// GiB of a volume that has room for everything that comes to lie on it: rows, files of empty tables, logs, and a copy of all.
fn volume(size: Size, bed: bool) -> u64 {
    let tables = u64::from(size.shards.unsigned_abs()) << 21;
    let all = 2 + (4 * size.bytes + tables).div_ceil(1 << 30);
    if bed { all.min(BED_VOLUME) } else { all }
}

async fn set_up(f: &Fleet, size: Size) -> Result<()> {
    let mut cluster = template(f);
    let gib = volume(size, f.world.settings.local);
    cluster.spec.mysql.storage.size = Quantity(format!("{gib}Gi"));
    f.apply(&cluster).await?;
    for pair in [bp::PAIR, TARGET, BUSY] {
        f.apply(&bp::pair(f, pair)).await?;
    }
    let last = 2 * size.shards - 1;
    f.apply(&bp::range(f, bp::RANGE, 0, last, bp::PAIR)).await?;
    let (range, shard) = OTHERS;
    f.apply(&bp::range(f, range, shard, shard, BUSY)).await?;
    f.all_ready(LIMIT).await?;
    fill(f, size).await?;
    f.healthy_within(bp::PAIR, LIMIT).await?;
    for ordinal in names::ORDINALS {
        forget_logs(f, ordinal).await?;
    }
    // Files of it are copied as they are: nothing more is to be written into them meanwhile.
    f.all_ready(LIMIT).await
}

/// Makes rows in the shards that move; the others have none, or a CLONE would copy more than moves.
async fn fill(f: &Fleet, size: Size) -> Result<()> {
    let naming = f.naming().await?;
    let active = f.active(bp::PAIR).await?;
    let shards: Vec<i32> = half(size).shards().collect();
    let writers = (0..WRITERS).map(|writer| {
        let own = shards.iter().skip(writer).step_by(WRITERS);
        let databases: Vec<String> = own.map(|s| naming.name(*s)).collect();
        async move {
            let mut server = f.server(bp::PAIR, active).await?;
            server
                .run("SET SESSION cte_max_recursion_depth = 1000000")
                .await?;
            for database in databases {
                // The name in WITH is looked for in the default database first.
                server.run(&format!("USE `{database}`")).await?;
                let mut left = size.rows();
                while left > 0 {
                    let n = left.min(ROWS_AT_ONCE);
                    let sql = format!(
                        "INSERT INTO `{TABLE}` (data) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}) \
                         SELECT JSON_OBJECT('filler', REPLACE(TO_BASE64(RANDOM_BYTES(720)), '\\n', '')) FROM n"
                    );
                    server.within(MADE, &sql).await?;
                    left -= n;
                }
            }
            Ok::<(), anyhow::Error>(())
        }
    });
    future::try_join_all(writers).await.map(|_| ())
}

/// Lets a server of the source forget the binary logs of what was made: nobody needs them, and they are as large as the rows. As root, for the operator's
/// account may not.
async fn forget_logs(f: &Fleet, ordinal: usize) -> Result<()> {
    let sql = "FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY;\n";
    let command = format!("mysql --defaults-file={CONFIG_DIR}/client.cnf");
    exec(f, &names::pod(bp::PAIR, ordinal), LIMIT, &command, sql)
        .await
        .map(|_| ())
}

/// Waits until the move to `to` is on record, and then until its copies follow; gives the seconds between, and when that was.
async fn seeded(f: &Fleet, to: &str, seed: Seed) -> Result<(f64, Instant)> {
    f.between(bp::PAIR, to, "to be on record", LIMIT, |_, _| true)
        .await?;
    let begun = Instant::now();
    f.stage(bp::PAIR, to, MoveStage::Following, LONG).await?;
    let following = Instant::now();
    let record = f.placement().await?;
    let found = moves::between(&record, bp::PAIR, to).map(|m| m.seed);
    ensure!(
        found == Some(seed),
        "the copies were made by {found:?} instead of {seed:?}"
    );
    Ok((following.duration_since(begun).as_secs_f64(), following))
}

async fn verified(f: &Fleet, to: &str, half: &SpanSet) -> Result<()> {
    f.between(bp::PAIR, to, "to be verified", LONG, |_, m| {
        moves::set(&m.verified) == *half
    })
    .await
}

async fn physical(f: &Fleet, size: Size, speed: &mut Speed) -> Result<()> {
    let half = half(size);
    let source = (bp::PAIR, f.record(bp::PAIR).await?.passive());
    let (first, last) = (size.shards, 2 * size.shards - 1);
    f.edit::<ShardRange>(bp::RANGE, json!({"spec": {"last": first - 1}}))
        .await?;
    let mut range = bp::range(f, HALF, first, last, TARGET);
    // Nothing is cut over, so that all of it can be taken back.
    range.spec.cutover = Cutover::Manual;
    f.apply(&range).await?;
    let (took, _) = seeded(f, TARGET, Seed::Physical).await?;
    speed.physical = Some(took);
    // The first to be cloned is active now.
    let target = f.record(TARGET).await?;
    for (ordinal, donor) in [
        (target.active, source),
        (target.passive(), (TARGET, target.active)),
    ] {
        speed.clones.push(cloned(f, (TARGET, ordinal), donor).await?);
    }
    // The comparison would take time from what is measured next.
    verified(f, TARGET, &half).await?;
    if f.world.settings.local {
        let copied = rivals::cp(f, source, (TARGET, target.active)).await;
        speed.cp = Some(copied.context("cp")?);
    }
    Ok(())
}

/// What a server says of the CLONE that has overwritten it.
async fn cloned(f: &Fleet, (pair, ordinal): Which<'_>, donor: Which<'_>) -> Result<Cloned> {
    let mut server = f.server(pair, ordinal).await?;
    let (from, begun, ended): (String, Option<f64>, Option<f64>) = server
        .one(
            "SELECT SUBSTRING_INDEX(source, ':', 1), CAST(UNIX_TIMESTAMP(begin_time) AS DOUBLE), CAST(UNIX_TIMESTAMP(end_time) AS DOUBLE) \
             FROM performance_schema.clone_status",
        )
        .await?;
    let donor = names::host(&f.ns, donor.0, donor.1);
    ensure!(
        from == donor,
        "{pair}-{ordinal} was copied from {from}, not {donor}"
    );
    let stages: Vec<Stage> = server
        .rows(
            "SELECT stage, CAST(UNIX_TIMESTAMP(begin_time) AS DOUBLE), CAST(UNIX_TIMESTAMP(end_time) AS DOUBLE), CAST(data AS UNSIGNED) \
             FROM performance_schema.clone_progress",
        )
        .await?;
    begun
        .zip(ended)
        .and_then(|times| Cloned::of(times, &stages))
        .with_context(|| format!("{pair}-{ordinal}: CLONE {begun:?} to {ended:?}, {stages:?}"))
}

async fn per_database(f: &Fleet, size: Size, speed: &mut Speed) -> Result<()> {
    let half = half(size);
    f.send(HALF, BUSY).await?;
    let (took, following) = seeded(f, BUSY, Seed::PerDatabase).await?;
    speed.per_database = Some(took);
    verified(f, BUSY, &half).await?;
    speed.compared = Some(following.elapsed().as_secs_f64());
    let source = (bp::PAIR, f.record(bp::PAIR).await?.passive());
    let target = (BUSY, f.record(BUSY).await?.passive());
    let tables = tables(&f.naming().await?, &half);
    let took = rivals::select_all(f, &[source, target], tables, speed.rows).await?;
    speed.selected = Some(took);
    Ok(())
}

/// All tables of these shards.
fn tables(naming: &Naming, shards: &SpanSet) -> Vec<String> {
    shards
        .shards()
        .flat_map(|s| bp::TABLES.map(|table| format!("`{}`.`{table}`", naming.name(s))))
        .collect()
}

/// Takes the wish back, and waits until nothing is left of the move.
async fn taken_back(f: &Fleet) -> Result<()> {
    f.send(HALF, bp::PAIR).await?;
    f.no_moves(LONG).await?;
    f.nothing_left().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_copying_has_room_for_all() {
        let gib = |size: &str, bed| volume(size.parse().unwrap(), bed);
        assert_eq!(gib("64x100M", false), 3);
        assert_eq!(gib("64x5G", false), 21);
        assert_eq!(gib("64x5G", true), BED_VOLUME);
    }
}
