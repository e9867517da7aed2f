//! What is in a database: its tables with their columns and keys, and what cannot be copied.

use crate::mysql::conn::{self, Error, ident, literal};
use mysql_async::{Conn, Row};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// Most databases that one question names.
const AT_A_TIME: usize = 256;
/// For one question: it may open every table that it names.
const LIMIT: Duration = Duration::from_secs(60);

/// How the values of a column travel as text, and are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As the server prints it: integers, DECIMAL, dates and times. No value of these has a `#`, and none is long.
    Plain,
    /// FLOAT and DOUBLE, which print exactly only as a DOUBLE.
    Float,
    /// Text and bytes of at most 64 KB, in the column's own character set.
    Short,
    /// Text and bytes of any length.
    Long,
    /// JSON, which is utf8mb4 and comes back from its text.
    Json,
    /// BIT.
    Bit,
    /// ENUM; whether `''` is one of its members, as which the value 0 prints, too.
    Enum {
        /// It is.
        has_empty: bool,
    },
    /// SET.
    Set,
}

/// Whether a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As it was written.
    Written,
    /// As it was computed: the server computes it again.
    Computed,
    /// Not at all.
    Virtual,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
    pub(crate) stored: Stored,
    /// Of an integer type.
    pub(crate) integer: bool,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// `SHOW CREATE TABLE`.
    pub(crate) create: String,
    pub(crate) columns: Vec<Column>,
    /// Columns of the primary key, in its order; none without one.
    pub(crate) key: Vec<String>,
    /// Bytes of its rows, as the server estimates.
    pub(crate) bytes: u64,
}

impl Table {
    /// The first column of the primary key, if it is an integer: the table is cut into parts by it.
    pub(crate) fn cut_by(&self) -> Option<&str> {
        let first = self.key.first()?;
        self.columns
            .iter()
            .any(|c| c.name == *first && c.integer)
            .then_some(first.as_str())
    }
}

/// One database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) name: String,
    /// `SHOW CREATE DATABASE`.
    pub(crate) create: String,
    pub(crate) tables: Vec<Table>,
    /// What is in it and cannot be copied, by name.
    pub(crate) refused: Vec<String>,
}

/// Reads what is in `databases`; one that is not there is not in the answer. The connection speaks utf8mb4.
pub(crate) async fn read(conn: &mut Conn, databases: &[String]) -> Result<Vec<Database>, Error> {
    let mut all = vec![];
    for names in databases.chunks(AT_A_TIME) {
        all.extend(read_some(conn, names).await?);
    }
    Ok(all)
}

