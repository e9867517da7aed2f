//! How long each shard cannot be written when half of a range moves to another pair, and what that costs the others: by clients on all shards that follow
//! the published map by long poll. Beside it, in the same run and on the same servers, what it would be with all shards in one batch. And how fast shards are
//! copied, without clients, on fleets of their own.

mod copying;
mod ground;
mod rivals;
mod speed;
mod tell;

use crate::bench::fleet::template;
use crate::blueprint as bp;
use crate::crowd::{Crowd, Pace, quantile};
use crate::fleet::Fleet;
use crate::moves::run as run_of;
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use ground::on_fleet;
use serde_json::json;
use shardwright::api::{MoveStage, ShardRange};
use shardwright::core::placement::{self, moves};
use shardwright::core::spans::SpanSet;
use speed::Size;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tell::{Blocks, Measured, Phase, acknowledged, figures, kept, ms, tables};

/// The pair that the other half goes to.
const TARGET: &str = "p1";
/// The range that it becomes.
const HALF: &str = "r1";
/// For each part of it.
const LIMIT: Duration = Duration::from_secs(1800);
/// Before anything moves, for as long as this everything is measured.
const BEFORE: Duration = Duration::from_secs(20);
/// Between two looks at the record.
const LOOK: Duration = Duration::from_millis(50);
/// Rows that are written by one statement before it begins.
const ROWS_AT_ONCE: u64 = 500;

/// What is measured.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// How fast shards are copied and compared.
    Copying,
    /// How long each shard cannot be written.
    Cutover,
    /// Both.
    All,
}

/// How it is run.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Write all of it to this file as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// What is measured.
    #[arg(long, env = "PART", value_enum, default_value = "all")]
    pub part: Part,
    /// Of copying: shards that move, and bytes of all their rows, several by commas.
    #[arg(
        long,
        env = "SIZES",
        value_delimiter = ',',
        default_value = "64x100M,512x500M"
    )]
    pub sizes: Vec<Size>,
    /// Shards of the range; half of them move.
    #[arg(long, env = "SHARDS", default_value = "512")]
    pub shards: i32,
    /// Rows of some 200 bytes in each shard when it begins.
    #[arg(long, env = "ROWS", default_value = "500")]
    pub rows: u64,
    /// Clients, each of which writes to its part of the shards in turn.
    #[arg(long, default_value = "8")]
    pub clients: usize,
    /// Milliseconds between two tries of such a client: 0 for as fast as they can.
    #[arg(long, env = "PAUSE", default_value = "100")]
    pub pause: u64,
    /// Clients more, which write to the shards that move next: without them the time between two rows of a shard would be measured.
    #[arg(long, default_value = "8")]
    pub chasers: usize,
    /// Milliseconds between two tries of such a one: so much of each block is the client's.
    #[arg(long, env = "CHASER_PAUSE", default_value = "20")]
    pub chaser_pause: u64,
    /// Lines for the configuration of mysqld.
    #[arg(long)]
    pub mysql_config: Option<String>,
    /// Do not measure all shards in one batch.
    #[arg(long)]
    pub no_all_at_once: bool,
    /// Do not wait until the old copies are dropped: four a second, which is minutes for thousands of shards.
    #[arg(long)]
    pub no_clean_up: bool,
    /// Leave the fleet.
    #[arg(long)]
    pub keep: bool,
}

/// Runs it and prints the tables.
///
/// # Errors
/// When the fleet does not come up or the shards do not arrive, an acknowledged row is lost, or the file cannot be written.
pub async fn run(world: &World, options: &Options) -> Result<()> {
    let mut measured = Measured::default();
    let result = parts(world, options, &mut measured).await;
    measured.broken_off = result.as_ref().err().map(|e| format!("{e:#}"));
    let copied = measured.copying.iter().flat_map(speed::Speed::figures);
    measured.figures.extend(copied);
    if options.part != Part::Copying {
        println!("\n{}", tables(&measured));
    }
    if !measured.copying.is_empty() {
        println!("\n{}", speed::table(&measured.copying));
    }
    super::table(&measured.figures);
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&measured)?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    result
}

async fn parts(world: &World, options: &Options, measured: &mut Measured) -> Result<()> {
    if options.part != Part::Copying {
        let clients = async |f: &Arc<Fleet>| Box::pin(measure(f, options, measured)).await;
        on_fleet(world, options.keep, clients).await?;
    }
    if options.part != Part::Cutover {
        copying::measure(world, options.keep, &options.sizes, &mut measured.copying).await?;
    }
    Ok(())
}

