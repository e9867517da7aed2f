//! What a run found: as text, as JSON, and as a page with a timeline.

use super::html;
use super::witness;
use crate::watched::{self, Watched};
use crate::writer::{Held, Losses};
use anyhow::{Context as _, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed that gives the same faults again.
    pub seed: u64,
    /// How to do so.
    pub replay: String,
    /// When it began.
    pub began: Timestamp,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was wrong; empty when nothing was.
    pub failures: Vec<String>,
    /// What was done.
    pub rounds: Vec<Round>,
    /// What the servers hold at the end, by shard.
    pub held: Held,
    /// What they do not hold, or twice; absent when one could not be asked.
    pub losses: Option<Losses>,
    /// Answers of servers on whether they can acknowledge.
    pub samples: u64,
    /// How well each server was watched.
    pub watched: Vec<Watched>,
    /// The clients.
    pub clients: Vec<Client>,
    /// The record.
    pub record: Vec<witness::Change>,
    /// How what servers say of themselves changed.
    pub servers: Vec<ServerChange>,
}

/// One client over the whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// `map` or `Service`.
    pub route: &'static str,
    /// Rows that were acknowledged.
    pub acknowledged: usize,
    /// Rows of which it knows nothing.
    pub unknown: usize,
    /// Acknowledged writes in each second since the run began.
    pub per_second: Vec<u32>,
}

/// One blow and what came of it. Times are seconds since the run began.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    /// From 1.
    pub number: usize,
    /// What was drawn.
    pub blow: String,
    /// The faults' names.
    pub faults: Vec<String>,
    /// The machine's load average of a minute when it was struck, and the highest until the pair was healthy: what else runs is in every figure.
    pub load: (f64, f64),
    /// What was done to whom, with the time of day.
    pub did: Vec<String>,
    /// When the first fault began.
    pub struck: f64,
    /// When the last one was healed.
    pub healed: f64,
    /// When the pair was healthy again.
    pub healthy: Option<f64>,
    /// The record before.
    pub before: witness::Said,
    /// The record after.
    pub after: witness::Said,
    /// The longest gap of a client by each route, while the faults lasted and after they were healed.
    pub gaps: Vec<Gap>,
    /// The first tries of each client that were not acknowledged.
    pub misses: Vec<Miss>,
}

/// A try that was not acknowledged. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Miss {
    /// Who tried.
    pub client: String,
    /// Number of the row.
    pub number: u64,
    /// When, since the run began.
    pub at: f64,
    /// For how long.
    pub seconds: f64,
    /// Where to.
    pub host: String,
    /// Whether a new connection was made for it.
    pub connected: bool,
    /// What became of it.
    pub ending: String,
}

/// From the last acknowledged write before to the first acknowledged write after.
#[derive(Clone, Debug, Serialize)]
pub struct Gap {
    /// `map` or `Service`.
    pub route: &'static str,
    /// It began after the fault was healed: the other server joined meanwhile, or the active one changed again.
    pub healing: bool,
    /// When it began, in seconds since the run began.
    pub from: f64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Tries in it whose outcome is not known.
    pub unknown: usize,
    /// Tries in it that were refused.
    pub refused: usize,
    /// Tries in it for which there was no connection.
    pub not_sent: usize,
    /// When the map had named the server of the write that ended it, in seconds from its beginning; absent when the map had not changed.
    pub told: Option<f64>,
}

/// A server said something else than before.
#[derive(Clone, Debug, Serialize)]
pub struct ServerChange {
    /// Seconds since the run began.
    pub at: f64,
    /// Pod.
    pub pod: String,
    /// `read_only` is OFF.
    pub open: bool,
    /// Whether it could acknowledge a write.
    pub acknowledges: bool,
    /// In words.
    pub words: String,
}

/// What servers said of themselves since `began`.
pub fn servers(changes: &[crate::sampler::Change], began: Timestamp) -> Vec<ServerChange> {
    changes
        .iter()
        .filter(|c| c.at >= began)
        .map(|c| ServerChange {
            at: c.at.duration_since(began).as_secs_f64(),
            pod: c.pod.clone(),
            open: c.stand.open,
            acknowledges: c.acknowledges,
            words: c.to_string(),
        })
        .collect()
}

/// Above the lines of [`Round::line`].
const HEAD: &str = "                                                                               gap while faulty    while healing
  #    at s faults                                                              by map  Service   by map  Service unknown  healthy     load  active, epoch";

impl Round {
    /// The longest gap in seconds, by a route, while the faults lasted or afterwards.
    pub fn gap(&self, route: &str, healing: bool) -> Option<f64> {
        let found = self
            .gaps
            .iter()
            .find(|g| g.route == route && g.healing == healing);
        found.map(|g| g.seconds)
    }

