//! Moves of shards between pairs, as scenarios ask for them: the wish, the record, and what each server has.

use crate::fleet::{Fleet, conditions};
use crate::server::Server;
use crate::wait::{self, Seen};
use anyhow::{Context as _, Result, anyhow, ensure};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Resource as _};
use serde_json::{Value, json};
use shardwright::api::{MoveStage, Placement, ShardCluster, ShardRange, ShardSpan, names};
use shardwright::core::databases::Naming;
use shardwright::core::placement::{self, moves};
use shardwright::core::spans::SpanSet;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For a small move from its wish to the last cutover, on two busy cores: two copies of a pair, and a comparison of every row.
pub const MOVED: Duration = Duration::from_secs(300);
/// From the end of the time of grace until nothing is left of a move.
pub const CLEANED: Duration = Duration::from_secs(120);
/// A person has looked, and the copies are to be compared once more.
pub const VERIFY_AGAIN: &str = "shardwright.dev/verify-again";

/// What one server says of one shard's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// There is none.
    Absent,
    /// READ ONLY = 1.
    Shut,
    /// Whoever may write on the server may write there.
    Open,
}

/// The shards of a run, both ends included.
pub fn run(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}

impl Fleet {
    /// The record.
    ///
    /// # Errors
    /// When there is none.
    pub async fn placement(&self) -> Result<Placement> {
        let cluster: ShardCluster = self.get(&self.cluster).await?;
        cluster
            .status
            .and_then(|s| s.placement)
            .context("the cluster has no record")
    }

