//! What must hold all the time, watched from outside for as long as a scenario runs.
//!
//! - Rule P1: each server is asked every 100 ms whether it can acknowledge a write ([`crate::acknowledge`]); never can two of a pair.
//! - The published map: its version never falls, and no shard that was in it is ever missing.

use crate::acknowledge::{self, Answers, Sample, Stand};
use crate::fleet::Fleet;
use crate::published::Map;
use crate::server::{Login, Server};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use shardwright::api::names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(100);
const LOOK_FOR_PODS: Duration = Duration::from_secs(1);
/// Changes and faults that are kept.
const MOST: usize = 20_000;
const MOST_FAULTS: usize = 5;

/// What was seen so far.
#[derive(Clone, Default)]
pub struct Sights(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    /// By pair: what its servers said last.
    answers: BTreeMap<String, Answers>,
    /// What was wrong with rule P1.
    faults: Vec<String>,
    /// How what servers say of themselves changed, in order.
    changes: Vec<Change>,
    /// By name: the highest version of a map and the shards that were in it.
    maps: BTreeMap<String, (i64, BTreeSet<i32>)>,
    /// What was wrong with a map.
    map_faults: Vec<String>,
    /// Maps are not looked at.
    maps_suspended: bool,
    /// Answers of servers.
    samples: u64,
}

/// A server said something else than before.
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// Pod.
    pub pod: String,
    /// Its words.
    pub stand: Stand,
    /// Whether it can acknowledge, by what the other one said last.
    pub acknowledges: bool,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |yes, word| if yes { word } else { "" };
        write!(
            f,
            "{} {} {}{}{}{} uuid {}",
            self.at,
            self.pod,
            if self.stand.open { "open" } else { "closed" },
            word(self.stand.waits, ", waits for acknowledgements"),
            word(self.acknowledges, ", CAN ACKNOWLEDGE"),
            self.stand
                .acknowledges
                .as_ref()
                .map(|u| format!(", acknowledges to {u}"))
                .unwrap_or_default(),
            self.stand.uuid,
        )
    }
}

impl Sights {
    fn lock(&self) -> Option<MutexGuard<'_, Record>> {
        self.0.lock().ok()
    }

    /// Fails when something was seen that must not be; else gives the number of answers of servers.
    ///
    /// # Errors
    /// With what was seen.
    pub fn verdict(&self) -> Result<u64> {
        let Some(record) = self.lock() else {
            bail!("the sampler died")
        };
        if !record.faults.is_empty() {
            bail!("P1 is broken: {}", record.faults.join("; "));
        }
        if !record.map_faults.is_empty() {
            bail!("the map: {}", record.map_faults.join("; "));
        }
        Ok(record.samples)
    }

    /// How what servers say of themselves changed, in order.
    pub fn changes(&self) -> Vec<Change> {
        self.lock().map(|r| r.changes.clone()).unwrap_or_default()
    }

    /// Forgets what servers said and which maps there were: for scenarios that make a fleet anew.
    pub fn forget(&self) {
        if let Some(mut r) = self.lock() {
            r.answers.clear();
            r.maps.clear();
        }
    }

    /// Does not look at maps while a scenario spoils one by hand.
    pub fn suspend_maps(&self, suspended: bool) {
        if let Some(mut r) = self.lock() {
            r.maps_suspended = suspended;
        }
    }

    fn saw_map(&self, name: &str, map: &Map) {
        let Some(mut r) = self.lock() else { return };
        if r.maps_suspended {
            return;
        }
        let shards: BTreeSet<i32> = map.shards().into_iter().collect();
        let (version, known) = r.maps.entry(name.to_owned()).or_default();
        let mut fault = None;
        if map.version < *version {
            fault = Some(format!(
                "{name}: the version fell from {version} to {}",
                map.version
            ));
        }
        let missing: Vec<_> = known.difference(&shards).copied().collect();
        if !missing.is_empty() {
            fault = Some(format!(
                "{name} version {}: shards {missing:?} are missing",
                map.version
            ));
        }
        *version = map.version.max(*version);
        known.extend(shards);
        if let Some(fault) = fault
            && r.map_faults.len() < 5
        {
            r.map_faults.push(fault);
        }
    }

    fn saw_server(&self, pair: &str, ordinal: usize, sample: Sample) {
        let Some(mut r) = self.lock() else { return };
        r.samples += 1;
        let stand = sample.stand.clone();
        let answers = r.answers.entry(pair.to_owned()).or_default();
        let before = answers.last(ordinal).cloned();
        let can = match answers.last(1 - ordinal) {
            Some(other) => acknowledge::can(&stand, other),
            None => stand.open && !stand.waits,
        };
        let fault = answers.add(ordinal, sample);
        if before.as_ref() != Some(&stand) && r.changes.len() < MOST {
            r.changes.push(Change {
                at: Timestamp::now(),
                pod: names::pod(pair, ordinal),
                stand,
                acknowledges: can,
            });
        }
        if let Some(fault) = fault
            && r.faults.len() < MOST_FAULTS
        {
            let at = Timestamp::now();
            r.faults.push(format!(
                "of {pair} two servers could acknowledge at {at}: {fault}"
            ));
        }
    }
}

