//! From events of a binary log to changes that can be written down.
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html>

use super::values;
use crate::core::{
    errant::{
        Script,
        sql::{self, Cell, Change, Table},
    },
    gtid::{Gtid, Origin},
};
use k8s_openapi::jiff::Timestamp;
use mysql_async::{
    binlog::{
        EventType, IntvarEventType,
        events::{
            Event, EventData, GtidEvent, OptionalMetadataField, QueryEvent, RowsEventData, TableMapEvent,
        },
        row::BinlogRow,
    },
    consts::ColumnType,
};
use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};
use uuid::Uuid;

/// What row events say of a table beside its rows.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Names of the columns; none where the server does not write them (`binlog_row_metadata = MINIMAL`).
    names: Vec<String>,
    /// Places of the columns of the primary key.
    key: Vec<u64>,
    /// What each ENUM column may be, in the order of those columns.
    pub(super) enums: Vec<Vec<String>>,
    /// What each SET column may have, in the order of those columns.
    pub(super) sets: Vec<Vec<String>>,
}

impl Layout {
    fn of(map: &TableMapEvent<'_>) -> std::io::Result<Self> {
        let mut layout = Self::default();
        for field in map.iter_optional_meta() {
            match field? {
                OptionalMetadataField::ColumnName(names) => {
                    for name in names.iter_names() {
                        layout.names.push(name?.name().into_owned());
                    }
                }
                OptionalMetadataField::SimplePrimaryKey(key) => {
                    for place in key.iter_indexes() {
                        layout.key.push(place?);
                    }
                }
                OptionalMetadataField::PrimaryKeyWithPrefix(key) => {
                    for part in key.iter_keys() {
                        layout.key.push(part?.column_index());
                    }
                }
                OptionalMetadataField::EnumStrValue(all) => {
                    for one in all.iter_values() {
                        layout
                            .enums
                            .push(one?.values().iter().map(|v| v.value().into_owned()).collect());
                    }
                }
                OptionalMetadataField::SetStrValue(all) => {
                    for one in all.iter_values() {
                        layout
                            .sets
                            .push(one?.values().iter().map(|v| v.value().into_owned()).collect());
                    }
                }
                _ => {}
            }
        }
        Ok(layout)
    }

    /// A column that the driver misreads: it takes a negative TIME(1) or TIME(2) for another one (mysql_common 0.37).
    fn misread(&self, map: &TableMapEvent<'_>) -> Option<String> {
        let count = usize::try_from(map.columns_count()).ok()?;
        let place = (0..count).find(|&i| {
            matches!(map.get_column_type(i), Ok(Some(ColumnType::MYSQL_TYPE_TIME2)))
                && matches!(map.get_column_metadata(i), Some([1 | 2, ..]))
        })?;
        Some(
            self.names
                .get(place)
                .cloned()
                .unwrap_or_else(|| format!("@{place}")),
        )
    }

    /// Place of a column in the table. One without a name is called `@<place>`.
    fn place(&self, name: &str) -> Option<u64> {
        let place = match name.strip_prefix('@').and_then(|n| n.parse().ok()) {
            Some(place) if self.names.is_empty() => Some(place),
            _ => self.names.iter().position(|n| n == name),
        };
        place.and_then(|p| u64::try_from(p).ok())
    }
}

/// Puts one event into the script. `table` knows the tables that the events before have named.
pub(super) fn event<'t>(
    script: &mut Script,
    event: &Event,
    table: impl FnOnce(u64) -> Option<&'t TableMapEvent<'static>>,
) {
    if event.header().event_type() == Ok(EventType::XA_PREPARE_LOG_EVENT) {
        match prepared(event.data()) {
            Some(sql) => statement(script, "", &sql),
            None => script.broken("the end of an XA transaction"),
        }
        script.end();
        return;
    }
    let data = match event.read_data() {
        Ok(Some(data)) => data,
        // Kinds that are not known may be ignored when the server marks them so; those with changes are all known.
        Ok(None) => return,
        Err(e) => return script.broken(e.to_string()),
    };
    match data {
        EventData::GtidEvent(e) => match gtid(&e) {
            Some(gtid) => script.begin(gtid, committed(&e)),
            None => script.end(),
        },
        EventData::QueryEvent(e) => query(script, &e),
        EventData::XidEvent(_) => {
            statement(script, "", "COMMIT");
            script.end();
        }
        EventData::RowsEvent(e) => match table(e.table_id()) {
            Some(map) => {
                // A fault of the driver must not keep the server from being rebuilt: what it takes badly is named.
                let done = catch_unwind(AssertUnwindSafe(|| rows(script, &e, map)));
                if let Err(why) = done.unwrap_or_else(|_| Err("the driver fails on it".into())) {
                    script.broken(format!("a row of {}: {why}", map.table_name()));
                }
            }
            None => script.broken("rows of a table that the binary log does not name"),
        },
        EventData::IntvarEvent(e) => {
            let name = match e.subtype() {
                IntvarEventType::LAST_INSERT_ID_EVENT => "LAST_INSERT_ID",
                IntvarEventType::INSERT_ID_EVENT => "INSERT_ID",
                IntvarEventType::INVALID_INT_EVENT => return script.broken("an event without a meaning"),
            };
            statement(script, "", &format!("SET {name} = {}", e.value()));
        }
        EventData::RandEvent(e) => {
            let sql = format!("SET RAND_SEED1 = {}, RAND_SEED2 = {}", *e.seed1, *e.seed2);
            statement(script, "", &sql);
        }
        EventData::UserVarEvent(_) => script.broken("a statement that depends on a variable of its session"),
        EventData::BeginLoadQueryEvent(_) | EventData::ExecuteLoadQueryEvent(_) => {
            script.broken("LOAD DATA that was logged as a statement");
        }
        EventData::IncidentEvent(_) => script.broken("the server noted that its binary log lacks something"),
        _ => {}
    }
}

