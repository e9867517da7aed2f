//! Databases and tables of shards: what a server has, and how they are made, one round trip a database.

use super::conn::{Error, ident, literal, rows, run};
use crate::{
    core::{
        databases::Naming,
        spans::SpanSet,
        tables::{Object, Statement},
    },
    deadline,
};
use mysql_async::Conn;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// What one database has: `(table, None)` for each table, `(table, Some(index))` for each index that was asked for.
pub type Tables = BTreeSet<(String, Option<String>)>;

/// Most shards that one look asks for, so that an answer stays small.
const LOOK: usize = 4096;
/// Server error: the key exists already. What `IF NOT EXISTS` is to a table.
const DUPLICATE_KEY: u16 = 1061;
/// What scratch databases begin with.
const SCRATCH: &str = "shardwright_ddl_check_";

/// Why a server is not the one to work on.
#[derive(Debug, thiserror::Error)]
pub enum NotActive {
    /// It did not answer as it should.
    #[error(transparent)]
    Mysql(#[from] Error),
    /// It is closed for writes.
    #[error("the server is read-only")]
    ReadOnly,
    /// It has another data folder than the recorded one.
    #[error("the server has another server_uuid than the recorded active one")]
    OtherServer,
}

/// Makes certain, on the connection that is going to be used, that it leads to the recorded active server and that this one is open.
///
/// # Errors
/// [`NotActive`].
pub async fn active(conn: &mut Conn, uuid: &str) -> Result<(), NotActive> {
    let answer: Vec<(String, i64)> = rows(
        conn,
        deadline::QUERY,
        "SELECT @@GLOBAL.server_uuid, @@GLOBAL.read_only",
    )
    .await?;
    match answer.first() {
        Some((is, _)) if is != uuid => Err(NotActive::OtherServer),
        Some((_, 0)) => Ok(()),
        Some(_) => Err(NotActive::ReadOnly),
        None => Err(Error::Protocol("no answer to a SELECT of variables".into()).into()),
    }
}

/// What the server has of `shards`: an entry for each that has a database. Indexes are asked for only `with_indexes`.
///
/// # Errors
/// As [`Error`].
pub async fn look(
    conn: &mut Conn,
    naming: &Naming,
    shards: &SpanSet,
    with_indexes: bool,
) -> Result<BTreeMap<i32, Tables>, Error> {
    let mut have: BTreeMap<i32, Tables> = BTreeMap::new();
    for span in parts(shards) {
        // Names of one length: their order is that of the numbers.
        let between = |column: &str| {
            format!(
                "{column} BETWEEN {} AND {} AND {column} LIKE {}",
                literal(&naming.name(span.first)),
                literal(&naming.name(span.last)),
                literal(&naming.like_pattern())
            )
        };
        let databases: Vec<String> = rows(
            conn,
            deadline::CHANGE,
            format!(
                "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE {}",
                between("schema_name")
            ),
        )
        .await?;
        for shard in databases.iter().filter_map(|d| naming.parse(d)) {
            have.entry(shard).or_default();
        }
        if databases.is_empty() {
            continue;
        }
        let tables: Vec<(String, String)> = rows(
            conn,
            deadline::CHANGE,
            format!(
                "SELECT CAST(table_schema AS CHAR), CAST(table_name AS CHAR) FROM information_schema.tables WHERE {}",
                between("table_schema")
            ),
        )
        .await?;
        for (database, table) in tables {
            if let Some(tables) = naming.parse(&database).and_then(|s| have.get_mut(&s)) {
                tables.insert((table, None));
            }
        }
        if with_indexes {
            let indexes: Vec<(String, String, String)> = rows(
                conn,
                deadline::CHANGE,
                format!(
                    "SELECT DISTINCT CAST(table_schema AS CHAR), CAST(table_name AS CHAR), CAST(index_name AS CHAR) FROM information_schema.statistics WHERE {}",
                    between("table_schema")
                ),
            )
            .await?;
            for (database, table, index) in indexes {
                if let Some(tables) = naming.parse(&database).and_then(|s| have.get_mut(&s)) {
                    tables.insert((table, Some(index)));
                }
            }
        }
    }
    have.retain(|shard, _| shards.contains(*shard));
    Ok(have)
}

fn parts(shards: &SpanSet) -> Vec<crate::api::ShardSpan> {
    let step = i32::try_from(LOOK).unwrap_or(i32::MAX);
    // Shards that are scattered widely are asked for in one go all the same: what lies between them is thrown away.
    let mut parts: Vec<crate::api::ShardSpan> = vec![];
    for span in shards.spans() {
        let mut first = span.first;
        while first <= span.last {
            let last = span.last.min(first.saturating_add(step - 1));
            match parts.last_mut() {
                Some(p) if last - p.first < step => p.last = last,
                _ => parts.push(crate::api::ShardSpan::new(first, last)),
            }
            first = last.saturating_add(1);
        }
    }
    parts
}

/// The statements that give `database` what `missing` asks for, as one string: one round trip. The database itself is created only when
/// `create` says so.
pub fn script(database: &str, create: bool, missing: &[&Statement]) -> String {
    let name = ident(database);
    let mut sql = String::with_capacity(64 + missing.iter().map(|s| s.sql.len() + 2).sum::<usize>());
    // Writing to a String cannot fail.
    if create {
        let _ = write!(sql, "CREATE DATABASE IF NOT EXISTS {name};");
    }
    let _ = write!(sql, "USE {name}");
    for s in missing {
        let _ = write!(sql, ";{}", s.sql);
    }
    sql
}

/// Gives `database` what it lacks. Repeating it is harmless.
///
/// # Errors
/// As [`Error`]; after a timeout the connection must not be used again.
pub async fn create(
    conn: &mut Conn,
    database: &str,
    create: bool,
    missing: &[&Statement],
) -> Result<(), Error> {
    match run(conn, deadline::DDL, script(database, create, missing)).await {
        // An index was made since the look: the statements go on one by one behind it.
        Err(e) if e.code() == Some(DUPLICATE_KEY) => {
            for s in missing {
                match run(conn, deadline::DDL, script(database, false, &[s])).await {
                    Err(e) if e.code() == Some(DUPLICATE_KEY) && matches!(s.object, Object::Index { .. }) => {
                    }
                    done => done?,
                }
            }
            Ok(())
        }
        done => done,
    }
}

/// A statement that the server refused in the scratch database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it was asked for.
    pub place: String,
    /// What it creates.
    pub object: String,
    /// Error number.
    pub code: u16,
    /// The server's message.
    pub message: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: MySQL refuses {}: {} ({})",
            self.place, self.object, self.message, self.code
        )
    }
}

