//! How long a fleet takes, and how fast databases are made.

use super::Figure;
use crate::blueprint as bp;
use crate::fleet::Fleet;
use crate::shell;
use crate::wait::{self, Seen};
use anyhow::{Context as _, Result, ensure};
use shardwright::api::shard_cluster::{Layout, Shards};
use shardwright::api::{ShardCluster, ShardRange, names};
use shardwright::core::databases::Naming;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(600);
/// What clients in a server's container log in with.
pub(super) const LOGIN: &str = "/tmp/bench.cnf";
/// Shards that each side makes in one round of the comparison.
const ROUND: i32 = 512;
/// Rounds, each with both sides; which one begins alternates.
const ROUNDS: i32 = 2;

/// A cluster with room for many shards, and servers as a user has them.
pub(super) fn template(f: &Fleet) -> ShardCluster {
    let mut cluster = bp::cluster(f);
    cluster.spec.shards = Shards {
        total: 65_536,
        database_prefix: "db".into(),
        digits: 5,
    };
    cluster.spec.mysql.config = None;
    cluster
}

/// From apply to Ready: 2 pairs, `shards` in all, 3 tables each.
///
/// # Errors
/// When the fleet does not become ready.
pub async fn bring_up(f: &Fleet, shards: i32) -> Result<Figure> {
    let mut c = template(f);
    c.spec.layout = Some(Layout {
        pairs: 2,
        open: shards,
    });
    let begun = Instant::now();
    f.apply(&c).await?;
    let pairs_ready = std::sync::OnceLock::new();
    wait::until("the fleet to be Ready", LIMIT, || async {
        let c: ShardCluster = f.get(&f.cluster).await?;
        let s = c.status.clone().unwrap_or_default();
        if s.pairs_ready == "2/2" {
            pairs_ready.get_or_init(|| begun.elapsed());
        }
        let ready = crate::fleet::conditions(&c).iter().any(|s| {
            s.type_ == "Ready" && s.status == "True" && s.observed_generation == c.metadata.generation
        });
        Ok(Seen::when(ready && s.open_shards == shards, || {
            format!("{} pairs, {} shards", s.pairs_ready, s.open_shards)
        }))
    })
    .await?;
    let took = begun.elapsed().as_secs_f64();
    let pairs = pairs_ready.get().map_or(0.0, Duration::as_secs_f64);
    f.all_ready(LIMIT).await?;
    let note = format!("(both pairs after {pairs:.1} s)");
    Ok(Figure::at_most(
        "2 pairs, shards with 3 tables, apply to Ready",
        Some(took),
        "s",
        90.0,
        note,
    ))
}

/// How much faster the operator makes databases and tables than the same statements piped through one mysql client, on the
/// same pair, in turns.
///
/// # Errors
/// When one of them fails.
pub async fn creation(f: &Fleet, open: i32) -> Result<Figure> {
    let pair = names::layout_pair(&f.cluster, 0);
    let active = f.active(&pair).await?;
    let (mut ours, mut theirs) = (0.0, 0.0);
    let mut next = open;
    for round in 0..ROUNDS {
        for side in 0..2 {
            level(f, &pair).await?;
            if (round + side) % 2 == 0 {
                ours += by_operator(f, &pair, next).await?;
            } else {
                theirs += by_client(f, &pair, active, next).await?;
            }
            next += ROUND;
        }
    }
    let per_second = |seconds: f64| f64::from(ROUND * ROUNDS) / seconds;
    let note = format!(
        "({:.0} databases of 3 tables a second by the operator from apply to Ready, {:.0} by the client; {} each)",
        per_second(ours),
        per_second(theirs),
        ROUND * ROUNDS
    );
    Ok(Figure::at_least(
        "creating databases, against one mysql client",
        Some(theirs / ours),
        "×",
        1.3,
        note,
    )
    .floor("the processors: on two of them the active server and the passive one's applier take one each, and plain mysql clients beside each other reach 1.1 × as well"))
}

/// The passive server has applied everything: it takes no time from what is measured next.
async fn level(f: &Fleet, pair: &str) -> Result<()> {
    f.healthy(pair).await
}

async fn by_operator(f: &Fleet, pair: &str, first: i32) -> Result<f64> {
    let name = format!("bench-{first}");
    let begun = Instant::now();
    f.apply(&bp::range(f, &name, first, first + ROUND - 1, pair))
        .await?;
    f.ready::<ShardRange>(&name, LIMIT).await?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The time of `mysql` for the statements, less that of the same command with one that does nothing.
async fn by_client(f: &Fleet, pair: &str, active: usize, first: i32) -> Result<f64> {
    let cluster: ShardCluster = f.get(&f.cluster).await?;
    let naming = Naming::from(&cluster.spec.shards);
    let mut server = f.server(pair, active).await?;
    let mut tables = vec![];
    for table in bp::TABLES {
        let (_, sql): (String, String) = server
            .one(&format!("SHOW CREATE TABLE `{}`.`{table}`", naming.name(0)))
            .await?;
        tables.push(
            sql.replacen("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)
                .replace('\n', " "),
        );
    }
    let mut script = String::new();
    for shard in first..first + ROUND {
        // Databases of another name than any shard's, so that nobody takes them for one.
        let database = format!("client{}", naming.name(shard));
        writeln!(
            script,
            "CREATE DATABASE IF NOT EXISTS `{database}`; USE `{database}`;"
        )?;
        for sql in &tables {
            writeln!(script, "{sql};")?;
        }
    }
    let pod = names::pod(pair, active);
    leave_login(f, &pod).await?;
    let command = format!("mysql --defaults-file={LOGIN} --host=127.0.0.1 --batch");
    let nothing = Instant::now();
    exec(f, &pod, LIMIT, &command, "SELECT 1;\n").await?;
    let nothing = nothing.elapsed().as_secs_f64();
    let begun = Instant::now();
    exec(f, &pod, LIMIT, &command, &script).await?;
    let took = begun.elapsed().as_secs_f64() - nothing;
    take_login(f, &pod).await?;
    let made: i64 = server
        .one("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA LIKE 'clientdb%'")
        .await?;
    ensure!(
        made % (i64::from(ROUND) * 3) == 0 && made > 0,
        "the client made {made} tables"
    );
    Ok(took)
}

/// Leaves in a server's container what clients there log in with as the operator. Not by the command line: that is what everybody on the node can read.
pub(super) async fn leave_login(f: &Fleet, pod: &str) -> Result<()> {
    let password = f
        .secret(&names::credentials_secret(&f.cluster), "operator-password")
        .await?;
    let login = format!("[client]\nuser=shardwright_operator\npassword=\"{password}\"\n");
    let command = format!("umask 077; cat > {LOGIN}");
    exec(f, pod, LIMIT, &command, &login).await.map(|_| ())
}

/// Takes it away again.
pub(super) async fn take_login(f: &Fleet, pod: &str) -> Result<()> {
    exec(f, pod, LIMIT, &format!("rm {LOGIN}"), "").await.map(|_| ())
}

/// Runs a command in a server's container; gives its standard output.
pub(super) async fn exec(
    f: &Fleet,
    pod: &str,
    limit: Duration,
    command: &str,
    input: &str,
) -> Result<String> {
    let args = [
        "exec", "-i", "-n", &f.ns, pod, "-c", "mysqld", "--", "sh", "-c", command,
    ];
    shell::run(limit, Some(input), "kubectl", &args)
        .await
        .context("in the server's container")
}
