//! Dropping the databases of shards that have moved away (rule R6): on each server for itself, outside the binary log, slowly.
//!
//! A fenced database cannot be dropped, and one whose fence is taken away for it could be written to by a client that has slept since before the
//! move: what it is told OK for would be lost. So whoever may write there by a pattern is kept out by a grant on the very name first ([`seed`]),
//! the fence goes off only behind locks on all tables, nobody may have written in between, and the tables are renamed at once into a database that
//! nobody has rights on (the *grave*). That takes milliseconds. What costs the server something, the end of the tables, comes afterwards, one at
//! a time, with pauses as long as the server is busy; it may be cut short at any point and goes on with the next call.

use super::{
    Error, channel,
    conn::{ident, literal},
    seed,
    session::Session,
    shard_fence::{self, ASIDE, put_back},
};
use crate::{
    core::{databases::Naming, spans::SpanSet},
    deadline,
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

/// What the names of graves begin with; the database's own name follows.
const GRAVE: &str = "shardwright_dropped_";
/// For how long a table must not have been written to, seconds.
const SETTLED: u32 = 2;
/// The least pause after each table.
const REST: Duration = Duration::from_millis(5);
/// The longest.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// How far a call came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Shards whose databases are not there any more.
    pub dropped: SpanSet,
    /// Whether nothing is left to do, in graves either.
    pub all: bool,
    /// Tables that were ended.
    pub tables: u64,
}

/// Drops the databases of these shards, for at most about `budget`, and what earlier calls left. It may be a passive server: then
/// `super_read_only` is off meanwhile (`read_only` stays on), and on again afterwards.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`] when a channel between pairs is left here, a database is not fenced, or was written to while it was
/// to be dropped: then it is fenced again, with all that is in it.
pub async fn drop(
    s: &mut Session,
    naming: &Naming,
    shards: &SpanSet,
    budget: Duration,
) -> Result<Done, Error> {
    let until = Instant::now() + budget;
    let flags = shard_fence::read(s, naming).await?;
    may_drop(s, naming, &flags, shards).await?;
    // A copy that was cut short, and is READ ONLY by now: what is made here by this name one day begins without a grant of the copy's.
    let names: Vec<String> = shards.shards().map(|n| naming.name(n)).collect();
    seed::lift_here(s, &names).await?;
    let done = slowly(s, naming, &flags.have.intersect(shards), until).await;
    // After an error as well, and with it whatever was locked.
    let unlocked = unlock(s).await;
    put_back(s).await?;
    let mut done = done?;
    unlocked?;
    // What was withheld while it was dropped: it is gone, or fenced again.
    seed::lift_here(s, &names).await?;
    let gone = shards.minus(&flags.have);
    done.dropped = done.dropped.union(&gone);
    Ok(done)
}

async fn may_drop(
    s: &mut Session,
    naming: &Naming,
    flags: &shard_fence::Flags,
    shards: &SpanSet,
) -> Result<(), Error> {
    let open = flags.have.minus(&flags.shut).intersect(shards);
    if !open.is_empty() {
        return Err(Error::NotReached(format!(
            "shards {open} are not fenced here: not dropped"
        )));
    }
    // One of another move brings nothing of these, as long as it has its filter.
    let channels = channel::read(s).await?;
    let brings = |c: &channel::State| c.filter.is_empty() || c.filter.shards(naming).overlaps(shards);
    match channels.iter().find(|c| brings(c)) {
        Some(channel) => Err(Error::NotReached(format!(
            "channel {} is still here: nothing is dropped before it is removed on all servers of both pairs",
            channel.name
        ))),
        None => Ok(()),
    }
}

async fn unlock(s: &mut Session) -> Result<(), Error> {
    if s.is_broken() {
        return Ok(());
    }
    s.run(
        deadline::STEP,
        "UNLOCK TABLES; SET SESSION foreign_key_checks = 1",
    )
    .await
}