fn query(script: &mut Script, e: &QueryEvent<'_>) {
    let sql = e.query();
    if matches!(sql, Cow::Owned(_)) {
        script.broken("a statement that is not UTF-8");
    }
    // CREATE TABLE … SELECT: the rows follow, and only a replica's applier takes the statement as it is logged.
    let sql = sql.strip_suffix(" START TRANSACTION").unwrap_or(&sql);
    statement(script, &e.schema(), sql);
}

/// How the first phase of an XA transaction ended: one byte that says whether there is no second one, four each of format and the
/// lengths of both parts of its name, the parts.
fn prepared(data: &[u8]) -> Option<String> {
    let (&one_phase, rest) = data.split_first()?;
    let number = |at: usize| {
        rest.get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map(i32::from_le_bytes)
    };
    let length = |at: usize| usize::try_from(number(at)?).ok();
    let (format, global, branch) = (number(0)?, length(4)?, length(8)?);
    let names = rest.get(12..)?;
    let name = format!(
        "{},{},{format}",
        sql::hex(names.get(..global)?),
        sql::hex(names.get(global..global.checked_add(branch)?)?)
    );
    Some(if one_phase == 0 {
        format!("XA PREPARE {name}")
    } else {
        format!("XA COMMIT {name} ONE PHASE")
    })
}

fn statement(script: &mut Script, database: &str, sql: &str) {
    script.change(&Change::Statement {
        database: database.to_owned(),
        sql: sql.to_owned(),
    });
}

fn gtid(e: &GtidEvent) -> Option<Gtid> {
    let number = i64::try_from(e.gno()).ok().filter(|n| *n > 0)?;
    let origin = Origin {
        server: Uuid::from_bytes(e.sid()),
        tag: e.tag().map(|t| t.as_str().to_owned()).unwrap_or_default(),
    };
    Some(Gtid { origin, number })
}

/// When it was committed by the server that did so first.
fn committed(e: &GtidEvent) -> Option<Timestamp> {
    let micros = i64::try_from(e.original_commit_timestamp()).ok()?;
    (micros > 0)
        .then(|| Timestamp::from_microsecond(micros).ok())
        .flatten()
}

fn rows(script: &mut Script, event: &RowsEventData<'_>, map: &TableMapEvent<'_>) -> Result<(), String> {
    let layout = Layout::of(map).map_err(|e| e.to_string())?;
    let table = Table {
        database: map.database_name().into_owned(),
        name: map.table_name().into_owned(),
    };
    if let Some(name) = layout.misread(map) {
        return Err(format!(
            "{name}: a TIME with one or two decimals is not understood"
        ));
    }
    for row in event.rows(map) {
        let (before, after) = row.map_err(|e| e.to_string())?;
        let before = before.map(|r| cells(r, &layout)).transpose()?;
        let after = after.map(|r| cells(r, &layout)).transpose()?;
        let table = table.clone();
        script.change(&match (before, after) {
            (Some(before), Some(after)) => Change::Update { table, before, after },
            (None, Some(row)) => Change::Insert { table, row },
            (Some(row), None) => Change::Delete { table, row },
            (None, None) => continue,
        });
    }
    Ok(())
}

fn cells(row: BinlogRow, layout: &Layout) -> Result<Vec<Cell>, String> {
    let columns = row.columns();
    let mut known = values::Named::new(layout);
    columns
        .iter()
        .zip(row.unwrap())
        .map(|(column, value)| {
            let name = column.name_str().into_owned();
            let key = layout.place(&name).is_some_and(|p| layout.key.contains(&p));
            let value = values::value(column, value, &mut known).map_err(|e| format!("{name}: {e}"))?;
            Ok(Cell {
                column: name,
                key,
                value,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mysql_common::binlog::{BinlogFile, consts::BinlogVersion};

    /// A binary log of MySQL 9.7 with a column of each type, the kinds of changes, and transactions of each form.
    const CHANGES: &[u8] = include_bytes!("testdata/changes.binlog");

    #[test]
    fn a_binary_log_of_a_real_server() {
        let mut file = BinlogFile::new(BinlogVersion::Version4, CHANGES).unwrap();
        let mut script = Script::new(crate::core::errant::LIMIT, true);
        while let Some(next) = file.next() {
            let next = next.unwrap();
            event(&mut script, &next, |id| file.reader().get_tme(id));
        }
        script.end();
        let saved = script.finish();
        insta::assert_snapshot!(saved.text);
        // The one with TIME(2).
        assert_eq!(saved.by_name.count(), 1);
        assert_eq!(
            saved.why,
            ["a row of t2: t: a TIME with one or two decimals is not understood"]
        );
        assert_eq!(saved.complete.count(), 18);
    }

    #[test]
    fn the_end_of_an_xa_transaction() {
        let mut data = vec![0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0];
        data.extend(b"x1b");
        assert_eq!(prepared(&data).as_deref(), Some("XA PREPARE X'7831',X'62',1"));
        if let Some(first) = data.first_mut() {
            *first = 1;
        }
        assert_eq!(
            prepared(&data).as_deref(),
            Some("XA COMMIT X'7831',X'62',1 ONE PHASE")
        );
        data.pop();
        assert_eq!(prepared(&data), None);
    }
}
