//! What tests of fences have in common: writers that keep a ledger, and the barrier.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may, and not each uses all of it"
)]

use super::{Server, naming, told};
use mysql_async::Conn;
use shardwright::{
    core::spans::SpanSet,
    mysql::{
        Session,
        shard_fence::{self, Fenced, Flags, Holder, Patience},
    },
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub const SHARDS: i32 = 8;

pub fn set(shards: impl IntoIterator<Item = i32>) -> SpanSet {
    shards.into_iter().collect()
}

pub async fn flags(server: &Server) -> Flags {
    shard_fence::read(&mut server.operator().await, &naming())
        .await
        .unwrap()
}

/// The server gives up before.
pub const WHOLE: Duration = Duration::from_secs(10);

pub async fn barrier(server: &Server, s: &mut Session, batch: &SpanSet, limit: Duration) -> Fenced {
    let mut beside = server.operator().await;
    let patience = Patience {
        beside: &mut beside,
        limit,
    };
    shard_fence::fence(s, &naming(), batch, patience).await.unwrap()
}

pub async fn holders(s: &mut Session, shards: &SpanSet) -> Vec<Holder> {
    shard_fence::holders(s, &naming(), shards).await.unwrap()
}

/// What clients were told.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Transactions that were acknowledged, for each shard.
    pub done: BTreeMap<i32, i64>,
    /// Errors.
    pub refused: BTreeMap<u16, u32>,
    /// The slowest transaction that was acknowledged, for each shard.
    pub slowest: BTreeMap<i32, Duration>,
}

pub struct Writers {
    ledger: Arc<Mutex<Ledger>>,
    end: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    /// Starts some, each with transactions of one row in both tables of one shard after the other.
    pub async fn start(server: &Server, count: i32, shards: i32) -> Self {
        let (ledger, end) = (Arc::<Mutex<Ledger>>::default(), Arc::<AtomicBool>::default());
        let mut tasks = vec![];
        for first in 0..count {
            let client = server.client().await;
            tasks.push(tokio::spawn(write(
                client,
                first..shards + first,
                shards,
                Arc::clone(&ledger),
                Arc::clone(&end),
            )));
        }
        Self { ledger, end, tasks }
    }
    pub async fn end(self) -> Ledger {
        self.end.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::into_inner(self.ledger).unwrap().into_inner().unwrap()
    }
}

pub async fn write(
    mut client: Conn,
    order: Range<i32>,
    shards: i32,
    ledger: Arc<Mutex<Ledger>>,
    end: Arc<AtomicBool>,
) {
    for shard in order.cycle() {
        if end.load(SeqCst) {
            return;
        }
        let (shard, db) = (shard % shards, naming().name(shard % shards));
        let began = Instant::now();
        let mut code = 0;
        for sql in [
            "BEGIN".to_owned(),
            format!("INSERT INTO {db}.t (v) VALUES (1)"),
            format!("INSERT INTO {db}.u (v) VALUES (1)"),
            "COMMIT".to_owned(),
        ] {
            code = told(&mut client, &sql).await.expect("no connection is lost");
            if code != 0 {
                assert_eq!(told(&mut client, "ROLLBACK").await, Some(0));
                break;
            }
        }
        let took = began.elapsed();
        {
            let mut ledger = ledger.lock().unwrap();
            if code == 0 {
                *ledger.done.entry(shard).or_default() += 1;
                let slowest = ledger.slowest.entry(shard).or_default();
                *slowest = took.max(*slowest);
            } else {
                *ledger.refused.entry(code).or_default() += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn begin(server: &Server, shard: i32) -> (Conn, u64) {
    let mut client = server.client().await;
    let db = naming().name(shard);
    assert_eq!(told(&mut client, "BEGIN").await, Some(0));
    assert_eq!(
        told(&mut client, &format!("INSERT INTO {db}.t (v) VALUES (7)")).await,
        Some(0)
    );
    let id = u64::from(client.id());
    (client, id)
}