    /// An object with all its fields, also those that this program's types do not have.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn raw_range(&self, name: &str) -> Result<Value> {
        let kind = ApiResource::erase::<ShardRange>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.world.client.clone(), &self.ns, &kind);
        let found = api
            .get(name)
            .await
            .with_context(|| format!("get {} {name}", ShardRange::kind(&())))?;
        Ok(found.data)
    }

    /// `status.migration` of a range; null when nothing moves.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn migration(&self, range: &str) -> Result<Value> {
        Ok(self.raw_range(range).await?["status"]["migration"].clone())
    }

    /// Wishes a range at a pair.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn send(&self, range: &str, pair: &str) -> Result<()> {
        self.edit::<ShardRange>(range, json!({"spec": {"pairRef": {"name": pair}}}))
            .await
            .map(|_| ())
    }

    /// Waits until the record and the map have all of `shards` at a pair.
    ///
    /// # Errors
    /// When they have not after `limit`, with what the moves are at.
    pub async fn at_home(&self, shards: &SpanSet, pair: &str, limit: Duration) -> Result<()> {
        let what = format!("{} shards to be served by {pair}", shards.len());
        wait::until(&what, limit, || async {
            let record = self.placement().await?;
            let there = placement::shards(&record, |s| s.pair == pair);
            if !shards.is_subset(&there) {
                let left = shards.minus(&there).len();
                return Ok(Seen::NotYet(format!(
                    "{left} are not: {}",
                    self.how_far(&record).await
                )));
            }
            let map = self.map().await?;
            let elsewhere: Vec<_> = shards
                .shards()
                .filter(|s| map.find(*s).is_none_or(|e| e.pair != pair))
                .collect();
            Ok(Seen::when(elsewhere.is_empty(), || {
                format!("the map has elsewhere: {elsewhere:?}")
            }))
        })
        .await
    }

    /// The moves on record and what the ranges say, for people.
    async fn how_far(&self, record: &Placement) -> String {
        let moves: Vec<_> = record
            .moves
            .iter()
            .map(|m| {
                let n = |set: &[ShardSpan]| moves::set(set).len();
                format!(
                    "{} {:?} {:?}: {} of {} seeded, {} verified, {} moved, batch {:?}",
                    m.key(),
                    m.seed,
                    m.stage,
                    n(&m.seeded),
                    n(&m.shards),
                    n(&m.verified),
                    moves::moved(record, m).len(),
                    m.batch
                )
            })
            .collect();
        let ranges = self
            .api::<ShardRange>()
            .list(&kube::api::ListParams::default())
            .await;
        let said: Vec<_> = ranges
            .map(|l| l.items)
            .unwrap_or_default()
            .iter()
            .filter_map(|r| {
                let ready = conditions(r).into_iter().find(|c| c.type_ == "Ready")?;
                let name = r.metadata.name.clone().unwrap_or_default();
                (ready.status != "True").then(|| format!("{name}: {} {}", ready.reason, ready.message))
            })
            .collect();
        format!("moves {moves:?}, ranges {said:?}")
    }

    /// Waits until what is on record between two pairs fits.
    ///
    /// # Errors
    /// When it does not after `limit`.
    pub async fn between(
        &self,
        a: &str,
        b: &str,
        what: &str,
        limit: Duration,
        fits: impl Fn(&Placement, &shardwright::api::Move) -> bool + Send + Sync,
    ) -> Result<()> {
        wait::until(
            &format!("the move between {a} and {b}: {what}"),
            limit,
            || async {
                let record = self.placement().await?;
                let holds = moves::between(&record, a, b).is_some_and(|m| fits(&record, m));
                let how_far = if holds {
                    String::new()
                } else {
                    self.how_far(&record).await
                };
                Ok(Seen::when(holds, || how_far))
            },
        )
        .await
    }

    /// Waits until the move between two pairs has come to a stage.
    ///
    /// # Errors
    /// When it has not after `limit`.
    pub async fn stage(&self, a: &str, b: &str, stage: MoveStage, limit: Duration) -> Result<()> {
        self.between(a, b, &format!("{stage:?}"), limit, |_, m| m.stage == stage)
            .await
    }

    /// Waits until no move is on record.
    ///
    /// # Errors
    /// When there is one after `limit`.
    pub async fn no_moves(&self, limit: Duration) -> Result<()> {
        wait::until("no move to be on record", limit, || async {
            let record = self.placement().await?;
            let how_far = self.how_far(&record).await;
            Ok(Seen::when(record.moves.is_empty(), || how_far))
        })
        .await
    }

    /// Names of all pairs of the fleet.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn pairs(&self) -> Result<Vec<String>> {
        let all = self.api::<shardwright::api::MySQLPair>();
        let all = all.list(&kube::api::ListParams::default()).await?.items;
        Ok(all.into_iter().filter_map(|p| p.metadata.name).collect())
    }

    /// How the databases are called.
    ///
    /// # Errors
    /// When the cluster cannot be read.
    pub async fn naming(&self) -> Result<Naming> {
        let cluster: ShardCluster = self.get(&self.cluster).await?;
        Ok(Naming::from(&cluster.spec.shards))
    }

    /// What a server says of every shard's database that it has.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn copies(&self, pair: &str, ordinal: usize) -> Result<BTreeMap<i32, Copy>> {
        let naming = self.naming().await?;
        copies(&mut self.server(pair, ordinal).await?, &naming).await
    }

    /// By every server's own word: each shard on record is open on the active server of the pair where the record has it, and nowhere else; every
    /// other copy is READ ONLY (rules R1 and R3). When `alone`, there are no other copies, and no channels between pairs either.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn one_home(&self, alone: bool) -> Result<()> {
        wait::until("every shard to have one home", wait::REPAIR, || async {
            let record = self.placement().await?;
            let mut wrong = vec![];
            for pair in self.pairs().await? {
                let own: BTreeSet<i32> = placement::shards(&record, |s| s.pair == pair).shards().collect();
                let active = self.active(&pair).await?;
                for ordinal in names::ORDINALS {
                    let pod = names::pod(&pair, ordinal);
                    let copies = self.copies(&pair, ordinal).await?;
                    for shard in &own {
                        match copies.get(shard).copied().unwrap_or(Copy::Absent) {
                            Copy::Open => {}
                            // It may be READ ONLY on the passive server while it is about to leave.
                            Copy::Shut if !alone && ordinal != active => {}
                            other => wrong.push(format!("{pod} serves {shard} and has it {other:?}")),
                        }
                    }
                    for (shard, copy) in copies.iter().filter(|(s, _)| !own.contains(s)) {
                        if *copy == Copy::Open || alone {
                            wrong.push(format!("{pod} does not serve {shard} and has it {copy:?}"));
                        }
                    }
                    if alone {
                        let channels = channels(&mut self.server(&pair, ordinal).await?).await?;
                        wrong.extend(channels.iter().map(|c| format!("{pod} has the channel {c}")));
                    }
                }
            }
            wrong.truncate(10);
            Ok(Seen::when(wrong.is_empty(), || wrong.join("; ")))
        })
        .await
    }

    /// Nothing is left of any move: no record, no channel, no copy, no account of it that could connect; and everything is Ready.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn nothing_left(&self) -> Result<()> {
        self.no_moves(CLEANED).await?;
        self.one_home(true).await?;
        self.all_ready(wait::REPAIR).await
    }

    /// The rows of every table of these shards are the same on both servers of all these pairs as on the one that serves them. Nobody writes meanwhile.
    ///
    /// # Errors
    /// When they are not, once each had time to apply; or when another pair serves one.
    pub async fn same_rows(&self, shards: &SpanSet, pairs: &[&str]) -> Result<()> {
        let record = self.placement().await?;
        let mut left = shards.clone();
        for home in pairs {
            let served = placement::shards(&record, |s| s.pair == *home).intersect(shards);
            if !served.is_empty() {
                self.same_rows_as(home, &served, pairs).await?;
            }
            left = left.minus(&served);
        }
        ensure!(left.is_empty(), "none of {pairs:?} serves {left}");
        Ok(())
    }

    async fn same_rows_as(&self, home: &str, shards: &SpanSet, pairs: &[&str]) -> Result<()> {
        let first = (home.to_owned(), self.active(home).await?);
        let mut others = vec![];
        for pair in pairs {
            let both = [0, 1].map(|ordinal| ((*pair).to_owned(), ordinal));
            others.extend(both.into_iter().filter(|server| *server != first));
        }
        let naming = self.naming().await?;
        let wanted = self.digests(&first, shards, &naming).await?;
        ensure!(!wanted.is_empty(), "{first:?} has no table of {shards:?}");
        let (first, others) = (&first, &others);
        for other in others {
            let what = format!("{} to hold the rows of {}", name(other), name(first));
            wait::until_each(&what, wait::SOON, Duration::from_secs(60), || async {
                let found = self.digests(other, shards, &naming).await?;
                let different: Vec<_> = wanted
                    .iter()
                    .filter(|(table, rows)| found.get(*table) != Some(*rows))
                    .map(|(table, rows)| format!("{table}: {rows:?}, {:?}", found.get(table)))
                    .take(5)
                    .collect();
                let more = found.len().saturating_sub(wanted.len());
                Ok(Seen::when(different.is_empty() && more == 0, || {
                    format!("{different:?}, {more} tables more")
                }))
            })
            .await?;
        }
        Ok(())
    }

    /// By table: the number of rows, and a sum of digests of all their columns' bytes.
    async fn digests(
        &self,
        (pair, ordinal): &(String, usize),
        shards: &SpanSet,
        naming: &Naming,
    ) -> Result<BTreeMap<String, (u64, String)>> {
        let mut server = self.server(pair, *ordinal).await?;
        let mut found = BTreeMap::new();
        for shard in shards.shards() {
            let database = naming.name(shard);
            let columns: Vec<(String, String)> = server
                .rows(&format!(
                    "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{database}' \
                     ORDER BY TABLE_NAME, ORDINAL_POSITION"
                ))
                .await?;
            let mut tables = BTreeMap::<String, Vec<String>>::new();
            for (table, column) in columns {
                tables
                    .entry(table)
                    .or_default()
                    .push(format!("COALESCE(HEX(`{column}`), '~')"));
            }
            for (table, columns) in tables {
                let sql = format!(
                    "SELECT COUNT(*), CAST(COALESCE(SUM(CAST(CONV(LEFT(SHA2(CONCAT_WS(',', {}), 256), 14), 16, 10) AS DECIMAL(20))), 0) AS CHAR) \
                     FROM `{database}`.`{table}`",
                    columns.join(", ")
                );
                found.insert(format!("{database}.{table}"), server.one(&sql).await?);
            }
        }
        Ok(found)
    }

    /// The shard's active server, asked with the operator's account.
    ///
    /// # Errors
    /// When the map does not have it, or the server does not answer.
    pub async fn server_of(&self, shard: i32) -> Result<Server> {
        let map = self.map().await?;
        let entry = map.entry(shard)?;
        self.server(&entry.pair, entry.active_ordinal()?).await
    }
}

