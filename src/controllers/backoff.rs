//! How long until the next try of an object whose pass failed: doubling, with a ceiling, forgotten at the first success.

use std::{collections::HashMap, hash::Hash, sync::Mutex, time::Duration};

/// After the first failure.
const FIRST: Duration = Duration::from_millis(200);
const CEILING: Duration = Duration::from_secs(15);

/// Failures in a row, by object.
pub struct Backoff<K>(Mutex<HashMap<K, u32>>);

impl<K: Eq + Hash> Default for Backoff<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash> Backoff<K> {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<K, u32>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A pass failed: how long to wait.
    pub fn failed(&self, key: K) -> Duration {
        self.counted(key).1
    }

    /// A pass failed: how many in a row, and how long to wait.
    pub fn counted(&self, key: K) -> (u32, Duration) {
        let mut map = self.map();
        let n = map.entry(key).or_insert(0);
        let wait = FIRST.saturating_mul(1 << (*n).min(10)).min(CEILING);
        *n = n.saturating_add(1);
        (*n, wait)
    }

    /// A pass went through.
    pub fn succeeded(&self, key: &K) {
        self.map().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_has_a_ceiling_and_forgets() {
        let b = Backoff::default();
        let waits: Vec<_> = (0..10).map(|_| b.failed("x")).collect();
        assert_eq!(waits[..3], [FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!(waits[9], CEILING);
        b.succeeded(&"x");
        assert_eq!(b.failed("x"), FIRST);
    }
}
