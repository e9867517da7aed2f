//! One change of a transaction as SQL. Each is one line but for statements, which are as they were sent.

use std::fmt::Write as _;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A statement that is in the binary log as such: DDL, accounts, the beginning and the end of a transaction.
    Statement {
        /// The default database of who sent it; may be empty.
        database: String,
        /// The statement.
        sql: String,
    },
    /// A row that was inserted.
    Insert {
        /// Where.
        table: Table,
        /// What.
        row: Vec<Cell>,
    },
    /// A row that was changed.
    Update {
        /// Where.
        table: Table,
        /// What it was.
        before: Vec<Cell>,
        /// What it became.
        after: Vec<Cell>,
    },
    /// A row that was deleted.
    Delete {
        /// Where.
        table: Table,
        /// What it was.
        row: Vec<Cell>,
    },
}

/// A table's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its database.
    pub database: String,
    /// Its name there.
    pub name: String,
}

/// A value in its column.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Name of the column; `@0`, `@1`, … where the binary log has no names.
    pub column: String,
    /// Part of the primary key.
    pub key: bool,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A number, as SQL writes it.
    Number(String),
    /// Characters: also dates, times, names of an ENUM.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// A JSON document.
    Json(String),
    /// A point in time: seconds since 1970 with a fraction, as SQL writes it.
    UnixTime(String),
    /// Changes of the JSON document that is there.
    JsonPatch(Vec<JsonChange>),
}

/// A change within a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonChange {
    /// `JSON_REPLACE`, `JSON_INSERT`, `JSON_ARRAY_INSERT` or `JSON_REMOVE`.
    pub function: &'static str,
    /// Where.
    pub path: String,
    /// The new value; none for a removal.
    pub value: Option<String>,
}

/// A name as a MySQL identifier.
pub fn ident(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// What may stand in a comment that ends with its line.
pub fn comment(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Whether a statement is understood in its default database: all but those that frame a transaction, and those on databases
/// (one that is created is not there yet).
pub fn needs_database(sql: &str) -> bool {
    let mut words = sql.split_ascii_whitespace().map(str::to_ascii_uppercase);
    !matches!(
        (words.next().as_deref(), words.next().as_deref()),
        (Some("BEGIN" | "COMMIT" | "ROLLBACK" | "XA" | "SET"), _)
            | (Some("CREATE" | "ALTER" | "DROP"), Some("DATABASE" | "SCHEMA"))
    )
}

/// Writes it, with its line end.
pub fn write(out: &mut String, change: &Change) {
    match change {
        Change::Statement { sql, .. } => statement(out, sql),
        Change::Insert { table, row } => {
            let columns: Vec<_> = row.iter().map(|c| ident(&c.column)).collect();
            let values: Vec<_> = row.iter().map(|c| literal(&c.value, &c.column)).collect();
            let _ = writeln!(
                out,
                "INSERT INTO {} ({}) VALUES ({});",
                name(table),
                columns.join(", "),
                values.join(", ")
            );
        }
        Change::Update { table, before, after } => {
            let same = |c: &Cell| before.iter().any(|b| b.column == c.column && b.value == c.value);
            let set: Vec<_> = after.iter().filter(|c| !same(c)).collect();
            let was: Vec<Cell> = before
                .iter()
                .filter(|b| set.iter().any(|c| c.column == b.column))
                .cloned()
                .collect();
            // A row that is written as it was changes nothing.
            let assignments = if set.is_empty() {
                "/* nothing */".to_owned()
            } else {
                assignments(set.into_iter())
            };
            let _ = writeln!(
                out,
                "UPDATE {} SET {assignments} WHERE {};{}",
                name(table),
                condition(before),
                history(&was)
            );
        }
        Change::Delete { table, row } => {
            let others: Vec<Cell> = if row.iter().any(|c| c.key) {
                row.iter().filter(|c| !c.key).cloned().collect()
            } else {
                vec![]
            };
            let _ = writeln!(
                out,
                "DELETE FROM {} WHERE {};{}",
                name(table),
                condition(row),
                history(&others)
            );
        }
    }
}

/// The bodies of routines and triggers have semicolons, which the `mysql` client would take for the end of the statement.
fn statement(out: &mut String, sql: &str) {
    let sql = sql.trim_end().trim_end_matches(';');
    if !sql.contains(';') {
        let _ = writeln!(out, "{sql};");
        return;
    }
    let mut end = "$$".to_owned();
    while sql.contains(&end) {
        end.push('$');
    }
    let _ = writeln!(out, "DELIMITER {end}\n{sql}\n{end}\nDELIMITER ;");
}

fn name(table: &Table) -> String {
    format!("{}.{}", ident(&table.database), ident(&table.name))
}

fn assignments<'a>(cells: impl Iterator<Item = &'a Cell>) -> String {
    let all: Vec<_> = cells
        .map(|c| format!("{} = {}", ident(&c.column), literal(&c.value, &c.column)))
        .collect();
    all.join(", ")
}

/// What was there before, as a comment to the end of the line: literals have no line ends, and names are rid of them.
fn history(cells: &[Cell]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    format!(" -- was {}", comment(&assignments(cells.iter())))
}

/// Finds the row: by its primary key, else by all that it had.
fn condition(row: &[Cell]) -> String {
    let keyed = row.iter().any(|c| c.key);
    let terms: Vec<_> = row
        .iter()
        .filter(|c| c.key || !keyed)
        .map(|c| {
            let column = ident(&c.column);
            match &c.value {
                Value::Null => format!("{column} IS NULL"),
                Value::Json(text) => format!("{column} = CAST({} AS JSON)", quote(text)),
                value => format!("{column} = {}", literal(value, &c.column)),
            }
        })
        .collect();
    let limit = if keyed { "" } else { " LIMIT 1" };
    format!("{}{limit}", terms.join(" AND "))
}

fn literal(value: &Value, column: &str) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Number(n) => n.clone(),
        Value::Text(text) | Value::Json(text) => quote(text),
        Value::Binary(bytes) => hex(bytes),
        Value::UnixTime(seconds) => format!("FROM_UNIXTIME({seconds})"),
        Value::JsonPatch(changes) => changes.iter().fold(ident(column), |inner, c| {
            let value = c
                .value
                .as_ref()
                .map(|v| format!(", CAST({} AS JSON)", quote(v)))
                .unwrap_or_default();
            format!("{}({inner}, {}{value})", c.function, quote(&c.path))
        }),
    }
}

/// A string on one line.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Bytes as a hexadecimal literal.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2 + 3);
    out.push_str("X'");
    for b in bytes {
        let _ = write!(out, "{b:02X}");
    }
    out.push('\'');
    out
}

/// How the characters of a column are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Characters {
    /// UTF-8, or bytes that may be it.
    Utf8,
    /// A set of which ASCII is a part.
    AsciiAtMost,
    /// Any other.
    Unknown,
}

/// Bytes as a value: characters where they can be shown, else hexadecimal.
pub fn bytes(bytes: &[u8], characters: Characters) -> Value {
    let shown = |c: char| !c.is_control() || "\n\r\t".contains(c);
    let text = std::str::from_utf8(bytes).ok().filter(|t| t.chars().all(shown));
    match (text, characters) {
        (Some(text), Characters::Utf8) => Value::Text(text.to_owned()),
        (Some(text), Characters::AsciiAtMost) if text.is_ascii() => Value::Text(text.to_owned()),
        _ => Value::Binary(bytes.to_vec()),
    }
}
