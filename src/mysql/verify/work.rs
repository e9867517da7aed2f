//! What is to be compared yet, and what was found.

use super::{Rows, Touched, Verdict, digest::Part, schema};
use crate::mysql::seed::{
    Pinned,
    layout::{Database, Table},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// A table is cut into parts of about this size.
pub(super) const PART: u64 = 32 << 20;
/// Tables up to this size are asked for together.
const SMALL: u64 = 1 << 20;
/// Tables that are asked for together.
const TOGETHER: usize = 32;
/// Rows that are asked for by their keys in one go.
const KEYS: usize = 500;

/// What is compared.
#[derive(Clone, Debug, Default)]
pub enum What {
    /// All rows.
    #[default]
    Everything,
    /// Definitions, and the rows that were touched.
    Since(Touched),
}

impl What {
    fn parts(&self, database: &str, table: &Table) -> Vec<Part> {
        let Self::Since(touched) = self else {
            return vec![Part::all()];
        };
        match touched.tables.get(database) {
            None => vec![],
            Some(None) => vec![Part::all()],
            Some(Some(tables)) => match tables.get(&table.name) {
                None => vec![],
                Some(Rows::Keys { columns, keys }) if *columns == table.key => {
                    let keys: Vec<&Vec<i128>> = keys.iter().collect();
                    keys.chunks(KEYS)
                        .map(|some| Part::keys(columns, some.iter().copied()))
                        .collect()
                }
                Some(_) => vec![Part::all()],
            },
        }
    }
}

/// Parts that are asked for in one go.
#[derive(Default)]
pub(super) struct Item {
    pub(super) tables: Vec<(String, Arc<Table>, Part)>,
    /// It may be cut into parts yet.
    pub(super) whole: bool,
    pub(super) tries: u32,
}

pub(super) struct Work {
    pub(super) items: VecDeque<Item>,
    pub(super) verdicts: BTreeMap<(String, String), Verdict>,
    pub(super) lost: Option<String>,
    pub(super) busy: usize,
}

impl Work {
    pub(super) fn new(servers: &[Pinned], names: &[String], what: &What) -> Self {
        let mut work = Self {
            items: VecDeque::new(),
            verdicts: BTreeMap::new(),
            lost: None,
            busy: 0,
        };
        let Some((source, others)) = servers.split_first() else {
            return work;
        };
        for missing in &source.missing {
            let there: Vec<&str> = others
                .iter()
                .zip(&names[1..])
                .filter(|(o, _)| !o.missing.contains(missing))
                .map(|(_, n)| n.as_str())
                .collect();
            let verdict = if there.is_empty() {
                Verdict::Unknown("there is no such database on any server".into())
            } else {
                Verdict::Different(vec![format!("{}: a database too many", there.join(", "))])
            };
            work.verdicts.insert((missing.clone(), String::new()), verdict);
        }
        for d in &source.databases {
            // An entry for the database itself: that of one without a table, too.
            work.verdicts
                .insert((d.name.clone(), String::new()), Verdict::Equal);
            for what in &d.refused {
                work.unknown(&d.name, "", &format!("{what} is not compared"));
            }
            let theirs: Vec<Option<&Database>> = others
                .iter()
                .map(|o| o.databases.iter().find(|t| t.name == d.name))
                .collect();
            for (their, name) in theirs.iter().zip(&names[1..]) {
                match their {
                    None => work.differs(&d.name, "", format!("{name}: no such database")),
                    Some(their) => {
                        if let Some(how) = schema::databases_differ(&d.create, &their.create) {
                            work.differs(&d.name, "", format!("{name}: {how}"));
                        }
                        let ours: BTreeSet<&str> = d.tables.iter().map(|t| t.name.as_str()).collect();
                        for t in their.tables.iter().filter(|t| !ours.contains(t.name.as_str())) {
                            work.differs(&d.name, &t.name, format!("{name}: a table too many"));
                        }
                    }
                }
            }
            let mut small = vec![];
            for t in &d.tables {
                let mut same = true;
                for (their, name) in theirs.iter().zip(&names[1..]) {
                    let Some(their) = their else { continue };
                    let how = match their.tables.iter().find(|o| o.name == t.name) {
                        None => Some("no such table".to_owned()),
                        Some(o) => schema::tables_differ(&t.create, &o.create),
                    };
                    if let Some(how) = how {
                        same = false;
                        work.differs(&d.name, &t.name, format!("{name}: {how}"));
                    }
                }
                if !same || theirs.iter().any(Option::is_none) {
                    continue;
                }
                let parts = what.parts(&d.name, t);
                if parts != [Part::all()] {
                    let t = Arc::new(t.clone());
                    let ones = parts.into_iter().map(|p| (d.name.clone(), t.clone(), p));
                    work.items.extend(ones.map(|one| Item {
                        tables: vec![one],
                        ..Item::default()
                    }));
                    continue;
                }
                let one = (d.name.clone(), Arc::new(t.clone()), Part::all());
                if t.bytes > SMALL {
                    work.items.push_back(Item {
                        tables: vec![one],
                        whole: t.bytes / PART > 1 && t.cut_by().is_some(),
                        tries: 0,
                    });
                } else {
                    small.push(one);
                    if small.len() == TOGETHER {
                        work.items.push_back(Item {
                            tables: std::mem::take(&mut small),
                            ..Item::default()
                        });
                    }
                }
            }
            if !small.is_empty() {
                work.items.push_back(Item {
                    tables: small,
                    ..Item::default()
                });
            }
        }
        work
    }

    pub(super) fn equal(&mut self, database: &str, table: &str) {
        self.verdicts
            .entry((database.to_owned(), table.to_owned()))
            .or_insert(Verdict::Equal);
    }

    pub(super) fn differs(&mut self, database: &str, table: &str, how: String) {
        let verdict = self
            .verdicts
            .entry((database.to_owned(), table.to_owned()))
            .or_insert(Verdict::Equal);
        match verdict {
            Verdict::Different(all) => all.push(how),
            // What differs for certain is worth more than what is not known.
            _ => *verdict = Verdict::Different(vec![how]),
        }
    }

    pub(super) fn unknown(&mut self, database: &str, table: &str, why: &str) {
        let verdict = self
            .verdicts
            .entry((database.to_owned(), table.to_owned()))
            .or_insert(Verdict::Equal);
        if *verdict == Verdict::Equal {
            *verdict = Verdict::Unknown(why.to_owned());
        }
    }
}
