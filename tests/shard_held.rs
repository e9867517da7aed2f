//! Fences of shards that somebody holds on to, on real servers: for how long anybody waits, what clients are told, and who is ended.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod mysqld;

use mysqld::{
    LIMIT, Server, credentials,
    fences::{SHARDS, WHOLE, Writers, barrier, begin, flags, holders, set},
    make, naming, pair, servers, told, until,
};
use shardwright::{
    core::spans::SpanSet,
    mysql::Error,
    mysql::shard_fence::{self, Fenced, Holder, Patience, Who},
};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn shards_that_are_held_on_real_servers() {
    let [a, b] = servers(["a", "b"], &credentials()).await;
    pair(&a, &b).await;
    make(&a, 0..SHARDS).await;
    an_open_transaction_holds_the_barrier_for_a_second(&a).await;
    its_patience_is_as_short_as_one_likes(&a).await;
    whoever_wants_a_second_table_meanwhile_is_the_victim(&a).await;
    a_holder_is_ended_past_its_deadline(&a).await;
}

/// Waits until the barrier waits.
async fn barrier_waits(server: &Server) {
    until("the barrier waits", || async {
        server
            .number("SELECT COUNT(*) FROM performance_schema.processlist WHERE state LIKE 'Waiting for %metadata lock' AND info LIKE '%ALTER DATABASE%'")
            .await
            > 0
    })
    .await;
}

async fn an_open_transaction_holds_the_barrier_for_a_second(a: &Server) {
    let (mut client, id) = begin(a, 3).await;
    let mut active = a.operator().await;
    let found = holders(&mut active, &set(0..SHARDS)).await;
    assert!(
        matches!(&found[..], [Holder { shard: 3, who: Who::Client { id: who, user, .. }, .. }] if *who == id && user == "app"),
        "{found:?}"
    );
    let writers = Writers::start(a, 2, 2).await;
    let began = Instant::now();
    let fenced = barrier(a, &mut active, &set([2, 3, 4]), WHOLE).await;
    let took = began.elapsed();
    let Fenced::Held { shut, by } = fenced else {
        panic!("{fenced:?}");
    };
    // What comes before it is shut and stays so until the caller has put on record that the batch is undone.
    assert_eq!((shut.clone(), flags(a).await.shut), (set([2]), set([2])));
    assert!(
        matches!(&by[..], [Holder { shard: 3, who: Who::Client { id: who, .. }, open }] if *who == id && *open >= Duration::from_secs(1)),
        "{by:?}"
    );
    assert!(
        (Duration::from_millis(900)..Duration::from_secs(3)).contains(&took),
        "{took:?}"
    );
    shard_fence::open(&mut active, &naming(), &shut).await.unwrap();
    assert_eq!(flags(a).await.shut, SpanSet::new());
    let ledger = writers.end().await;
    assert!(
        ledger.refused.is_empty(),
        "shards that are not in the batch notice nothing"
    );
    let slowest = ledger.slowest.values().max().unwrap();
    println!("1205 after {took:?}; the slowest transaction on other shards took {slowest:?}");
    assert!(*slowest < Duration::from_millis(700), "{slowest:?}");
    // The transaction was not harmed.
    assert_eq!(told(&mut client, "COMMIT").await, Some(0));
    assert!(matches!(
        barrier(a, &mut active, &set([3]), WHOLE).await,
        Fenced::All(_)
    ));
    shard_fence::open(&mut active, &naming(), &set([3]))
        .await
        .unwrap();
    // A reader holds on to it as well.
    let mut reader = a.client().await;
    assert_eq!(told(&mut reader, "BEGIN").await, Some(0));
    assert_eq!(told(&mut reader, "SELECT * FROM my_db00003.t").await, Some(0));
    let fenced = barrier(a, &mut active, &set([3]), WHOLE).await;
    assert!(
        matches!(fenced, Fenced::Held { ref shut, .. } if shut.is_empty()),
        "{fenced:?}"
    );
}

