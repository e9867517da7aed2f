//! Rows on their way: read as text, each column in its own character set, and written as lines for `LOAD DATA`.
//!
//! Why that is exact: the connection's character set is `binary` on both ends, so that no text is converted; FLOAT and DOUBLE are read as
//! a DOUBLE, which prints the shortest decimal that is read back as the same bits; JSON is its own text, and values that their text does not
//! bring back are found and refused; everything else prints as what it is. Generated columns are computed again.

use super::layout::{Column, Kind, Stored, Table};
use crate::mysql::conn::ident;
use mysql_async::{Row, Value};

/// A part of a table: the rows whose first key column is between two numbers, both included; open where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: Option<i128>,
    pub(crate) to: Option<i128>,
}

impl Range {
    /// ` WHERE …`, or nothing.
    pub(crate) fn filter(self, column: Option<&str>) -> String {
        let Some(column) = column.map(ident) else {
            return String::new();
        };
        match (self.from, self.to) {
            (None, None) => String::new(),
            (Some(a), None) => format!(" WHERE {column} >= {a}"),
            (None, Some(b)) => format!(" WHERE {column} <= {b}"),
            (Some(a), Some(b)) => format!(" WHERE {column} BETWEEN {a} AND {b}"),
        }
    }

    /// `parts` ranges that cover everything: all but the outermost ends lie evenly between `min` and `max`.
    pub(crate) fn cut(min: i128, max: i128, parts: u64) -> Vec<Self> {
        let (parts, width) = (i128::from(parts.max(1)), max - min);
        let mut cuts: Vec<i128> = (1..parts).map(|i| min + width * i / parts).collect();
        cuts.dedup();
        let mut ranges = vec![];
        let mut from = None;
        for cut in cuts {
            ranges.push(Self { from, to: Some(cut) });
            from = Some(cut + 1);
        }
        ranges.push(Self { from, to: None });
        ranges
    }
}

/// Columns that are copied.
fn copied(table: &Table) -> impl Iterator<Item = &Column> {
    table.columns.iter().filter(|c| c.stored == Stored::Written)
}

/// Reads the rows of a part, in the order of the primary key.
pub(crate) fn select(database: &str, table: &Table, range: Range) -> String {
    let columns: Vec<String> = copied(table)
        .map(|c| match c.kind {
            Kind::Float => format!("CAST({} AS DOUBLE)", ident(&c.name)),
            _ => ident(&c.name),
        })
        .collect();
    let columns = if columns.is_empty() {
        "1".to_owned()
    } else {
        columns.join(", ")
    };
    let name = format!("{}.{}", ident(database), ident(&table.name));
    if table.key.is_empty() {
        return format!("SELECT {columns} FROM {name}");
    }
    let key: Vec<String> = table.key.iter().map(|k| ident(k)).collect();
    format!(
        "SELECT {columns} FROM {name} FORCE INDEX (PRIMARY){} ORDER BY {}",
        range.filter(table.cut_by()),
        key.join(", ")
    )
}

/// Takes lines in. JSON is not made from bytes, so it goes through a variable.
pub(crate) fn load(file: &str, database: &str, table: &Table) -> String {
    let (mut fields, mut sets) = (vec![], vec![]);
    for (i, c) in copied(table).enumerate() {
        if c.kind == Kind::Json {
            fields.push(format!("@v{i}"));
            sets.push(format!("{} = CONVERT(@v{i} USING utf8mb4)", ident(&c.name)));
        } else {
            fields.push(ident(&c.name));
        }
    }
    let sets = if sets.is_empty() {
        String::new()
    } else {
        format!(" SET {}", sets.join(", "))
    };
    // A table of nothing but computed columns has lines without a field.
    let fields = if fields.is_empty() {
        "@none".to_owned()
    } else {
        fields.join(", ")
    };
    format!(
        "LOAD DATA LOCAL INFILE '{file}' INTO TABLE {}.{} CHARACTER SET binary \
         FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({fields}){sets}",
        ident(database),
        ident(&table.name)
    )
}

/// What a row is worth knowing of beside its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Values 0 of ENUM columns: each gives a warning when it is loaded, and is loaded all the same.
    pub(crate) warnings: u64,
    /// A JSON value that may be another one when it is read from its text.
    pub(crate) doubtful: bool,
}

/// Writes a row as a line.
pub(crate) fn line(out: &mut Vec<u8>, kinds: &[Kind], row: Row) -> Result<Seen, String> {
    let mut seen = Seen::default();
    for (i, value) in row.unwrap().into_iter().enumerate() {
        if i > 0 {
            out.push(b'\t');
        }
        let bytes = match value {
            Value::NULL => {
                out.extend_from_slice(b"\\N");
                continue;
            }
            Value::Bytes(bytes) => bytes,
            other => return Err(format!("a value is not text: {other:?}")),
        };
        match kinds.get(i) {
            Some(Kind::Json) => seen.doubtful |= doubtful(&bytes),
            Some(Kind::Enum { has_empty: false }) if bytes.is_empty() => seen.warnings += 1,
            _ => {}
        }
        escape(out, &bytes);
    }
    out.push(b'\n');
    Ok(seen)
}

