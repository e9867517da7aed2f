//! What controllers of one process let each other know. Nothing in it is needed for safety (rule O1): servers are locked, and records compared.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Things that are under way, by name, for as long as what [`Busy::begin`] gives is held.
#[derive(Clone, Default)]
pub struct Busy(Arc<Mutex<HashMap<String, usize>>>);

/// Held while it is under way.
pub struct UnderWay {
    busy: Busy,
    name: String,
}

impl Busy {
    fn all(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// It is under way from now on.
    pub fn begin(&self, name: impl Into<String>) -> UnderWay {
        let name = name.into();
        *self.all().entry(name.clone()).or_insert(0) += 1;
        UnderWay {
            busy: self.clone(),
            name,
        }
    }
    /// Whether it is.
    pub fn is(&self, name: &str) -> bool {
        self.all().contains_key(name)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.busy.all();
        if let Some(n) = all.get_mut(&self.name) {
            *n -= 1;
            if *n == 0 {
                all.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_under_way_until_the_last_one_lets_go() {
        let busy = Busy::default();
        let first = busy.begin("a");
        let second = busy.begin("a");
        drop(first);
        assert!(busy.is("a") && !busy.is("b"));
        drop(second);
        assert!(!busy.is("a"));
    }
}
