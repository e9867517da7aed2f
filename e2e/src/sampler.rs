//! What must hold all the time, watched from outside for as long as a scenario runs.
//!
//! - Rule P1: each server is asked every 100 ms whether it can acknowledge a write ([`crate::acknowledge`]); never can two of a pair. A
//!   server whose Pod object is gone is asked on at its old address for as long as it answers: the former self.
//! - The published map: its version never falls, and no shard that was in it is ever missing.

use crate::acknowledge::{Answers, CLOSE, Sample, Stand};
use crate::fleet::Fleet;
use crate::published::Map;
use crate::reach::Reach;
use crate::server::{Login, Server};
use crate::testbed;
use crate::watched::{self, Watched};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use shardwright::api::names;
use shardwright::resources::stateful_set::MYSQLD_CONTAINER;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(100);
const LOOK_FOR_PODS: Duration = Duration::from_secs(1);
/// For a connection: one that is swallowed is tried anew soon.
const CONNECT: Duration = Duration::from_secs(3);
/// A former self that has not answered for so long is taken for dead. A frozen one, or one that was cut off, comes back earlier.
const SILENT: Duration = Duration::from_secs(60);
/// For as long as this, at most, a former self is asked.
const FORMER: Duration = Duration::from_secs(15 * 60);
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
    /// By UID of the Pod: how well each server was watched.
    watched: BTreeMap<String, Watched>,
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
        Ok(record.watched.values().map(|w| w.samples).sum())
    }

    /// How well each server was watched since the sampler began, by UID of its Pod.
    pub fn watched(&self) -> BTreeMap<String, Watched> {
        self.lock().map(|r| r.watched.clone()).unwrap_or_default()
    }

    /// A server was up for another `span`, by what does not come from the sampler's connection; without one it was not.
    fn was_up(&self, key: &str, pod: &str, former: bool, span: Option<Duration>) {
        let Some(mut r) = self.lock() else { return };
        let watched = r.watched.entry(key.to_owned()).or_default();
        pod.clone_into(&mut watched.pod);
        watched.former |= former;
        match span {
            Some(span) => watched.was_up(span, CLOSE),
            None => watched.was_down(),
        }
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

    fn saw_server(&self, pair: &str, key: &str, pod: &str, sample: Sample) {
        let Some(mut r) = self.lock() else { return };
        let watched = r.watched.entry(key.to_owned()).or_default();
        pod.clone_into(&mut watched.pod);
        watched.answered(sample.answered);
        let stand = sample.stand.clone();
        let answers = r.answers.entry(pair.to_owned()).or_default();
        let before = answers.last(key).cloned();
        let can = answers.can(key, &stand, sample.asked);
        let fault = answers.add(key, sample);
        if before.as_ref() != Some(&stand) && r.changes.len() < MOST {
            r.changes.push(Change {
                at: Timestamp::now(),
                pod: pod.to_owned(),
                stand,
                acknowledges: can,
            });
        }
        if let Some(fault) = fault
            && r.faults.len() < MOST_FAULTS
        {
            let at = Timestamp::now();
            r.faults.push(format!(
                "of {pair} two servers could acknowledge at {at}, last seen of {pod}: {fault}"
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

/// One server in one Pod, and what follows it.
#[derive(Clone)]
struct Own {
    fleet: Arc<Fleet>,
    pair: String,
    /// The Pod's UID.
    key: String,
    /// The Pod's name.
    name: String,
    /// Name that the certificate has to carry.
    tls_name: String,
    known: Arc<Mutex<Known>>,
}

/// What is known of the Pod.
#[derive(Clone)]
struct Known {
    pod: Pod,
    /// When it was in a list last.
    listed: Instant,
    /// Since when there is no such Pod any more.
    former: Option<Instant>,
}

impl Own {
    fn known(&self) -> Option<Known> {
        self.known.lock().ok().map(|k| k.clone())
    }

    /// What it is called in the report.
    fn called(&self, former: bool) -> String {
        if former {
            let uid: String = self.key.chars().take(8).collect();
            format!("{} (former self {uid})", self.name)
        } else {
            self.name.clone()
        }
    }
}

fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref().and_then(|s| s.pod_ip.clone())
}

/// Keeps one task a Pod. When the Pod is gone, the task goes on while that mysqld answers at its old address, unless another Pod has that
/// now. Through the API server's port-forward nothing leads to a Pod that is gone.
async fn find_pods(fleet: Arc<Fleet>) {
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    let selector = ListParams::default().labels(names::PAIR_LABEL);
    let direct = fleet.world.settings.reach() == Reach::Direct;
    loop {
        if let Ok(pods) = fleet.api::<Pod>().list(&selector).await {
            let now: BTreeSet<_> = pods.items.iter().filter_map(ResourceExt::uid).collect();
            let taken: BTreeSet<_> = pods.items.iter().filter_map(address).collect();
            tasks.retain(|uid, task| now.contains(uid) || (direct && task.becomes_former(&taken)));
            for pod in pods.items {
                let (Some(uid), Some(pair)) = (pod.uid(), pod.labels().get(names::PAIR_LABEL).cloned())
                else {
                    continue;
                };
                let ordinals = names::ORDINALS.into_iter();
                let Some(ordinal) = ordinals
                    .into_iter()
                    .find(|n| names::pod(&pair, *n) == pod.name_any())
                else {
                    continue;
                };
                let known = Known {
                    pod,
                    listed: Instant::now(),
                    former: None,
                };
                if let Some(task) = tasks.get(&uid) {
                    if let Ok(mut k) = task.own.known.lock() {
                        *k = known;
                    }
                    continue;
                }
                let own = Own {
                    fleet: fleet.clone(),
                    key: uid.clone(),
                    name: names::pod(&pair, ordinal),
                    tls_name: names::host(&fleet.ns, &pair, ordinal),
                    pair,
                    known: Arc::new(Mutex::new(known)),
                };
                tasks.insert(uid, Task::start(own));
            }
        }
        tokio::time::sleep(LOOK_FOR_PODS).await;
    }
}

struct Task {
    own: Own,
    asks: JoinHandle<()>,
    counts: JoinHandle<()>,
}

impl Task {
    fn start(own: Own) -> Self {
        Self {
            asks: tokio::spawn(watch_server(own.clone())),
            counts: tokio::spawn(count_up(own.clone())),
            own,
        }
    }

    /// Its Pod is gone. Whether it is worth to be asked on.
    fn becomes_former(&self, taken: &BTreeSet<String>) -> bool {
        let Ok(mut known) = self.own.known.lock() else {
            return false;
        };
        known.former.get_or_insert_with(Instant::now);
        address(&known.pod).is_some_and(|a| !taken.contains(&a)) && !self.asks.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.asks.abort();
        self.counts.abort();
    }
}

async fn watch_server(own: Own) {
    let mut login: Option<Login> = None;
    let mut open: Option<Server> = None;
    let mut heard = Instant::now();
    loop {
        tokio::time::sleep(if open.is_some() { EVERY } else { EVERY * 3 }).await;
        let Some(known) = own.known() else { return };
        if let Some(since) = known.former
            && (since.elapsed() > FORMER || heard.max(since).elapsed() > SILENT)
        {
            return;
        }
        let server = if let Some(server) = open.as_mut() {
            server
        } else {
            let Some(server) = connect(&own, &known, &mut login).await else {
                continue;
            };
            open.insert(server)
        };
        let asked = Instant::now();
        match server.stand().await {
            Ok(stand) => {
                let answered = Instant::now();
                heard = answered;
                let sample = Sample {
                    asked,
                    answered,
                    stand,
                };
                let former = own.known().is_some_and(|k| k.former.is_some());
                let sights = &own.fleet.sights;
                sights.saw_server(&own.pair, &own.key, &own.called(former), sample);
            }
            Err(_) => open = None,
        }
    }
}

/// What is known serves first: the API may not answer, and a mysqld that starts refuses.
async fn connect(own: &Own, known: &Known, login: &mut Option<Login>) -> Option<Server> {
    if let Some(l) = login
        && address(&known.pod)
            .is_none_or(|a| a == l.address || own.fleet.world.settings.reach() != Reach::Direct)
        && let Ok(Ok(server)) = tokio::time::timeout(CONNECT, l.connect()).await
    {
        return Some(server);
    }
    // The secret may have changed, or the address.
    let asked = own.fleet.operator_login_to(&known.pod, own.tls_name.clone());
    if let Ok(Ok(now)) = tokio::time::timeout(CONNECT, asked).await {
        *login = Some(now);
    }
    tokio::time::timeout(CONNECT, login.as_ref()?.connect())
        .await
        .ok()?
        .ok()
}

/// Counts for how long a server is up, by what does not come from the sampler's own connection: on the test bed it had
/// started and its process runs, is not stopped, and takes connections, elsewhere the kubelet says that it is ready. The first seconds do not count: it has to recover.
async fn count_up(own: Own) {
    let local = own.fleet.world.settings.local;
    let mut process: Option<(String, u32)> = None;
    let mut since: Option<Instant> = None;
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(LOOK_FOR_PODS).await;
        let Some(known) = own.known() else { return };
        let up = if local {
            says(&known.pod, |c| c.started == Some(true)) && process_runs(&known.pod, &mut process)
        } else {
            known.former.is_none()
                && known.listed.elapsed() < LOOK_FOR_PODS * 5
                && says(&known.pod, |c| c.ready)
        };
        let span = last.elapsed();
        last = Instant::now();
        if !up {
            since = None;
        }
        let counts = up && since.get_or_insert(last).elapsed() > watched::RECOVERS;
        let former = known.former.is_some();
        let sights = &own.fleet.sights;
        sights.was_up(&own.key, &own.called(former), former, counts.then_some(span));
    }
}

fn process_runs(pod: &Pod, process: &mut Option<(String, u32)>) -> bool {
    let Ok(id) = testbed::container_id(pod, MYSQLD_CONTAINER) else {
        return false;
    };
    if process.as_ref().is_none_or(|(of, _)| *of != id) {
        *process = testbed::first_process(&id).ok().map(|pid| (id, pid));
    }
    process
        .as_ref()
        .is_some_and(|(_, pid)| testbed::runs(*pid) && testbed::listens(*pid, names::MYSQL_PORT))
}

/// What the kubelet said last of mysqld's container.
fn says(pod: &Pod, what: impl Fn(&ContainerStatus) -> bool) -> bool {
    let all = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    all.is_some_and(|all| all.iter().any(|c| c.name == MYSQLD_CONTAINER && what(c)))
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
            s.saw_server("p", &ordinal.to_string(), "p0", sample);
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
