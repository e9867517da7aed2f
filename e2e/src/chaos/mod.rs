//! Chaos on the real thing: clients write, a seed draws faults, and afterwards every acknowledged row has to be on both servers.
//!
//! A run of a seed: clients by the map and by the Service write numbered rows without end ([`crate::writer`]). The seed's blows
//! ([`fault`]) come one after the other ([`strike`]); each is healed after a while, and then the pair has to become healthy within a bound.
//! All the while the sampler asks both servers whether they can acknowledge, and the record is watched ([`witness`]). At the end the
//! rows and the GTID sets of both servers are compared ([`verdict`]), and a report is written ([`report`]).

mod clients;
mod fault;
mod html;
mod journal;
mod report;
mod round;
mod strike;
mod summary;
mod verdict;
mod witness;

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE};
use crate::diagnose;
use crate::dice::Dice;
use crate::fleet::Fleet;
use crate::sampler::Sampler;
use crate::wait;
use crate::world::World;
use anyhow::{Context as _, Result, bail, ensure};
use clients::Clients;
use fault::{Deck, Fault};
use journal::Journal;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use report::Report;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use witness::Witness;

/// Class of volumes that can be filled.
const SMALL_CLASS: &str = "local-small";
/// Fits a small volume; servers of a run are to hold an hour of writes on it.
const SMALL_SIZE: &str = "400Mi";
/// Binary logs are short and few, or they would fill the volume by themselves. Clients that gave up leave connections whose commits wait.
const MORE: &str = "\nmax_binlog_size = 8M\nbinlog_expire_logs_seconds = 300";

/// How a run is made.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// For how long faults are drawn, for each seed.
    #[arg(long, default_value = "10")]
    pub minutes: f64,
    /// The seed that draws the faults; may be given several times, for one run after the other. From the clock when absent.
    #[arg(long)]
    pub seed: Vec<u64>,
    /// Folder for the reports: seed-N.txt, .json and .html, and summary.md and .json over all seeds.
    #[arg(long, default_value = "chaos-results")]
    pub report_dir: PathBuf,
    /// Within this many seconds the pair has to be healthy after everything is healed.
    #[arg(long, default_value = "180")]
    pub patience: u64,
    /// Draw only faults whose name contains this; may be given several times.
    #[arg(long)]
    pub only: Vec<String>,
    /// Draw no fault whose name contains this; may be given several times.
    #[arg(long)]
    pub avoid: Vec<String>,
    /// Every blow has two faults at once, if two of those that may be drawn go together; else one in three has.
    #[arg(long)]
    pub together: bool,
    /// Print the blows that the seeds give, and do nothing.
    #[arg(long)]
    pub list: bool,
    /// Leave the fleet.
    #[arg(long)]
    pub keep: bool,
}

/// Blows that `--list` prints of each seed.
const LISTED: usize = 40;

impl Options {
    fn faults(&self) -> Vec<Fault> {
        let is = |f: &Fault, all: &[String]| all.iter().any(|part| f.to_string().contains(part.as_str()));
        fault::ALL
            .into_iter()
            .filter(|f| (self.only.is_empty() || is(f, &self.only)) && !is(f, &self.avoid))
            .collect()
    }

    fn deck(&self, seed: u64, faults: Vec<Fault>) -> Deck {
        Deck::new(seed, faults).together(self.together)
    }

    /// The command that does it again.
    fn replay(&self, seed: u64) -> String {
        let mut words = format!("make chaos MINUTES={} SEED={seed}", self.minutes);
        let more: Vec<_> = (self.only.iter().map(|o| format!("--only {o}")))
            .chain(self.avoid.iter().map(|a| format!("--avoid {a}")))
            .chain(self.together.then(|| "--together".to_owned()))
            .collect();
        if !more.is_empty() {
            words = format!("{words} CHAOS='{}'", more.join(" "));
        }
        words
    }
}

/// The blows of the seeds, without a cluster.
pub fn list(options: &Options) {
    for seed in &options.seed {
        println!("seed {seed}");
        for (n, blow) in options.deck(*seed, options.faults()).take(LISTED).enumerate() {
            println!("{:>4} {blow}", n + 1);
        }
    }
}

/// Runs every seed on one fleet.
///
/// # Errors
/// When anything was wrong; the report says what.
pub async fn run(world: &World, options: &Options) -> Result<()> {
    ensure!(
        world.settings.local,
        "chaos needs the project's own test bed: it kills nodes"
    );
    let mut seeds = options.seed.clone();
    if seeds.is_empty() {
        seeds.push(Dice::seed_now() % 100_000);
    }
    let tail = Dice::new(Dice::seed_now()).below(0xffff);
    let ns = format!("e2e-chaos-{tail:04x}");
    world.make_namespace(&ns).await?;
    let fleet = Arc::new(Fleet::new(world.clone(), ns.clone(), "c"));
    let sampler = Sampler::start(fleet.clone());
    let result = Box::pin(seeds_in_turn(&fleet, options, &seeds)).await;
    if let Err(e) = &result {
        println!("{e:#}");
        diagnose::dump(&fleet).await;
    }
    drop(sampler);
    // After a failure there is something to look at.
    if options.keep || result.is_err() {
        println!("namespace {ns} is left");
    } else {
        world.delete_namespace(&ns).await?;
    }
    result
}