    /// For a terminal, in the columns of a report.
    pub fn line(&self) -> String {
        let gap = |route, healing| {
            self.gap(route, healing)
                .map_or_else(|| "-".to_owned(), |g| format!("{g:.2} s"))
        };
        let unknown: usize = self.gaps.iter().map(|g| g.unknown).sum();
        let healthy = self
            .healthy
            .map_or_else(|| "NEVER".to_owned(), |h| format!("{:.1} s", h - self.healed));
        format!(
            "{:>3} {:>7.1} {:<66} {:>8} {:>8} {:>8} {:>8} {unknown:>7} {healthy:>8} {:>8}  {} {} → {} {}",
            self.number,
            self.struck,
            self.blow,
            gap("map", false),
            gap("Service", false),
            gap("map", true),
            gap("Service", true),
            format!("{:.0}–{:.0}", self.load.0, self.load.1),
            self.before.active,
            self.before.epoch,
            self.after.active,
            self.after.epoch
        )
    }
}

impl Report {
    /// Whether all was well.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |l: String| {
            let _ = writeln!(out, "{l}");
        };
        line(format!(
            "chaos, seed {}: {} rounds in {:.0} s, began {}",
            self.seed,
            self.rounds.len(),
            self.seconds,
            self.began
        ));
        line(HEAD.to_owned());
        for r in &self.rounds {
            line(r.line());
        }
        for c in &self.clients {
            line(format!(
                "client {} by {}: {} acknowledged, {} unknown",
                c.name, c.route, c.acknowledged, c.unknown
            ));
        }
        line(format!(
            "on both servers: {} acknowledged rows, each once; of {} unknown outcomes {} are there",
            self.held.acknowledged, self.held.unknown, self.held.unknown_there
        ));
        line(format!(
            "{} samples of who can acknowledge, at least {:.0} for each minute and server that was up are asked for",
            self.samples,
            watched::FLOOR
        ));
        for w in &self.watched {
            line(format!("  {w}"));
        }
        for f in &self.failures {
            line(format!("FAILED: {f}"));
        }
        line(format!("again: {}", self.replay));
        out
    }

    /// Writes `seed-N.txt`, `.json` and `.html` into a folder, which is made.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let file = |ending: &str| folder.join(format!("seed-{}.{ending}", self.seed));
        for (ending, content) in [
            ("txt", self.text()),
            ("json", serde_json::to_string_pretty(self)?),
            ("html", html::page(self)),
        ] {
            let file = file(ending);
            std::fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A small one.
    pub fn sample() -> Report {
        let said = |active: &str, epoch| witness::Said {
            active: active.into(),
            epoch,
            in_sync: vec!["p0-0".into(), "p0-1".into()],
            ready: "True Serving".into(),
        };
        let began = Timestamp::UNIX_EPOCH;
        Report {
            seed: 7,
            replay: "make chaos SEED=7".into(),
            began,
            seconds: 60.0,
            failures: vec!["lost <1> row".into()],
            rounds: vec![Round {
                number: 1,
                blow: "kill-mysqld-active, held 1.0 s".into(),
                faults: vec!["kill-mysqld-active".into()],
                load: (1.5, 2.5),
                did: vec!["p0-0".into()],
                struck: 10.0,
                healed: 11.0,
                healthy: Some(14.0),
                before: said("p0-0", 2),
                after: said("p0-1", 4),
                gaps: vec![Gap {
                    route: "map",
                    healing: false,
                    from: 10.0,
                    seconds: 0.25,
                    unknown: 1,
                    refused: 0,
                    not_sent: 3,
                    told: Some(0.1),
                }],
                misses: vec![],
            }],
            held: Held {
                acknowledged: 100,
                unknown: 1,
                unknown_there: 1,
            },
            losses: Some(Losses { lost: 1, twice: 0 }),
            samples: 1200,
            watched: vec![Watched {
                pod: "p0-0".into(),
                up: 60.0,
                samples: 1200,
                while_up: 1200,
                ..Watched::default()
            }],
            clients: vec![Client {
                name: "map-0".into(),
                route: "map",
                acknowledged: 100,
                unknown: 1,
                per_second: vec![50, 50],
            }],
            record: vec![witness::Change {
                at: began,
                said: said("p0-0", 2),
            }],
            servers: vec![ServerChange {
                at: 0.0,
                pod: "p0-0".into(),
                open: true,
                acknowledges: true,
                words: "open".into(),
            }],
        }
    }

    #[test]
    fn text_tells_faults_gaps_and_the_seed() {
        let text = sample().text();
        for part in [
            "kill-mysqld-active",
            "0.25",
            "p0-0 2 → p0-1 4",
            "SEED=7",
            "FAILED: lost <1> row",
            "3.0",
            "1200 samples",
            "1200 a minute",
            "2–2",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }

    #[test]
    fn the_files_are_written() {
        let folder = std::env::temp_dir().join(format!("chaos-report-{}", std::process::id()));
        sample().write(&folder).unwrap();
        for ending in ["txt", "json", "html"] {
            assert!(folder.join(format!("seed-7.{ending}")).exists());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
