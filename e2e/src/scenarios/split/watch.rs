//! A crowd on every shard, and what must hold of it in the end.

use crate::crowd::{Crowd, Move as Went, OfShard, Pace, blocks};
use crate::fleet::Fleet;
use crate::homes::Homes;
use crate::wait::SOON;
use crate::writer::Ending;
use anyhow::{Result, ensure};
use shardwright::core::spans::SpanSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A crowd on every shard, and what watches rule R1 meanwhile.
pub(super) struct Watch {
    pub(super) crowd: Crowd,
    pub(super) homes: Homes,
    before: BTreeMap<i32, String>,
}

impl Watch {
    /// # Errors
    /// When the clients cannot write.
    pub(super) async fn begin(f: &Arc<Fleet>, pace: Pace) -> Result<Self> {
        let shards = f.map().await?.shards();
        let mut before = BTreeMap::new();
        let map = f.map().await?;
        for shard in &shards {
            before.insert(*shard, map.entry(*shard)?.pair.clone());
        }
        Ok(Self {
            homes: Homes::watch(f).await?,
            crowd: f.crowd(&shards, pace).await?,
            before,
        })
    }

    /// Every shard takes rows now.
    ///
    /// # Errors
    /// When one does not.
    pub(super) async fn writes(&self) -> Result<()> {
        self.crowd.written_since(Instant::now(), SOON).await
    }

    /// Ends both: every acknowledged row is where its shard is, each shard was acknowledged at one pair and then at the next, the last of which is in
    /// the map, and no shard had two homes.
    ///
    /// # Errors
    /// When it is not so.
    pub(super) async fn end(self, f: &Fleet, name: &str) -> Result<Ended> {
        let tried = self.crowd.stop().await?;
        let whole = f.whole(&tried).await?;
        self.homes.verdict()?;
        let map = f.map().await?;
        let went = blocks(&tried);
        for (shard, before) in &self.before {
            let mut at = before.as_str();
            for m in went.iter().filter(|m| m.shard == *shard) {
                ensure!(
                    m.from == at,
                    "shard {shard} left {} and was at {at}: {went:?}",
                    m.from
                );
                at = &m.to;
            }
            let now = &map.entry(*shard)?.pair;
            ensure!(
                at == now,
                "shard {shard} was acknowledged at {at} last, and the map has it at {now}"
            );
        }
        let longest = went.iter().map(|m| m.block).max().unwrap_or_default();
        println!(
            "      {name}: {} rows acknowledged, {} unknown; {} changes of a shard's pair, the longest block of one was {longest:?}",
            whole.acknowledged,
            whole.unknown,
            went.len()
        );
        Ok(Ended {
            tried,
            went,
            unknown: whole.unknown,
            failed: whole.failed,
        })
    }
}

/// What a crowd saw.
pub(super) struct Ended {
    pub(super) tried: Vec<OfShard>,
    pub(super) went: Vec<Went>,
    pub(super) unknown: usize,
    pub(super) failed: usize,
}

impl Ended {
    /// Exactly these shards moved, each once, from one pair to the other; and no client was refused anything or left in doubt.
    ///
    /// # Errors
    /// When it is not so.
    pub(super) fn once(&self, shards: &SpanSet, from: &str, to: &str) -> Result<()> {
        self.each_once(shards)?;
        let elsewhere: Vec<_> = self
            .went
            .iter()
            .filter(|m| m.from != from || m.to != to)
            .collect();
        ensure!(elsewhere.is_empty(), "not from {from} to {to}: {elsewhere:?}");
        self.no_doubt()
    }

    /// Exactly these shards moved, each once.
    ///
    /// # Errors
    /// When it is not so.
    pub(super) fn each_once(&self, shards: &SpanSet) -> Result<()> {
        let mut moved: Vec<i32> = self.went.iter().map(|m| m.shard).collect();
        moved.sort_unstable();
        ensure!(
            moved == shards.shards().collect::<Vec<_>>(),
            "moved by their clients' word: {:?}",
            self.went
        );
        Ok(())
    }

    /// Nobody was refused anything for good, and no outcome is unknown: servers that only move shards end nobody's connection.
    ///
    /// # Errors
    /// When it is not so.
    pub(super) fn no_doubt(&self) -> Result<()> {
        ensure!(
            self.unknown == 0 && self.failed == 0,
            "{} rows of unknown outcome, {} refused or given up: {:?}",
            self.unknown,
            self.failed,
            self.tried
                .iter()
                .flat_map(|t| t.book.all())
                .filter(|t| t.ending != Ending::Acknowledged)
                .take(5)
                .collect::<Vec<_>>()
        );
        Ok(())
    }
}
