//! What a server is asked for instead of its rows.

use crate::mysql::{
    conn::ident,
    seed::{
        layout::{Column, Kind, Stored, Table},
        rows::Range,
    },
};

/// A string that two rows have in common only when they are the same: the values, then the lengths of those that may have a separator in
/// them, then which ones are NULL. Read from its end, it can be taken apart in one way only.
fn row(table: &Table) -> String {
    let (mut values, mut lengths, mut nulls) = (vec![], vec![], vec![]);
    for c in table.columns.iter().filter(|c| c.stored != Stored::Virtual) {
        let name = ident(&c.name);
        values.push(value(c, &name));
        if c.kind == Kind::Short {
            lengths.push(format!("LENGTH({name})"));
        }
        if c.nullable {
            nulls.push(format!("ISNULL({name})"));
        }
    }
    values.extend(lengths);
    values.extend(nulls);
    if values.is_empty() {
        return "''".into();
    }
    format!("CONCAT_WS('#', {})", values.join(", "))
}

fn value(c: &Column, name: &str) -> String {
    match c.kind {
        Kind::Plain | Kind::Short => name.to_owned(),
        Kind::Float => format!("CAST({name} AS DOUBLE)"),
        // By itself: a string that holds all of them may be longer than the server makes any.
        Kind::Long | Kind::Json => format!("SHA2({name}, 256)"),
        Kind::Bit | Kind::Enum { .. } | Kind::Set => format!("CAST({name} AS UNSIGNED)"),
    }
}

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// By the first column of its key.
    Range(Range),
    /// These rows, as a list of keys.
    Keys(String),
}

impl Part {
    /// All of it.
    pub(super) fn all() -> Self {
        Self::Range(Range::default())
    }

    /// The rows with these keys; a few hundred.
    pub(super) fn keys<'a>(columns: &[String], keys: impl Iterator<Item = &'a Vec<i128>>) -> Self {
        let list = |values: Vec<String>| format!("({})", values.join(", "));
        let rows = keys
            .map(|k| list(k.iter().map(i128::to_string).collect()))
            .collect();
        Self::Keys(format!(
            "{} IN {}",
            list(columns.iter().map(|c| ident(c)).collect()),
            list(rows)
        ))
    }
}

fn place(database: &str, table: &Table, part: &Part) -> String {
    let name = format!("{}.{}", ident(database), ident(&table.name));
    if table.key.is_empty() {
        return name;
    }
    let filter = match part {
        Part::Range(range) => range.filter(table.cut_by()),
        Part::Keys(list) => format!(" WHERE {list}"),
    };
    format!("{name} FORCE INDEX (PRIMARY){filter}")
}

/// Number of rows and digest of a part.
pub(super) fn digest(database: &str, table: &Table, part: &Part) -> String {
    let hash = format!("SHA2({}, 256)", row(table));
    let all = if table.key.is_empty() {
        format!("CAST(SUM(CAST(CONV(LEFT({hash}, 16), 16, 10) AS UNSIGNED)) AS CHAR)")
    } else {
        format!("HEX(BIT_XOR(UNHEX({hash})))")
    };
    format!("SELECT COUNT(*), {all} FROM {}", place(database, table, part))
}

/// Each row of a part: what it is called, and its hash.
pub(super) fn each(database: &str, table: &Table, part: &Part) -> String {
    let hash = format!("SHA2({}, 256)", row(table));
    let place = place(database, table, part);
    if table.key.is_empty() {
        return format!("SELECT {hash}, '' FROM {place}");
    }
    let columns = |f: &dyn Fn(&str) -> String| table.key.iter().map(|k| f(k)).collect::<Vec<_>>().join(", ");
    format!(
        "SELECT CONCAT_WS(', ', {}), {hash} FROM {place} ORDER BY {}",
        columns(&|k| {
            let integer = table.columns.iter().any(|c| c.name == k && c.integer);
            if integer {
                ident(k)
            } else {
                format!("QUOTE({})", ident(k))
            }
        }),
        columns(&|k| ident(k))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: Kind, nullable: bool, stored: Stored) -> Column {
        Column {
            name: name.into(),
            kind,
            nullable,
            stored,
            integer: kind == Kind::Plain,
        }
    }

    fn table(key: &[&str]) -> Table {
        Table {
            name: "t".into(),
            create: String::new(),
            columns: vec![
                column("id", Kind::Plain, false, Stored::Written),
                column("v", Kind::Short, true, Stored::Written),
                column("x", Kind::Plain, true, Stored::Virtual),
                column("j", Kind::Json, true, Stored::Computed),
            ],
            key: key.iter().map(|k| (*k).to_owned()).collect(),
            bytes: 0,
        }
    }

    #[test]
    fn lengths_and_nulls_keep_rows_apart() {
        assert_eq!(
            row(&table(&["id"])),
            "CONCAT_WS('#', `id`, `v`, SHA2(`j`, 256), LENGTH(`v`), ISNULL(`v`), ISNULL(`j`))"
        );
    }

    #[test]
    fn equal_rows_do_not_cancel_each_other() {
        assert!(digest("d", &table(&["id"]), &Part::all()).contains("BIT_XOR"));
        let without = digest("d", &table(&[]), &Part::all());
        assert!(
            without.contains("SUM(") && !without.contains("BIT_XOR"),
            "{without}"
        );
    }
}
