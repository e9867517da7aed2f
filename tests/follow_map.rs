//! The client of `examples/follow_map` against two real servers and the operator's own long poll: whatever becomes of a shard, a transaction is committed
//! once and whole, where the shard is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

#[path = "../examples/follow_map/client/mod.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod client;
mod mysqld;

use client::{Account, Client, Done, Error, Follower};
use futures::future::BoxFuture;
use mysql_async::{Conn, prelude::Queryable as _};
use mysqld::{
    LIMIT, Server, credentials,
    fences::{WHOLE, barrier, flags, set},
    make, naming, servers,
};
use shardwright::{
    core::credentials::APP_USER,
    maps::{Key, Maps, Published, router},
    metrics::Metrics,
    mysql::{accounts, fence, shard_fence},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle, time::timeout};

/// Shards, all of them at the first server to begin with.
const SHARDS: i32 = 6;

/// The published map, and who publishes it.
struct Publisher {
    maps: Arc<Maps>,
    key: Key,
    follower: Arc<Follower>,
    version: i64,
    /// Port of each shard's server.
    homes: Vec<u16>,
}

impl Publisher {
    async fn new(first: &Server) -> Self {
        let maps = Arc::new(Maps::new(0));
        maps.in_touch(true);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let app = router(Arc::clone(&maps), Arc::new(Metrics::default()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut publisher = Self {
            maps,
            key: Key {
                namespace: "n".into(),
                cluster: "c".into(),
            },
            follower: Arc::new(Follower::start(address, "/maps/n/c".into())),
            version: 0,
            homes: (0..SHARDS).map(|_| first.port()).collect(),
        };
        publisher.publish();
        publisher
    }

    fn publish(&mut self) {
        self.version += 1;
        let entries: Vec<_> = (0..)
            .zip(&self.homes)
            .map(|(n, port)| {
                serde_json::json!({"first": n, "last": n, "pair": "p", "active": {"host": "localhost", "port": port}})
            })
            .collect();
        let body = serde_json::json!({
            "version": self.version,
            "databases": {"prefix": "my_db", "digits": 5, "total": 1024},
            "entries": entries,
        });
        let hash = self.version.to_string();
        self.maps
            .saw_record(&self.key, Some((self.version, hash.clone())));
        let map = Published {
            version: self.version,
            hash,
            body: body.to_string(),
        };
        self.maps.saw_map(&self.key, map);
    }

    /// Opens a shard at a server, and says so.
    async fn open_at(&mut self, shard: i32, server: &Server) {
        let mut s = server.operator().await;
        shard_fence::open(&mut s, &naming(), &set([shard])).await.unwrap();
        *self.homes.get_mut(usize::try_from(shard).unwrap()).unwrap() = server.port();
        self.publish();
    }

    fn client(&self, server: &Server) -> Client {
        let account = Account {
            user: APP_USER.into(),
            password: server.credentials.app_password.clone(),
            ca: Some(server.credentials.ca_crt.clone().into_bytes()),
        };
        Client::new(Arc::clone(&self.follower), account, LIMIT)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn a_client_goes_on_whatever_becomes_of_its_shard() {
    let [mut a, b] = servers(["a", "b"], &credentials()).await;
    for server in [&a, &b] {
        let mut s = server.operator().await;
        s.lock().await.unwrap();
        fence::open(&mut s).await.unwrap();
        accounts::set_up(
            &mut s,
            &server.credentials,
            &naming(),
            std::slice::from_ref(&server.uuid),
        )
        .await
        .unwrap();
        make(server, 0..SHARDS).await;
    }
    let mut s = b.operator().await;
    shard_fence::shut(&mut s, &naming(), &set(0..SHARDS))
        .await
        .unwrap();
    let mut map = Publisher::new(&a).await;

    what_is_wrong_for_good_is_told(&map, &a).await;
    one_that_is_refused_is_committed_where_the_shard_is(&mut map, &a, &b).await;
    what_a_fence_meets_is_done_as_a_whole(&mut map, &a, &b).await;
    a_copy_that_was_dropped_sends_to_the_map(&mut map, &a, &b).await;
    a_server_that_ends_in_a_transaction_has_nothing_of_it(&mut map, &mut a, &b).await;
    one_that_cannot_be_done_in_time_is_not_done(&map, &b).await;
}

/// A row in each of the two tables.
fn both() -> impl for<'a> FnMut(&'a mut Conn, &'a str) -> BoxFuture<'a, Result<(), mysql_async::Error>> + Send
{
    |conn, database| {
        Box::pin(async move {
            for table in ["t", "u"] {
                conn.query_drop(format!("INSERT INTO `{database}`.{table} (v) VALUES (1)"))
                    .await?;
            }
            Ok(())
        })
    }
}

/// As [`both`]; in the first try it says that it is half done, and goes on after a while.
fn by_halves(
    half: Arc<Notify>,
    rest: Arc<Notify>,
    tries: Arc<AtomicU32>,
) -> impl for<'a> FnMut(&'a mut Conn, &'a str) -> BoxFuture<'a, Result<(), mysql_async::Error>> + Send {
    move |conn, database| {
        let (half, rest) = (Arc::clone(&half), Arc::clone(&rest));
        let first = tries.fetch_add(1, SeqCst) == 0;
        Box::pin(async move {
            conn.query_drop(format!("INSERT INTO `{database}`.u (v) VALUES (1)"))
                .await?;
            if first {
                half.notify_one();
                rest.notified().await;
            }
            conn.query_drop(format!("INSERT INTO `{database}`.t (v) VALUES (1)"))
                .await
        })
    }
}

/// Rows in the two tables of a shard.
async fn rows(server: &Server, shard: i32) -> [i64; 2] {
    let db = naming().name(shard);
    [
        server.number(&format!("SELECT COUNT(*) FROM {db}.t")).await,
        server.number(&format!("SELECT COUNT(*) FROM {db}.u")).await,
    ]
}

async fn committed(task: JoinHandle<Result<Done<()>, Error>>) -> Done<()> {
    timeout(LIMIT * 2, task).await.unwrap().unwrap().unwrap()
}

async fn what_is_wrong_for_good_is_told(map: &Publisher, a: &Server) {
    let mut client = map.client(a);
    let wrong = client
        .transaction(0, |conn, database| {
            Box::pin(async move {
                conn.query_drop(format!("INSERT INTO `{database}`.t (v) VALUES (1)"))
                    .await?;
                conn.query_drop(format!("INSERT INTO `{database}`.none (v) VALUES (1)"))
                    .await
            })
        })
        .await;
    assert!(
        matches!(&wrong, Err(Error::Refused { code: 1146, .. })),
        "{wrong:?}"
    );
    assert_eq!(rows(a, 0).await, [0, 0], "its first half was undone");
    // The connection is as good as ever, and outside of that transaction.
    let done = client.transaction(0, both()).await.unwrap();
    assert_eq!((done.place.port, done.connected), (a.port(), None));
    let counted = client.statement(0, |conn, database| {
        Box::pin(conn.query_first::<i64, _>(format!("SELECT COUNT(*) FROM `{database}`.t")))
    });
    assert_eq!(counted.await.unwrap().value, Some(1));
}

async fn one_that_is_refused_is_committed_where_the_shard_is(map: &mut Publisher, a: &Server, b: &Server) {
    let mut client = map.client(a);
    client.transaction(1, both()).await.unwrap();
    let mut s = a.operator().await;
    shard_fence::shut(&mut s, &naming(), &set([1])).await.unwrap();
    let task = tokio::spawn(async move { client.transaction(1, both()).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!task.is_finished(), "nobody takes its rows");
    map.open_at(1, b).await;
    let done = committed(task).await;
    assert_eq!((done.place.port, done.place.version), (b.port(), map.version));
    assert!(done.repeated > 0);
    assert_eq!((rows(a, 1).await, rows(b, 1).await), ([1, 1], [1, 1]));
}

async fn what_a_fence_meets_is_done_as_a_whole(map: &mut Publisher, a: &Server, b: &Server) {
    let (half, rest) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let tries = Arc::new(AtomicU32::new(0));
    let mut client = map.client(a);
    let work = by_halves(Arc::clone(&half), Arc::clone(&rest), Arc::clone(&tries));
    let task = tokio::spawn(async move { client.transaction(2, work).await });
    timeout(LIMIT, half.notified()).await.unwrap();
    // It has the first table, and waits for the second one, which that transaction has; and that wants the first one (1213).
    let mut s = a.operator().await;
    let shards = set([2]);
    let waits = async {
        let pending = "SELECT COUNT(*) FROM performance_schema.metadata_locks WHERE lock_status = 'PENDING'";
        while a.number(pending).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        rest.notify_one();
    };
    let (_, waited) = tokio::join!(barrier(a, &mut s, &shards, WHOLE), timeout(LIMIT, waits));
    waited.unwrap();
    assert!(flags(a).await.shut.contains(2));
    map.open_at(2, b).await;
    let done = committed(task).await;
    // Which of the two is the victim is the server's choice; it is never half of it.
    let (place, there) = if tries.load(SeqCst) > 1 {
        (b, ([0, 0], [1, 1]))
    } else {
        (a, ([1, 1], [0, 0]))
    };
    assert_eq!(done.place.port, place.port());
    assert_eq!((rows(a, 2).await, rows(b, 2).await), there);
}

async fn a_copy_that_was_dropped_sends_to_the_map(map: &mut Publisher, a: &Server, b: &Server) {
    let mut client = map.client(a);
    a.aside(&format!("DROP DATABASE {}", naming().name(3))).await;
    let task = tokio::spawn(async move { client.transaction(3, both()).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!task.is_finished(), "there is no such database");
    map.open_at(3, b).await;
    assert_eq!(committed(task).await.place.port, b.port());
    assert_eq!(rows(b, 3).await, [1, 1]);
}

async fn a_server_that_ends_in_a_transaction_has_nothing_of_it(
    map: &mut Publisher,
    a: &mut Server,
    b: &Server,
) {
    let (half, rest) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let tries = Arc::new(AtomicU32::new(0));
    let mut client = map.client(a);
    let work = by_halves(Arc::clone(&half), Arc::clone(&rest), Arc::clone(&tries));
    let task = tokio::spawn(async move { client.transaction(4, work).await });
    timeout(LIMIT, half.notified()).await.unwrap();
    a.kill();
    rest.notify_one();
    map.open_at(4, b).await;
    assert_eq!(committed(task).await.place.port, b.port());
    assert_eq!(rows(b, 4).await, [1, 1]);
    a.start().await;
    assert_eq!(rows(a, 4).await, [0, 0]);
}

async fn one_that_cannot_be_done_in_time_is_not_done(map: &Publisher, b: &Server) {
    // Its server is back and closed (1290), and no map has another one.
    let account = Account {
        user: APP_USER.into(),
        password: b.credentials.app_password.clone(),
        ca: Some(b.credentials.ca_crt.clone().into_bytes()),
    };
    let mut client = Client::new(Arc::clone(&map.follower), account, Duration::from_millis(300));
    let told = client.transaction(5, both()).await;
    assert!(
        matches!(&told, Err(Error::NotInTime { why, .. }) if why.contains("read-only")),
        "{told:?}"
    );
    assert_eq!(rows(b, 5).await, [0, 0]);
}
