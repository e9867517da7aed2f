//! Rule P1, watched from outside for as long as a scenario runs: each server is asked every 100 ms whether it takes
//! writes. In this version the active server never changes, so a pair of which two servers were ever seen writable is broken.

use crate::fleet::Fleet;
use crate::server::Server;
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use shardwright::api::names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(100);
const LOOK_FOR_PODS: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Record {
    /// By pair: Pods that were seen writable, with their server_uuid.
    writable: BTreeMap<String, BTreeSet<String>>,
    /// Answers in all.
    samples: u64,
}

/// Samples every pair of one namespace until it is dropped.
pub struct Sampler {
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

impl Sampler {
    /// Starts sampling.
    pub fn start(fleet: Arc<Fleet>) -> Self {
        let record = Arc::<Mutex<Record>>::default();
        let task = tokio::spawn(find_pods(fleet, record.clone()));
        Self { record, task }
    }

    /// Fails when two servers of a pair have been seen writable; else says how many answers there were.
    ///
    /// # Errors
    /// With the servers.
    pub fn verdict(&self) -> Result<u64> {
        let Ok(record) = self.record.lock() else {
            bail!("the sampler died")
        };
        for (pair, servers) in &record.writable {
            if servers.len() > 1 {
                bail!("P1 is broken: of {pair} more than one server was seen writable: {servers:?}");
            }
        }
        Ok(record.samples)
    }

    /// Forgets what was seen of the namespace's pairs: for scenarios that make a pair anew.
    pub fn forget(&self) {
        if let Ok(mut r) = self.record.lock() {
            r.writable.clear();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps one task a Pod; a task ends when its Pod is another one.
async fn find_pods(fleet: Arc<Fleet>, record: Arc<Mutex<Record>>) {
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    loop {
        let selector = ListParams::default().labels(names::PAIR_LABEL);
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
                tasks.entry(uid).or_insert_with(|| {
                    Task(tokio::spawn(watch(fleet.clone(), record.clone(), pair, ordinal)))
                });
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

async fn watch(fleet: Arc<Fleet>, record: Arc<Mutex<Record>>, pair: String, ordinal: usize) {
    let mut open: Option<Server> = None;
    loop {
        tokio::time::sleep(if open.is_some() { EVERY } else { EVERY * 3 }).await;
        let server = match open.as_mut() {
            Some(server) => server,
            // Refused while mysqld starts, or before there are credentials.
            None => match fleet.server(&pair, ordinal).await {
                Ok(server) => open.insert(server),
                Err(_) => continue,
            },
        };
        let Ok(vitals) = server.vitals().await else {
            open = None;
            continue;
        };
        if let Ok(mut r) = record.lock() {
            r.samples += 1;
            if !vitals.read_only {
                let who = format!("{} ({})", names::pod(&pair, ordinal), vitals.uuid);
                r.writable.entry(pair.clone()).or_default().insert(who);
            }
        }
    }
}