/// The shards that move.
fn half(options: &Options) -> SpanSet {
    run_of(options.shards / 2, options.shards - 1)
}

async fn measure(f: &Arc<Fleet>, options: &Options, measured: &mut Measured) -> Result<()> {
    ensure!(options.shards >= 2, "one shard has no half");
    set_up(f, options).await?;
    let shards: Vec<i32> = (0..options.shards).collect();
    let pace = Pace {
        clients: options.clients,
        pause: Duration::from_millis(options.pause),
        chasers: options.chasers,
        chaser_pause: Duration::from_millis(options.chaser_pause),
    };
    let crowd = Arc::new(f.crowd(&shards, pace).await?);
    // As many clients write to shards that move before anything does: what is compared has the same load.
    crowd.chase(half(options).shards().collect());
    let begun = Instant::now();
    // The time itself is meant.
    tokio::time::sleep(BEFORE).await;
    let committed = Instant::now();
    let before = acknowledged(crowd.all(), begun, committed);
    let moved = watched(f, options, &crowd, (begun, committed), measured).await;
    let crowd = Arc::into_inner(crowd).context("somebody holds on to the clients")?;
    let tried = crowd.stop().await?;
    // What was acknowledged is looked for in any case.
    let whole = f.whole(&tried).await?;
    println!(
        "{} rows acknowledged, none lost; {} unknown, {} refused or given up",
        whole.acknowledged, whole.unknown, whole.failed
    );
    let times = moved?;
    figures(options, &tried, (begun, committed), before, &times, measured)
}

async fn set_up(f: &Fleet, options: &Options) -> Result<()> {
    let mut cluster = template(f);
    cluster.spec.mysql.config.clone_from(&options.mysql_config);
    f.apply(&cluster).await?;
    for pair in [bp::PAIR, TARGET] {
        f.apply(&bp::pair(f, pair)).await?;
    }
    f.apply(&bp::range(f, bp::RANGE, 0, options.shards - 1, bp::PAIR))
        .await?;
    f.all_ready(LIMIT).await?;
    let mut server = f.server(bp::PAIR, f.active(bp::PAIR).await?).await?;
    server
        .run("SET SESSION cte_max_recursion_depth = 1000000")
        .await?;
    for shard in 0..options.shards {
        let table = f.table(shard).await?;
        // The name in WITH is looked for in the default database first.
        server.run(&format!("USE {}", f.database(shard).await?)).await?;
        let mut left = options.rows;
        while left > 0 {
            let n = left.min(ROWS_AT_ONCE);
            server
                .run(&format!(
                    "INSERT INTO {table} (data) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}) \
                     SELECT JSON_OBJECT('filler', CONCAT(SHA2(RAND(), 256), REPEAT('x', 118))) FROM n"
                ))
                .await?;
            left -= n;
        }
    }
    f.healthy(bp::PAIR).await
}

/// When each part had come to its end.
#[derive(Clone, Copy, Debug)]
struct Times {
    committed: Instant,
    following: Instant,
    verified: Instant,
    approved: Instant,
    all: Instant,
}

