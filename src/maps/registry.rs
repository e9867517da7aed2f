//! The newest map of each cluster, and those who wait for a newer one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Namespace and name of a ShardCluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Namespace of the ShardCluster.
    pub namespace: String,
    /// Its name.
    pub cluster: String,
}

/// A map as it is sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// Its version.
    pub version: i64,
    /// Hash of its content without the version, as the record has it.
    pub hash: String,
    /// `shardmap.json`.
    pub body: String,
}

/// What a client that has version N is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A newer map.
    Newer(Arc<Published>),
    /// None within the time.
    Unchanged,
    /// No such cluster has a map.
    Unknown,
}

/// Version and hash of the map that the record of a cluster names.
type Record = (i64, String);

struct Slot {
    /// `None`: there is no such ShardCluster (any more).
    record: Option<Record>,
    /// The ConfigMap's content as last seen.
    seen: Option<Arc<Published>>,
    sender: watch::Sender<Option<Arc<Published>>>,
}

impl Slot {
    /// Sends what was seen, if it is what the record names: a ConfigMap that someone edited by hand never reaches a client. Without a
    /// record (the cluster was deleted, its map was left) a map goes out only when it is newer.
    fn settle(&self) {
        let Some(seen) = &self.seen else { return };
        let current = self.sender.borrow().as_ref().map(|p| p.version);
        let good = match &self.record {
            Some((version, hash)) => *version == seen.version && *hash == seen.hash,
            None => true,
        };
        if good && current.is_none_or(|c| seen.version > c) {
            self.sender.send_replace(Some(Arc::clone(seen)));
        }
    }
}

/// The newest map of each cluster.
#[derive(Default)]
pub struct Maps(Mutex<HashMap<Key, Slot>>);

impl Maps {
    fn with<T>(&self, key: &Key, f: impl FnOnce(&mut Slot) -> T) -> T {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(key.clone()).or_insert_with(|| Slot {
            record: None,
            seen: None,
            sender: watch::Sender::new(None),
        });
        f(slot)
    }

    /// The record of a cluster was seen; `None` when the cluster is gone or has published nothing yet.
    pub fn saw_record(&self, key: &Key, record: Option<Record>) {
        self.with(key, |slot| {
            slot.record = record;
            slot.settle();
        });
    }

    /// A published map was seen.
    pub fn saw_map(&self, key: &Key, map: Published) {
        self.with(key, |slot| {
            slot.seen = Some(Arc::new(map));
            slot.settle();
        });
    }

    /// The first map with a version above `after`, waiting at most for `wait`.
    pub async fn newer_than(&self, key: &Key, after: i64, wait: Duration) -> Answer {
        let receiver = {
            let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slots.get(key).map(|s| s.sender.subscribe())
        };
        let Some(mut receiver) = receiver else {
            return Answer::Unknown;
        };
        if receiver.borrow().is_none() {
            return Answer::Unknown;
        }
        let newer = receiver.wait_for(|p| p.as_ref().is_some_and(|p| p.version > after));
        match tokio::time::timeout(wait, newer).await {
            Ok(Ok(p)) => p
                .as_ref()
                .map_or(Answer::Unknown, |p| Answer::Newer(Arc::clone(p))),
            Ok(Err(_)) | Err(_) => Answer::Unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            namespace: "n".into(),
            cluster: "c".into(),
        }
    }
    fn map(version: i64, hash: &str) -> Published {
        Published {
            version,
            hash: hash.into(),
            body: format!("{version}{hash}"),
        }
    }
    async fn now(maps: &Maps, after: i64) -> Answer {
        maps.newer_than(&key(), after, Duration::ZERO).await
    }

    #[tokio::test]
    async fn a_waiting_client_is_answered_when_a_newer_map_appears() {
        let maps = Arc::new(Maps::default());
        assert_eq!(now(&maps, 0).await, Answer::Unknown);
        maps.saw_record(&key(), Some((1, "a".into())));
        maps.saw_map(&key(), map(1, "a"));
        assert_eq!(now(&maps, 1).await, Answer::Unchanged);
        let waiting = tokio::spawn({
            let maps = Arc::clone(&maps);
            async move { maps.newer_than(&key(), 1, Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        // Either order of the two watches will do.
        maps.saw_map(&key(), map(2, "b"));
        assert!(!waiting.is_finished());
        maps.saw_record(&key(), Some((2, "b".into())));
        assert_eq!(waiting.await.unwrap(), Answer::Newer(Arc::new(map(2, "b"))));
    }

    #[tokio::test]
    async fn a_map_that_someone_edited_is_never_served() {
        let maps = Maps::default();
        maps.saw_record(&key(), Some((1, "a".into())));
        maps.saw_map(&key(), map(1, "a"));
        maps.saw_map(&key(), map(99, "forged"));
        maps.saw_map(&key(), map(1, "edited"));
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(1, "a"))));
    }

    #[tokio::test]
    async fn the_map_of_a_deleted_cluster_goes_on_being_served() {
        let maps = Maps::default();
        maps.saw_record(&key(), Some((4, "a".into())));
        maps.saw_map(&key(), map(4, "a"));
        maps.saw_record(&key(), None);
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(4, "a"))));
        maps.saw_map(&key(), map(3, "old"));
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(4, "a"))));
    }
}
