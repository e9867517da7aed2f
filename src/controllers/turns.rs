//! Who has its turn. Moves that share a pair would take the locks of its servers away from each other: a batch that another move's clean-up cuts short is
//! undone, and tried later. Nothing safe depends on it: another operator waits for nobody.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// One turn for each name, in the order of arrival.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<HashMap<String, Arc<Turn<()>>>>>);

impl Turns {
    /// Waits for the turn of all these names, which ends with what is returned. Always in the order of the names, so nobody waits for each other.
    pub async fn take(&self, names: &BTreeSet<String>) -> Vec<OwnedMutexGuard<()>> {
        let mut taken = vec![];
        for name in names {
            let turn = {
                let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                // Nobody waits for it, and nobody has it.
                all.retain(|other, turn| other == name || Arc::strong_count(turn) > 1);
                Arc::clone(all.entry(name.clone()).or_default())
            };
            taken.push(turn.lock_owned().await);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn one_after_the_other_where_a_name_is_shared() {
        let turns = Turns::default();
        let names = |all: &[&str]| all.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
        let first = turns.take(&names(&["a", "b"])).await;
        assert!(turns.take(&names(&["b", "c"])).now_or_never().is_none());
        assert!(turns.take(&names(&["c", "d"])).now_or_never().is_some());
        drop(first);
        assert!(turns.take(&names(&["b", "c"])).now_or_never().is_some());
        turns.take(&names(&["d"])).await;
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
