//! Rule R1 watched from outside: at any moment a shard can be written at one pair at most. Every server of the fleet is asked all the time
//! whether it takes writes, which shards' databases are not READ ONLY there, and which of them the application's account may not write into: copies, while
//! they are made.
//!
//! Two servers are never asked at the same instant, so it is done as for a pair ([`crate::acknowledge`]): one that says "open" is asked between two answers
//! of another pair's server that both say "open". A server that waits for acknowledgements which nobody in its pair gives can write nothing (rule P6).

use crate::acknowledge::Stand;
use crate::fleet::Fleet;
use crate::moves::{self, Copy};
use crate::server::Server;
use anyhow::{Result, ensure};
use shardwright::api::names;
use shardwright::core::credentials::APP_USER;
use shardwright::core::databases::Naming;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Between two questions to a server.
const EVERY: Duration = Duration::from_millis(100);
/// Two answers that are further apart say nothing of the time between them.
const CLOSE: Duration = Duration::from_secs(2);
/// For one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Answers of a server that are kept.
const KEPT: usize = 8;
const MOST_FAULTS: usize = 10;
/// A watch with fewer answers of a server than this has seen nothing.
const ENOUGH: usize = 10;

/// One answer.
#[derive(Clone, Debug)]
struct Answer {
    asked: Instant,
    answered: Instant,
    /// What it says of its waiting.
    stand: Stand,
    /// Shards that can be written there, if it is acknowledged.
    open: BTreeSet<i32>,
}

/// A server, by its pair and ordinal.
type Key = (String, usize);

#[derive(Default)]
struct Seen {
    answers: BTreeMap<Key, VecDeque<Answer>>,
    counted: BTreeMap<Key, usize>,
    faults: Vec<String>,
}

impl Seen {
    fn add(&mut self, key: &Key, answer: Answer) {
        *self.counted.entry(key.clone()).or_default() += 1;
        let own = self.answers.entry(key.clone()).or_default();
        own.push_back(answer);
        if own.len() > KEPT {
            own.pop_front();
        }
        // The newest answer may be the later one of two around an answer of another server.
        if let Some(fault) = self.two(key)
            && self.faults.len() < MOST_FAULTS
        {
            self.faults.push(fault);
        }
    }

    /// Whether a commit there would be acknowledged, by what the other server of the pair says about that time.
    fn acknowledged(&self, key: &Key, answer: &Answer) -> bool {
        !answer.stand.waits
            || self
                .answers
                .iter()
                .filter(|(k, _)| k.0 == key.0 && k.1 != key.1)
                .flat_map(|(_, answers)| answers)
                .filter(|a| {
                    let (early, late) = (a.answered.min(answer.answered), a.answered.max(answer.answered));
                    late.duration_since(early) <= CLOSE
                })
                .any(|a| a.stand.acknowledges.as_deref() == Some(&answer.stand.uuid))
    }

    fn two(&self, key: &Key) -> Option<String> {
        let own = self.answers.get(key)?;
        let after = own.back()?;
        for (other, answers) in self.answers.iter().filter(|(k, _)| k.0 != key.0) {
            for between in answers.iter().filter(|a| a.answered <= after.asked) {
                let Some(before) = own.iter().rfind(|a| a.answered <= between.asked) else {
                    continue;
                };
                // One that was asked in between again has looked at the rest already.
                let next = own.iter().find(|a| a.asked >= between.answered);
                if next.is_none_or(|n| n.asked != after.asked)
                    || after.answered.duration_since(before.asked) > CLOSE
                {
                    continue;
                }
                if ![(key, before), (key, after), (other, between)]
                    .into_iter()
                    .all(|(k, a)| self.acknowledged(k, a))
                {
                    continue;
                }
                let both: Vec<i32> = before
                    .open
                    .iter()
                    .filter(|s| after.open.contains(s) && between.open.contains(s))
                    .copied()
                    .collect();
                if !both.is_empty() {
                    return Some(format!(
                        "shards {both:?} could be written on {} and on {} at once",
                        names::pod(&key.0, key.1),
                        names::pod(&other.0, other.1)
                    ));
                }
            }
        }
        None
    }
}

