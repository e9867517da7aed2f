//! Goes through all tables, in as many streams as the position has connections.

use super::{
    Verdict,
    digest::{self, Part},
    rows,
    work::{Item, PART, What, Work},
};
use crate::{
    core::gtid::GtidSet,
    mysql::{
        conn::{self, ident},
        seed::{Control, Pinned, Position, layout::Table, rows::Range},
    },
};
use futures::future;
use mysql_async::{Conn, Row};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, task::JoinSet};

/// Most parts of a table.
const PARTS: u64 = 256;
/// Connections that an item may break.
const TRIES: u32 = 2;
/// The least speed of a server that is not given up, bytes a second.
const SLOW: u64 = 1 << 20;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The position at which it was compared.
    pub gtid: GtidSet,
    /// By database and table. A database that is missing somewhere, or is defined in another way, has an entry without a table.
    pub tables: BTreeMap<(String, String), Verdict>,
}

impl Found {
    /// Whether everything that was compared of `database` is equal, and it has an entry at all.
    pub fn is_equal(&self, database: &str) -> bool {
        let mut of = self.tables.iter().filter(|((d, _), _)| d == database).peekable();
        of.peek().is_some() && of.all(|(_, v)| *v == Verdict::Equal)
    }
}

/// Compares the databases of a position on all of its servers with what the source has.
pub async fn compare(position: Position, what: &What, control: Arc<Control>) -> Found {
    let Position { gtid, source, beside } = position;
    let mut servers: Vec<Pinned> = vec![source];
    servers.extend(beside);
    let names: Vec<String> = servers.iter().map(|s| s.access.tls_name.clone()).collect();
    let lanes = lanes(&mut servers);
    let work = Work::new(&servers, &names, what);
    let tables = work.items.iter().flat_map(|i| &i.tables);
    control.expect(
        work.items.iter().map(|i| i.tables.len() as u64).sum(),
        tables.map(|(_, t, _)| t.bytes).sum(),
    );
    let run = Arc::new(Run {
        names,
        control,
        work: Mutex::new(work),
        wake: Notify::new(),
    });
    let mut workers = JoinSet::new();
    for lane in lanes {
        let run = run.clone();
        workers.spawn(async move { run.stream(lane).await });
    }
    while workers.join_next().await.is_some() {}
    let mut work = run.state();
    let left: Vec<Item> = work.items.drain(..).collect();
    let why = if run.control.is_stopped() {
        "it was stopped".to_owned()
    } else {
        work.lost
            .clone()
            .unwrap_or_else(|| "no connection is left".into())
    };
    for (d, t, _) in left.iter().flat_map(|i| &i.tables) {
        work.unknown(d, &t.name, &why);
    }
    Found {
        gtid,
        tables: std::mem::take(&mut work.verdicts),
    }
}

/// One connection to each server.
fn lanes(servers: &mut [Pinned]) -> Vec<Vec<Conn>> {
    let mut lanes = vec![];
    while servers.iter().all(|s| !s.readers.is_empty()) {
        lanes.push(servers.iter_mut().filter_map(|s| s.readers.pop()).collect());
    }
    lanes
}

struct Run {
    names: Vec<String>,
    control: Arc<Control>,
    work: Mutex<Work>,
    wake: Notify,
}

/// Whose answer is missing and why, whether its connection cannot go on, and whether it may be asked again.
struct Failed {
    why: String,
    broken: bool,
    again: bool,
}