async fn slowly(s: &mut Session, naming: &Naming, shards: &SpanSet, until: Instant) -> Result<Done, Error> {
    s.run(
        deadline::CHANGE,
        format!("{ASIDE}; SET SESSION foreign_key_checks = 0, SESSION information_schema_stats_expiry = 0"),
    )
    .await?;
    let mut done = Done::default();
    // What was left, first: so that a database that has come back since finds its grave empty.
    if !end_graves(s, naming, until, &mut done).await? {
        return Ok(done);
    }
    let mut dropped: Vec<i32> = vec![];
    for shard in shards.shards() {
        if Instant::now() >= until {
            break;
        }
        let began = Instant::now();
        bury(s, naming, shard).await?;
        dropped.push(shard);
        rest(s, began.elapsed()).await?;
        end_graves(s, naming, until, &mut done).await?;
    }
    done.dropped = dropped.into_iter().collect();
    done.all = done.dropped == *shards && graves(s, naming).await?.is_empty();
    Ok(done)
}

/// Takes one database out of the reach of everybody, at once.
async fn bury(s: &mut Session, naming: &Naming, shard: i32) -> Result<(), Error> {
    let database = naming.name(shard);
    let (name, grave) = (ident(&database), ident(&format!("{GRAVE}{database}")));
    let before = changed(s, &database).await?;
    if let Some(table) = just_written(s, &database).await? {
        return Err(Error::NotReached(format!(
            "{database}.{table} was written to less than {SETTLED} s ago: not dropped; find out who does, and try again"
        )));
    }
    // A table cannot be taken elsewhere with its triggers.
    let triggers: Vec<String> = s
        .rows(
            deadline::QUERY,
            format!(
                "SELECT CAST(trigger_name AS CHAR) FROM information_schema.triggers WHERE trigger_schema = {}",
                literal(&database)
            ),
        )
        .await?;
    let tables: Vec<String> = before.keys().map(|t| ident(t)).collect();
    seed::withhold_here(s, &database).await?;
    let mut open = format!("CREATE DATABASE IF NOT EXISTS {grave}; ALTER DATABASE {name} READ ONLY = 0");
    // Writing to a String cannot fail.
    for trigger in &triggers {
        let _ = write!(open, "; DROP TRIGGER IF EXISTS {name}.{}", ident(trigger));
    }
    if !tables.is_empty() {
        let locks: Vec<String> = tables.iter().map(|t| format!("{name}.{t} WRITE")).collect();
        let _ = write!(open, "; LOCK TABLES {}", locks.join(", "));
    }
    let locked = s.run(deadline::DDL, open).await;
    let after = match locked {
        Ok(()) => changed(s, &database).await?,
        Err(e) => {
            shut_again(s, naming, shard).await?;
            return Err(e);
        }
    };
    if let Some(table) = written(&before, &after) {
        shut_again(s, naming, shard).await?;
        return Err(Error::NotReached(format!(
            "{database}.{table} was written to while it was to be dropped, by a client with an old map: it is fenced again, with that row; \
             end that client, look whether the row is needed, and try again"
        )));
    }
    let moves: Vec<String> = tables
        .iter()
        .map(|t| format!("{name}.{t} TO {grave}.{t}"))
        .collect();
    let close = if moves.is_empty() {
        format!("DROP DATABASE {name}")
    } else {
        format!(
            "RENAME TABLE {}; UNLOCK TABLES; DROP DATABASE {name}",
            moves.join(", ")
        )
    };
    let closed = s.run(deadline::DDL, close).await;
    if closed.is_err() {
        shut_again(s, naming, shard).await?;
    }
    closed
}

/// What is left of the database is fenced as it was.
async fn shut_again(s: &mut Session, naming: &Naming, shard: i32) -> Result<(), Error> {
    if s.is_broken() {
        // The locks ended with the connection. Fences follow from the record: the next pass takes them first thing.
        return Ok(());
    }
    s.run(
        deadline::DDL,
        format!(
            "UNLOCK TABLES; ALTER DATABASE {} READ ONLY = 1",
            ident(&naming.name(shard))
        ),
    )
    .await
}

/// A table that was written to so lately that another write now would not be told from it: the server counts in seconds.
async fn just_written(s: &mut Session, database: &str) -> Result<Option<String>, Error> {
    let sql = format!(
        "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
         WHERE table_schema = {} AND update_time > NOW() - INTERVAL {SETTLED} SECOND LIMIT 1",
        literal(database)
    );
    let tables: Vec<String> = s.rows(deadline::CHANGE, sql).await?;
    Ok(tables.into_iter().next())
}

