//! What waiting for the passive server costs: commits a second.

use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::writer::{Book, Ending, Route, Work, Writer};
use anyhow::{Result, anyhow};
use serde::Serialize;
use serde_json::json;
use shardwright::api::{MySQLPair, names};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLIENTS: [usize; 3] = [1, 8, 64];
/// Of one measurement.
const SPAN: Duration = Duration::from_secs(4);
/// Each mode is measured so often with each number of clients, in turns.
const ROUNDS: u8 = 2;

/// How a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Mode {
    /// Waits for the passive server, however long.
    Strict,
    /// Waits for it for ten seconds.
    Available,
    /// Waits for nobody.
    Alone,
}

const MODES: [Mode; 3] = [Mode::Strict, Mode::Available, Mode::Alone];

/// One line of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    mode: Mode,
    clients: usize,
    commits_per_second: f64,
}

/// Measures all modes with 1, 8 and 64 clients on one pair, in turns. The operator's hands are off meanwhile.
///
/// # Errors
/// When a server refuses.
pub async fn measure(f: &Fleet, pair: &str, books: &mut Vec<Arc<Book>>) -> Result<Vec<Line>> {
    f.edit::<MySQLPair>(pair, json!({"spec": {"reconciliation": "Paused"}}))
        .await?;
    let measured = in_turns(f, pair, books).await;
    f.edit::<MySQLPair>(pair, json!({"spec": {"reconciliation": "Enabled"}}))
        .await?;
    measured
}

async fn in_turns(f: &Fleet, pair: &str, books: &mut Vec<Arc<Book>>) -> Result<Vec<Line>> {
    let before = settings(f, pair).await?;
    let mut lines: Vec<Line> = vec![];
    for round in 0..ROUNDS {
        for clients in CLIENTS {
            for turn in 0..MODES.len() {
                let mode = *MODES
                    .get((turn + usize::from(round)) % MODES.len())
                    .ok_or_else(|| anyhow!("no mode"))?;
                wait_as(f, pair, mode).await?;
                f.healthy(pair).await?;
                let tag = format!("cost-{mode:?}-{clients}-{round}");
                let rate = rate(f, pair, clients, &tag, books).await? / f64::from(ROUNDS);
                match lines.iter_mut().find(|l| l.mode == mode && l.clients == clients) {
                    Some(line) => line.commits_per_second += rate,
                    None => lines.push(Line {
                        mode,
                        clients,
                        commits_per_second: rate,
                    }),
                }
            }
        }
    }
    set(f, pair, before.0, before.1).await?;
    Ok(lines)
}

/// Whether the active server waits, and for how many milliseconds.
async fn settings(f: &Fleet, pair: &str) -> Result<(bool, u64)> {
    let active = f.active(pair).await?;
    let mut server = f.server(pair, active).await?;
    let (on, timeout): (u8, u64) = server
        .one("SELECT @@GLOBAL.rpl_semi_sync_source_enabled, @@GLOBAL.rpl_semi_sync_source_timeout")
        .await?;
    Ok((on != 0, timeout))
}

async fn set(f: &Fleet, pair: &str, on: bool, timeout: u64) -> Result<()> {
    let active = f.active(pair).await?;
    let mut server = f.server(pair, active).await?;
    server
        .run(&format!("SET GLOBAL rpl_semi_sync_source_timeout = {timeout}"))
        .await?;
    server
        .run(&format!(
            "SET GLOBAL rpl_semi_sync_source_enabled = {}",
            u8::from(on)
        ))
        .await
}

async fn wait_as(f: &Fleet, pair: &str, mode: Mode) -> Result<()> {
    match mode {
        Mode::Strict => set(f, pair, true, 4_294_967_295).await?,
        Mode::Available => set(f, pair, true, 10_000).await?,
        Mode::Alone => set(f, pair, false, 4_294_967_295).await?,
    }
    let wanted = if mode == Mode::Alone { "OFF" } else { "ON" };
    wait::until("the server to wait as it is told", wait::SOON, || async {
        let active = f.active(pair).await?;
        let mut server = f.server(pair, active).await?;
        let (_, status): (String, String) = server
            .one("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_status'")
            .await?;
        Ok(Seen::when(status == wanted, || status.clone()))
    })
    .await
}

/// Acknowledged commits a second of so many clients, each on a connection of its own, one row each.
async fn rate(f: &Fleet, pair: &str, clients: usize, tag: &str, books: &mut Vec<Arc<Book>>) -> Result<f64> {
    let active = f.active(pair).await?;
    let login = f.app_login(&names::host(&f.ns, pair, active)).await?;
    let table = f.table(0).await?;
    let writers: Vec<_> = (0..clients)
        .map(|n| {
            let work = Work {
                client: format!("{tag}-{n}"),
                table: table.clone(),
                pause: Duration::ZERO,
                patience: None,
            };
            Writer::start(work, Route::fixed(login.clone()))
        })
        .collect();
    wait::until("every client to write", wait::SOON, || async {
        let waiting = writers.iter().filter(|w| w.book.acknowledged() == 0).count();
        Ok(Seen::when(waiting == 0, || format!("{waiting} do not")))
    })
    .await?;
    let begun = Instant::now();
    // The time is what is measured here.
    tokio::time::sleep(SPAN).await;
    let end = Instant::now();
    let mut commits = 0u32;
    for w in writers {
        let book = w.stop().await?;
        let in_time =
            |t: &&crate::writer::Try| t.ending == Ending::Acknowledged && t.ended >= begun && t.ended <= end;
        commits += u32::try_from(book.since(begun).iter().filter(in_time).count())?;
        books.push(book);
    }
    Ok(f64::from(commits) / end.duration_since(begun).as_secs_f64())
}

/// Strict beside the others, as shares; they have no target.
pub fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:>8} {:>12} {:>12} {:>14}\n",
        "clients", "Strict", "Available", "no semi-sync"
    );
    for clients in CLIENTS {
        let of = |mode| {
            lines
                .iter()
                .find(|l| l.mode == mode && l.clients == clients)
                .map_or(0.0, |l| l.commits_per_second)
        };
        let _ = writeln!(
            text,
            "{clients:>8} {:>10.0}/s {:>10.0}/s {:>12.0}/s",
            of(Mode::Strict),
            of(Mode::Available),
            of(Mode::Alone)
        );
    }
    text
}
