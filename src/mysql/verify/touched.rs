//! What transactions since an earlier position have touched, read from a binary log.
//!
//! After a whole comparison at one position, another one some time later need only look at what may have changed: the rows that the source's
//! binary log has a change of since, and those that the target's has, for a change that was made there behind everybody's back. Pin first, then
//! read both logs, so that nothing lies between. What is changed outside of any binary log (`sql_log_bin = 0`, a broken disk) is seen by a whole comparison only.

use crate::{
    core::gtid::GtidSet,
    deadline::{self, within},
    mysql::{
        Access, Error,
        conn::{self},
    },
};
use futures::StreamExt as _;
use mysql_async::{
    BinlogStreamRequest, Sid, Value,
    binlog::{
        events::{EventData, OptionalMetadataField, RowsEventData, TableMapEvent},
        value::BinlogValue,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// What the `server_id` that a connection shows begins at: above those of servers, and a connection's own, for a second reader with the same one
/// ends the first.
const READERS: u32 = 3_000_000_000;
/// The longest silence; the server says every two seconds that it is there.
const SILENCE: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Most rows of a table that are named; beyond, all of it counts.
const NAMED: usize = 20_000;

/// What of a table was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Any row may be.
    All,
    /// Those with these values in these columns, the primary key.
    Keys {
        /// The columns, in the order of the values.
        columns: Vec<String>,
        /// A row each.
        keys: BTreeSet<Vec<i128>>,
    },
}

impl Rows {
    fn and(&mut self, other: Self) {
        match (&mut *self, other) {
            (
                Self::Keys { columns, keys },
                Self::Keys {
                    columns: theirs,
                    keys: more,
                },
            ) if *columns == theirs && keys.len() + more.len() <= NAMED => {
                keys.extend(more);
            }
            _ => *self = Self::All,
        }
    }
}

/// What was touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Up to which position the binary log was read, at least.
    pub until: GtidSet,
    /// Tables of each of the databases that were asked for, with their rows. `None`: a statement (DDL) may have touched anything there.
    pub tables: BTreeMap<String, Option<BTreeMap<String, Rows>>>,
}

impl Touched {
    /// What either says.
    pub fn and(&mut self, other: Self) {
        self.until = self.until.union(&other.until);
        for (database, tables) in other.tables {
            match tables {
                None => self.all(database),
                Some(tables) => {
                    for (table, rows) in tables {
                        self.rows(&database, &table, rows);
                    }
                }
            }
        }
    }

    fn all(&mut self, database: String) {
        self.tables.insert(database, None);
    }

    fn rows(&mut self, database: &str, table: &str, rows: Rows) {
        let place = self
            .tables
            .entry(database.to_owned())
            .or_insert_with(|| Some(BTreeMap::new()));
        if let Some(tables) = place {
            match tables.get_mut(table) {
                Some(there) => there.and(rows),
                None => drop(tables.insert(table.to_owned(), rows)),
            }
        }
    }
}

/// The names of a primary key that is nothing but columns, and their places in the table.
fn key(map: &TableMapEvent<'_>) -> Option<(Vec<String>, Vec<usize>)> {
    let (mut names, mut places) = (vec![], vec![]);
    for field in map.iter_optional_meta() {
        match field.ok()? {
            OptionalMetadataField::ColumnName(all) => {
                for name in all.iter_names() {
                    names.push(name.ok()?.name().into_owned());
                }
            }
            OptionalMetadataField::SimplePrimaryKey(all) => {
                for place in all.iter_indexes() {
                    places.push(usize::try_from(place.ok()?).ok()?);
                }
            }
            _ => {}
        }
    }
    let columns: Option<Vec<String>> = places.iter().map(|p| names.get(*p).cloned()).collect();
    (!places.is_empty()).then_some((columns?, places))
}

/// The keys of the rows of an event, before and after; `None` when they are not all integers.
fn keys(event: &RowsEventData<'_>, map: &TableMapEvent<'_>) -> Option<Rows> {
    let (columns, places) = key(map)?;
    let mut keys = BTreeSet::new();
    for row in event.rows(map) {
        let (before, after) = row.ok()?;
        for row in [before, after].into_iter().flatten() {
            let values: Option<Vec<i128>> = places
                .iter()
                .map(|p| match row.as_ref(*p)? {
                    BinlogValue::Value(Value::Int(n)) => Some(i128::from(*n)),
                    BinlogValue::Value(Value::UInt(n)) => Some(i128::from(*n)),
                    _ => None,
                })
                .collect();
            keys.insert(values?);
        }
    }
    (keys.len() <= NAMED).then_some(Rows::Keys { columns, keys })
}