async fn seeds_in_turn(fleet: &Arc<Fleet>, options: &Options, seeds: &[u64]) -> Result<()> {
    let faults = bring_up(fleet, options.faults()).await.context("the fleet")?;
    ensure!(!faults.is_empty(), "no fault has such a name");
    let mut reports = vec![];
    for seed in seeds {
        let report = Box::pin(game(fleet, options, *seed, faults.clone()))
            .await
            .with_context(|| format!("seed {seed}"))?;
        println!("{}", report.text());
        report.write(&options.report_dir)?;
        println!("report: {}/seed-{seed}.html", options.report_dir.display());
        let (passed, failures) = (report.passed(), report.failures.join("; "));
        reports.push(report);
        // After each, so that what there is survives whatever comes.
        let text = summary::write(&reports, &options.report_dir)?;
        // What is left of a failure is not to be disturbed by the next seed.
        if !passed || reports.len() == seeds.len() {
            println!("{text}");
        }
        if !passed {
            bail!("chaos with seed {seed} failed: {failures}");
        }
    }
    Ok(())
}

/// One pair with eight shards on volumes that can be filled; gives the faults that can be had here.
async fn bring_up(fleet: &Fleet, mut faults: Vec<Fault>) -> Result<Vec<Fault>> {
    let mut cluster = bp::cluster(fleet);
    let small = bp::SMALL.replace("max_connections = 60", "max_connections = 400");
    cluster.spec.mysql.config = Some(format!("{small}{MORE}"));
    if small_volumes(fleet).await? {
        cluster.spec.mysql.storage.class_name = Some(SMALL_CLASS.into());
        cluster.spec.mysql.storage.size = Quantity(SMALL_SIZE.into());
    } else {
        println!("no volume is filled: this machine has no loop devices for {SMALL_CLASS}");
        faults.retain(|f| !matches!(f, Fault::FillVolume(_)));
    }
    fleet.apply(&cluster).await?;
    fleet.apply(&bp::pair(fleet, PAIR)).await?;
    fleet.apply(&bp::range(fleet, RANGE, 0, OPEN - 1, PAIR)).await?;
    fleet.all_ready(wait::BRING_UP).await?;
    fleet.healthy(PAIR).await?;
    Ok(faults)
}

async fn small_volumes(fleet: &Fleet) -> Result<bool> {
    let volumes: Api<PersistentVolume> = Api::all(fleet.world.client.clone());
    let small = volumes.list(&ListParams::default()).await?.items;
    let free = small.iter().filter(|v| {
        v.spec
            .as_ref()
            .is_some_and(|s| s.storage_class_name.as_deref() == Some(SMALL_CLASS) && s.claim_ref.is_none())
    });
    // Two for the pair, and one more for a side whose volume is lost.
    Ok(free.count() > 2)
}

/// One seed.
async fn game(fleet: &Arc<Fleet>, options: &Options, seed: u64, faults: Vec<Fault>) -> Result<Report> {
    println!(
        "seed {seed}, {} minutes, {} faults to draw from",
        options.minutes,
        faults.len()
    );
    let (begun, on_the_clock) = (Instant::now(), Timestamp::now());
    let watched_before = fleet.sights.watched();
    let log = options.report_dir.join(format!("seed-{seed}.operator.log"));
    let _journal = Journal::start(&fleet.world, &log)?;
    let witness = Witness::start(fleet.clone(), PAIR.into());
    let clients = Clients::start(fleet, PAIR, seed).await?;
    let mut rounds = vec![];
    let mut failures = vec![];
    let patience = Duration::from_secs(options.patience);
    // The clients have begun by now: the first blow is struck in any case.
    let (drawing, span) = (Instant::now(), Duration::from_secs_f64(options.minutes * 60.0));
    for blow in options.deck(seed, faults) {
        if drawing.elapsed() >= span && !rounds.is_empty() {
            break;
        }
        let at = round::Place {
            fleet,
            pair: PAIR,
            clients: &clients,
            witness: &witness,
            begun,
            patience,
        };
        let (mut round, result) = round::play(&at, &blow).await;
        round.number = rounds.len() + 1;
        println!("{}", round.line());
        if let Err(e) = &result {
            failures.push(format!("round {}, {blow}: {e:#}", round.number));
        }
        rounds.push(round);
        // What is watched all the time ends a run at once, while the traces are fresh.
        if result.is_err() || fleet.sights.verdict().is_err() {
            break;
        }
        // Undisturbed writes between two blows; the time itself is meant.
        tokio::time::sleep(blow.rest).await;
    }
    if !failures.is_empty() {
        for said in fleet.heal_everything().await {
            println!("healing: {said}");
        }
    }
    let clients = clients.stop().await?;
    let verdict = verdict::all(
        fleet,
        PAIR,
        &clients,
        &witness,
        patience,
        &watched_before,
        &mut failures,
    )
    .await;
    Ok(Report {
        seed,
        replay: options.replay(seed),
        began: on_the_clock,
        seconds: begun.elapsed().as_secs_f64(),
        failures,
        rounds,
        held: verdict.held,
        losses: verdict.losses,
        samples: verdict.watched.iter().map(|w| w.samples).sum(),
        watched: verdict.watched,
        clients: clients::sums(&clients, begun),
        record: witness.changes(),
        servers: report::servers(&fleet.sights.changes(), on_the_clock),
    })
}
