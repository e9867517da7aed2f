//! The tables of every shard: what the spec and the ConfigMap of DDL ask for, as statements to run.
//!
//! All shards have the same schema, and it is only ever added to. Whether a statement is good SQL the server says, in a scratch
//! database; here it is made certain that it does nothing but add a table or an index to the database that is chosen.

mod admit;
mod lexer;
#[cfg(test)]
mod tests;

use super::sha256;
use crate::api::shard_cluster::Tables;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

/// What a statement creates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// `CREATE TABLE IF NOT EXISTS`.
    Table {
        /// Name of the table.
        table: String,
    },
    /// `CREATE INDEX`, for which MySQL has no `IF NOT EXISTS`.
    Index {
        /// Table that it is on.
        table: String,
        /// Name of the index.
        index: String,
    },
}

/// Where a statement was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `spec.tables.objects` or `spec.tables.mappings`.
    Spec,
    /// The ConfigMap of `spec.tables.ddlFrom`.
    Ddl {
        /// Key of the ConfigMap.
        key: String,
        /// Number of the statement within the key, from 1.
        statement: usize,
        /// Line within the key, from 1.
        line: usize,
    },
}

/// One statement to run in every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it creates.
    pub object: Object,
    /// Text on one line, without comments and without `;`; names no database.
    pub sql: String,
    /// Where it was asked for, to be named when the server refuses it.
    pub place: Place,
}

/// The tables of every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSet {
    statements: Vec<Statement>,
    hash: String,
}

/// The spec or the ConfigMap asks for something that is not admitted.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{place}: {what}")]
pub struct DdlError {
    /// Where.
    pub place: Place,
    /// What is wrong and what to do.
    pub what: String,
}

/// The statements that make the tables of `tables` and of `ddl`, the data of the ConfigMap that `tables.ddlFrom` names.
/// Object tables come first, then mapping tables, then the ConfigMap's statements in the order of its keys.
pub fn build(tables: Option<&Tables>, ddl: Option<&BTreeMap<String, String>>) -> Result<TableSet, DdlError> {
    let mut set = Builder::default();
    for object in tables.iter().flat_map(|t| &t.objects) {
        set.add(
            Object::Table {
                table: object.name.clone(),
            },
            object_table(&object.name),
            Place::Spec,
        )?;
    }
    for mapping in tables.iter().flat_map(|t| &t.mappings) {
        set.add(
            Object::Table {
                table: mapping.name.clone(),
            },
            mapping_table(&mapping.name),
            Place::Spec,
        )?;
    }
    for (key, text) in ddl.into_iter().flatten() {
        let place = |statement, line| Place::Ddl {
            key: key.clone(),
            statement,
            line,
        };
        let statements = lexer::statements(text).map_err(|(n, refusal)| DdlError {
            place: place(n, refusal.line),
            what: refusal.what,
        })?;
        for (i, tokens) in statements.iter().enumerate() {
            let admitted = admit::admit(tokens).map_err(|refusal| DdlError {
                place: place(i + 1, refusal.line),
                what: refusal.what,
            })?;
            let line = tokens.first().map_or(1, |t| t.line);
            set.add(admitted.object, admitted.sql, place(i + 1, line))?;
        }
    }
    Ok(set.finish())
}

impl TableSet {
    /// The statements in the order in which they have to be run.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }
    /// SHA-256 of the statements, in hexadecimal: equal sets have equal ones, whatever their comments and line ends.
    pub fn hash(&self) -> &str {
        &self.hash
    }
    /// Number of tables.
    pub fn tables(&self) -> usize {
        self.statements
            .iter()
            .filter(|s| matches!(s.object, Object::Table { .. }))
            .count()
    }

    /// The statements whose table or index a shard does not have. `have` holds `(table, None)` for each table of the shard and
    /// `(table, Some(index))` for each index, as information_schema lists them; letter case does not matter.
    pub fn missing(&self, have: &BTreeSet<(String, Option<String>)>) -> Vec<&Statement> {
        let same = |a: &Option<String>, b: Option<&str>| match (a, b) {
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let has = |table: &str, index: Option<&str>| {
            // The exact name is the rule and is found at once.
            have.contains(&(table.to_owned(), index.map(str::to_owned)))
                || have
                    .iter()
                    .any(|(t, i)| t.eq_ignore_ascii_case(table) && same(i, index))
        };
        let missing = self.statements.iter().filter(|s| match &s.object {
            Object::Table { table } => !has(table, None),
            Object::Index { table, index } => !has(table, Some(index)),
        });
        missing.collect()
    }
}

#[derive(Default)]
struct Builder {
    statements: Vec<Statement>,
    /// Where each object was first asked for, names in lower case.
    seen: HashMap<Object, Place>,
}

impl Builder {
    fn add(&mut self, object: Object, sql: String, place: Place) -> Result<(), DdlError> {
        let fail = |what| {
            Err(DdlError {
                place: place.clone(),
                what,
            })
        };
        let lower = object.to_lowercase();
        if let Some(first) = self.seen.get(&lower) {
            return fail(match first {
                Place::Spec => format!(
                    "{object} is made already as an object or a mapping: give one of the two another name"
                ),
                Place::Ddl { .. } => format!("{object} is made already by {first}: take one of the two out"),
            });
        }
        if let Object::Index { table, .. } = &lower
            && !self.seen.contains_key(&Object::Table { table: table.clone() })
        {
            return fail(format!(
                "{object} is on a table that is not made before it: correct the name, or put CREATE TABLE before CREATE INDEX (keys are run in alphabetical order)"
            ));
        }
        self.seen.insert(lower, place.clone());
        self.statements.push(Statement { object, sql, place });
        Ok(())
    }

    fn finish(self) -> TableSet {
        // No statement has a zero byte that the server would take.
        let parts = self.statements.iter().flat_map(|s| [s.sql.as_bytes(), &[0]]);
        let hash = sha256::hex(parts);
        TableSet {
            statements: self.statements,
            hash,
        }
    }
}

impl Object {
    fn to_lowercase(&self) -> Self {
        match self {
            Self::Table { table } => Self::Table {
                table: table.to_lowercase(),
            },
            Self::Index { table, index } => Self::Index {
                table: table.to_lowercase(),
                index: index.to_lowercase(),
            },
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table { table } => write!(f, "table `{table}`"),
            Self::Index { table, index } => write!(f, "index `{index}` on `{table}`"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec => f.write_str("spec.tables"),
            Self::Ddl { key, statement, line } => {
                write!(f, "key `{key}`, statement {statement}, line {line}")
            }
        }
    }
}

/// A name between backticks.
fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn object_table(name: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {} (\
         `local_id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, \
         `data` JSON NOT NULL, \
         `ts` TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), \
         PRIMARY KEY (`local_id`)) ENGINE=InnoDB",
        quote(name)
    )
}

fn mapping_table(name: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {} (\
         `from_id` BIGINT UNSIGNED NOT NULL, \
         `to_id` BIGINT UNSIGNED NOT NULL, \
         `sequence` BIGINT NOT NULL, \
         PRIMARY KEY (`from_id`, `to_id`), \
         KEY `from_id_sequence` (`from_id`, `sequence`)) ENGINE=InnoDB",
        quote(name)
    )
}
