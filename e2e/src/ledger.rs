//! Rows that were acknowledged to an application, and whether they are all still there.

use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use anyhow::{Result, anyhow, ensure};
use shardwright::api::names;
use shardwright::core::databases::Naming;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One acknowledged row.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Shard.
    pub shard: i32,
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
    /// What the server called it.
    pub local_id: u64,
    /// What was written.
    pub text: String,
    /// It was given up on purpose: it may be there or not.
    pub given_up: bool,
}

/// Numbers the rows that were tried: one whose answer never came may be there, and no other is to be taken for it.
static TRIES: AtomicU64 = AtomicU64::new(0);

/// The table that scenarios write to.
pub const TABLE: &str = "pins";

impl Fleet {
    /// Name of a shard's database.
    ///
    /// # Errors
    /// When the cluster cannot be read.
    pub async fn database(&self, shard: i32) -> Result<String> {
        let cluster: shardwright::api::ShardCluster = self.get(&self.cluster).await?;
        Ok(Naming::from(&cluster.spec.shards).name(shard))
    }

    /// Writes one row to each shard, where the map says, as an application does.
    ///
    /// # Errors
    /// What the map or the servers answered.
    pub async fn write(&self, shards: &[i32]) -> Result<()> {
        let map = self.map().await?;
        let cluster: shardwright::api::ShardCluster = self.get(&self.cluster).await?;
        let naming = Naming::from(&cluster.spec.shards);
        let mut open = BTreeMap::new();
        for shard in shards {
            let entry = map.entry(*shard)?;
            let key = (entry.pair.clone(), entry.active_ordinal()?);
            if !open.contains_key(&key) {
                open.insert(key.clone(), self.app(&key.0, key.1).await?);
            }
            let server = open.get_mut(&key).ok_or_else(|| anyhow!("no connection"))?;
            let database = naming.name(*shard);
            let number = TRIES.fetch_add(1, Ordering::Relaxed);
            let text = format!("row {number} of shard {shard}");
            let local_id = server
                .insert(&format!(
                    "INSERT INTO `{database}`.`{TABLE}` (data) VALUES (JSON_OBJECT('text', '{text}'))"
                ))
                .await?;
            self.remember(Entry {
                shard: *shard,
                database,
                table: TABLE.into(),
                local_id,
                text,
                given_up: false,
            });
        }
        Ok(())
    }

    fn remember(&self, entry: Entry) {
        if let Ok(mut l) = self.ledger.lock() {
            l.push(entry);
        }
    }

    /// How many rows were acknowledged.
    pub fn rows_written(&self) -> usize {
        self.ledger.lock().map_or(0, |l| l.len())
    }

    /// The acknowledged rows but those that were given up.
    fn rows_held(&self) -> Vec<Entry> {
        let all = self.ledger.lock().map(|l| l.clone()).unwrap_or_default();
        all.into_iter().filter(|row| !row.given_up).collect()
    }

    /// Every acknowledged row is read where the map says, and on the other side of the pair once that has caught up.
    ///
    /// # Errors
    /// When one is missing or differs.
    pub async fn intact(&self) -> Result<()> {
        for at_active in [true, false] {
            self.intact_at(at_active).await?;
        }
        Ok(())
    }

    /// Every acknowledged row is read where the map says, or on the other side of each pair.
    ///
    /// # Errors
    /// When one is missing or differs.
    pub async fn intact_at(&self, at_active: bool) -> Result<()> {
        let written = self.rows_held();
        let map = self.map().await?;
        wait::until("every acknowledged row to be read", wait::SOON, || async {
            let mut open = BTreeMap::new();
            for row in &written {
                let entry = map.entry(row.shard)?;
                let active = entry.active_ordinal()?;
                let ordinal = if at_active { active } else { 1 - active };
                let key = (entry.pair.clone(), ordinal);
                if !open.contains_key(&key) {
                    open.insert(key.clone(), self.server(&key.0, key.1).await?);
                }
                let server = open.get_mut(&key).ok_or_else(|| anyhow!("no connection"))?;
                let sql = format!(
                    "SELECT JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) FROM `{}`.`{}` WHERE local_id = {}",
                    row.database, row.table, row.local_id
                );
                let found: Vec<String> = server.rows(&sql).await?;
                if found != [row.text.clone()] {
                    let host = names::pod(&key.0, key.1);
                    return Ok(Seen::NotYet(format!("{host}: {row:?} is read as {found:?}")));
                }
            }
            Ok(Seen::Yes(()))
        })
        .await
    }