async fn read_some(conn: &mut Conn, names: &[String]) -> Result<Vec<Database>, Error> {
    let list = names.iter().map(|n| literal(n)).collect::<Vec<_>>().join(", ");
    let sets = conn::sets(conn, LIMIT, questions(&list)).await?;
    let mut sets = sets.into_iter();
    let mut next = || {
        sets.next()
            .ok_or_else(|| Error::Protocol("a set of rows is missing".into()))
    };
    let mut found: BTreeMap<String, Database> = BTreeMap::new();
    for row in next()? {
        let (name,): (String,) = from(row)?;
        let empty = Database {
            name: name.clone(),
            create: String::new(),
            tables: vec![],
            refused: vec![],
        };
        found.insert(name, empty);
    }
    for row in next()? {
        let (database, table, kind, engine, bytes): (String, String, String, Option<String>, u64) =
            from(row)?;
        let Some(d) = found.get_mut(&database) else {
            continue;
        };
        if kind != "BASE TABLE" {
            d.refused.push(format!("view {database}.{table}"));
        } else if engine.as_deref() != Some("InnoDB") {
            let engine = engine.unwrap_or_default();
            d.refused.push(format!(
                "table {database}.{table} of engine {engine}, which has no snapshots"
            ));
        } else {
            let (columns, key) = (vec![], vec![]);
            d.tables.push(Table {
                name: table,
                create: String::new(),
                columns,
                key,
                bytes,
            });
        }
    }
    let mut places: BTreeMap<(String, String), (String, usize)> = BTreeMap::new();
    for d in found.values() {
        for (i, t) in d.tables.iter().enumerate() {
            places.insert((d.name.clone(), t.name.clone()), (d.name.clone(), i));
        }
    }
    let place =
        |found: &mut BTreeMap<String, Database>, at: (String, String), f: &mut dyn FnMut(&mut Table)| {
            if let Some((d, i)) = places.get(&at)
                && let Some(t) = found.get_mut(d).and_then(|d| d.tables.get_mut(*i))
            {
                f(t);
            }
        };
    for row in next()? {
        type C = (String, String, String, String, String, String, String);
        let (database, table, name, data_type, column_type, nullable, extra): C = from(row)?;
        let column = column(name, &data_type, &column_type, &nullable, &extra);
        place(&mut found, (database, table), &mut |t| {
            t.columns.push(column.clone());
        });
    }
    for row in next()? {
        let (database, table, column): (String, String, String) = from(row)?;
        place(&mut found, (database, table), &mut |t| t.key.push(column.clone()));
    }
    for row in next()? {
        let (database, what): (String, String) = from(row)?;
        if let Some(d) = found.get_mut(&database) {
            d.refused.push(what);
        }
    }
    let mut all: Vec<Database> = found.into_values().collect();
    for d in &mut all {
        definitions(conn, d).await?;
    }
    Ok(all)
}

fn questions(list: &str) -> String {
    format!(
        "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata WHERE schema_name IN ({list}); \
         SELECT CAST(table_schema AS CHAR), CAST(table_name AS CHAR), CAST(table_type AS CHAR), CAST(engine AS CHAR), COALESCE(data_length, 0) \
           FROM information_schema.tables WHERE table_schema IN ({list}) ORDER BY 1, 2; \
         SELECT CAST(table_schema AS CHAR), CAST(table_name AS CHAR), CAST(column_name AS CHAR), CAST(data_type AS CHAR), \
           CAST(column_type AS CHAR), CAST(is_nullable AS CHAR), CAST(extra AS CHAR) \
           FROM information_schema.columns WHERE table_schema IN ({list}) ORDER BY table_schema, table_name, ordinal_position; \
         SELECT CAST(table_schema AS CHAR), CAST(table_name AS CHAR), CAST(column_name AS CHAR) FROM information_schema.statistics \
           WHERE table_schema IN ({list}) AND index_name = 'PRIMARY' ORDER BY table_schema, table_name, seq_in_index; \
         SELECT CAST(trigger_schema AS CHAR), CAST(CONCAT('trigger ', trigger_schema, '.', trigger_name) AS CHAR) \
           FROM information_schema.triggers WHERE trigger_schema IN ({list}) \
         UNION ALL SELECT CAST(event_schema AS CHAR), CAST(CONCAT('event ', event_schema, '.', event_name) AS CHAR) \
           FROM information_schema.events WHERE event_schema IN ({list}) \
         UNION ALL SELECT CAST(routine_schema AS CHAR), CAST(CONCAT('routine ', routine_schema, '.', routine_name) AS CHAR) \
           FROM information_schema.routines WHERE routine_schema IN ({list}) \
         UNION ALL SELECT CAST(constraint_schema AS CHAR), CAST(CONCAT('foreign key ', constraint_schema, '.', constraint_name, \
           ', which leads to another database') AS CHAR) \
           FROM information_schema.referential_constraints WHERE constraint_schema IN ({list}) AND unique_constraint_schema <> constraint_schema"
    )
}

