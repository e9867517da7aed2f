//! The figures that the project wants to reach, measured on a real cluster. Nothing here fails a run: what misses its target
//! stands in the table as missed.

mod decode;
pub mod failover;
mod fleet;
mod idle;
mod push;
pub mod split;

use crate::fleet::Fleet;
use crate::sampler::Sampler;
use crate::world::World;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// How the benchmarks are run.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Write the figures to this file as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Virtual shards of the fleet.
    #[arg(long, default_value = "1024")]
    pub shards: i32,
    /// Leave the fleet.
    #[arg(long)]
    pub keep: bool,
}

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The value; `None` when it could not be measured here.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
    /// What is to be reached.
    pub target: f64,
    /// Whether more is better; else less is.
    pub more_is_better: bool,
    /// What else there is to know: the parts, or why it was not measured.
    pub note: String,
    /// What stops it where it is, said when the target is missed.
    pub floor: &'static str,
}

impl Figure {
    /// Whether the target is reached.
    pub fn met(&self) -> Option<bool> {
        self.value.map(|v| {
            if self.more_is_better {
                v >= self.target
            } else {
                v <= self.target
            }
        })
    }

    /// A figure that must not be above `target`.
    pub fn at_most(name: &str, value: Option<f64>, unit: &'static str, target: f64, note: String) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            target,
            more_is_better: false,
            note,
            floor: "",
        }
    }

    /// What stops it, should it miss its target.
    #[must_use]
    pub fn floor(self, floor: &'static str) -> Self {
        Self { floor, ..self }
    }

    /// A figure that must reach `target`.
    pub fn at_least(name: &str, value: Option<f64>, unit: &'static str, target: f64, note: String) -> Self {
        Self {
            more_is_better: true,
            ..Self::at_most(name, value, unit, target, note)
        }
    }
}

/// Runs all of them on one fleet and prints the table.
///
/// # Errors
/// When the fleet does not come up, or the file cannot be written.
pub async fn run(world: &World, options: &Options) -> Result<()> {
    let mut figures = vec![decode::decode()];
    print(&figures[0]);
    let tail = crate::dice::Dice::new(crate::dice::Dice::seed_now()).below(0xffff);
    let ns = format!("e2e-bench-{tail:04x}");
    world.make_namespace(&ns).await?;
    let fleet = Arc::new(Fleet::new(world.clone(), ns.clone(), "bench"));
    let result = measure(&fleet, options, &mut figures).await;
    if let Err(e) = &result {
        println!("the benchmarks broke off: {e:#}");
        crate::diagnose::dump(&fleet).await;
    }
    if options.keep {
        println!("namespace {ns} is left");
    } else {
        world.delete_namespace(&ns).await?;
    }
    table(&figures);
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    result
}

async fn measure(f: &Arc<Fleet>, options: &Options, figures: &mut Vec<Figure>) -> Result<()> {
    let mut keep = |figure: Figure| {
        print(&figure);
        figures.push(figure);
    };
    keep(fleet::bring_up(f, options.shards).await?);
    keep(idle::resident(&f.world).await);
    keep(idle::writes(f, options.shards).await);
    for figure in push::latency(f, options.shards).await? {
        keep(figure);
    }
    // Rule P1 is watched from here on: connections of the sampler would slow down what was measured before.
    let sampler = Sampler::start(f.clone());
    // The shards that were opened meanwhile are out of the way.
    keep(fleet::creation(f, options.shards + 256).await?);
    drop(sampler);
    f.sights.verdict().map(|_| ())
}

fn print(f: &Figure) {
    let value = f
        .value
        .map_or_else(|| "not measured".to_owned(), |v| format!("{v:.2} {}", f.unit));
    println!("{}: {value} {}", f.name, f.note);
}

fn table(figures: &[Figure]) {
    println!("\n{:<52} {:>16} {:>16}  result", "figure", "measured", "target");
    for f in figures {
        let value = f
            .value
            .map_or_else(|| "-".to_owned(), |v| format!("{v:.2} {}", f.unit));
        let sign = if f.more_is_better { "≥" } else { "≤" };
        let target = format!("{sign} {} {}", f.target, f.unit);
        let result = match f.met() {
            Some(true) => "met".to_owned(),
            Some(false) if f.floor.is_empty() => "missed".to_owned(),
            Some(false) => format!("missed: {}", f.floor),
            None => "not measured".to_owned(),
        };
        println!("{:<52} {value:>16} {target:>16}  {result}", f.name);
    }
}

#[cfg(test)]
mod tests {
    use super::Figure;

    #[test]
    fn a_target_is_reached_from_its_own_side() {
        let below = |v| Figure::at_most("x", v, "s", 90.0, String::new()).met();
        assert_eq!(
            (below(Some(90.0)), below(Some(90.1)), below(None)),
            (Some(true), Some(false), None)
        );
        assert_eq!(
            Figure::at_least("x", Some(1.2), "×", 1.3, String::new()).met(),
            Some(false)
        );
    }
}
