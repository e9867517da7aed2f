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
use crate::world::World;
use crate::writer::{Held, agree};
use anyhow::{Context as _, Result, ensure};
use faults::Fault;
use gaps::Run;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use strike::Clients;

/// How it is run.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Write all of it to this file as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// How often each fault is struck.
    #[arg(long, env = "RUNS", default_value = "30")]
    pub runs: usize,
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
    let fleet = Arc::new(Fleet::new(world.clone(), ns.clone(), "bench"));
    let mut measured = Measured::default();
    measured.load.extend(load());
    let result = measure(&fleet, options, &mut measured).await;
    if let Err(e) = &result {
        println!("the benchmark broke off: {e:#}");
        crate::diagnose::dump(&fleet).await;
    }
    if options.keep {
        println!("namespace {ns} is left");
    } else {
        world.delete_namespace(&ns).await?;
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

async fn measure(f: &Arc<Fleet>, options: &Options, measured: &mut Measured) -> Result<()> {
    let mut cluster = bp::cluster(f);
    // 64 clients, and room for those of the operator and of the checks.
    cluster.spec.mysql.config = Some(bp::SMALL.replace("max_connections = 60", "max_connections = 200"));
    f.apply(&cluster).await?;
    f.apply(&bp::pair(f, bp::PAIR)).await?;
    f.apply(&bp::range(f, bp::RANGE, 0, bp::OPEN - 1, bp::PAIR))
        .await?;
    f.all_ready(crate::wait::BRING_UP).await?;
    let mut books = vec![];
    if !options.no_cost {
        measured.cost = cost::measure(f, bp::PAIR, &mut books).await?;
        println!("commits a second\n{}", cost::table(&measured.cost));
    }
    let login = plain::make(f, bp::PAIR).await?;
    let clients = Clients::start(f, bp::PAIR, &login).await?;
    clients.write(strike::UNNOTICED).await?;
    measured.floors = floors::measure(f, bp::PAIR, &clients.tries_by_map()).await?;
    let struck = strike::all(f, &clients, &faults(options), options, &mut measured.runs).await;
    // What was acknowledged is looked for in any case, most of all when something went wrong.
    let (ours, of_plain) = clients.stop().await?;
    books.extend(ours);
    let held = f.holds(bp::PAIR, &f.table(0).await?, &books).await;
    let lost = held.as_ref().err().map(|e| format!("{e:#}"));
    let name = "acknowledged writes that were lost";
    match held {
        Ok(held) => {
            let note = format!(
                "(of {}, on both servers; {} unknown, {} of them there)",
                held.acknowledged, held.unknown, held.unknown_there
            );
            println!("{name}: 0 {note}");
            measured
                .figures
                .push(Figure::at_most(name, Some(0.0), "", 0.0, note));
            measured.held.push(held);
        }
        Err(_) => println!("{name}: {}", lost.clone().unwrap_or_default()),
    }
    if !options.no_plain {
        let held = agree(&[of_plain], &plain::rows(&login).await?)?;
        println!("plain server: {} rows acknowledged, none lost", held.acknowledged);
        measured.held.push(held);
    }
    struck?;
    ensure!(lost.is_none(), "{}", lost.unwrap_or_default());
    Ok(())
}