/// `SHOW CREATE` of the database and of its tables.
async fn definitions(conn: &mut Conn, d: &mut Database) -> Result<(), Error> {
    let mut sql = format!("SHOW CREATE DATABASE {}", ident(&d.name));
    for t in &d.tables {
        // Writing to a String cannot fail.
        let _ = write!(sql, "; SHOW CREATE TABLE {}.{}", ident(&d.name), ident(&t.name));
    }
    let sets = conn::sets(conn, LIMIT, sql).await?;
    let mut texts = sets.into_iter().map(|set| {
        let text = set
            .first()
            .and_then(|row| row.get_opt::<String, _>(1))
            .and_then(Result::ok);
        text.ok_or_else(|| Error::Protocol(format!("SHOW CREATE of {} shows nothing", d.name)))
    });
    let mut next = || {
        texts
            .next()
            .unwrap_or_else(|| Err(Error::Protocol("a set of rows is missing".into())))
    };
    let create = next()?;
    for t in &mut d.tables {
        t.create = next()?;
    }
    d.create = create;
    Ok(())
}

fn from<T: mysql_async::prelude::FromRow>(row: Row) -> Result<T, Error> {
    T::from_row_opt(row).map_err(|e| Error::Protocol(format!("a row is not as it was asked for: {e}")))
}

fn column(name: String, data_type: &str, column_type: &str, nullable: &str, extra: &str) -> Column {
    let data_type = data_type.to_ascii_lowercase();
    let kind = match data_type.as_str() {
        "float" | "double" => Kind::Float,
        "char" | "varchar" | "binary" | "varbinary" | "tinytext" | "tinyblob" => Kind::Short,
        "json" => Kind::Json,
        "bit" => Kind::Bit,
        "enum" => Kind::Enum {
            has_empty: has_empty_member(column_type),
        },
        "set" => Kind::Set,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "date" | "time"
        | "datetime" | "timestamp" | "year" => Kind::Plain,
        // TEXT, BLOB, everything spatial, VECTOR, and what there will be: bytes.
        _ => Kind::Long,
    };
    let integer = matches!(
        data_type.as_str(),
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint"
    );
    // DEFAULT_GENERATED is no generated column.
    let stored = if extra.contains("VIRTUAL GENERATED") {
        Stored::Virtual
    } else if extra.contains("STORED GENERATED") {
        Stored::Computed
    } else {
        Stored::Written
    };
    Column {
        name,
        kind,
        nullable: nullable != "NO",
        stored,
        integer,
    }
}

/// Whether `''` is a member of `enum('a','','b''c')`.
fn has_empty_member(column_type: &str) -> bool {
    let mut rest = column_type.split_once('(').map_or("", |(_, r)| r);
    while let Some(begun) = rest.strip_prefix('\'') {
        let mut at = 0;
        let bytes = begun.as_bytes();
        loop {
            match (bytes.get(at), bytes.get(at + 1)) {
                (Some(b'\''), Some(b'\'')) => at += 2,
                (Some(b'\'') | None, _) => break,
                _ => at += 1,
            }
        }
        if at == 0 {
            return true;
        }
        rest = begun.get(at + 1..).unwrap_or("").trim_start_matches(',');
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_member_is_told_from_quotes_within() {
        assert!(!has_empty_member("enum('a','b''c','''')"));
        assert!(has_empty_member("enum('a','','b')"));
        assert!(has_empty_member("enum('')"));
        assert!(has_empty_member("enum('''','')"));
        assert!(!has_empty_member("int"));
    }

    #[test]
    fn a_default_that_is_computed_makes_no_generated_column() {
        let c = |t: &str, extra: &str| column("c".into(), t, t, "YES", extra);
        assert_eq!(c("timestamp", "DEFAULT_GENERATED").stored, Stored::Written);
        assert_eq!(c("int", "STORED GENERATED INVISIBLE").stored, Stored::Computed);
        assert_eq!(c("int", "VIRTUAL GENERATED").stored, Stored::Virtual);
        assert!(c("bigint", "").integer && !c("decimal", "").integer);
        assert_eq!(c("geometry", "").kind, Kind::Long);
        assert_eq!(c("vector", "").kind, Kind::Long);
    }
}
