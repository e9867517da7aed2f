//! How long a fleet cannot be written when its active server is lost or changed, beside what a user has without an operator; and what that
//! costs. All in one run, on one pair. See `docs/benchmarks.md`.

mod cost;
mod faults;
mod floors;
mod gaps;
mod plain;
mod strike;

use super::Figure;
use crate::blueprint as bp;
use crate::fleet::Fleet;
use crate::server::Login;
use crate::wait::{self, Seen};
use crate::world::World;
use crate::writer::{Book, Held, agree};
use anyhow::{Context as _, Result, anyhow, ensure};
use faults::Fault;
use gaps::Run;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strike::Clients;
use tokio::signal::unix::{SignalKind, signal};

/// How it is run.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Write all of it to this file as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// How often each fault is struck.
    #[arg(long, env = "RUNS", default_value = "30")]
    pub runs: usize,
    /// How often each fault that takes a whole node is struck; as often as the others unless said otherwise.
    #[arg(long, env = "NODE_RUNS")]
    pub node_runs: Option<usize>,
    /// Only these faults.
    #[arg(long, value_enum)]
    pub only: Vec<Fault>,
    /// Measure no cost of durability.
    #[arg(long)]
    pub no_cost: bool,
    /// Strike no plain server.
    #[arg(long)]
    pub no_plain: bool,
    /// Leave the fleet.
    #[arg(long)]
    pub keep: bool,
}

impl Options {
    /// How often a fault is struck.
    pub fn runs_of(&self, fault: Fault) -> usize {
        match self.node_runs {
            Some(n) if fault.hits_node() => n,
            _ => self.runs,
        }
    }
}

/// All that was measured.
#[derive(Default, Serialize)]
struct Measured {
    figures: Vec<Figure>,
    /// What the servers were found to hold at the end: the pair's, and the plain one.
    held: Vec<Held>,
    cost: Vec<cost::Line>,
    floors: Vec<floors::Floor>,
    /// Processes that ran or waited to, of the whole machine, over a minute: before and after.
    load: Vec<f64>,
    /// What ended it early: the tables hold what was measured until then.
    broken_off: Option<String>,
    runs: Vec<Run>,
}

/// Runs all of it and prints the tables.
///
/// # Errors
/// When the fleet does not come up or does not heal, an acknowledged row is lost, or the file cannot be written.
pub async fn run(world: &World, options: &Options) -> Result<()> {
    ensure!(
        world.settings.local,
        "nodes and processes are killed: this needs the test bed"
    );
    let tail = crate::dice::Dice::new(crate::dice::Dice::seed_now()).below(0xffff);
    let ns = format!("e2e-failover-{tail:04x}");
    world.make_namespace(&ns).await?;
    let fleet = Fleet::new(world.clone(), ns.clone(), "bench");
    let mut measured = Measured::default();
    measured.load.extend(load());
    let cut = cut_short()?;
    let mut result = measure(&fleet, options, &cut, &mut measured).await;
    if let Err(e) = &result {
        println!("the benchmark broke off: {e:#}");
        crate::diagnose::dump(&fleet).await;
    } else if cut.load(Ordering::Relaxed) {
        result = Err(anyhow!("cut short by a signal"));
    }
    measured.broken_off = result.as_ref().err().map(|e| format!("{e:#}"));
    if options.keep {
        println!("namespace {ns} is left");
    } else if let Err(e) = world.delete_namespace(&ns).await {
        // What was measured is printed all the same.
        result = result.and(Err(e));
    }
    measured.load.extend(load());
    println!("load of the machine before and after: {:?}", measured.load);
    println!("{}", floors::table(&measured.floors));
    let faults = faults(options);
    measured.figures.extend(gaps::figures(&measured.runs, &faults));
    println!("\n{}", gaps::table(&measured.runs, &faults));
    println!("{}", gaps::phase_table(&measured.runs, &faults));
    if !measured.cost.is_empty() {
        println!("commits a second\n{}", cost::table(&measured.cost));
    }
    super::table(&measured.figures);
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&measured)?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    result
}

/// Becomes true with the first SIGINT or SIGTERM: the present run is ended, and every acknowledged row is looked for as ever. The second one ends
/// the process.
fn cut_short() -> Result<Arc<AtomicBool>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let cut = Arc::new(AtomicBool::new(false));
    let told = cut.clone();
    tokio::spawn(async move {
        for text in ["ends with the present run; once more: at once", "ends at once"] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            println!("{text}");
            if told.swap(true, Ordering::Relaxed) {
                std::process::exit(1);
            }
        }
    });
    Ok(cut)
}