/// Reads which rows of `databases` transactions that are not in `since` have touched.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`] when the server no longer has all of them, or they are not read within `limit`: compare all then.
pub async fn touched(
    access: &Access,
    databases: &BTreeSet<String>,
    since: &GtidSet,
    limit: Duration,
) -> Result<Touched, Error> {
    let began = Instant::now();
    let mut conn = conn::connect_for_rows(access).await?;
    let sets: Vec<(String, String)> = conn::rows(
        &mut conn,
        deadline::QUERY,
        "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged",
    )
    .await?;
    let (executed, purged) = sets.into_iter().next().unwrap_or_default();
    let set = |text: &str| {
        text.parse::<GtidSet>()
            .map_err(|e| Error::Protocol(format!("GTID set: {e}")))
    };
    let (executed, purged) = (set(&executed)?, set(&purged)?);
    if !purged.is_subset_of(since) {
        return Err(Error::NotReached(format!(
            "{} has purged transactions since then",
            access.tls_name
        )));
    }
    let mut found = Touched {
        until: executed.union(since),
        ..Touched::default()
    };
    if executed.is_subset_of(since) {
        return Ok(found);
    }
    let nanoseconds = HEARTBEAT.as_nanos();
    let sql = format!("SET @source_heartbeat_period = {nanoseconds}, @source_binlog_checksum = 'CRC32'");
    conn::run(&mut conn, deadline::QUERY, sql).await?;
    let blocks = since
        .by_origin()
        .map(|part| part.to_string().parse::<Sid<'static>>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::Protocol(e.to_string()))?;
    let request = BinlogStreamRequest::new(READERS + conn.id() % 1_000_000_000)
        .with_gtid()
        .with_gtid_set(blocks)
        .with_non_blocking();
    let mut stream = within(deadline::QUERY, conn.get_binlog_stream(request)).await??;
    while let Some(event) = within(SILENCE, stream.next()).await? {
        if began.elapsed() > limit {
            return Err(Error::NotReached(format!(
                "the binary log of {} is not read within {limit:?}",
                access.tls_name
            )));
        }
        let event = event.map_err(Error::from)?;
        match event
            .read_data()
            .map_err(|e| Error::Protocol(format!("binary log: {e}")))?
        {
            Some(EventData::RowsEvent(rows)) => {
                let Some(map) = stream.get_tme(rows.table_id()) else {
                    return Err(Error::Protocol(
                        "rows of a table that the binary log does not name".into(),
                    ));
                };
                let (database, table) = (map.database_name(), map.table_name());
                if databases.contains(&*database) {
                    // The driver may fail on a value that it does not know; the table is known all the same.
                    let keys = catch_unwind(AssertUnwindSafe(|| keys(&rows, map)));
                    found.rows(&database, &table, keys.ok().flatten().unwrap_or(Rows::All));
                }
            }
            Some(EventData::QueryEvent(query)) => {
                let text = query.query();
                if !matches!(&*text, "BEGIN" | "COMMIT" | "ROLLBACK") && !text.starts_with("XA ") {
                    statement(&mut found, databases, &query.schema(), &text);
                }
            }
            _ => {}
        }
    }
    let _ = within(deadline::QUERY, stream.close()).await;
    Ok(found)
}

/// A statement may name any database: those that it names, and its default one, count as touched as a whole.
fn statement(found: &mut Touched, databases: &BTreeSet<String>, schema: &str, text: &str) {
    for d in databases
        .iter()
        .filter(|d| *d == schema || text.contains(d.as_str()))
    {
        found.all(d.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_touches_what_it_names() {
        let databases: BTreeSet<String> = ["db1", "db2", "db3"].map(str::to_owned).into();
        let mut t = Touched::default();
        statement(&mut t, &databases, "db1", "ALTER TABLE db2.x ADD y INT");
        assert_eq!(t.tables.keys().collect::<Vec<_>>(), ["db1", "db2"]);
        assert_eq!(t.tables["db1"], None);
        let rows = |n| Rows::Keys {
            columns: vec!["id".into()],
            keys: [vec![n]].into(),
        };
        t.rows("db1", "x", rows(1));
        assert_eq!(t.tables["db1"], None);
        t.rows("db3", "x", rows(1));
        t.rows("db3", "y", rows(1));
        let mut other = Touched::default();
        other.rows("db3", "x", rows(2));
        other.rows("db3", "y", Rows::All);
        t.and(other);
        let db3 = t.tables["db3"].as_ref().unwrap();
        assert_eq!(
            db3["x"],
            Rows::Keys {
                columns: vec!["id".into()],
                keys: [vec![1], vec![2]].into()
            }
        );
        assert_eq!(db3["y"], Rows::All);
    }
}
