//! What became of each row that a client tried to write, and whether the servers agree.

use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What became of a row, as far as the client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server said OK: it has to be there for good.
    Acknowledged,
    /// The server refused it, by this error: it must not be there.
    Refused(u16, String),
    /// There was no connection: it was never sent.
    NotSent(String),
    /// It was sent and never answered: it may be there or not.
    Unknown(String),
}

/// One row that was tried.
#[derive(Clone, Debug)]
pub struct Try {
    /// Its number; each is tried once.
    pub number: u64,
    /// When the try began.
    pub begun: Instant,
    /// When the connection stood, if a new one was made for it.
    pub connected: Option<Instant>,
    /// When the answer was there, or was given up.
    pub ended: Instant,
    /// Where it was sent to.
    pub host: String,
    /// What became of it.
    pub ending: Ending,
}

impl Try {
    /// From its begin to the answer.
    pub fn took(&self) -> Duration {
        self.ended.duration_since(self.begun)
    }
}

impl Ending {
    /// Why it failed, for people.
    pub fn why(&self) -> &str {
        match self {
            Self::Acknowledged => "",
            Self::Refused(_, why) | Self::NotSent(why) | Self::Unknown(why) => why,
        }
    }
}

/// All tries of one client.
pub struct Book {
    /// What its rows are told apart by.
    pub client: String,
    tries: Mutex<Vec<Try>>,
}

/// The longest time without an acknowledged write.
#[derive(Clone, Debug)]
pub struct Gap {
    /// The last acknowledged write before it.
    pub last: Instant,
    /// The first one after it.
    pub first: Try,
    /// Tries in it whose outcome is not known.
    pub unknown: usize,
    /// Tries in it that were refused.
    pub refused: usize,
    /// Tries in it that were never sent.
    pub not_sent: usize,
    /// The longest try in it that failed.
    pub longest: Option<Try>,
}

impl Gap {
    /// How long it was.
    pub fn length(&self) -> Duration {
        self.first.ended.duration_since(self.last)
    }
}

impl Book {
    /// An empty one.
    pub fn new(client: &str) -> Self {
        Self {
            client: client.into(),
            tries: Mutex::default(),
        }
    }

    /// Adds a try.
    pub fn note(&self, one: Try) {
        if let Ok(mut all) = self.tries.lock() {
            all.push(one);
        }
    }

    fn with<T>(&self, look: impl FnOnce(&[Try]) -> T) -> T {
        match self.tries.lock() {
            Ok(all) => look(&all),
            Err(all) => look(&all.into_inner()),
        }
    }

    /// How many rows were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.with(|all| all.iter().filter(|t| t.ending == Ending::Acknowledged).count())
    }

    /// How many outcomes are not known.
    pub fn unknown(&self) -> usize {
        self.with(|all| {
            all.iter()
                .filter(|t| matches!(t.ending, Ending::Unknown(_)))
                .count()
        })
    }

    /// All tries so far.
    pub fn all(&self) -> Vec<Try> {
        self.with(<[Try]>::to_vec)
    }

    /// The tries that began at `since` or later.
    pub fn since(&self, since: Instant) -> Vec<Try> {
        self.with(|all| {
            let from = all.partition_point(|t| t.begun < since);
            all.get(from..).unwrap_or_default().to_vec()
        })
    }

    /// For how long every try has been acknowledged, up to now; nothing when the last one was not, or is long ago.
    pub fn steady(&self) -> Duration {
        self.with(|all| {
            let Some(last) = all.last().filter(|t| t.ending == Ending::Acknowledged) else {
                return Duration::ZERO;
            };
            if last.ended.elapsed() > Duration::from_secs(1) {
                return Duration::ZERO;
            }
            let first = all
                .iter()
                .rev()
                .take_while(|t| t.ending == Ending::Acknowledged)
                .last()
                .unwrap_or(last);
            last.ended.duration_since(first.begun)
        })
    }

    /// The longest time between two acknowledged writes that follow each other, of those times that touch the span between `from` and `to`.
    pub fn gap(&self, from: Instant, to: Instant) -> Option<Gap> {
        self.with(|all| longest(all, from, to))
    }

    /// Acknowledged rows that a server does not hold, and rows that it holds more than once.
    pub fn lost_and_twice(&self, found: &BTreeMap<u64, u32>) -> (usize, usize) {
        let lost = self.with(|all| {
            let acknowledged = all.iter().filter(|t| t.ending == Ending::Acknowledged);
            acknowledged.filter(|t| !found.contains_key(&t.number)).count()
        });
        (lost, found.values().filter(|n| **n > 1).count())
    }

    /// Compares with what a server holds: every acknowledged row once, none that was refused or never sent. Gives how many of
    /// those with an unknown outcome are there.
    ///
    /// # Errors
    /// When a row is lost, is there twice, or should not be there.
    pub fn agrees(&self, found: &BTreeMap<u64, u32>) -> Result<usize> {
        let (mut lost, mut wrong, mut unknown) = (vec![], vec![], BTreeSet::new());
        self.with(|all| {
            for t in all {
                let there = found.contains_key(&t.number);
                match t.ending {
                    Ending::Acknowledged if !there => lost.push(t.number),
                    Ending::Refused(..) | Ending::NotSent(_) if there => wrong.push(t.number),
                    Ending::Unknown(_) if there => {
                        unknown.insert(t.number);
                    }
                    _ => {}
                }
            }
        });
        let twice: Vec<_> = found
            .iter()
            .filter(|(_, n)| **n > 1)
            .map(|(row, _)| row)
            .collect();
        ensure!(
            lost.is_empty(),
            "{}: acknowledged and lost: {} rows: {:?}",
            self.client,
            lost.len(),
            lost.get(..20).unwrap_or(&lost)
        );
        ensure!(twice.is_empty(), "{}: there twice: {twice:?}", self.client);
        ensure!(
            wrong.is_empty(),
            "{}: refused or never sent, and there: {wrong:?}",
            self.client
        );
        Ok(unknown.len())
    }
}