/// Errors that say something of the server's state and nothing of the statement.
const NOT_THE_STATEMENT: [u16; 19] = [
    1021, 1023, 1030, 1037, 1038, 1040, 1041, 1044, 1045, 1053, 1114, 1142, 1205, 1213, 1227, 1290, 1317,
    1836, 3032,
];

/// Tries the statements in a scratch database, outside the binary log, and drops it again. One at a time: two operators at a change of
/// leader would drop each other's.
///
/// # Errors
/// As [`Error`], when nothing can be said of the statements.
pub async fn dry_run(
    conn: &mut Conn,
    hash: &str,
    statements: &[Statement],
) -> Result<Option<Refused>, Error> {
    let scratch = format!("{SCRATCH}{}", hash.get(..16).unwrap_or(hash));
    run(conn, deadline::CHANGE, "SET SESSION sql_log_bin = 0").await?;
    // It is given back when the connection ends.
    let locked: Vec<Option<i64>> = rows(
        conn,
        deadline::CHANGE,
        "SELECT GET_LOCK('shardwright_ddl_check', 5)",
    )
    .await?;
    if locked.first() != Some(&Some(1)) {
        return Err(Error::Protocol(
            "somebody else is trying tables on this server".into(),
        ));
    }
    // What an operator left that died here.
    let left: Vec<String> = rows(
        conn,
        deadline::QUERY,
        format!(
            "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE schema_name LIKE {}",
            literal(&format!("{}%", SCRATCH.replace('_', r"\_")))
        ),
    )
    .await?;
    for database in left {
        run(
            conn,
            deadline::DDL,
            format!("DROP DATABASE IF EXISTS {}", ident(&database)),
        )
        .await?;
    }
    let name = ident(&scratch);
    run(conn, deadline::DDL, format!("CREATE DATABASE {name}; USE {name}")).await?;
    let mut refused = None;
    for s in statements {
        match run(conn, deadline::DDL, &s.sql).await {
            Ok(()) => {}
            Err(e) => match server_message(&e) {
                Some((code, message)) if !NOT_THE_STATEMENT.contains(&code) => {
                    refused = Some(Refused {
                        place: s.place.to_string(),
                        object: s.object.to_string(),
                        code,
                        message,
                    });
                    break;
                }
                _ => return Err(e),
            },
        }
    }
    run(conn, deadline::DDL, format!("DROP DATABASE IF EXISTS {name}")).await?;
    Ok(refused)
}

/// What the server said, without the driver's frame.
fn server_message(e: &Error) -> Option<(u16, String)> {
    match e {
        Error::Mysql(e) => match &**e {
            mysql_async::Error::Server(s) => Some((s.code, s.message.clone())),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{ShardSpan, shard_cluster::Tables as TablesSpec},
        core::tables,
    };

    fn set() -> tables::TableSet {
        let spec: TablesSpec = serde_json::from_value(serde_json::json!({
            "objects": [{"name": "pins", "typeId": 1}], "mappings": [{"name": "board_has_pins"}]
        }))
        .unwrap();
        tables::build(Some(&spec), None).unwrap()
    }

    #[test]
    fn a_database_is_one_string() {
        let set = set();
        let all: Vec<_> = set.statements().iter().collect();
        let sql = script("db00007", true, &all);
        assert!(
            sql.starts_with(
                "CREATE DATABASE IF NOT EXISTS `db00007`;USE `db00007`;CREATE TABLE IF NOT EXISTS `pins` ("
            ),
            "{sql}"
        );
        assert_eq!(sql.matches("CREATE TABLE").count(), 2);
        assert_eq!(script("db00007", false, &[]), "USE `db00007`");
    }

    #[test]
    fn a_look_asks_for_few_shards_at_a_time_and_for_neighbours_at_once() {
        let set: SpanSet = [ShardSpan::new(0, 10_000), ShardSpan::new(20_000, 20_000)]
            .into_iter()
            .collect();
        let spans: Vec<_> = parts(&set).iter().map(|s| (s.first, s.last)).collect();
        assert_eq!(spans, [(0, 4095), (4096, 8191), (8192, 10_000), (20_000, 20_000)]);
        let odd: SpanSet = (0..100).map(|n| n * 2).collect();
        assert_eq!(parts(&odd), [ShardSpan::new(0, 198)]);
    }
}
