//! What the pair's record says, watched for the whole of a run.

use crate::fleet::{Fleet, conditions};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use shardwright::api::MySQLPair;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(150);

/// The record, and what is said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Said {
    /// The recorded active server.
    pub active: String,
    /// Its epoch.
    pub epoch: i64,
    /// Members, by the names of their Pods.
    pub in_sync: Vec<String>,
    /// `True`, `False` or `Unknown`, and the reason.
    pub ready: String,
}

/// It changed.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// When this was seen, RFC 3339.
    pub at: Timestamp,
    /// What it says now.
    #[serde(flatten)]
    pub said: Said,
}

#[derive(Default)]
struct Seen {
    changes: Vec<Change>,
    faults: Vec<String>,
}

/// Watches a pair until it is dropped.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Witness {
    /// Begins to watch.
    pub fn start(fleet: Arc<Fleet>, pair: String) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(watch(fleet, pair, seen.clone()));
        Self { seen, task }
    }

    /// All changes so far.
    pub fn changes(&self) -> Vec<Change> {
        self.seen.lock().map(|s| s.changes.clone()).unwrap_or_default()
    }

    /// What it says now.
    pub fn now(&self) -> Said {
        self.changes().pop().map(|c| c.said).unwrap_or_default()
    }

    /// How often the active server changed.
    pub fn hand_overs(&self) -> usize {
        let changes = self.changes();
        let pairs = changes.iter().zip(changes.iter().skip(1));
        pairs.filter(|(a, b)| a.said.active != b.said.active).count()
    }

    /// What must not be in any record.
    pub fn faults(&self) -> Vec<String> {
        self.seen.lock().map(|s| s.faults.clone()).unwrap_or_default()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(fleet: Arc<Fleet>, pair: String, seen: Arc<Mutex<Seen>>) {
    loop {
        // Without an API server there is nothing new to see.
        if let Ok(Ok(p)) = tokio::time::timeout(EVERY * 20, fleet.get::<MySQLPair>(&pair)).await
            && let Ok(mut seen) = seen.lock()
        {
            note(&mut seen, said(&p));
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn said(p: &MySQLPair) -> Said {
    let status = p.status.clone().unwrap_or_default();
    let ready = conditions(p).into_iter().find(|c| c.type_ == "Ready");
    let mut in_sync: Vec<_> = status.in_sync.iter().map(|m| m.name.clone()).collect();
    in_sync.sort();
    Said {
        active: status.active.unwrap_or_default(),
        epoch: status.epoch,
        in_sync,
        ready: ready
            .map(|c| format!("{} {}", c.status, c.reason))
            .unwrap_or_default(),
    }
}

fn note(seen: &mut Seen, now: Said) {
    if let Some(before) = seen.changes.last() {
        if before.said == now {
            return;
        }
        if now.epoch < before.said.epoch {
            seen.faults.push(format!(
                "the epoch fell from {} to {}",
                before.said.epoch, now.epoch
            ));
        }
        if now.active != before.said.active && now.epoch == before.said.epoch {
            seen.faults.push(format!(
                "active went from {} to {} in epoch {}",
                before.said.active, now.active, now.epoch
            ));
        }
    }
    seen.changes.push(Change {
        at: Timestamp::now(),
        said: now,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(active: &str, epoch: i64) -> Said {
        Said {
            active: active.into(),
            epoch,
            ..Said::default()
        }
    }

    #[test]
    fn an_epoch_that_falls_or_is_used_twice_is_told() {
        let mut seen = Seen::default();
        for said in [says("a", 1), says("a", 1), says("b", 2), says("b", 3)] {
            note(&mut seen, said);
        }
        assert_eq!((seen.changes.len(), seen.faults.len()), (3, 0));
        note(&mut seen, says("a", 3));
        note(&mut seen, says("a", 2));
        assert_eq!(seen.faults.len(), 2);
    }
}