fn longest(all: &[Try], from: Instant, to: Instant) -> Option<Gap> {
    let mut found: Option<Gap> = None;
    let mut last: Option<usize> = None;
    for (n, t) in all.iter().enumerate() {
        if t.ending != Ending::Acknowledged {
            continue;
        }
        if let Some(before) = last.and_then(|i| all.get(i))
            && t.ended >= from
            && before.ended <= to
            && found
                .as_ref()
                .is_none_or(|g| g.length() < t.ended.duration_since(before.ended))
        {
            let between = last.and_then(|i| all.get(i + 1..n)).unwrap_or_default();
            let count = |what: fn(&Ending) -> bool| between.iter().filter(|t| what(&t.ending)).count();
            found = Some(Gap {
                last: before.ended,
                first: t.clone(),
                unknown: count(|e| matches!(e, Ending::Unknown(_))),
                refused: count(|e| matches!(e, Ending::Refused(..))),
                not_sent: count(|e| matches!(e, Ending::NotSent(_))),
                longest: between.iter().max_by_key(|t| t.took()).cloned(),
            });
        }
        last = Some(n);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(endings: &[(u64, Ending)]) -> (Book, Instant) {
        let begin = Instant::now();
        let book = Book::new("c");
        for (n, (ms, ending)) in endings.iter().enumerate() {
            let at = begin + Duration::from_millis(*ms);
            book.note(Try {
                number: n as u64 + 1,
                begun: at,
                connected: None,
                // One that finds no connection waits for it.
                ended: at + Duration::from_millis(20 * u64::from(matches!(ending, Ending::NotSent(_)))),
                host: String::new(),
                ending: ending.clone(),
            });
        }
        (book, begin)
    }

    #[test]
    fn the_gap_is_from_the_last_to_the_first_acknowledged_write() {
        use Ending::{Acknowledged, NotSent, Unknown};
        let (book, begin) = book(&[
            (0, Acknowledged),
            (900, Acknowledged),
            (1000, Acknowledged),
            (1010, Unknown(String::new())),
            (1100, NotSent(String::new())),
            (1300, Acknowledged),
            (9000, Acknowledged),
        ]);
        let at = |ms| begin + Duration::from_millis(ms);
        let gap = book.gap(at(995), at(1300 - 1)).unwrap();
        assert_eq!((gap.length().as_millis(), gap.unknown, gap.not_sent), (300, 1, 1));
        assert!(matches!(gap.longest.unwrap().ending, NotSent(_)));
        assert_eq!(book.gap(at(995), at(5000)).unwrap().length().as_millis(), 7700);
        assert!(book.gap(at(9001), at(9999)).is_none());
        assert_eq!((book.acknowledged(), book.unknown()), (5, 1));
        assert_eq!(book.since(at(1200)).len(), 2);
    }

    #[test]
    fn rows_that_are_lost_doubled_or_should_not_be_there_are_told() {
        use Ending::{Acknowledged, Refused, Unknown};
        let (book, _) = book(&[
            (0, Acknowledged),
            (1, Refused(1290, String::new())),
            (2, Unknown(String::new())),
        ]);
        let found = |rows: &[(u64, u32)]| rows.iter().copied().collect::<BTreeMap<_, _>>();
        assert_eq!(book.agrees(&found(&[(1, 1), (3, 1)])).unwrap(), 1);
        assert_eq!(book.agrees(&found(&[(1, 1)])).unwrap(), 0);
        book.agrees(&found(&[(3, 1)])).unwrap_err();
        book.agrees(&found(&[(1, 2)])).unwrap_err();
        book.agrees(&found(&[(1, 1), (2, 1)])).unwrap_err();
    }
}
