//! How long nobody could write, and where the time went.

use super::faults::{Blow, Fault};
use crate::bench::Figure;
use crate::writer::Gap;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use shardwright::api::mysql_pair::ActiveChange;
use std::fmt::Write as _;
use std::time::Instant;

/// The way that a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Way {
    /// By the published map, followed by long poll.
    Map,
    /// By the Service of the active server.
    Service,
    /// By the Service of the plain server: what a user has without an operator.
    Plain,
}

impl Way {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "by map",
            Self::Service => "by Service",
            Self::Plain => "plain StatefulSet",
        }
    }
}

/// One gap of one client.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// What happened.
    pub fault: &'static str,
    /// Which of the runs, from 1.
    pub turn: usize,
    /// How the client came to the server.
    pub way: Way,
    /// From the last acknowledged write before to the first one after, in milliseconds; `None`: it did not come back in time.
    pub gap: Option<f64>,
    /// Where the first write after it went: a name, or the Service's address.
    pub to: String,
    /// Tries in the gap whose outcome is not known.
    pub unknown: usize,
    /// Tries in the gap that were refused.
    pub refused: usize,
    /// Tries in the gap that found no connection.
    pub not_sent: usize,
    /// The longest try in the gap that failed, in milliseconds: what part of it the client spent on its own limits.
    pub longest_try: Option<f64>,
    /// Why that try failed.
    pub longest_why: String,
    /// The longest time without an acknowledged write from then until the pair was healthy again, in milliseconds.
    pub later: Option<f64>,
    /// Where the time went, in milliseconds, in order.
    pub phases: Vec<(String, f64)>,
}

impl Run {
    /// Of a gap that ended.
    pub fn of(fault: &'static str, run: usize, way: Way, gap: &Gap) -> Self {
        Self {
            fault,
            turn: run,
            way,
            gap: Some(gap.length().as_secs_f64() * 1000.0),
            to: gap.first.host.clone(),
            unknown: gap.unknown,
            refused: gap.refused,
            not_sent: gap.not_sent,
            longest_try: gap.longest.as_ref().map(|t| t.took().as_secs_f64() * 1000.0),
            longest_why: gap.longest.as_ref().map_or("", |t| t.ending.why()).to_owned(),
            later: None,
            phases: vec![],
        }
    }
}

fn ms(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}

/// A moment of this process by the wall clock, by way of the blow, of which both are known.
pub fn wall(blow: &Blow, at: Instant) -> Timestamp {
    let ahead = at.saturating_duration_since(blow.at);
    let behind = blow.at.saturating_duration_since(at);
    blow.wall
        .checked_add(ahead)
        .and_then(|t| t.checked_sub(behind))
        .unwrap_or(blow.wall)
}

/// Where the time of a change went: until it was noticed, the operator's steps, until the client was told (the map came in, or the endpoint
/// was written), until it had a connection, and its first write.
pub fn phases(blow: &Blow, change: &ActiveChange, told: Option<Timestamp>, gap: &Gap) -> Vec<(String, f64)> {
    let mut all = vec![("noticed".to_owned(), ms(blow.wall, change.start_time.0))];
    all.extend(change.steps.iter().map(|s| {
        #[allow(clippy::cast_precision_loss, reason = "milliseconds far below 2^52")]
        let took = s.duration_milliseconds as f64;
        (s.name.clone(), took)
    }));
    // The client may be told before the server is open: then the rest begins when it is.
    let ready = match (change.open_time.as_ref().map(|t| t.0), told) {
        (Some(opened), Some(told)) => {
            all.push(("told".to_owned(), ms(opened, told).max(0.0)));
            Some(opened.max(told))
        }
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    };
    let first = wall(blow, gap.first.ended);
    if let Some(ready) = ready {
        if let Some(connected) = gap.first.connected.map(|at| wall(blow, at)) {
            all.push(("connected".to_owned(), ms(ready, connected).max(0.0)));
            all.push(("written".to_owned(), ms(connected.max(ready), first)));
        } else {
            all.push(("written".to_owned(), ms(ready, first).max(0.0)));
        }
    }
    all
}

/// The value below which `share` of 100 lie: the nearest of those measured.
pub fn quantile(values: &[f64], share: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * share).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The gaps of one case, longest last; those that did not end count as endless.
fn lengths(runs: &[Run], fault: &str, way: Way) -> Vec<f64> {
    runs.iter()
        .filter(|r| r.fault == fault && r.way == way)
        .map(|r| r.gap.unwrap_or(f64::INFINITY))
        .collect()
}

/// The targets of a case: share of the runs in per cent, and milliseconds.
fn targets(fault: Fault, way: Way) -> &'static [(usize, f64)] {
    match (fault, way) {
        (_, Way::Plain) => &[],
        (Fault::Killed | Fault::Deleted, Way::Map) => &[(50, 300.0), (99, 1000.0)],
        (Fault::Killed | Fault::Deleted, Way::Service) => &[(50, 700.0), (99, 2000.0)],
        (Fault::NodeKilled, _) => &[(99, 4000.0)],
        (Fault::Partitioned, _) => &[(99, 6000.0)],
        (Fault::Planned, _) => &[(50, 150.0)],
    }
}