/// Watches all servers of the pairs that there were when it began, until it is dropped.
pub struct Homes {
    seen: Arc<Mutex<Seen>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Homes {
    /// Begins to watch.
    ///
    /// # Errors
    /// When the pairs cannot be listed.
    pub async fn watch(fleet: &Arc<Fleet>) -> Result<Self> {
        let seen = Arc::<Mutex<Seen>>::default();
        let naming = fleet.naming().await?;
        let mut tasks = vec![];
        for pair in fleet.pairs().await? {
            for ordinal in names::ORDINALS {
                let key = (pair.clone(), ordinal);
                tasks.push(tokio::spawn(ask(
                    fleet.clone(),
                    key,
                    naming.clone(),
                    seen.clone(),
                )));
            }
        }
        Ok(Self { seen, tasks })
    }

    /// Ends it.
    ///
    /// # Errors
    /// When a shard could be written at two pairs at once, or a server was hardly asked.
    pub fn verdict(self) -> Result<()> {
        for task in &self.tasks {
            task.abort();
        }
        let Ok(seen) = self.seen.lock() else {
            anyhow::bail!("who watched the homes has died")
        };
        ensure!(seen.faults.is_empty(), "R1 is broken: {}", seen.faults.join("; "));
        let blind: Vec<_> = seen.counted.iter().filter(|(_, n)| **n < ENOUGH).collect();
        ensure!(
            blind.is_empty() && seen.counted.len() == self.tasks.len(),
            "servers did not answer often enough to see that rule R1 holds: {blind:?} of {:?}",
            seen.counted
        );
        Ok(())
    }
}

impl Drop for Homes {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn ask(fleet: Arc<Fleet>, key: Key, naming: Naming, seen: Arc<Mutex<Seen>>) {
    let mut open: Option<Server> = None;
    loop {
        tokio::time::sleep(EVERY).await;
        let connected = match open.take() {
            Some(server) => Ok(server),
            None => tokio::time::timeout(PATIENCE, fleet.server(&key.0, key.1))
                .await
                .unwrap_or_else(|_| Err(anyhow::anyhow!("no connection"))),
        };
        let Ok(mut server) = connected else { continue };
        let asked = Instant::now();
        let Ok(Ok((stand, open_here))) = tokio::time::timeout(PATIENCE, writable(&mut server, &naming)).await
        else {
            continue;
        };
        let answer = Answer {
            asked,
            answered: Instant::now(),
            stand,
            open: open_here,
        };
        if let Ok(mut seen) = seen.lock() {
            seen.add(&key, answer);
        }
        open = Some(server);
    }
}

async fn writable(server: &mut Server, naming: &Naming) -> Result<(Stand, BTreeSet<i32>)> {
    let stand = server.stand().await?;
    if !stand.open {
        return Ok((stand, BTreeSet::new()));
    }
    // A copy is closed by privileges before its database is made, and until it is READ ONLY: whoever asks for its flag in between finds the
    // privileges withheld before or afterwards.
    let before = withheld(server, naming).await?;
    let copies = moves::copies(server, naming).await?;
    let after = withheld(server, naming).await?;
    Ok((stand, writable_of(&copies, &before, &after)))
}

fn writable_of(copies: &BTreeMap<i32, Copy>, before: &BTreeSet<i32>, after: &BTreeSet<i32>) -> BTreeSet<i32> {
    copies
        .iter()
        .filter(|(_, copy)| **copy == Copy::Open)
        .map(|(shard, _)| *shard)
        .filter(|shard| !before.contains(shard) && !after.contains(shard))
        .collect()
}

/// Shards whose very database the application's account has a grant on that does not let it write: of all grants that match, this one counts.
async fn withheld(server: &mut Server, naming: &Naming) -> Result<BTreeSet<i32>> {
    let rows: Vec<String> = server
        .rows(&format!(
            "SELECT CAST(Db AS CHAR) FROM mysql.db WHERE User = '{APP_USER}' AND Insert_priv = 'N'"
        ))
        .await?;
    Ok(named(&rows, naming))
}

/// Patterns that are the name of one shard's database.
fn named(patterns: &[String], naming: &Naming) -> BTreeSet<i32> {
    patterns
        .iter()
        .filter_map(|p| naming.parse(&p.replace(r"\_", "_")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardwright::api::shard_cluster::Shards;

    #[test]
    fn a_copy_that_is_being_made_is_not_writable() {
        let naming = Naming::from(&Shards {
            total: 100,
            database_prefix: "my_db".into(),
            digits: 3,
        });
        let grants = [r"my\_db001", r"my\_db___", "other", "my_db002"].map(str::to_owned);
        let withheld = named(&grants, &naming);
        assert_eq!(withheld, [1, 2].into());
        let copies = [(1, Copy::Open), (2, Copy::Open), (3, Copy::Open), (4, Copy::Shut)].into();
        let none = BTreeSet::new();
        assert_eq!(writable_of(&copies, &none, &none), [1, 2, 3].into());
        // Begun, or complete, since the question before.
        assert_eq!(writable_of(&copies, &none, &withheld), [3].into());
        assert_eq!(writable_of(&copies, &withheld, &none), [3].into());
    }

    /// Answers 10 ms apart.
    fn faults(answers: &[(&str, &[i32])]) -> usize {
        let mut seen = Seen::default();
        let begun = Instant::now();
        for (n, (pair, open)) in (0..).zip(answers) {
            let at = begun + Duration::from_millis(10 * n);
            let answer = Answer {
                asked: at,
                answered: at + Duration::from_millis(5),
                stand: Stand {
                    uuid: (*pair).to_owned(),
                    open: true,
                    // One that is called after its waiting waits for somebody who is not there.
                    waits: pair.ends_with("waits"),
                    acknowledges: None,
                },
                open: open.iter().copied().collect(),
            };
            seen.add(&((*pair).to_owned(), 0), answer);
        }
        seen.faults.len()
    }

    #[test]
    fn a_shard_with_two_homes_is_seen() {
        assert_eq!(faults(&[("p0", &[1, 2]), ("p1", &[2]), ("p0", &[1, 2])]), 1);
        // A former active server that nobody acknowledges writes nothing.
        assert_eq!(faults(&[("waits", &[1, 2]), ("p1", &[2]), ("waits", &[1, 2])]), 0);
    }

    #[test]
    fn one_that_moves_between_two_questions_is_not_told() {
        assert_eq!(
            faults(&[
                ("p0", &[1, 2]),
                ("p1", &[3]),
                ("p0", &[1]),
                ("p1", &[2, 3]),
                ("p0", &[1])
            ]),
            0
        );
        // Asked after it was shut, and open elsewhere by then.
        assert_eq!(faults(&[("p0", &[2]), ("p1", &[2]), ("p0", &[])]), 0);
    }
}
