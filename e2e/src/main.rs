//! End-to-end scenarios and benchmarks of Shardwright on a real cluster. See `e2e/README.md`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for a terminal"
)]

mod acknowledge;
mod audit;
mod bench;
mod blueprint;
mod chaos;
#[path = "../../examples/follow_map/client/mod.rs"]
mod client;
mod crowd;
mod demo;
mod demo_split;
mod diagnose;
mod dice;
mod fleet;
mod homes;
mod http;
mod install;
mod ledger;
mod moves;
mod pair;
mod published;
mod reach;
mod report;
mod runner;
mod sampler;
mod scenario;
mod scenarios;
mod server;
mod settings;
mod shell;
mod testbed;
mod wait;
mod watched;
mod wish;
mod world;
mod writer;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Instant;
use world::World;

/// Shardwright's end-to-end scenarios and benchmarks. They run against the cluster that KUBECONFIG names.
#[derive(Parser)]
#[command(name = "e2e", version)]
struct Cli {
    #[command(flatten)]
    settings: settings::Settings,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the scenarios.
    List,
    /// Install the operator and run scenarios.
    Run(runner::Options),
    /// Measure the figures that the project wants to reach.
    Bench(bench::Options),
    /// Measure how long nothing can be written when the active server is lost or changed.
    BenchFailover(bench::failover::Options),
    /// Measure how long each shard cannot be written when it moves to another pair.
    BenchSplit(bench::split::Options),
    /// Break things at random while clients write, and prove that nothing acknowledged is lost.
    Chaos(chaos::Options),
    /// Write an object through the published map as an application would, and read it back.
    DemoWrite(demo::Options),
    /// Move half of a range to a new pair while clients write to it, and show how far it is.
    DemoSplit(demo_split::Options),
    /// Wait until every cluster, pair and range of a namespace is Ready, and show how far they are.
    WaitReady(demo::WaitOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    match start().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<()> {
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        bail!("a TLS provider was installed before");
    }
    let cli = Cli::parse();
    match cli.command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run(options) => run(cli.settings, options).await,
        Command::Bench(options) => bench::run(&installed(cli.settings).await?, &options).await,
        Command::BenchFailover(options) => {
            bench::failover::run(&installed(cli.settings).await?, &options).await
        }
        Command::BenchSplit(options) => bench::split::run(&installed(cli.settings).await?, &options).await,
        Command::Chaos(options) if options.list => {
            chaos::list(&options);
            Ok(())
        }
        Command::Chaos(options) => chaos::run(&installed(cli.settings).await?, &options).await,
        Command::DemoWrite(options) => demo::write(&World::connect(cli.settings).await?, &options).await,
        Command::DemoSplit(options) => demo_split::run(&World::connect(cli.settings).await?, &options).await,
        Command::WaitReady(options) => demo::wait_ready(&World::connect(cli.settings).await?, &options).await,
    }
}

/// The world with the operator in it.
async fn installed(settings: settings::Settings) -> Result<World> {
    let world = World::connect(settings).await?;
    if !world.settings.no_install {
        world.install(&world.settings.operator_image, &[]).await?;
    }
    Ok(world)
}

fn list() {
    for group in scenarios::all() {
        for s in &group.scenarios {
            let set = match s.set {
                scenario::Set::Short => "",
                scenario::Set::Full => " (full)",
            };
            println!("{:<34} {:<10} {}{set}", s.name, group.name, s.about);
        }
    }
}

async fn run(settings: settings::Settings, options: runner::Options) -> Result<()> {
    let begun = Instant::now();
    let skips = std::fs::read_to_string(&options.skips)
        .with_context(|| format!("read {}", options.skips.display()))?;
    let mut allowed = report::allowed_skips(&skips)?;
    if settings.local && !settings.no_install {
        // The test bed has everything that a scenario needs.
        allowed.clear();
    }
    let world = World::connect(settings).await?;
    if !world.settings.no_install {
        world.install(&world.settings.operator_image, &[]).await?;
        println!(
            "operator installed by its chart ({:.1}s)",
            begun.elapsed().as_secs_f64()
        );
    }
    let lines = runner::run(&world, scenarios::all(), &options).await;
    report::print_sum(&lines, begun.elapsed());
    if let Some(file) = &options.report {
        report::write(&lines, file)?;
    }
    if let Some(file) = &options.junit {
        report::write_junit(&lines, file)?;
    }
    let failed = lines
        .iter()
        .filter(|l| matches!(l.outcome, report::Outcome::Failed(_)))
        .count();
    let skipped = report::not_allowed(&lines, &allowed);
    if lines.is_empty() {
        bail!("no scenario has such a name");
    }
    if !skipped.is_empty() {
        bail!(
            "skipped without being on the list of skips: {}",
            skipped.join(", ")
        );
    }
    if failed > 0 {
        bail!("{failed} failed");
    }
    Ok(())
}
