//! Clients on all shards of a fleet at once, half of them in transactions of several statements, by the very client that `examples/follow_map` shows
//! to others. What became of each row is remembered, shard by shard, and held against what the servers have in the end ([`check`]).

mod check;
mod gaps;

pub use gaps::{Move, blocks, quantile};

use crate::client::{Account, Client, Done, Error, Follower};
use crate::fleet::Fleet;
use crate::ledger::TABLE;
use crate::settings::Settings;
use crate::wait::{self, Seen};
use crate::writer::{Book, Ending, Try, cluster_ip};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use mysql_async::prelude::Queryable as _;
use shardwright::api::names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The second table of a transaction.
const OTHER: &str = "boards";
/// For one transaction, with all its repetitions.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tells the rows of all crowds of this process apart.
static CROWDS: AtomicU64 = AtomicU64::new(0);

/// How a shard is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One statement, which commits by itself.
    Statement,
    /// Three statements in two tables, then COMMIT.
    Transaction,
}

/// Everything that was tried with one shard by one client.
#[derive(Clone)]
pub struct OfShard {
    /// Which.
    pub shard: i32,
    /// How.
    pub shape: Shape,
    /// What became of each row.
    pub book: Arc<Book>,
}

/// How many clients there are, and how fast each is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Clients. Each has its own part of the shards, and every other one uses transactions.
    pub clients: usize,
    /// Between two tries of a client.
    pub pause: Duration,
    /// Clients more, which write to those shards that move next.
    pub chasers: usize,
    /// Between two tries of such a one.
    pub chaser_pause: Duration,
}

impl Pace {
    /// For scenarios: a few dozen rows a second.
    pub const CALM: Self = Self {
        clients: 8,
        pause: Duration::from_millis(20),
        chasers: 0,
        chaser_pause: Duration::ZERO,
    };
}

/// Clients that write until they are stopped.
pub struct Crowd {
    all: Vec<OfShard>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    chased: Arc<Mutex<Chased>>,
}

impl Fleet {
    /// The published map, followed at the operator's Service.
    ///
    /// # Errors
    /// When the Service is not there.
    pub async fn follow(&self) -> Result<Arc<Follower>> {
        let api: Api<Service> =
            Api::namespaced(self.world.client.clone(), &self.world.settings.operator_namespace);
        let address = format!("{}:8080", cluster_ip(&api.get(Settings::RELEASE).await?)?);
        let path = format!("/maps/{}/{}", self.ns, self.cluster);
        Ok(Arc::new(Follower::start(address, path)))
    }

    /// The account of applications.
    ///
    /// # Errors
    /// When there is no Secret for it.
    pub async fn account(&self) -> Result<Account> {
        let secret = names::app_secret(&self.cluster);
        Ok(Account {
            user: self.secret(&secret, "username").await?,
            password: self.secret(&secret, "password").await?,
            ca: Some(self.secret(&secret, "ca.crt").await?.into_bytes()),
        })
    }

    /// One client, as an application has it.
    ///
    /// # Errors
    /// When the operator's Service or the Secret is not there.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::new(self.follow().await?, self.account().await?, PATIENCE))
    }

    /// Begins to write to all these shards, and gives the crowd once each was written.
    ///
    /// # Errors
    /// When the fleet cannot be reached, or does not take the rows.
    pub async fn crowd(&self, shards: &[i32], pace: Pace) -> Result<Crowd> {
        ensure!(!shards.is_empty() && pace.clients > 0, "nobody would write");
        let (follower, account) = (self.follow().await?, self.account().await?);
        let stop = Arc::new(AtomicBool::new(false));
        let chased = Arc::<Mutex<Chased>>::default();
        let stamp = CROWDS.fetch_add(1, Ordering::Relaxed);
        let of = |shard: i32, shape, who: &str| OfShard {
            shard,
            shape,
            book: Arc::new(Book::new(&format!("crowd-{stamp}-{who}-{shard}"))),
        };
        let client = || Client::new(follower.clone(), account.clone(), PATIENCE);
        let (mut all, mut tasks) = (vec![], vec![]);
        for n in 0..pace.clients {
            let shape = if n % 2 == 0 {
                Shape::Statement
            } else {
                Shape::Transaction
            };
            let own: Vec<_> = shards
                .iter()
                .skip(n)
                .step_by(pace.clients)
                .map(|s| of(*s, shape, "base"))
                .collect();
            all.extend(own.clone());
            tasks.push(tokio::spawn(write_all(client(), own, pace.pause, stop.clone())));
        }
        for n in 0..pace.chasers {
            let shape = if n % 2 == 0 {
                Shape::Statement
            } else {
                Shape::Transaction
            };
            let own: BTreeMap<i32, OfShard> = shards
                .iter()
                .map(|s| (*s, of(*s, shape, &format!("chaser{n}"))))
                .collect();
            all.extend(own.values().cloned());
            tasks.push(tokio::spawn(chase(
                client(),
                own,
                pace.chaser_pause,
                Arc::clone(&chased),
                stop.clone(),
            )));
        }
        let crowd = Crowd {
            all,
            stop,
            tasks,
            chased,
        };
        crowd.written_since(Instant::now(), wait::SOON).await?;
        Ok(crowd)
    }
}