impl Run {
    fn state(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn one(&self, lane: &mut [Conn], item: &Item) -> Result<(), Failed> {
        if item.whole
            && let Some((d, t, _)) = item.tables.first()
        {
            let parts = self.cut(lane, d, t).await?;
            let parts = parts.into_iter().map(|range| Item {
                tables: vec![(d.clone(), t.clone(), Part::Range(range))],
                ..Item::default()
            });
            self.state().items.extend(parts);
            return Ok(());
        }
        let bytes: u64 = item
            .tables
            .iter()
            .map(|(_, t, p)| match p {
                Part::Range(r) if *r == Range::default() => t.bytes,
                _ => t.bytes.min(PART),
            })
            .sum();
        self.control.pace(bytes).await;
        let sql: Vec<String> = item
            .tables
            .iter()
            .map(|(d, t, r)| digest::digest(d, t, r))
            .collect();
        let answers = self.ask(lane, &sql.join("; "), limit(bytes)).await?;
        let mut rows_read = 0;
        for (i, (d, t, part)) in item.tables.iter().enumerate() {
            let all: Vec<Option<(u64, Option<String>)>> = answers
                .iter()
                .map(|a| a.get(i).and_then(|set| one(set)))
                .collect();
            let Some(Some(first)) = all.first() else {
                return Err(Failed {
                    why: format!("{} gave no digest", self.names[0]),
                    broken: true,
                    again: true,
                });
            };
            rows_read += first.0;
            let mut same = true;
            for (k, other) in all.iter().enumerate().skip(1) {
                match other {
                    None => {
                        return Err(Failed {
                            why: format!("{} gave no digest", self.names[k]),
                            broken: true,
                            again: true,
                        });
                    }
                    Some(other) if other == first => {}
                    Some(_) => {
                        same = false;
                        self.look(lane, k, d, t, part).await?;
                    }
                }
            }
            if same {
                self.state().equal(d, &t.name);
            }
        }
        self.control.read(rows_read, bytes);
        for (_, _, part) in &item.tables {
            if matches!(part, Part::Range(Range { to: None, .. })) {
                self.control.table_done();
            }
        }
        Ok(())
    }

    /// Names the rows of a part that differ between the source and another server.
    async fn look(&self, lane: &mut [Conn], k: usize, d: &str, t: &Table, part: &Part) -> Result<(), Failed> {
        let name = &self.names[k];
        let (ours, theirs) = lane.split_at_mut(k);
        let (Some(ours), Some(theirs)) = (ours.first_mut(), theirs.first_mut()) else {
            return Ok(());
        };
        match rows::differences(ours, theirs, &digest::each(d, t, part), !t.key.is_empty()).await {
            Ok(how) if how.is_empty() => {
                self.state()
                    .differs(d, &t.name, format!("{name}: the digests differ"));
            }
            Ok(how) => {
                for how in how {
                    self.state().differs(d, &t.name, format!("{name}: {how}"));
                }
            }
            Err(e) => {
                self.state().differs(
                    d,
                    &t.name,
                    format!("{name}: the digests differ (which rows was not found out: {e})"),
                );
                // Rows may be under way on either connection.
                return Err(Failed {
                    why: format!("{name}: {e}"),
                    broken: true,
                    again: false,
                });
            }
        }
        Ok(())
    }

    async fn ask(&self, lane: &mut [Conn], sql: &str, limit: Duration) -> Result<Vec<Vec<Vec<Row>>>, Failed> {
        let answers = future::join_all(lane.iter_mut().map(|c| conn::sets(c, limit, sql))).await;
        let mut all = vec![];
        let mut failed: Option<Failed> = None;
        for (answer, name) in answers.into_iter().zip(&self.names) {
            match answer {
                Ok(sets) => all.push(sets),
                Err(e) => {
                    let broken = e.code().is_none();
                    if failed.as_ref().is_none_or(|f| !f.broken) {
                        failed = Some(Failed {
                            why: format!("{name}: {e}"),
                            broken,
                            again: true,
                        });
                    }
                }
            }
        }
        failed.map_or(Ok(all), Err)
    }

    async fn cut(&self, lane: &mut [Conn], d: &str, t: &Table) -> Result<Vec<Range>, Failed> {
        let Some(key) = t.cut_by().map(ident) else {
            return Ok(vec![Range::default()]);
        };
        let sql = format!(
            "SELECT CAST(MIN({key}) AS CHAR), CAST(MAX({key}) AS CHAR) FROM {}.{}",
            ident(d),
            ident(&t.name)
        );
        // The outermost parts are open, so that the ends of one server will do for all.
        let Some(source) = lane.first_mut() else {
            return Ok(vec![Range::default()]);
        };
        let ends = conn::rows::<(Option<String>, Option<String>)>(source, limit(t.bytes), sql).await;
        let ends = ends.map_err(|e| Failed {
            why: format!("{}: {e}", self.names[0]),
            broken: e.code().is_none(),
            again: true,
        })?;
        let number = |text: Option<String>| text.and_then(|t| t.parse::<i128>().ok());
        match ends.into_iter().next().map(|(a, b)| (number(a), number(b))) {
            Some((Some(min), Some(max))) => Ok(Range::cut(min, max, (t.bytes / PART).min(PARTS))),
            _ => Ok(vec![Range::default()]),
        }
    }

    /// The next item, as soon as there is one.
    async fn next(&self) -> Option<Item> {
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            {
                let mut s = self.state();
                if self.control.is_stopped() {
                    return None;
                }
                if let Some(item) = s.items.pop_front() {
                    s.busy += 1;
                    return Some(item);
                }
                if s.busy == 0 {
                    return None;
                }
            }
            woken.await;
        }
    }

    async fn stream(&self, mut lane: Vec<Conn>) {
        while let Some(mut item) = self.next().await {
            let failed = self.one(&mut lane, &item).await.err();
            let broken = failed.as_ref().is_some_and(|f| f.broken);
            let mut s = self.state();
            s.busy -= 1;
            if let Some(Failed { why, again, .. }) = failed {
                item.tries += 1;
                if again && broken && item.tries < TRIES {
                    s.items.push_back(item);
                } else if again && item.tables.len() > 1 {
                    // One of them spoils it for the others.
                    let ones = item.tables.into_iter().map(|t| Item {
                        tables: vec![t],
                        ..Item::default()
                    });
                    s.items.extend(ones);
                } else if again {
                    for (d, t, _) in &item.tables {
                        s.unknown(d, &t.name, &why);
                    }
                }
                if broken {
                    s.lost = Some(why);
                }
            }
            drop(s);
            self.wake.notify_waiters();
            if broken {
                return;
            }
        }
    }
}

fn limit(bytes: u64) -> Duration {
    Duration::from_secs(60 + bytes / SLOW)
}

fn one(set: &[Row]) -> Option<(u64, Option<String>)> {
    let row = set.first()?;
    Some((row.get_opt(0)?.ok()?, row.get_opt(1)?.ok()?))
}