/// All figures with a target.
pub fn figures(runs: &[Run], faults: &[Fault]) -> Vec<Figure> {
    let mut all = vec![];
    for fault in faults {
        for way in [Way::Map, Way::Service] {
            let found = lengths(runs, fault.name(), way);
            for (share, target) in targets(*fault, way) {
                let name = format!("{}, {}, p{share}", fault.name(), way.name());
                let value = quantile(&found, *share).filter(|v| v.is_finite());
                let figure = Figure::at_most(&name, value, "ms", *target, format!("({} runs)", found.len()));
                all.push(figure.floor(floor(*fault, way)));
            }
        }
        if *fault == Fault::Planned {
            let unknown: usize = runs
                .iter()
                .filter(|r| r.fault == fault.name() && r.way != Way::Plain)
                .map(|r| r.unknown)
                .sum();
            let name = format!("{}, statements with an unknown outcome", fault.name());
            #[allow(clippy::cast_precision_loss, reason = "a small count")]
            all.push(Figure::at_most(
                &name,
                Some(unknown as f64),
                "",
                0.0,
                String::new(),
            ));
        }
    }
    all
}

/// What stops a case where it is, said when it misses its target.
fn floor(fault: Fault, way: Way) -> &'static str {
    match (fault, way) {
        (_, Way::Service) => "kube-proxy writes its rules once a second at most: see `told` and `connected`",
        (Fault::NodeKilled | Fault::Partitioned, _) => {
            "silence: nothing is proven before the deadline of the probe"
        }
        _ => "two processors for everything: see where the time goes",
    }
}

/// Every case with what a user has without us beside it.
pub fn table(runs: &[Run], faults: &[Fault]) -> String {
    let mut text = format!(
        "{:<34} {:<18} {:>5} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}\n",
        "gap, ms", "", "runs", "p50", "p99", "max", "waited", "unknown", "later"
    );
    for fault in faults {
        for (way, name) in [(Way::Map, fault.name()), (Way::Service, ""), (Way::Plain, "")] {
            let name_of_runs = if way == Way::Plain {
                fault.plain_name()
            } else {
                fault.name()
            };
            let found = lengths(runs, name_of_runs, way);
            if found.is_empty() {
                continue;
            }
            let mine = || runs.iter().filter(|r| r.fault == name_of_runs && r.way == way);
            let unknown: usize = mine().map(|r| r.unknown).sum();
            let waited = quantile(&mine().filter_map(|r| r.longest_try).collect::<Vec<_>>(), 50);
            let later = quantile(&mine().filter_map(|r| r.later).collect::<Vec<_>>(), 100);
            let show = |v: Option<f64>| match v {
                Some(v) if v.is_finite() => format!("{v:.0}"),
                Some(_) => "never".to_owned(),
                None => "-".to_owned(),
            };
            let _ = writeln!(
                text,
                "{name:<34} {:<18} {:>5} {:>9} {:>9} {:>9} {:>8} {unknown:>8} {:>8}",
                way.name(),
                found.len(),
                show(quantile(&found, 50)),
                show(quantile(&found, 99)),
                show(quantile(&found, 100)),
                show(waited),
                show(later),
            );
        }
    }
    text
}

/// Where the time goes: the median of each phase, and its 99th of a hundred.
pub fn phase_table(runs: &[Run], faults: &[Fault]) -> String {
    let mut text = "where the time goes, ms, p50 / p99\n".to_owned();
    for fault in faults {
        for way in [Way::Map, Way::Service] {
            let mine: Vec<_> = runs
                .iter()
                .filter(|r| r.fault == fault.name() && r.way == way && !r.phases.is_empty())
                .collect();
            let Some(model) = mine.iter().max_by_key(|r| r.phases.len()) else {
                continue;
            };
            let parts: Vec<_> = model
                .phases
                .iter()
                .map(|(name, _)| {
                    let values: Vec<_> = mine
                        .iter()
                        .flat_map(|r| &r.phases)
                        .filter(|(n, _)| n == name)
                        .map(|(_, v)| *v)
                        .collect();
                    let at = |share| quantile(&values, share).unwrap_or_default();
                    format!("{name} {:.0}/{:.0}", at(50), at(99))
                })
                .collect();
            let _ = writeln!(text, "  {}, {}: {}", fault.name(), way.name(), parts.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let values: Vec<f64> = (1..=30).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 50), Some(15.0));
        assert_eq!(quantile(&values, 99), Some(30.0));
        assert_eq!(quantile(&values, 100), Some(30.0));
        assert_eq!(quantile(&[7.0], 50), Some(7.0));
        assert_eq!(quantile(&[], 50), None);
    }

    fn run(gap: Option<f64>) -> Run {
        Run {
            fault: Fault::Killed.name(),
            turn: 1,
            way: Way::Map,
            gap,
            to: String::new(),
            unknown: 0,
            refused: 0,
            not_sent: 0,
            longest_try: None,
            longest_why: String::new(),
            later: None,
            phases: vec![("noticed".into(), 1.0), ("opened".into(), 3.0)],
        }
    }

    #[test]
    fn a_gap_that_never_ended_is_shown_and_misses() {
        let runs = [run(Some(100.0)), run(None)];
        let found = figures(&runs, &[Fault::Killed]);
        assert_eq!(found.first().unwrap().met(), Some(true));
        assert_eq!(found.get(1).unwrap().value, None);
        assert!(table(&runs, &[Fault::Killed]).contains("never"));
        assert!(phase_table(&runs, &[Fault::Killed]).contains("noticed 1/1, opened 3/3"));
    }
}
