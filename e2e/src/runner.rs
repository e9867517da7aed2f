//! Runs groups side by side, each scenario in a namespace of its own or on its group's fleet.

use crate::fleet::Fleet;
use crate::report::{self, Line, Outcome};
use crate::sampler::Sampler;
use crate::scenario::{Fixture, Group, Need, Scenario, Set};
use crate::scenarios::LONG;
use crate::watched::{self, Watched};
use crate::world::World;
use crate::{diagnose, dice::Dice};
use anyhow::{Result, anyhow, ensure};
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A scenario that is not done by then hangs.
const LONGEST: Duration = Duration::from_secs(900);

/// Seconds of a scenario that is not in [`LONG`].
const USUAL: u64 = 15;

/// How a run is made.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Also the long scenarios.
    #[arg(long)]
    pub full: bool,
    /// Only scenarios (or groups) whose name contains this; may be given several times.
    #[arg(long)]
    pub only: Vec<String>,
    /// Write the results to this file as JSON.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Write the results to this file as JUnit's XML.
    #[arg(long)]
    pub junit: Option<PathBuf>,
    /// Leave the namespaces of scenarios that failed.
    #[arg(long)]
    pub keep: bool,
    /// Groups that run at the same time.
    #[arg(long, env = "SHARDWRIGHT_E2E_WORKERS", default_value = "3")]
    pub workers: usize,
    /// List of scenarios that may be skipped; one that is skipped and not on it fails the run.
    #[arg(long, default_value = "e2e/skips.tsv")]
    pub skips: PathBuf,
}

/// What runs one after the other.
struct Lane {
    name: String,
    fixture: Fixture,
    scenarios: Vec<Scenario>,
}

/// Runs what was asked for; gives the lines.
pub async fn run(world: &World, groups: Vec<Group>, options: &Options) -> Vec<Line> {
    let mut lines = vec![];
    let mut beside = vec![];
    let mut alone = vec![];
    for mut group in groups {
        group.scenarios.retain(|s| wanted(options, group.name, s));
        group.scenarios.retain(|s| match lacking(world, s) {
            Some(why) => {
                let line = Line {
                    name: s.name.into(),
                    outcome: Outcome::Skipped(why.into()),
                    seconds: 0.0,
                };
                report::print(&line);
                lines.push(line);
                false
            }
            None => true,
        });
        let queue = if group.alone { &mut alone } else { &mut beside };
        match group.fixture {
            _ if group.scenarios.is_empty() => {}
            Fixture::Shared(_) => queue.push(Lane {
                name: group.name.into(),
                fixture: group.fixture,
                scenarios: group.scenarios,
            }),
            Fixture::Empty => queue.extend(group.scenarios.into_iter().map(|s| Lane {
                name: s.name.into(),
                fixture: group.fixture,
                scenarios: vec![s],
            })),
        }
    }
    // What takes longest begins first.
    beside.sort_by_key(|l| std::cmp::Reverse(seconds(&l.scenarios)));
    for (lanes, workers) in [(beside, options.workers.max(1)), (alone, 1)] {
        let done: Vec<Vec<Line>> = futures::stream::iter(lanes)
            .map(|lane| tokio::spawn(run_lane(world.clone(), lane, options.clone())))
            .buffer_unordered(workers)
            .map(std::result::Result::unwrap_or_default)
            .collect()
            .await;
        lines.extend(done.into_iter().flatten());
    }
    lines
}

/// About as long as they take; a guess for most.
fn seconds(all: &[Scenario]) -> u64 {
    let known = |s: &Scenario| LONG.iter().find(|(name, _)| *name == s.name).map(|(_, n)| *n);
    all.iter().map(|s| known(s).unwrap_or(USUAL)).sum()
}

fn wanted(options: &Options, group: &str, s: &Scenario) -> bool {
    (options.full || s.set == Set::Short || options.only.iter().any(|o| o == s.name))
        && (options.only.is_empty()
            || options
                .only
                .iter()
                .any(|o| s.name.contains(o.as_str()) || group == o))
}

/// Why a scenario cannot run here.
fn lacking(world: &World, s: &Scenario) -> Option<&'static str> {
    s.needs.iter().find_map(|n| match n {
        Need::TestBed if !world.settings.local => Some("needs the project's own test bed"),
        Need::Operator | Need::SecondOperatorImage if world.settings.no_install => {
            Some("needs an operator that this run has installed")
        }
        _ => None,
    })
}

