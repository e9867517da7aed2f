//! Whether the servers hold what was acknowledged.

use super::Book;
use crate::fleet::Fleet;
use crate::server::Server;
use crate::wait::{self, Seen};
use anyhow::{Result, ensure};
use shardwright::api::names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// By client: each row's number, and how often it is there.
pub type Rows = BTreeMap<String, BTreeMap<u64, u32>>;

/// So many rows are read by one statement.
const PART: usize = 100_000;
/// For one look at all rows of a server.
const READ: Duration = Duration::from_secs(60);

/// What the servers were found to hold.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Held {
    /// Acknowledged rows; all of them are there.
    pub acknowledged: usize,
    /// Rows of which the client knows nothing.
    pub unknown: usize,
    /// Of these, rows that are there.
    pub unknown_there: usize,
}

/// All rows that clients of this module wrote into a table.
///
/// # Errors
/// What the server answered.
pub async fn rows(server: &mut Server, table: &str) -> Result<Rows> {
    let mut found = Rows::new();
    let mut after = 0;
    // In parts: a statement has its limit, and a long run has written a million rows.
    loop {
        let sql = format!(
            "SELECT local_id, JSON_UNQUOTE(JSON_EXTRACT(data, '$.client')), CAST(JSON_EXTRACT(data, '$.row') AS UNSIGNED) FROM {table} \
             WHERE local_id > {after} AND JSON_EXTRACT(data, '$.client') IS NOT NULL ORDER BY local_id LIMIT {PART}"
        );
        let part = server.rows::<(u64, String, u64)>(&sql).await?;
        let last = part.len() < PART;
        for (id, client, row) in part {
            after = id;
            *found.entry(client).or_default().entry(row).or_default() += 1;
        }
        if last {
            break;
        }
    }
    Ok(found)
}

/// Compares all books with what one server holds.
///
/// # Errors
/// When a row is lost, is there twice, or should not be there.
pub fn agree(books: &[Arc<Book>], found: &Rows) -> Result<Held> {
    let (mut held, none) = (Held::default(), BTreeMap::new());
    for book in books {
        held.unknown_there += book.agrees(found.get(&book.client).unwrap_or(&none))?;
        held.acknowledged += book.acknowledged();
        held.unknown += book.unknown();
    }
    Ok(held)
}

/// What the servers do not hold as they should, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Losses {
    /// Acknowledged rows that a server does not hold.
    pub lost: usize,
    /// Rows that a server holds more than once.
    pub twice: usize,
}

impl Fleet {
    /// Counts on both servers what is lost or twice; the greater number counts.
    ///
    /// # Errors
    /// What a server answered.
    pub async fn losses(&self, pair: &str, table: &str, book: &Book) -> Result<Losses> {
        let (mut sum, none) = (Losses::default(), BTreeMap::new());
        for ordinal in names::ORDINALS {
            let found = rows(&mut self.server(pair, ordinal).await?, table).await?;
            let (lost, twice) = book.lost_and_twice(found.get(&book.client).unwrap_or(&none));
            sum.lost = sum.lost.max(lost);
            sum.twice = sum.twice.max(twice);
        }
        Ok(sum)
    }

    /// Both servers of a pair hold every acknowledged row once, and none that was refused; the passive one gets a moment to apply. The
    /// clients have stopped.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn holds(&self, pair: &str, table: &str, books: &[Arc<Book>]) -> Result<Held> {
        // What one server says is of interest all the more when the other one does not answer.
        let (mut held, mut wrong) = (Held::default(), vec![]);
        for ordinal in names::ORDINALS {
            let what = format!("every acknowledged row to be on {}", names::pod(pair, ordinal));
            let found = wait::until_each(&what, wait::SOON, READ, || async {
                let mut server = self.server(pair, ordinal).await?;
                let found = rows(&mut server, table).await?;
                Ok(match agree(books, &found) {
                    Ok(held) => Seen::Yes(held),
                    Err(e) => Seen::NotYet(format!("{e:#}")),
                })
            })
            .await;
            match found {
                Ok(found) => held = found,
                Err(e) => wrong.push(format!("{e:#}")),
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("; "));
        Ok(held)
    }
}
