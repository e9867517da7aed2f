//! The newest map of each cluster, and those who wait for a newer one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    /// None that this process knows of, and it would not: the API server does not answer it.
    OutOfTouch,
}

/// Version and hash of the map that the record of a cluster names.
type Record = (i64, String);

/// How many published maps that the record does not name are kept, in case that it is about to name one.
const PENDING: usize = 4;

struct Slot {
    /// `None`: there is no such ShardCluster (any more), or it has published nothing.
    record: Option<Record>,
    /// What ConfigMaps were seen to hold, the newest last.
    seen: VecDeque<Arc<Published>>,
    sender: watch::Sender<Option<Arc<Published>>>,
}

impl Slot {
    /// Sends what the record names, if it was seen: a ConfigMap that someone edited by hand never reaches a client. Without a
    /// record (the cluster was deleted, its map was left) the last one seen goes out, if it is newer.
    fn settle(&mut self) {
        let good = match &self.record {
            Some((version, hash)) => self
                .seen
                .iter()
                .find(|p| p.version == *version && p.hash == *hash),
            None => self.seen.back(),
        };
        let Some(good) = good.cloned() else { return };
        let current = self.sender.borrow().as_ref().map(|p| p.version);
        if current.is_none_or(|c| good.version > c) {
            self.sender.send_replace(Some(Arc::clone(&good)));
            // What is older will never be sent.
            self.seen.retain(|p| p.version >= good.version);
        }
    }
}

/// The newest map of each cluster.
pub struct Maps {
    slots: Mutex<Slots>,
    out_of_touch: watch::Sender<bool>,
}

struct Slots {
    /// Watches of records that have not seen everything yet: until then a missing record proves nothing.
    unread: usize,
    by_cluster: HashMap<Key, Slot>,
}

impl Maps {
    /// Nothing is sent before [`Maps::records_read`] was called `watches` times.
    pub fn new(watches: usize) -> Self {
        Self {
            slots: Mutex::new(Slots {
                unread: watches,
                by_cluster: HashMap::new(),
            }),
            out_of_touch: watch::Sender::new(false),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, key: &Key, change: impl FnOnce(&mut Slot)) {
        let mut slots = self.slots();
        let unread = slots.unread;
        let slot = slots.by_cluster.entry(key.clone()).or_insert_with(|| Slot {
            record: None,
            seen: VecDeque::new(),
            sender: watch::Sender::new(None),
        });
        change(slot);
        if unread == 0 {
            slot.settle();
        }
    }

    /// One of the watches of ShardClusters has seen all that there were when it began.
    pub fn records_read(&self) {
        let mut slots = self.slots();
        slots.unread = slots.unread.saturating_sub(1);
        if slots.unread == 0 {
            slots.by_cluster.values_mut().for_each(Slot::settle);
        }
    }

    /// The record of a cluster was seen; `None` when the cluster is gone or has published nothing yet.
    pub fn saw_record(&self, key: &Key, record: Option<Record>) {
        self.with(key, |slot| slot.record = record);
    }

    /// A published map was seen.
    pub fn saw_map(&self, key: &Key, map: Published) {
        self.with(key, |slot| {
            slot.seen.retain(|p| **p != map);
            slot.seen.push_back(Arc::new(map));
            if slot.seen.len() > PENDING {
                slot.seen.pop_front();
            }
        });
    }

    /// Whether the API server answers this process. While it does not, nobody is let wait here for what another replica may know.
    pub fn in_touch(&self, yes: bool) {
        self.out_of_touch
            .send_if_modified(|out| std::mem::replace(out, !yes) == yes);
    }

    /// The first map with a version above `after`, waiting at most for `wait`.
    pub async fn newer_than(&self, key: &Key, after: i64, wait: Duration) -> Answer {
        let receiver = self.slots().by_cluster.get(key).map(|s| s.sender.subscribe());
        let Some(mut receiver) = receiver else {
            return Answer::Unknown;
        };
        if receiver.borrow().is_none() {
            return Answer::Unknown;
        }
        let mut touch = self.out_of_touch.subscribe();
        tokio::select! {
            biased;
            newer = receiver.wait_for(|p| p.as_ref().is_some_and(|p| p.version > after)) => match newer {
                Ok(p) => p.as_ref().map_or(Answer::Unknown, |p| Answer::Newer(Arc::clone(p))),
                Err(_) => Answer::Unchanged,
            },
            // The registry outlives those who wait.
            _ = touch.wait_for(|out| *out) => Answer::OutOfTouch,
            () = tokio::time::sleep(wait) => Answer::Unchanged,
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
        let maps = Arc::new(Maps::new(0));
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
    async fn nobody_waits_where_nothing_would_be_heard() {
        let maps = Arc::new(Maps::new(0));
        maps.saw_record(&key(), Some((1, "a".into())));
        maps.saw_map(&key(), map(1, "a"));
        let wait = |maps: &Arc<Maps>| {
            let maps = Arc::clone(maps);
            tokio::spawn(async move { maps.newer_than(&key(), 1, Duration::from_secs(60)).await })
        };
        let waiting = wait(&maps);
        tokio::task::yield_now().await;
        maps.in_touch(false);
        assert_eq!(waiting.await.unwrap(), Answer::OutOfTouch);
        assert_eq!(wait(&maps).await.unwrap(), Answer::OutOfTouch);
        // What there is is better than nothing.
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(1, "a"))));
        maps.in_touch(true);
        assert_eq!(now(&maps, 1).await, Answer::Unchanged);
    }

    #[tokio::test]
    async fn a_map_that_someone_edited_is_never_served() {
        let maps = Maps::new(0);
        maps.saw_record(&key(), Some((1, "a".into())));
        maps.saw_map(&key(), map(1, "a"));
        maps.saw_map(&key(), map(99, "forged"));
        maps.saw_map(&key(), map(1, "edited"));
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(1, "a"))));
    }

    #[tokio::test]
    async fn the_map_of_a_deleted_cluster_goes_on_being_served() {
        let maps = Maps::new(0);
        maps.saw_record(&key(), Some((4, "a".into())));
        maps.saw_map(&key(), map(4, "a"));
        maps.saw_record(&key(), None);
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(4, "a"))));
        maps.saw_map(&key(), map(3, "old"));
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(4, "a"))));
    }

    #[tokio::test]
    async fn nothing_goes_out_before_all_records_were_read() {
        let maps = Maps::new(1);
        maps.saw_map(&key(), map(99, "forged"));
        maps.saw_map(&key(), map(3, "a"));
        assert_eq!(now(&maps, 0).await, Answer::Unknown);
        maps.saw_record(&key(), Some((3, "a".into())));
        maps.records_read();
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(3, "a"))));
        assert_eq!(now(&maps, 3).await, Answer::Unchanged);
    }

    #[tokio::test]
    async fn of_two_config_maps_the_one_that_the_record_names_is_sent() {
        let maps = Maps::new(0);
        maps.saw_record(&key(), Some((5, "new".into())));
        maps.saw_map(&key(), map(5, "new"));
        // The one of an earlier `configMapName`, listed last.
        maps.saw_map(&key(), map(4, "old"));
        maps.saw_record(&key(), Some((6, "newer".into())));
        maps.saw_map(&key(), map(6, "newer"));
        maps.saw_map(&key(), map(4, "old"));
        assert_eq!(now(&maps, 0).await, Answer::Newer(Arc::new(map(6, "newer"))));
    }
}