/// The load average of a minute. What else runs on the machine is in every figure.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn faults(options: &Options) -> Vec<Fault> {
    if options.only.is_empty() {
        Fault::ALL.into()
    } else {
        options.only.clone()
    }
}

async fn measure(f: &Fleet, options: &Options, cut: &AtomicBool, measured: &mut Measured) -> Result<()> {
    let mut cluster = bp::cluster(f);
    // 64 clients, and room for those of the operator and of the checks.
    cluster.spec.mysql.config = Some(bp::SMALL.replace("max_connections = 60", "max_connections = 200"));
    f.apply(&cluster).await?;
    f.apply(&bp::pair(f, bp::PAIR)).await?;
    f.apply(&bp::range(f, bp::RANGE, 0, bp::OPEN - 1, bp::PAIR))
        .await?;
    f.all_ready(wait::BRING_UP).await?;
    let mut books = vec![];
    if !options.no_cost {
        measured.cost = cost::measure(f, bp::PAIR, &mut books).await?;
        println!("commits a second\n{}", cost::table(&measured.cost));
    }
    let login = plain::make(f, bp::PAIR).await?;
    let clients = Clients::start(f, bp::PAIR, &login).await?;
    let struck = strike(f, options, &clients, cut, measured).await;
    // What was acknowledged is looked for in any case, most of all when something went wrong.
    let (ours, of_plain) = clients.stop().await?;
    books.extend(ours);
    let ours = pairs_rows(f, &books, measured).await;
    let of_plain = plain_rows(&login, of_plain, measured).await;
    all_said([("", struck), ("pair: ", ours), ("plain server: ", of_plain)])
}

async fn strike(
    f: &Fleet,
    options: &Options,
    clients: &Clients,
    cut: &AtomicBool,
    measured: &mut Measured,
) -> Result<()> {
    clients.write(strike::UNNOTICED).await?;
    measured.floors = floors::measure(f, bp::PAIR, &clients.tries_by_map()).await?;
    strike::all(f, clients, &faults(options), options, cut, &mut measured.runs).await
}

/// Looks for every row of the pair's clients on both of its servers.
async fn pairs_rows(f: &Fleet, books: &[Arc<Book>], measured: &mut Measured) -> Result<()> {
    let held = f.holds(bp::PAIR, &f.table(0).await?, books).await?;
    let name = "acknowledged writes that were lost";
    let note = format!(
        "(of {}, on both servers, each once; {} unknown, {} of them there)",
        held.acknowledged, held.unknown, held.unknown_there
    );
    println!("{name}: 0 {note}");
    measured
        .figures
        .push(Figure::at_most(name, Some(0.0), "", 0.0, note));
    measured.held.push(held);
    Ok(())
}

/// Looks for every row of the plain server's client, as soon as that server answers.
async fn plain_rows(login: &Login, book: Arc<Book>, measured: &mut Measured) -> Result<()> {
    let books = [book];
    let held = wait::until_each(
        "the plain server to hold every row",
        wait::SOON,
        wait::SOON,
        || async {
            Ok(match agree(&books, &plain::rows(login).await?) {
                Ok(held) => Seen::Yes(held),
                Err(e) => Seen::NotYet(format!("{e:#}")),
            })
        },
    )
    .await?;
    println!("plain server: {} rows acknowledged, none lost", held.acknowledged);
    measured.held.push(held);
    Ok(())
}

/// One error that says all.
fn all_said<const N: usize>(results: [(&str, Result<()>); N]) -> Result<()> {
    let all: Vec<_> = results
        .into_iter()
        .filter_map(|(of, result)| result.err().map(|e| format!("{of}{e:#}")))
        .collect();
    ensure!(all.is_empty(), "{}", all.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_hides_another() {
        all_said([("a: ", Ok(())), ("b: ", Ok(()))]).unwrap();
        let one = || Err(anyhow!("lost"));
        let e = all_said([("a: ", one()), ("b: ", Ok(())), ("c: ", one())]).unwrap_err();
        assert_eq!(e.to_string(), "a: lost; c: lost");
    }
}