async fn its_patience_is_as_short_as_one_likes(a: &Server) {
    let (mut client, _) = begin(a, 3).await;
    let mut active = a.operator().await;
    let mut reader = a.client().await;
    assert_eq!(told(&mut reader, "SELECT * FROM my_db00003.u").await, Some(0));
    let waits = tokio::spawn(async move {
        let began = Instant::now();
        // Behind the barrier.
        tokio::time::sleep(Duration::from_millis(80)).await;
        let code = told(&mut reader, "SELECT * FROM my_db00003.t").await;
        (code, began.elapsed())
    });
    let began = Instant::now();
    let fenced = barrier(a, &mut active, &set([2, 3, 4]), Duration::from_millis(150)).await;
    let took = began.elapsed();
    assert!(
        matches!(&fenced, Fenced::Held { shut, by } if *shut == set([2]) && by.len() == 1),
        "{fenced:?}"
    );
    let (code, waited) = waits.await.unwrap();
    println!(
        "a barrier that may wait 150 ms gave up after {took:?}, with its connection; a reader behind it waited {waited:?}"
    );
    assert!(took < Duration::from_millis(700), "{took:?}");
    assert_eq!(code, Some(0));
    assert_eq!(told(&mut client, "ROLLBACK").await, Some(0));
    shard_fence::open(&mut active, &naming(), &set([2]))
        .await
        .unwrap();

    // Against transactions that let go at about the time when it is told to end: what is said to be shut is shut.
    let writers = Writers::start(a, 4, 4).await;
    let mut beside = a.operator().await;
    let (mut all, mut held, mut mute) = (0, 0, 0);
    for n in 0..60 {
        let patience = Patience {
            beside: &mut beside,
            limit: Duration::from_millis(n % 6 + 1),
        };
        let batch = set(0..4);
        let fenced = shard_fence::fence(&mut active, &naming(), &batch, patience).await;
        let shut = flags(a).await.shut;
        match fenced {
            Ok(Fenced::All(_)) => {
                all += 1;
                assert_eq!(shut, batch);
            }
            Ok(Fenced::Held { shut: said, .. }) => {
                held += 1;
                assert_eq!(shut, said);
            }
            // Told to end in the very moment when it went on, mysqld gives no answer.
            Err(e) => {
                assert!(matches!(e, Error::Timeout(_)) && active.is_broken(), "{e}");
                mute += 1;
                active = a.operator().await;
            }
        }
        shard_fence::open(&mut active, &naming(), &batch).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ledger = writers.end().await;
    assert!(
        ledger.refused.keys().all(|code| matches!(code, 3989 | 1213)),
        "{:?}",
        ledger.refused
    );
    println!(
        "told to end at about the time when it does: {all} were through, {held} were not, {mute} gave no answer"
    );
    assert!(mute <= 3, "{mute}");
    assert_eq!(
        active
            .rows::<i64>(LIMIT, "SELECT @@SESSION.sql_log_bin")
            .await
            .unwrap(),
        [1]
    );
}

async fn whoever_wants_a_second_table_meanwhile_is_the_victim(a: &Server) {
    let mut client = a.client().await;
    // Tables that the server knows well are locked one by one, in the order of their names, and the barrier has `t` when it waits for `u`.
    for sql in [
        "INSERT INTO my_db00005.t (v) VALUES (1)",
        "INSERT INTO my_db00005.u (v) VALUES (1)",
        "BEGIN",
        "INSERT INTO my_db00005.u (v) VALUES (7)",
    ] {
        assert_eq!(told(&mut client, sql).await, Some(0));
    }
    let mut active = a.operator().await;
    let mut beside = a.operator().await;
    let fence = tokio::spawn(async move {
        let (batch, limit) = (set([5]), WHOLE);
        let patience = Patience {
            beside: &mut beside,
            limit,
        };
        shard_fence::fence(&mut active, &naming(), &batch, patience).await
    });
    barrier_waits(a).await;
    // It is the whole transaction that has to be repeated.
    let code = told(&mut client, "INSERT INTO my_db00005.t (v) VALUES (7)").await;
    assert_eq!(code, Some(1213));
    let fenced = fence.await.unwrap().unwrap();
    assert!(matches!(fenced, Fenced::All(_)), "{fenced:?}");
    for (sql, code) in [
        ("BEGIN", 0),
        ("INSERT INTO my_db00005.t (v) VALUES (7)", 3989),
        ("ROLLBACK", 0),
    ] {
        assert_eq!(told(&mut client, sql).await, Some(code));
    }
    let mut active = a.operator().await;
    shard_fence::open(&mut active, &naming(), &set([5]))
        .await
        .unwrap();
    assert_eq!(a.number("SELECT COUNT(*) FROM my_db00005.u WHERE v = 7").await, 0);
}

async fn a_holder_is_ended_past_its_deadline(a: &Server) {
    let (mut client, id) = begin(a, 6).await;
    let (mut other, _) = begin(a, 7).await;
    let mut active = a.operator().await;
    let (naming, batch) = (naming(), set([6]));
    let end = |after| Duration::from_millis(after);
    let ended = shard_fence::end_holders(&mut active, &naming, &batch, end(60_000))
        .await
        .unwrap();
    assert_eq!(ended, [], "not before its deadline");
    tokio::time::sleep(end(120)).await;
    let ended = shard_fence::end_holders(&mut active, &naming, &batch, end(100))
        .await
        .unwrap();
    assert!(
        matches!(&ended[..], [Holder { shard: 6, who: Who::Client { id: who, .. }, .. }] if *who == id),
        "{ended:?}"
    );
    assert_eq!(
        told(&mut client, "COMMIT").await,
        None,
        "its connection is closed"
    );
    let fenced = barrier(a, &mut active, &batch, WHOLE).await;
    assert!(matches!(fenced, Fenced::All(_)), "{fenced:?}");
    assert_eq!(a.number("SELECT COUNT(*) FROM my_db00006.t WHERE v = 7").await, 0);
    shard_fence::open(&mut active, &naming, &batch).await.unwrap();
    assert_eq!(
        told(&mut other, "COMMIT").await,
        Some(0),
        "that of another shard is left alone"
    );
}
