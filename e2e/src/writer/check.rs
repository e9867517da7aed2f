//! Whether the servers hold what was acknowledged.

use super::Book;
use crate::fleet::Fleet;
use crate::server::Server;
use crate::wait::{self, Seen};
use anyhow::Result;
use shardwright::api::names;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By client: each row's number, and how often it is there.
pub type Rows = BTreeMap<String, BTreeMap<u64, u32>>;

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
    let sql = format!(
        "SELECT JSON_UNQUOTE(JSON_EXTRACT(data, '$.client')), CAST(JSON_EXTRACT(data, '$.row') AS UNSIGNED) FROM {table} \
         WHERE JSON_EXTRACT(data, '$.client') IS NOT NULL"
    );
    let mut found = Rows::new();
    for (client, row) in server.rows::<(String, u64)>(&sql).await? {
        *found.entry(client).or_default().entry(row).or_default() += 1;
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

impl Fleet {
    /// Both servers of a pair hold every acknowledged row once, and none that was refused; the passive one gets a moment to apply. The
    /// clients have stopped.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn holds(&self, pair: &str, table: &str, books: &[Arc<Book>]) -> Result<Held> {
        let mut held = Held::default();
        for ordinal in names::ORDINALS {
            let what = format!("every acknowledged row to be on {}", names::pod(pair, ordinal));
            held = wait::until(&what, wait::SOON, || async {
                let mut server = self.server(pair, ordinal).await?;
                let found = rows(&mut server, table).await?;
                Ok(match agree(books, &found) {
                    Ok(held) => Seen::Yes(held),
                    Err(e) => Seen::NotYet(format!("{e:#}")),
                })
            })
            .await?;
        }
        Ok(held)
    }
}