/// Watches one namespace until it is dropped.
pub struct Sampler(JoinHandle<()>, JoinHandle<()>);

impl Sampler {
    /// Starts watching.
    pub fn start(fleet: Arc<Fleet>) -> Self {
        Self(
            tokio::spawn(find_pods(fleet.clone())),
            tokio::spawn(watch_maps(fleet)),
        )
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.0.abort();
        self.1.abort();
    }
}

async fn watch_maps(fleet: Arc<Fleet>) {
    let selector = ListParams::default().labels(names::MAP_LABEL);
    loop {
        if let Ok(maps) = fleet.api::<ConfigMap>().list(&selector).await {
            for cm in maps.items {
                if let Ok(map) = Map::of(&cm) {
                    fleet.sights.saw_map(&cm.name_any(), &map);
                }
            }
        }
        tokio::time::sleep(EVERY * 2).await;
    }
}

/// Keeps one task a Pod; a task ends when its Pod is another one.
async fn find_pods(fleet: Arc<Fleet>) {
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    let selector = ListParams::default().labels(names::PAIR_LABEL);
    loop {
        if let Ok(pods) = fleet.api::<Pod>().list(&selector).await {
            let now: BTreeSet<_> = pods.items.iter().filter_map(ResourceExt::uid).collect();
            tasks.retain(|uid, _| now.contains(uid));
            for pod in pods.items {
                let (Some(uid), Some(pair)) = (pod.uid(), pod.labels().get(names::PAIR_LABEL).cloned())
                else {
                    continue;
                };
                let Some(ordinal) = names::ORDINALS
                    .into_iter()
                    .find(|n| names::pod(&pair, *n) == pod.name_any())
                else {
                    continue;
                };
                tasks
                    .entry(uid)
                    .or_insert_with(|| Task(tokio::spawn(watch_server(fleet.clone(), pair, ordinal))));
            }
        }
        tokio::time::sleep(LOOK_FOR_PODS).await;
    }
}

struct Task(JoinHandle<()>);
impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch_server(fleet: Arc<Fleet>, pair: String, ordinal: usize) {
    let mut login: Option<Login> = None;
    let mut open: Option<Server> = None;
    loop {
        tokio::time::sleep(if open.is_some() { EVERY } else { EVERY * 3 }).await;
        let server = if let Some(server) = open.as_mut() {
            server
        } else {
            // Refused while mysqld starts, or before there are credentials. What is known serves while the API does not answer.
            if let Ok(now) = fleet.operator_login(&pair, ordinal).await {
                login = Some(now);
            }
            let Some(known) = &login else { continue };
            let Ok(server) = known.connect().await else {
                continue;
            };
            open.insert(server)
        };
        let asked = Instant::now();
        match server.stand().await {
            Ok(stand) => {
                let answered = Instant::now();
                let sample = Sample {
                    asked,
                    answered,
                    stand,
                };
                fleet.sights.saw_server(&pair, ordinal, sample);
            }
            Err(_) => open = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(version: i64, last: i32) -> Map {
        let text = format!(
            r#"{{"version":{version},"entries":[{{"first":0,"last":{last},"pair":"p","active":{{"host":"h","port":1}},"passive":{{"host":"i","port":1}}}}]}}"#
        );
        Map::parse(text, "[]".into()).unwrap()
    }

    #[test]
    fn two_servers_that_can_acknowledge_are_told() {
        let s = Sights::default();
        let mut now = Instant::now();
        let mut says = |ordinal: usize, open| {
            let asked = now;
            now += EVERY;
            let stand = Stand {
                uuid: ordinal.to_string(),
                open,
                waits: false,
                acknowledges: None,
            };
            let sample = Sample {
                asked,
                answered: now,
                stand,
            };
            s.saw_server("p", ordinal, sample);
        };
        says(0, true);
        says(1, false);
        says(0, true);
        s.verdict().unwrap();
        assert_eq!(s.changes().len(), 2);
        says(1, true);
        says(0, true);
        s.verdict().unwrap_err();
    }

    #[test]
    fn a_version_that_falls_and_a_shard_that_goes_are_told() {
        let s = Sights::default();
        s.saw_map("m", &map(2, 7));
        s.saw_map("m", &map(3, 9));
        s.verdict().unwrap();
        s.saw_map("m", &map(2, 9));
        s.verdict().unwrap_err();
        let s = Sights::default();
        s.saw_map("m", &map(2, 7));
        s.saw_map("m", &map(3, 6));
        s.verdict().unwrap_err();
    }
}
