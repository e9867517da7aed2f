//! What copies and reads the same without an operator: `cp`, `mysqldump` into `mysql`, and `SELECT *`.

use super::speed::Copied;
use crate::bench::fleet::{LOGIN, exec, leave_login, take_login};
use crate::fleet::Fleet;
use crate::{shell, testbed};
use anyhow::{Context as _, Result, ensure};
use shardwright::api::names;
use shardwright::resources::stateful_set::{CONFIG_DIR, VOLUME_DIR};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// For each of them.
const LIMIT: Duration = Duration::from_secs(3600);
/// Connections to each server: as many as the operator compares through.
const READERS: usize = 4;
/// Where `cp` copies to, on the target's volume.
const COPY: &str = "bench-copy";
/// What a CLONE copies, and no more: neither logs, which are as large as all rows, nor what mysqld makes anew. A clone of extents would copy nothing.
const CP: &str = r#"cd "$1"
find . -mindepth 1 -maxdepth 1 ! -name 'binlog.*' ! -name 'relay*' ! -name '#innodb_redo' ! -name '#innodb_temp' \
  ! -name '#ib_*' ! -name ibtmp1 -print0 | xargs -0 cp -a --reflink=never -t "$2""#;

/// A server: its pair and ordinal.
pub(super) type Which<'a> = (&'a str, usize);

/// Copies the files of one server that runs to the volume of another one, and removes the copy.
///
/// # Errors
/// When one of the servers does not run on this machine, or what `cp` said.
pub(super) async fn cp(f: &Fleet, from: Which<'_>, to: Which<'_>) -> Result<Copied> {
    let from = format!("{}/data", volume(f, from).await?);
    let to = format!("{}/{COPY}", volume(f, to).await?);
    local("mkdir", &[&to]).await?;
    let copied = copy(&from, &to).await;
    local("rm", &["-rf", &to]).await?;
    copied
}

async fn copy(from: &str, to: &str) -> Result<Copied> {
    // What others have written is not counted as a part of it.
    local("sync", &["-f", to]).await?;
    let begun = Instant::now();
    local("bash", &["-eu", "-o", "pipefail", "-c", CP, "cp", from, to]).await?;
    let plain = begun.elapsed().as_secs_f64();
    local("sync", &["-f", to]).await?;
    let synced = begun.elapsed().as_secs_f64();
    let said = local("du", &["--summarize", "--bytes", to]).await?;
    let bytes = said.split_whitespace().next().context("du says nothing")?;
    Ok(Copied {
        plain,
        synced,
        bytes: bytes.parse()?,
    })
}

/// A server's volume, as its mysqld sees it, by a path of this machine.
async fn volume(f: &Fleet, (pair, ordinal): Which<'_>) -> Result<String> {
    let pod = f.server_pod(pair, ordinal).await?;
    let pids = testbed::processes_called(&pod, "mysqld")?;
    let pid = pids
        .first()
        .with_context(|| format!("no mysqld of {} on this machine", names::pod(pair, ordinal)))?;
    Ok(format!("/proc/{pid}/root{VOLUME_DIR}"))
}

async fn local(program: &str, args: &[&str]) -> Result<String> {
    shell::run(LIMIT, None, program, args).await
}

/// Dumps these databases of one server into another one, in that one's container and past its binary log; gives the seconds, less those of the command
/// itself. No operator is there meanwhile; what was loaded is dropped.
///
/// # Errors
/// When it fails, or not as many rows arrive.
pub(super) async fn mysqldump(
    f: &Fleet,
    from: Which<'_>,
    to: Which<'_>,
    databases: &[String],
    table: &str,
    rows: u64,
) -> Result<f64> {
    let pod = names::pod(to.0, to.1);
    let mut target = f.server(to.0, to.1).await?;
    leave_login(f, &pod).await?;
    f.world.scale_operator(0).await?;
    let dumped = async {
        let took = dump(f, &names::host(&f.ns, from.0, from.1), &pod, databases).await?;
        let mut found = 0;
        for database in databases {
            let sql = format!("SELECT COUNT(*) FROM `{database}`.`{table}`");
            found += target.one::<u64>(&sql).await?;
        }
        ensure!(found == rows, "{rows} rows were dumped, and {found} arrived");
        Ok(took)
    }
    .await;
    // Whatever went wrong: nothing stays that the operator does not know. The connection may have been idle for long.
    let dropped = async {
        let mut target = f.server(to.0, to.1).await?;
        target.run("SET SESSION sql_log_bin = 0").await?;
        for database in databases {
            let sql = format!("DROP DATABASE IF EXISTS `{database}`");
            target.within(LIMIT, &sql).await?;
        }
        Ok(())
    }
    .await;
    f.world.scale_operator(2).await?;
    f.world.operator_ready().await?;
    take_login(f, &pod).await?;
    dumped.and_then(|took| dropped.map(|()| took))
}

async fn dump(f: &Fleet, host: &str, pod: &str, databases: &[String]) -> Result<f64> {
    let script = format!(
        "mysqldump --defaults-file={LOGIN} --host={host} --single-transaction --set-gtid-purged=OFF --databases {} | \
         mysql --defaults-file={CONFIG_DIR}/client.cnf --init-command='SET SESSION sql_log_bin = 0'\n",
        databases.join(" ")
    );
    // By standard input: thousands of names are too long for an argument.
    let command = "bash -eu -o pipefail -s";
    let nothing = Instant::now();
    exec(f, pod, LIMIT, command, "true\n").await?;
    let nothing = nothing.elapsed().as_secs_f64();
    let begun = Instant::now();
    exec(f, pod, LIMIT, command, &script).await?;
    Ok(begun.elapsed().as_secs_f64() - nothing)
}

/// Reads all rows of these tables to the end on all of these servers at once; gives the seconds.
///
/// # Errors
/// When a server has not as many rows, or what it answered.
pub(super) async fn select_all(f: &Fleet, of: &[Which<'_>], tables: Vec<String>, rows: u64) -> Result<f64> {
    let tables: Arc<[String]> = tables.into();
    let mut connections = vec![];
    for (i, (pair, ordinal)) in of.iter().enumerate() {
        let login = f.operator_login(pair, *ordinal).await?;
        let next = Arc::new(AtomicUsize::new(0));
        for _ in 0..READERS {
            connections.push((i, login.connect().await?, next.clone()));
        }
    }
    let begun = Instant::now();
    let mut readers = JoinSet::new();
    for (i, mut server, next) in connections {
        let tables = tables.clone();
        readers.spawn(async move {
            let mut read = 0;
            while let Some(table) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
                read += server.read_all(LIMIT, &format!("SELECT * FROM {table}")).await?;
            }
            Ok::<_, anyhow::Error>((i, read))
        });
    }
    let mut found = vec![0; of.len()];
    while let Some(read) = readers.join_next().await {
        let (i, read) = read??;
        found[i] += read;
    }
    let took = begun.elapsed().as_secs_f64();
    for ((pair, ordinal), found) in of.iter().zip(found) {
        let pod = names::pod(pair, *ordinal);
        ensure!(found == rows, "{pod} has {found} rows of {rows}");
    }
    Ok(took)
}
