//! All seeds of one call in two tables: what each found, and what each kind of fault cost.

use super::clients::{MAP, SERVICE};
use super::report::{Report, Round};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// What two faults in one round are called: their gap is no single fault's.
const TWO: &str = "two at once";

/// One seed.
#[derive(Debug, Serialize)]
struct Seed {
    #[serde(rename = "seed")]
    number: u64,
    minutes: f64,
    rounds: usize,
    faults: usize,
    acknowledged: usize,
    lost: Option<usize>,
    twice: Option<usize>,
    unknown: usize,
    samples: u64,
    /// Of the server that was watched least.
    least_a_minute: f64,
    failures: Vec<String>,
}

/// One kind of fault, in seconds. The gap of a round is the longest of a client, while the fault lasted or while it healed.
#[derive(Debug, Default, Serialize)]
struct Kind {
    times: usize,
    healed: usize,
    map: Spread,
    service: Spread,
    /// From healed to healthy.
    healthy: Spread,
    /// The highest load average of a minute in any of its rounds.
    load: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Spread {
    p50: f64,
    max: f64,
}

impl Spread {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        // The nearest rank.
        let p50 = all.get(all.len().saturating_sub(1) / 2).copied();
        Self {
            p50: p50.unwrap_or_default(),
            max: all.last().copied().unwrap_or_default(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Summary {
    seeds: Vec<Seed>,
    faults: BTreeMap<String, Kind>,
}

fn seed(r: &Report) -> Seed {
    let enough = r.watched.iter().filter(|w| w.up > 0.0);
    let least = enough
        .map(crate::watched::Watched::a_minute)
        .min_by(f64::total_cmp);
    Seed {
        number: r.seed,
        minutes: r.seconds / 60.0,
        rounds: r.rounds.len(),
        faults: r.rounds.iter().map(|r| r.faults.len()).sum(),
        acknowledged: r.clients.iter().map(|c| c.acknowledged).sum(),
        lost: r.losses.map(|l| l.lost),
        twice: r.losses.map(|l| l.twice),
        unknown: r.clients.iter().map(|c| c.unknown).sum(),
        samples: r.samples,
        least_a_minute: least.unwrap_or_default(),
        failures: r.failures.clone(),
    }
}

fn kinds(reports: &[Report]) -> BTreeMap<String, Kind> {
    let mut by_name: BTreeMap<String, Vec<&Round>> = BTreeMap::new();
    for round in reports.iter().flat_map(|r| &r.rounds) {
        let name = match round.faults.as_slice() {
            [one] => one.clone(),
            _ => TWO.to_owned(),
        };
        by_name.entry(name).or_default().push(round);
    }
    by_name
        .into_iter()
        .map(|(name, all)| (name, kind(&all)))
        .collect()
}

fn kind(all: &[&Round]) -> Kind {
    let gap = |route| {
        let longest = |r: &&Round| {
            let both = [false, true]
                .into_iter()
                .filter_map(|healing| r.gap(route, healing));
            both.max_by(f64::total_cmp)
        };
        Spread::of(all.iter().filter_map(longest).collect())
    };
    let healthy: Vec<_> = all.iter().filter_map(|r| Some(r.healthy? - r.healed)).collect();
    Kind {
        times: all.len(),
        healed: healthy.len(),
        map: gap(MAP),
        service: gap(SERVICE),
        healthy: Spread::of(healthy),
        load: all.iter().map(|r| r.load.1).fold(0.0, f64::max),
    }
}

/// Writes `summary.md` and `summary.json`; gives the text.
///
/// # Errors
/// When a file cannot be written.
pub fn write(reports: &[Report], folder: &Path) -> Result<String> {
    let summary = Summary {
        seeds: reports.iter().map(seed).collect(),
        faults: kinds(reports),
    };
    let text = text(&summary);
    for (name, content) in [
        ("summary.md", text.clone()),
        ("summary.json", serde_json::to_string_pretty(&summary)?),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(text)
}

fn text(s: &Summary) -> String {
    let mut out = String::from(
        "| seed | minutes | rounds | faults | acknowledged rows | lost | twice | unknown | samples | least a minute and server | verdict |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let number = |n: Option<usize>| n.map_or_else(|| "not known".to_owned(), |n| n.to_string());
    for r in &s.seeds {
        let verdict = if r.failures.is_empty() { "passed" } else { "FAILED" };
        let _ = writeln!(
            out,
            "| {} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {:.0} | {verdict} |",
            r.number,
            r.minutes,
            r.rounds,
            r.faults,
            r.acknowledged,
            number(r.lost),
            number(r.twice),
            r.unknown,
            r.samples,
            r.least_a_minute
        );
    }
    out.push_str(
        "\n| fault | rounds | healed | gap by map p50 | max | by Service p50 | max | healthy after p50 | max | load at most |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, k) in &s.faults {
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} | {:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.1} s | {:.1} s | {:.0} |",
            k.times,
            k.healed,
            k.map.p50,
            k.map.max,
            k.service.p50,
            k.service.max,
            k.healthy.p50,
            k.healthy.max,
            k.load
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::report::tests::sample;

    #[test]
    fn the_middle_and_the_most_are_told() {
        let spread = |all: &[f64]| Spread::of(all.to_vec());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { p50: 2.0, max: 3.0 });
        assert_eq!(spread(&[2.0, 1.0]), Spread { p50: 1.0, max: 2.0 });
        assert_eq!(spread(&[]), Spread::default());
    }

    #[test]
    fn seeds_and_kinds_of_faults_are_told() {
        let mut two = sample();
        two.seed = 8;
        two.failures.clear();
        two.rounds[0].faults.push("kill-operator".into());
        two.losses = None;
        let summary = Summary {
            seeds: vec![seed(&sample()), seed(&two)],
            faults: kinds(&[sample(), two]),
        };
        let text = text(&summary);
        for part in [
            "| 7 | 1.0 | 1 | 1 | 100 | 1 | 0 | 1 | 1200 | 1200 | FAILED |",
            "| 8 | 1.0 | 1 | 2 | 100 | not known | not known | 1 | 1200 | 1200 | passed |",
            "| `kill-mysqld-active` | 1 | 1 | 0.25 s |",
            "| `two at once` | 1 | 1 |",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
