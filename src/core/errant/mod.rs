//! Errant transactions as text that a person can read and apply: what is kept of a server before it is overwritten (rule P8).
//!
//! The text grows while the binary log is read, and is bounded: what does not fit goes to the next text, and a transaction
//! that fits in none is kept by its name only.

pub mod sql;

use super::gtid::{Gtid, GtidSet};
use k8s_openapi::jiff::Timestamp;
use sql::Change;
use std::fmt::Write as _;

/// Most text that is kept, bytes. A Secret may hold 1 MiB, its other keys included.
pub const LIMIT: usize = 700_000;
/// With less room than this nothing more is tried.
const ROOM: usize = 200;

/// What was made of the transactions that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Their statements and rows.
    pub text: String,
    /// Transactions of which everything is in the text.
    pub complete: GtidSet,
    /// Transactions of which only the name is known.
    pub by_name: GtidSet,
    /// Why, for some of the latter; each reason once.
    pub why: Vec<String>,
}

impl Saved {
    /// All of them.
    pub fn all(&self) -> GtidSet {
        self.complete.union(&self.by_name)
    }
    /// Counts these transactions as known by name only.
    pub fn name_only(&mut self, set: &GtidSet, why: &str) {
        if set.is_empty() {
            return;
        }
        self.by_name = self.by_name.union(set);
        if !self.why.iter().any(|w| w == why) {
            self.why.push(why.to_owned());
        }
    }
}

/// The transaction that is being read.
#[derive(Clone, Debug)]
struct Open {
    gtid: Gtid,
    text: String,
    /// `USE` was last written for this one.
    database: String,
    changes: usize,
    broken: Option<String>,
}

/// The text while it is written: transactions in their order, each with its changes.
#[derive(Clone, Debug)]
pub struct Script {
    limit: usize,
    last: bool,
    full: bool,
    saved: Saved,
    open: Option<Open>,
}

/// What is said of transactions that find no room.
pub const TOO_MUCH: &str = "there is more than is kept";

impl Script {
    /// Nothing yet; `limit` bytes at most. There is no other text after the `last` one: what does not fit in that is named only.
    pub fn new(limit: usize, last: bool) -> Self {
        Self {
            limit,
            last,
            full: false,
            saved: Saved::default(),
            open: None,
        }
    }

    /// Whether what finds no room is named only.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// Begins a transaction, which ends the one before.
    pub fn begin(&mut self, gtid: Gtid, committed: Option<Timestamp>) {
        self.end();
        if self.full {
            return;
        }
        let mut text = format!("-- {gtid}");
        if let Some(at) = committed {
            let _ = write!(text, ", committed {at}");
        }
        text.push('\n');
        self.open = Some(Open {
            gtid,
            text,
            database: String::new(),
            changes: 0,
            broken: None,
        });
    }

    /// A change of the transaction that is open. One that is too large already is not written any further.
    pub fn change(&mut self, change: &Change) {
        let left = self.limit.saturating_sub(self.saved.text.len());
        let Some(open) = &mut self.open else { return };
        open.changes += 1;
        // In the text after this one it may find more room.
        let most = if self.last { left } else { self.limit };
        if open.text.len() > most {
            return;
        }
        if let Change::Statement { database, sql } = change
            && sql::needs_database(sql)
            && !database.is_empty()
            && *database != open.database
        {
            let _ = writeln!(open.text, "USE {};", sql::ident(database));
            open.database.clone_from(database);
        }
        sql::write(&mut open.text, change);
    }

    /// Something of the transaction that is open cannot be shown.
    pub fn broken(&mut self, why: impl Into<String>) {
        if let Some(open) = &mut self.open {
            open.broken.get_or_insert_with(|| why.into());
        }
    }

    /// The transaction that is open is whole.
    pub fn end(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let name = GtidSet::from(open.gtid);
        let left = self.limit.saturating_sub(self.saved.text.len());
        if open.text.len() > left {
            if self.last || open.text.len() > self.limit {
                self.saved.name_only(&name, TOO_MUCH);
            } else {
                self.full = true;
            }
            return;
        }
        match open.broken {
            Some(why) => {
                // What can be shown of it is.
                let note = format!(
                    "-- Not all of this transaction is shown: {}\n",
                    sql::comment(&why)
                );
                if open.text.len() + note.len() <= left {
                    open.text.push_str(&note);
                }
                self.saved.name_only(&name, &why);
            }
            None => self.saved.complete = self.saved.complete.union(&name),
        }
        if open.changes == 0 {
            open.text.push_str("-- (empty)\n");
        }
        open.text.push('\n');
        self.saved.text.push_str(&open.text);
    }

    /// The transaction that is open cannot be read to its end.
    pub fn give_up(&mut self, why: &str) -> Option<Gtid> {
        let open = self.open.take()?;
        self.saved.name_only(&GtidSet::from(open.gtid.clone()), why);
        Some(open.gtid)
    }

    /// Whether the transaction that is open has a change yet.
    pub fn is_empty(&self) -> bool {
        self.open.as_ref().is_none_or(|o| o.changes == 0)
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.full || self.saved.text.len() + ROOM > self.limit
    }

    /// Transactions that are dealt with.
    pub fn read(&self) -> GtidSet {
        self.saved.all()
    }

    /// The result. A transaction that is still open was not read to its end, and is not in it.
    pub fn finish(self) -> Saved {
        self.saved
    }
}

#[cfg(test)]
mod tests;