/// When each table was last written to; nothing for one that was not since the server started.
async fn changed(s: &mut Session, database: &str) -> Result<BTreeMap<String, Option<String>>, Error> {
    let sql = format!(
        "SELECT CAST(table_name AS CHAR), CAST(update_time AS CHAR) FROM information_schema.tables \
         WHERE table_schema = {} AND table_type = 'BASE TABLE'",
        literal(database)
    );
    let rows: Vec<(String, Option<String>)> = s.rows(deadline::CHANGE, sql).await?;
    Ok(rows.into_iter().collect())
}

/// A table that somebody wrote to, or made, between two looks. A server that forgets when it was has not been written to.
fn written<'a>(
    before: &BTreeMap<String, Option<String>>,
    after: &'a BTreeMap<String, Option<String>>,
) -> Option<&'a String> {
    after
        .iter()
        .find(|(table, time)| match before.get(*table) {
            None => true,
            Some(was) => time.is_some() && was != *time,
        })
        .map(|(table, _)| table)
}

async fn graves(s: &mut Session, naming: &Naming) -> Result<Vec<String>, Error> {
    let sql = format!(
        "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE schema_name LIKE {}",
        literal(&format!("{}{}", GRAVE.replace('_', r"\_"), naming.like_pattern()))
    );
    let names: Vec<String> = s.rows(deadline::QUERY, sql).await?;
    Ok(names
        .into_iter()
        .filter(|n| n.strip_prefix(GRAVE).and_then(|d| naming.parse(d)).is_some())
        .collect())
}

/// Ends what is in graves, table by table. `false` when the time was over before.
async fn end_graves(
    s: &mut Session,
    naming: &Naming,
    until: Instant,
    done: &mut Done,
) -> Result<bool, Error> {
    for grave in graves(s, naming).await? {
        let tables: Vec<String> = changed(s, &grave).await?.into_keys().collect();
        for table in tables {
            if Instant::now() >= until {
                return Ok(false);
            }
            let began = Instant::now();
            let sql = format!("DROP TABLE IF EXISTS {}.{}", ident(&grave), ident(&table));
            s.run(deadline::DDL, sql).await?;
            done.tables += 1;
            rest(s, began.elapsed()).await?;
        }
        s.run(
            deadline::DDL,
            format!("DROP DATABASE IF EXISTS {}", ident(&grave)),
        )
        .await?;
    }
    Ok(true)
}

/// Leaves the server to others, after a step that took so long there.
async fn rest(s: &mut Session, took: Duration) -> Result<(), Error> {
    let running: Vec<u32> = s
        .rows(
            deadline::QUERY,
            "SELECT CAST(variable_value AS UNSIGNED) FROM performance_schema.global_status WHERE variable_name = 'Threads_running'",
        )
        .await?;
    // The one that asks is among them.
    let others = running.first().copied().unwrap_or(1).saturating_sub(1);
    tokio::time::sleep(pause(took, others)).await;
    Ok(())
}

/// Steps that take longer are those of a server that is busy; each statement that runs beside makes it longer still.
fn pause(took: Duration, others: u32) -> Duration {
    (took * others.saturating_add(1)).clamp(REST, LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        all.iter()
            .map(|(t, at)| ((*t).to_owned(), at.map(str::to_owned)))
            .collect()
    }

    #[test]
    fn a_table_that_was_written_to_or_made_is_seen() {
        let before = times(&[("a", None), ("b", Some("1")), ("c", Some("1"))]);
        let same = times(&[("a", None), ("b", Some("1")), ("c", None)]);
        assert_eq!(written(&before, &same), None);
        for other in [("a", Some("2")), ("b", Some("2")), ("d", None)] {
            let mut after = before.clone();
            after.extend(times(&[other]));
            assert_eq!(written(&before, &after).map(String::as_str), Some(other.0));
        }
    }

    #[test]
    fn a_busy_server_is_left_alone_for_longer() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(1), 0), REST);
        assert_eq!(pause(ms(20), 0), ms(20));
        assert_eq!(pause(ms(20), 4), ms(100));
        assert_eq!(pause(ms(900), 50), LONGEST_REST);
    }
}