/// Commits the split, keeps the chasers at the shards that move next, and notes when each phase ended.
async fn watched(
    f: &Arc<Fleet>,
    options: &Options,
    crowd: &Arc<Crowd>,
    (begun, committed): (Instant, Instant),
    measured: &mut Measured,
) -> Result<Times> {
    let half = half(options);
    let (first, last) = (options.shards / 2, options.shards - 1);
    f.edit::<ShardRange>(bp::RANGE, json!({"spec": {"last": first - 1}}))
        .await?;
    f.apply(&bp::range(f, HALF, first, last, TARGET)).await?;
    // Held until everything is measured that needs it to be still.
    f.edit::<ShardRange>(
        HALF,
        json!({"spec": {"cutover": "Manual", "retainSourceSeconds": 3600}}),
    )
    .await?;
    let stage = |wanted: MoveStage| {
        f.between(bp::PAIR, TARGET, "the next phase", LIMIT, move |_, m| {
            m.stage == wanted
        })
    };
    stage(MoveStage::Following).await?;
    let following = Instant::now();
    f.between(bp::PAIR, TARGET, "to be verified", LIMIT, |_, m| {
        moves::set(&m.verified) == half
    })
    .await?;
    let verified = Instant::now();
    if !options.no_all_at_once {
        let blocked = all_at_once(f, crowd, &half)
            .await
            .context("all shards in one batch")?;
        measured
            .blocks
            .push(Blocks::new("all in one batch, on servers", &blocked));
        f.between(bp::PAIR, TARGET, "to be verified", LIMIT, |_, m| {
            moves::set(&m.verified) == half
        })
        .await?;
    }
    let followed = Instant::now();
    // The time itself is meant: nothing but following.
    tokio::time::sleep(BEFORE).await;
    let approved = Instant::now();
    f.edit::<ShardRange>(HALF, json!({"spec": {"cutover": "Automatic"}}))
        .await?;
    wait::until_each("every shard to have moved", LIMIT, LIMIT, || async {
        loop {
            let record = f.placement().await?;
            let left = half.minus(&placement::shards(&record, |s| s.pair == TARGET));
            crowd.chase(left.shards().collect());
            if left.is_empty() {
                return Ok(Seen::Yes(()));
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .await?;
    let all = Instant::now();
    crowd.chase(vec![]);
    f.at_home(&half, TARGET, LIMIT).await?;
    crowd.written_since(Instant::now(), LIMIT).await?;
    f.stage(bp::PAIR, TARGET, MoveStage::Retaining, LIMIT).await?;
    measured.said = f.migration(HALF).await?;
    let retaining = Instant::now();
    if !options.no_clean_up {
        f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
            .await?;
        // Copies are dropped slowly.
        f.no_moves(LIMIT).await?;
        f.nothing_left().await?;
    }
    let phase = |name, from: Instant, to: Instant| Phase {
        name,
        seconds: to.duration_since(from).as_secs_f64(),
        rows_a_second: acknowledged(crowd.all(), from, to),
        others_p99: quantile(&kept(crowd.all(), &half, from, to).0, 99).map(ms),
    };
    measured.phases = vec![
        phase("before", begun, committed),
        phase("copies made (from the commit)", committed, following),
        phase("copies compared", following, verified),
        phase("followed (until the approval)", followed, approved),
        phase("cut over (from the approval)", approved, all),
    ];
    if !options.no_clean_up {
        measured
            .phases
            .push(phase("cleaned up", retaining, Instant::now()));
    }
    Ok(Times {
        committed,
        following,
        verified,
        approved,
        all,
    })
}

/// Fences all these shards at once on the server that takes their writes, waits until the target has what that has, and opens as many again: what one batch
/// of all would block each of them for, without its map. No operator is there meanwhile, and nothing moves.
async fn all_at_once(f: &Fleet, crowd: &Crowd, half: &SpanSet) -> Result<Vec<Duration>> {
    let naming = f.naming().await?;
    let mut source = f.server(bp::PAIR, f.active(bp::PAIR).await?).await?;
    let mut target = f.server(TARGET, f.active(TARGET).await?).await?;
    f.world.scale_operator(0).await?;
    let read_only = |shard, to: u8| format!("ALTER DATABASE `{}` READ ONLY = {to}", naming.name(shard));
    let mut blocked = vec![];
    let done = async {
        source
            .run("SET SESSION sql_log_bin = 0, SESSION lock_wait_timeout = 8")
            .await?;
        let mut since = vec![];
        for shard in half.shards() {
            since.push(Instant::now());
            source.run(&read_only(shard, 1)).await?;
        }
        let gtid: String = source.one("SELECT @@GLOBAL.gtid_executed").await?;
        let late: u8 = target
            .one(&format!(
                "SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', 9)",
                gtid.replace('\n', "")
            ))
            .await?;
        ensure!(late == 0, "the target did not reach the source");
        for (shard, since) in half.shards().zip(since) {
            source.run(&read_only(shard, 0)).await?;
            blocked.push(since.elapsed());
        }
        crowd.written_since(Instant::now(), wait::SOON).await
    }
    .await;
    // Whatever went wrong: nothing stays shut.
    for shard in half.shards() {
        source.run(&read_only(shard, 0)).await?;
    }
    f.world.scale_operator(2).await?;
    f.world.operator_ready().await?;
    done?;
    Ok(blocked)
}