/// The kinds of the columns that [`select`] reads.
pub(crate) fn kinds(table: &Table) -> Vec<Kind> {
    copied(table).map(|c| c.kind).collect()
}

fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut from = 0;
    for (i, b) in bytes.iter().enumerate() {
        let with = match b {
            b'\\' => b'\\',
            b'\t' => b't',
            b'\n' => b'n',
            0 => b'0',
            _ => continue,
        };
        out.extend_from_slice(&bytes[from..i]);
        out.extend_from_slice(&[b'\\', with]);
        from = i + 1;
    }
    out.extend_from_slice(&bytes[from..]);
}

/// Whether a JSON text may have a value that is no JSON of its own and only prints as if it were: a date, a time, bytes (they print as
/// strings), or a DECIMAL that a DOUBLE does not hold. What looks so is asked of the server, so this may say yes too often, but not no.
fn doubtful(json: &[u8]) -> bool {
    let (mut i, mut digits, mut fraction) = (0, 0_usize, false);
    while let Some(&b) = json.get(i) {
        match b {
            b'"' => {
                let begin = i + 1;
                i = begin;
                while let Some(&c) = json.get(i) {
                    match c {
                        b'\\' => i += 1,
                        b'"' => break,
                        _ => {}
                    }
                    i += 1;
                }
                let text = json.get(begin..i.min(json.len())).unwrap_or_default();
                if looks_opaque(text) {
                    return true;
                }
            }
            b'0'..=b'9' => digits += 1,
            b'.' => fraction = true,
            b'-' | b'+' | b'e' | b'E' => {}
            _ => {
                if inexact(digits, fraction) {
                    return true;
                }
                (digits, fraction) = (0, false);
            }
        }
        i += 1;
    }
    inexact(digits, fraction)
}

/// Whether a number may be a DECIMAL that no DOUBLE and no integer holds.
fn inexact(digits: usize, fraction: bool) -> bool {
    digits > if fraction { 15 } else { 18 }
}

/// `base64:type…`, `2026-01-31`, `2026-01-31 10:00:00.000000`, `-10:00:00.000000`.
fn looks_opaque(text: &[u8]) -> bool {
    if text.starts_with(b"base64:type") {
        return true;
    }
    let date = text.len() == 10 || text.len() == 26;
    let time = text.ends_with(b"0") || text.get(text.len().wrapping_sub(7)) == Some(&b'.');
    (date || time)
        && !text.is_empty()
        && text.len() <= 26
        && text
            .iter()
            .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'.' | b' '))
        && text.iter().any(|b| matches!(b, b'-' | b':'))
}

/// Asks how many rows of a table have a JSON value that its text does not bring back.
pub(crate) fn doubt(database: &str, table: &Table) -> Option<String> {
    let columns: Vec<String> = copied(table)
        .filter(|c| c.kind == Kind::Json)
        .map(|c| {
            let c = ident(&c.name);
            format!("NOT {c} <=> CAST(CAST({c} AS CHAR CHARACTER SET utf8mb4) AS JSON)")
        })
        .collect();
    (!columns.is_empty()).then(|| {
        format!(
            "SELECT COUNT(*) FROM {}.{} WHERE {}",
            ident(database),
            ident(&table.name),
            columns.join(" OR ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        let r = Range::cut(0, 100, 4);
        assert_eq!(r.len(), 4);
        assert_eq!((r[0].from, r[3].to), (None, None));
        for pair in r.windows(2) {
            assert_eq!(pair[0].to.unwrap() + 1, pair[1].from.unwrap());
        }
        assert_eq!(Range::cut(5, 5, 8).len(), 2);
        assert_eq!(
            Range::cut(i128::from(i64::MIN), i128::from(u64::MAX), 1),
            [Range::default()]
        );
        assert_eq!(
            Range {
                from: Some(-3),
                to: Some(4)
            }
            .filter(Some("a`b")),
            " WHERE `a``b` BETWEEN -3 AND 4"
        );
        assert_eq!(Range::default().filter(Some("a")), "");
    }

    #[test]
    fn what_separates_is_escaped() {
        let mut out = vec![];
        escape(&mut out, b"a\tb\nc\\d\0e\rf'\"\xff");
        assert_eq!(out, b"a\\tb\\nc\\\\d\\0e\rf'\"\xff");
    }

    #[test]
    fn json_that_is_none_is_suspected() {
        for text in [
            r#"{"a": "2026-01-31"}"#,
            r#"["2026-01-31 10:00:00.000000"]"#,
            r#""10:00:00.000000""#,
            r#""-838:59:59.000000""#,
            r#"{"b": "base64:type252:AAA="}"#,
            "[1234567890123456.7]",
            "0.12345678901234567",
            "12345678901234567890123",
        ] {
            assert!(doubtful(text.as_bytes()), "{text}");
        }
        for text in [
            r#"{"a": "x", "n": 123456789012345678, "d": 1.5, "l": "2026-01-31T10:00:00Z"}"#,
            r#"{"a\"": "\\", "url": "https://e.com/0123456789.012345678901234"}"#,
            "{}",
            r#""""#,
        ] {
            assert!(!doubtful(text.as_bytes()), "{text}");
        }
    }
}