impl Crowd {
    /// Waits until every shard has an acknowledged row that was begun after `since`.
    ///
    /// # Errors
    /// When one has none after `limit`.
    pub async fn written_since(&self, since: Instant, limit: Duration) -> Result<()> {
        wait::until("a row of every shard to be acknowledged", limit, || async {
            let mut by_shard = BTreeMap::<i32, bool>::new();
            for one in &self.all {
                let written = one
                    .book
                    .since(since)
                    .iter()
                    .any(|t| t.ending == Ending::Acknowledged);
                *by_shard.entry(one.shard).or_default() |= written;
            }
            let not: Vec<_> = by_shard.iter().filter(|(_, w)| !**w).map(|(s, _)| *s).collect();
            Ok(Seen::when(not.is_empty(), || format!("not of {not:?}")))
        })
        .await
    }

    /// Has the chasers write to these shards, each to the next one that no other writes to.
    pub fn chase(&self, shards: Vec<i32>) {
        let mut chased = self.chased.lock().unwrap_or_else(PoisonError::into_inner);
        chased.shards = shards;
    }

    /// What was tried so far.
    pub fn all(&self) -> &[OfShard] {
        &self.all
    }

    /// Ends it when each client has ended its present try; gives what was tried.
    ///
    /// # Errors
    /// When a client had died.
    pub async fn stop(self) -> Result<Vec<OfShard>> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.context("a client died")?;
        }
        Ok(self.all)
    }
}

async fn write_all(mut client: Client, own: Vec<OfShard>, pause: Duration, stop: Arc<AtomicBool>) {
    for number in 1.. {
        for one in &own {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            write(&mut client, one, number).await;
            tokio::time::sleep(pause).await;
        }
        if own.is_empty() {
            return;
        }
    }
}

/// Shards that are to be written by chasers.
#[derive(Default)]
struct Chased {
    /// In the order in which they move.
    shards: Vec<i32>,
    /// One chaser each.
    taken: BTreeSet<i32>,
}

/// Writes to one shard until it is not to be chased any more and a row that was begun after that is acknowledged: so both the last row at the old home and
/// the first one at the new are this client's. Then to the next that nobody writes to.
async fn chase(
    mut client: Client,
    own: BTreeMap<i32, OfShard>,
    pause: Duration,
    chased: Arc<Mutex<Chased>>,
    stop: Arc<AtomicBool>,
) {
    let mut numbers = BTreeMap::<i32, u64>::new();
    let mut present: Option<&OfShard> = None;
    while !stop.load(Ordering::Relaxed) {
        let over = {
            let mut chased = chased.lock().unwrap_or_else(PoisonError::into_inner);
            if present.is_none() {
                let next = chased.shards.iter().find(|s| !chased.taken.contains(s)).copied();
                present = next.and_then(|s| own.get(&s));
                chased.taken.extend(next);
            }
            present.is_some_and(|one| !chased.shards.contains(&one.shard))
        };
        let Some(one) = present else {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let number = numbers.entry(one.shard).or_default();
        *number += 1;
        let acknowledged = write(&mut client, one, *number).await;
        if over && acknowledged {
            let mut chased = chased.lock().unwrap_or_else(PoisonError::into_inner);
            chased.taken.remove(&one.shard);
            present = None;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Whether it was acknowledged.
async fn write(client: &mut Client, one: &OfShard, number: u64) -> bool {
    let begun = Instant::now();
    let done = row(client, one.shard, one.shape, &one.book.client, number).await;
    let (host, connected, ending) = match done {
        Ok(done) => (done.place.host, done.connected, Ending::Acknowledged),
        Err(Error::Refused { code, why, host }) => (host, None, Ending::Refused(code, why)),
        Err(Error::NotInTime { why, host }) => (host, None, Ending::NotSent(why)),
        Err(Error::Unknown { why, host }) => (host, None, Ending::Unknown(why)),
    };
    let acknowledged = ending == Ending::Acknowledged;
    one.book.note(Try {
        number,
        begun,
        connected,
        ended: Instant::now(),
        host,
        ending,
    });
    acknowledged
}

/// Writes one row, or one row each into two tables.
///
/// # Errors
/// What the client found.
pub async fn row(
    client: &mut Client,
    shard: i32,
    shape: Shape,
    who: &str,
    number: u64,
) -> Result<Done<()>, Error> {
    let insert = |database: &str, table| {
        format!(
            "INSERT INTO `{database}`.`{table}` (data) VALUES (JSON_OBJECT('client', '{who}', 'row', {number}))"
        )
    };
    match shape {
        Shape::Statement => {
            client
                .statement(shard, |conn, database| {
                    let sql = insert(database, TABLE);
                    Box::pin(async move { conn.query_drop(sql).await })
                })
                .await
        }
        Shape::Transaction => {
            client
                .transaction(shard, |conn, database| {
                    let (pin, board) = (insert(database, TABLE), insert(database, OTHER));
                    let seal = format!(
                        "UPDATE `{database}`.`{OTHER}` SET data = JSON_SET(data, '$.sealed', 1) WHERE local_id = LAST_INSERT_ID()"
                    );
                    Box::pin(async move {
                        for sql in [pin, board, seal] {
                            conn.query_drop(sql).await?;
                        }
                        Ok(())
                    })
                })
                .await
        }
    }
}