    /// Both servers of a pair hold the same rows, each once, and every acknowledged one is among them; the passive one gets a
    /// moment to apply. Rows of which nobody was told anything may be there, but then on both.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn counted(&self, pair: &str) -> Result<()> {
        let written = self.rows_held();
        let map = self.map().await?;
        let mut tables = BTreeMap::<(String, String), Vec<Entry>>::new();
        for row in written {
            if map.entry(row.shard)?.pair == pair {
                let key = (row.database.clone(), row.table.clone());
                tables.entry(key).or_default().push(row);
            }
        }
        wait::until(&format!("both servers of {pair} to hold the same rows"), wait::SOON, || async {
            let (mut a, mut b) = (self.server(pair, 0).await?, self.server(pair, 1).await?);
            for ((database, table), rows) in &tables {
                let sql = format!(
                    "SELECT local_id, JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) FROM `{database}`.`{table}` ORDER BY local_id"
                );
                let on_a: Vec<(u64, Option<String>)> = a.rows(&sql).await?;
                let on_b: Vec<(u64, Option<String>)> = b.rows(&sql).await?;
                if on_a != on_b {
                    let (a, b) = (on_a.len(), on_b.len());
                    return Ok(Seen::NotYet(format!("{database}.{table}: {a} rows on A, {b} on B, or others")));
                }
                let found: BTreeMap<u64, &str> = on_a
                    .iter()
                    .filter_map(|(id, text)| Some((*id, text.as_deref()?)))
                    .collect();
                let lost: Vec<_> = rows
                    .iter()
                    .filter(|r| found.get(&r.local_id) != Some(&r.text.as_str()))
                    .collect();
                if !lost.is_empty() {
                    let n = lost.len();
                    return Ok(Seen::NotYet(format!("{n} acknowledged rows are lost, such as {:?}", lost.first())));
                }
                let mut texts = std::collections::BTreeSet::new();
                let twice: Vec<_> = found.values().filter(|t| !texts.insert(**t)).collect();
                if !twice.is_empty() {
                    return Ok(Seen::NotYet(format!("there twice: {twice:?}")));
                }
            }
            Ok(Seen::Yes(()))
        })
        .await
    }

    /// Gives up on purpose what was acknowledged: rows whose number is `from` or higher. Gives them.
    pub fn give_up_rows_since(&self, from: usize) -> Vec<Entry> {
        let Ok(mut ledger) = self.ledger.lock() else {
            return vec![];
        };
        let given_up = ledger.iter_mut().skip(from);
        given_up
            .map(|row| {
                row.given_up = true;
                row.clone()
            })
            .collect()
    }

    /// The pair is as it has to be: one writable server, the recorded one; each follows the other over TLS by GTIDs without
    /// an error; both have executed the same transactions.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn healthy(&self, pair: &str) -> Result<()> {
        self.healthy_within(pair, wait::REPAIR).await
    }

    /// As [`Self::healthy`], with another limit.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn healthy_within(&self, pair: &str, limit: std::time::Duration) -> Result<()> {
        wait::until(
            &format!("{pair} to be healthy by its servers' own word"),
            limit,
            || async {
                let active = self.active(pair).await?;
                let (mut a, mut b) = (
                    self.server(pair, active).await?,
                    self.server(pair, 1 - active).await?,
                );
                let (va, vb) = (a.vitals().await?, b.vitals().await?);
                if va.read_only || !vb.read_only {
                    return Ok(Seen::NotYet(format!("active {va:?}, passive {vb:?}")));
                }
                for (server, follows) in [(&mut a, 1 - active), (&mut b, active)] {
                    let r = server.replication().await?;
                    let good = r.as_ref().is_some_and(|r| {
                        r.receiver
                            && r.applier
                            && r.tls
                            && r.auto_position
                            && r.source == names::host(&self.ns, pair, follows)
                    });
                    if !good {
                        return Ok(Seen::NotYet(format!("replication from {follows}: {r:?}")));
                    }
                }
                // Somebody may be writing all the time.
                let sql = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', 2)", va.gtid);
                let timed_out: u8 = b.one(&sql).await?;
                let sql = format!("SELECT GTID_SUBSET('{}', @@GLOBAL.gtid_executed)", vb.gtid);
                let nothing_errant: u8 = a.one(&sql).await?;
                Ok(Seen::when(timed_out == 0 && nothing_errant == 1, || {
                    format!("active has {}, passive has {}", va.gtid, vb.gtid)
                }))
            },
        )
        .await
    }

    /// Every open shard has exactly `tables` (and at least those) on both servers of the pair.
    ///
    /// # Errors
    /// When one lacks a table after [`wait::SOON`].
    pub async fn tables_on_both(&self, pair: &str, shards: &[i32], tables: &[&str]) -> Result<()> {
        let cluster: shardwright::api::ShardCluster = self.get(&self.cluster).await?;
        let prefix = cluster.spec.shards.database_prefix;
        let mut wanted = vec![];
        for shard in shards {
            let database = self.database(*shard).await?;
            wanted.extend(tables.iter().map(|t| format!("{database}.{t}")));
        }
        ensure!(!wanted.is_empty(), "nothing is asked for");
        for ordinal in names::ORDINALS {
            wait::until(&format!("the tables on {pair}-{ordinal}"), wait::SOON, || async {
                let has: std::collections::BTreeSet<String> = self
                    .server(pair, ordinal)
                    .await?
                    .tables(&prefix)
                    .await?
                    .into_iter()
                    .collect();
                let missing: Vec<_> = wanted.iter().filter(|t| !has.contains(*t)).cloned().collect();
                Ok(Seen::when(missing.is_empty(), || format!("missing {missing:?}")))
            })
            .await?;
        }
        Ok(())
    }
}