/// A fleet, and what watches it.
struct Stage {
    fleet: Arc<Fleet>,
    sampler: Sampler,
}

async fn run_lane(world: World, lane: Lane, options: Options) -> Vec<Line> {
    let mut lines = vec![];
    let mut stage: Option<Stage> = None;
    let mut hopeless = false;
    for s in &lane.scenarios {
        let begun = Instant::now();
        if hopeless {
            let said = Line {
                name: s.name.into(),
                outcome: Outcome::Failed(format!("the fleet of {} did not come up before", lane.name)),
                seconds: 0.0,
            };
            report::print(&said);
            lines.push(said);
            continue;
        }
        let mut made = None;
        let result = if let Some(stage) = stage.take() {
            Ok(stage)
        } else {
            let at = Instant::now();
            let r = set_up(&world, &lane).await;
            made = Some(at.elapsed());
            r
        };
        let (result, now) = match result {
            Ok(stage) => {
                let before = stage.fleet.sights.watched();
                let r = tokio::time::timeout(LONGEST, (s.body)(stage.fleet.clone()))
                    .await
                    .unwrap_or_else(|_| Err(anyhow!("not done after {LONGEST:?}")))
                    .and_then(|()| stage.fleet.sights.verdict().map(|_| ()))
                    .and_then(|()| seen_enough(&stage.fleet, &before));
                (r, Some(stage))
            }
            Err((e, stage)) => {
                hopeless = true;
                (Err(e.context("setting up")), stage)
            }
        };
        let failed = result.is_err();
        let said = Line {
            name: s.name.into(),
            outcome: match result {
                Ok(()) => Outcome::Passed,
                Err(e) => Outcome::Failed(format!("{e:#}")),
            },
            seconds: begun.elapsed().as_secs_f64(),
        };
        report::print(&said);
        if let (Some(made), Fixture::Shared(_)) = (made, lane.fixture) {
            println!(
                "              ({:.1}s of it to set up {})",
                made.as_secs_f64(),
                lane.name
            );
        }
        lines.push(said);
        if let Some(now) = now {
            if failed {
                diagnose::dump(&now.fleet).await;
                if options.keep {
                    println!("      namespace {} is left", now.fleet.ns);
                } else {
                    tear_down(&world, now).await;
                }
            } else {
                stage = Some(now);
            }
        }
    }
    if let Some(stage) = stage {
        tear_down(&world, stage).await;
    }
    lines
}

/// A scenario in which the sampler was blind proves nothing of rule P1. Holes are no fault here: some cut servers off from the client as
/// well, or leave them for minutes with a mysqld that starts.
fn seen_enough(fleet: &Fleet, before: &BTreeMap<String, Watched>) -> Result<()> {
    let watched = watched::since(before, &fleet.sights.watched());
    let said = watched::too_little(&watched, false);
    ensure!(said.is_empty(), "{}", said.join("; "));
    Ok(())
}

async fn set_up(world: &World, lane: &Lane) -> Result<Stage, (anyhow::Error, Option<Stage>)> {
    let tail = Dice::new(Dice::seed_now()).below(0xffff);
    let ns = format!(
        "e2e-{}-{tail:04x}",
        lane.name.chars().take(40).collect::<String>()
    );
    world.make_namespace(&ns).await.map_err(|e| (e, None))?;
    let fleet = Arc::new(Fleet::new(world.clone(), ns, "c"));
    let stage = Stage {
        sampler: Sampler::start(fleet.clone()),
        fleet,
    };
    if let Fixture::Shared(body) = lane.fixture {
        let made = tokio::time::timeout(LONGEST, body(stage.fleet.clone()))
            .await
            .unwrap_or_else(|_| Err(anyhow!("not done after {LONGEST:?}")));
        if let Err(e) = made {
            return Err((e, Some(stage)));
        }
    }
    Ok(stage)
}

async fn tear_down(world: &World, stage: Stage) {
    drop(stage.sampler);
    if let Err(e) = world.delete_namespace(&stage.fleet.ns).await {
        println!("      namespace {} is not deleted: {e:#}", stage.fleet.ns);
    }
}