fn name((pair, ordinal): &(String, usize)) -> String {
    names::pod(pair, *ordinal)
}

/// As [`Fleet::copies`], on an open connection.
///
/// # Errors
/// What the server answered.
pub async fn copies(server: &mut Server, naming: &Naming) -> Result<BTreeMap<i32, Copy>> {
    let rows: Vec<(String, Option<String>)> = server
        .rows("SELECT CAST(SCHEMA_NAME AS CHAR), CAST(OPTIONS AS CHAR) FROM information_schema.SCHEMATA_EXTENSIONS")
        .await?;
    Ok(rows
        .into_iter()
        .filter_map(|(name, options)| {
            let shut = options.unwrap_or_default().contains("READ ONLY=1");
            Some((naming.parse(&name)?, if shut { Copy::Shut } else { Copy::Open }))
        })
        .collect())
}

/// Names of the channels that a server has, but for the one within its pair.
///
/// # Errors
/// What the server answered.
pub async fn channels(server: &mut Server) -> Result<Vec<String>> {
    server
        .rows(
            "SELECT CHANNEL_NAME FROM performance_schema.replication_connection_configuration \
             WHERE CHANNEL_NAME NOT IN ('', 'group_replication_applier', 'group_replication_recovery')",
        )
        .await
}

/// The address that a named channel of a server takes from.
///
/// # Errors
/// When there is no such channel, or what the server answered.
pub async fn channel_source(server: &mut Server, channel: &str) -> Result<String> {
    let rows: Vec<String> = server
        .rows(&format!(
            "SELECT HOST FROM performance_schema.replication_connection_configuration WHERE CHANNEL_NAME = '{channel}'"
        ))
        .await?;
    rows.into_iter()
        .next()
        .ok_or_else(|| anyhow!("there is no channel {channel}"))
}
