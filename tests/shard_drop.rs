//! Dropping what has moved away, on two real servers under load: nothing reaches the binary log, nobody's write is lost, and the rest of the
//! server goes on.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod mysqld;

use mysqld::{LIMIT, Server, credentials, make, naming, pair, servers, told, until};
use shardwright::{
    core::spans::SpanSet,
    mysql::{shard_drop, shard_fence},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

const SHARDS: i32 = 40;
const BUDGET: Duration = Duration::from_secs(20);

fn set(shards: impl IntoIterator<Item = i32>) -> SpanSet {
    shards.into_iter().collect()
}
async fn have(server: &Server) -> SpanSet {
    flags(server).await.have
}
async fn flags(server: &Server) -> shard_fence::Flags {
    shard_fence::read(&mut server.operator().await, &naming())
        .await
        .unwrap()
}
async fn shut(server: &Server, shards: &SpanSet) {
    let mut s = server.operator().await;
    shard_fence::shut(&mut s, &naming(), shards).await.unwrap();
}
async fn graves(server: &Server) -> i64 {
    server
        .number("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'shardwright\\_dropped\\_%'")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn what_has_moved_is_dropped_on_real_servers() {
    let [a, b] = servers(["a", "b"], &credentials()).await;
    pair(&a, &b).await;
    make(&a, 0..SHARDS).await;
    until("the passive has all databases", || async {
        have(&b).await.len() == 40
    })
    .await;

    nothing_is_dropped_that_must_not_be(&a, &b).await;
    a_reader_of_an_old_copy_holds_it_up(&a).await;
    a_write_into_an_old_copy_is_never_lost(&a).await;
    it_is_dropped_under_load_and_the_rest_goes_on(&a, &b).await;
    it_goes_on_where_it_was_cut_short(&b).await;
}

async fn nothing_is_dropped_that_must_not_be(a: &Server, b: &Server) {
    let mut s = a.operator().await;
    let open = shard_drop::drop(&mut s, &naming(), &set([0]), BUDGET)
        .await
        .unwrap_err();
    assert!(open.to_string().contains("shards 0 are not fenced"), "{open}");
    shut(b, &set([0])).await;
    let mut s = b.operator().await;
    s.run(
        LIMIT,
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'nowhere' FOR CHANNEL 'from-p9'",
    )
    .await
    .unwrap();
    let channel = shard_drop::drop(&mut s, &naming(), &set([0]), BUDGET)
        .await
        .unwrap_err();
    assert!(channel.to_string().contains("from-p9"), "{channel}");
    s.run(LIMIT, "RESET REPLICA ALL FOR CHANNEL 'from-p9'")
        .await
        .unwrap();
    assert!(have(a).await.contains(0) && have(b).await.contains(0));
    // On the passive one; the active one still has it, and nothing was written to any binary log.
    let before = (a.executed().await, b.executed().await);
    let done = shard_drop::drop(&mut s, &naming(), &set([0, 999]), BUDGET)
        .await
        .unwrap();
    assert_eq!((done.dropped, done.all, done.tables), (set([0, 999]), true, 2));
    assert_eq!((have(a).await.len(), have(b).await.len()), (40, 39));
    assert_eq!(before, (a.executed().await, b.executed().await));
    assert_eq!(b.number("SELECT @@GLOBAL.super_read_only").await, 1);
    assert_eq!(graves(b).await, 0);
    assert_eq!(
        s.rows::<i64>(LIMIT, "SELECT @@SESSION.sql_log_bin")
            .await
            .unwrap(),
        [1]
    );
}

async fn a_reader_of_an_old_copy_holds_it_up(a: &Server) {
    let shard = set([0]);
    shut(a, &shard).await;
    let mut reader = a.client().await;
    for sql in ["BEGIN", "SELECT * FROM my_db00000.t"] {
        assert_eq!(told(&mut reader, sql).await, Some(0));
    }
    let mut s = a.operator().await;
    let held = shard_drop::drop(&mut s, &naming(), &shard, BUDGET)
        .await
        .unwrap_err();
    assert_eq!(held.code(), Some(1205), "{held}");
    assert_eq!(flags(a).await.shut, shard, "it is as it was");
    assert_eq!(told(&mut reader, "COMMIT").await, Some(0));
    assert!(
        shard_drop::drop(&mut s, &naming(), &shard, BUDGET)
            .await
            .unwrap()
            .all
    );
    // A client with an old map is refused, and told which database.
    assert_eq!(
        told(&mut reader, "INSERT INTO my_db00000.t (v) VALUES (1)").await,
        Some(1049)
    );
}

/// Clients that have slept since before the move, and awake just when the fence is taken away for the drop.
async fn a_write_into_an_old_copy_is_never_lost(a: &Server) {
    let (mut kept, mut dropped) = (0, 0);
    for n in 1..6 {
        let shard = set([n]);
        shut(a, &shard).await;
        let end = Arc::<AtomicBool>::default();
        let done = Arc::<AtomicI64>::default();
        let mut clients = vec![];
        for table in ["t", "u", "t", "u"] {
            let (end, done, mut client) = (Arc::clone(&end), Arc::clone(&done), a.client().await);
            let sql = format!("INSERT INTO {}.{table} (v) VALUES (1)", naming().name(n));
            clients.push(tokio::spawn(async move {
                while !end.load(SeqCst) {
                    match told(&mut client, &sql).await {
                        Some(0) => _ = done.fetch_add(1, SeqCst),
                        // Kept out; fenced; locked for too long; a victim; moved into the grave, dropped.
                        Some(1142 | 3989 | 1205 | 1213 | 1146 | 1049) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }));
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        let result = shard_drop::drop(&mut a.operator().await, &naming(), &shard, BUDGET).await;
        end.store(true, SeqCst);
        for client in clients {
            client.await.unwrap();
        }
        let acknowledged = done.load(SeqCst);
        if have(a).await.contains(n) {
            kept += 1;
            let error = result.unwrap_err();
            assert_eq!(flags(a).await.shut, shard, "{error}");
            let db = naming().name(n);
            let rows = format!("SELECT (SELECT COUNT(*) FROM {db}.t) + (SELECT COUNT(*) FROM {db}.u)");
            assert_eq!(a.number(&rows).await, acknowledged, "{error}");
            let mut s = a.operator().await;
            // A second write in the same second would not be told from the first.
            let early = shard_drop::drop(&mut s, &naming(), &shard, BUDGET)
                .await
                .unwrap_err();
            assert!(early.to_string().contains("less than 2 s ago"), "{early}");
            tokio::time::sleep(Duration::from_millis(2100)).await;
            shard_drop::drop(&mut s, &naming(), &shard, BUDGET).await.unwrap();
        } else {
            dropped += 1;
            assert_eq!(
                acknowledged, 0,
                "shard {n}: what a client was told OK for is gone"
            );
        }
    }
    println!(
        "with four clients at each old copy, {dropped} were dropped at once and {kept} kept for what was written"
    );
}

/// Latencies of a client on another shard while something is done.
async fn beside<T>(server: &Server, work: impl Future<Output = T>) -> (T, Vec<Duration>) {
    let end = Arc::<AtomicBool>::default();
    let mut clients = vec![];
    for table in ["t", "u", "t"] {
        let (end, mut client) = (Arc::clone(&end), server.client().await);
        clients.push(tokio::spawn(async move {
            let mut took = vec![];
            while !end.load(SeqCst) {
                let began = Instant::now();
                let sql = format!("INSERT INTO my_db00039.{table} (v) VALUES (1)");
                assert_eq!(told(&mut client, &sql).await, Some(0));
                took.push(began.elapsed());
            }
            took
        }));
    }
    let result = work.await;
    end.store(true, SeqCst);
    let mut all = vec![];
    for client in clients {
        all.extend(client.await.unwrap());
    }
    all.sort();
    (result, all)
}

async fn it_is_dropped_under_load_and_the_rest_goes_on(a: &Server, b: &Server) {
    let moved = set(6..35);
    shut(a, &moved).await;
    let ((), calm) = beside(a, tokio::time::sleep(Duration::from_secs(2))).await;
    let began = Instant::now();
    let mut s = a.operator().await;
    let (done, busy) = beside(a, async {
        shard_drop::drop(&mut s, &naming(), &moved, BUDGET).await.unwrap()
    })
    .await;
    let took = began.elapsed();
    assert_eq!((done.dropped, done.all, done.tables), (moved.clone(), true, 58));
    let (calm_p99, busy_p99) = (calm[calm.len() * 99 / 100], busy[busy.len() * 99 / 100]);
    println!(
        "dropped 29 databases with 58 tables in {took:?}; writes on another shard: p50 {:?} before, {:?} meanwhile; p99 {calm_p99:?} before, \
         {busy_p99:?} meanwhile; the slowest {:?}",
        calm[calm.len() / 2],
        busy[busy.len() / 2],
        busy.last().unwrap()
    );
    // Generous: the machine has other things to do.
    assert!(
        busy_p99 < calm_p99 * 5 + Duration::from_millis(100),
        "{busy_p99:?}"
    );
    assert!(moved.is_subset(&have(b).await), "the other one has its own");
    until("nothing of it is in a binary log", || async {
        a.executed().await == b.executed().await
    })
    .await;
}

async fn it_goes_on_where_it_was_cut_short(b: &Server) {
    let moved = set(1..35);
    shut(b, &moved).await;
    let mut calls = 0;
    loop {
        // Each call by another operator.
        let mut s = b.operator().await;
        let done = shard_drop::drop(&mut s, &naming(), &moved, Duration::from_millis(150))
            .await
            .unwrap();
        assert_eq!(done.dropped, moved.minus(&have(b).await));
        calls += 1;
        if done.all {
            break;
        }
        assert!(calls < 500, "it does not end");
    }
    assert!(calls > 1, "it was not cut short");
    assert_eq!(have(b).await, set(35..SHARDS));
    assert_eq!(graves(b).await, 0);
    assert_eq!(b.number("SELECT @@GLOBAL.super_read_only").await, 1);
}
