//! Whether the servers hold what a crowd was told that they hold.

use super::{OTHER, OfShard, Shape};
use crate::fleet::Fleet;
use crate::ledger::TABLE;
use crate::published::Map;
use crate::server::Server;
use crate::wait::{self, Seen};
use crate::writer::{Book, Ending, Rows, rows};
use anyhow::{Context as _, Result, ensure};
use shardwright::api::names;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For one look at all shards of a server.
const READ: Duration = Duration::from_secs(240);

/// What was found to be whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole {
    /// Acknowledged rows; all of them are there, once.
    pub acknowledged: usize,
    /// Rows of which the client knows nothing.
    pub unknown: usize,
    /// Rows that were refused for good, or given up.
    pub failed: usize,
}

impl Fleet {
    /// Every acknowledged row of a crowd that has stopped is once on both servers of the pair where the map has its shard, no row that was refused is,
    /// and of no transaction there is but a part.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn whole(&self, crowd: &[OfShard]) -> Result<Whole> {
        let map = self.map().await?;
        for at_active in [true, false] {
            let side = if at_active { "active" } else { "passive" };
            wait::until_each(
                &format!("the {side} servers to hold every acknowledged row"),
                wait::SOON,
                READ,
                || async {
                    Ok(match self.look(crowd, &map, at_active).await {
                        Ok(()) => Seen::Yes(()),
                        Err(e) => Seen::NotYet(format!("{e:#}")),
                    })
                },
            )
            .await?;
        }
        let mut whole = Whole::default();
        for one in crowd {
            whole.acknowledged += one.book.acknowledged();
            whole.unknown += one.book.unknown();
            whole.failed += one
                .book
                .all()
                .iter()
                .filter(|t| matches!(t.ending, Ending::Refused(..) | Ending::NotSent(_)))
                .count();
        }
        ensure!(
            whole.acknowledged > 0,
            "nothing was acknowledged, so nothing was proved"
        );
        Ok(whole)
    }

    async fn look(&self, crowd: &[OfShard], map: &Map, at_active: bool) -> Result<()> {
        let mut open = BTreeMap::<(String, usize), Server>::new();
        let mut by_shard = BTreeMap::<i32, Vec<&OfShard>>::new();
        for one in crowd {
            by_shard.entry(one.shard).or_default().push(one);
        }
        for (shard, all) in by_shard {
            let entry = map.entry(shard)?;
            let active = entry.active_ordinal()?;
            let ordinal = if at_active { active } else { 1 - active };
            let key = (entry.pair.clone(), ordinal);
            if !open.contains_key(&key) {
                open.insert(key.clone(), self.server(&key.0, key.1).await?);
            }
            let server = open.get_mut(&key).context("no connection")?;
            of_shard(server, &self.database(shard).await?, &all)
                .await
                .with_context(|| format!("shard {shard} on {}", names::pod(&key.0, key.1)))?;
        }
        Ok(())
    }
}

async fn of_shard(server: &mut Server, database: &str, all: &[&OfShard]) -> Result<()> {
    let pins = rows(server, &format!("`{database}`.`{TABLE}`")).await?;
    let boards = rows(server, &format!("`{database}`.`{OTHER}`")).await?;
    for one in all {
        one.book.agrees(of(&pins, &one.book))?;
        if one.shape == Shape::Transaction {
            one.book.agrees(of(&boards, &one.book))?;
            halves(of(&pins, &one.book), of(&boards, &one.book))?;
        }
    }
    let unsealed: u64 = server
        .one(&format!(
            "SELECT COUNT(*) FROM `{database}`.`{OTHER}` \
             WHERE JSON_UNQUOTE(JSON_EXTRACT(data, '$.client')) LIKE 'crowd-%' AND JSON_EXTRACT(data, '$.sealed') IS NULL"
        ))
        .await?;
    ensure!(unsealed == 0, "{unsealed} transactions lack their last statement");
    Ok(())
}

fn of<'a>(found: &'a Rows, book: &Book) -> &'a BTreeMap<u64, u32> {
    static NONE: BTreeMap<u64, u32> = BTreeMap::new();
    found.get(&book.client).unwrap_or(&NONE)
}

/// A transaction is there in both tables, or in neither.
fn halves(a: &BTreeMap<u64, u32>, b: &BTreeMap<u64, u32>) -> Result<()> {
    let (a, b): (BTreeSet<_>, BTreeSet<_>) = (a.keys().collect(), b.keys().collect());
    let half: Vec<_> = a.symmetric_difference(&b).take(20).collect();
    ensure!(half.is_empty(), "there by half: rows {half:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_transaction_is_told() {
        let rows = |all: &[u64]| all.iter().map(|n| (*n, 1)).collect::<BTreeMap<_, _>>();
        halves(&rows(&[1, 2]), &rows(&[1, 2])).unwrap();
        halves(&rows(&[1, 2]), &rows(&[1])).unwrap_err();
        halves(&rows(&[1]), &rows(&[1, 3])).unwrap_err();
    }
}
