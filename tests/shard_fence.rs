//! Fences of shards on two real servers: each has flags of its own, nothing is lost under writers, and they survive what becomes of a server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod mysqld;

use mysqld::{
    LIMIT, Server, credentials,
    fences::{SHARDS, WHOLE, Writers, barrier, flags, set},
    follow, make, naming, pair, servers, told, until,
};
use shardwright::{
    core::spans::SpanSet,
    mysql::{
        channel, clone, fence, semisync,
        shard_fence::{self, Fenced, Holder, Who},
    },
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn shards_are_fenced_on_real_servers() {
    let [mut a, mut b] = servers(["a", "b"], &credentials()).await;
    pair(&a, &b).await;
    make(&a, 0..SHARDS).await;
    until("the passive has all databases", || async {
        flags(&b).await.have.len() == 8
    })
    .await;

    each_server_has_flags_of_its_own(&a, &b).await;
    a_fence_under_writers_loses_nothing(&a, &b).await;
    a_fenced_server_is_copied_over(&a, &mut b).await;
    a_prepared_transaction_is_seen_and_holds_the_barrier(&mut a).await;
}

async fn each_server_has_flags_of_its_own(a: &Server, b: &Server) {
    let before = (a.executed().await, b.executed().await);
    let mut passive = b.operator().await;
    let moving = set([0, 1, 2]);
    shard_fence::shut(&mut passive, &naming(), &moving).await.unwrap();
    assert_eq!(flags(b).await.shut, moving);
    assert_eq!(flags(a).await.shut, SpanSet::new());
    let closed = "SELECT @@GLOBAL.super_read_only + 2 * @@GLOBAL.read_only";
    assert_eq!(b.number(closed).await, 3, "the passive one is closed again");
    // What the active one does still arrives there.
    let mut client = a.client().await;
    assert_eq!(
        told(&mut client, "INSERT INTO my_db00001.t (v) VALUES (1)").await,
        Some(0)
    );
    until("a fenced copy follows", || async {
        b.number("SELECT COUNT(*) FROM my_db00001.t").await == 1
    })
    .await;
    // Repeating it is harmless, and one that is not there is said.
    shard_fence::shut(&mut passive, &naming(), &moving).await.unwrap();
    let none = shard_fence::shut(&mut passive, &naming(), &set([500]))
        .await
        .unwrap_err();
    assert_eq!(none.code(), Some(3503), "{none}");
    assert_eq!(b.number(closed).await, 3, "after an error as well");
    shard_fence::open(&mut passive, &naming(), &moving).await.unwrap();
    assert_eq!(flags(b).await.shut, SpanSet::new());

    // On the active one the fence stays where it is as well; the server stays open.
    let mut active = a.operator().await;
    shard_fence::shut(&mut active, &naming(), &set([1]))
        .await
        .unwrap();
    assert_eq!(
        told(&mut client, "INSERT INTO my_db00001.t (v) VALUES (2)").await,
        Some(3989)
    );
    assert_eq!(
        told(&mut client, "SELECT * FROM my_db00001.t FOR UPDATE").await,
        Some(3989)
    );
    assert_eq!(told(&mut client, "SELECT * FROM my_db00001.t").await, Some(0));
    assert_eq!(
        told(&mut client, "INSERT INTO my_db00002.t (v) VALUES (2)").await,
        Some(0)
    );
    assert_eq!(a.number(closed).await, 0);
    shard_fence::open(&mut active, &naming(), &set([1]))
        .await
        .unwrap();
    assert_eq!(
        told(&mut client, "INSERT INTO my_db00001.t (v) VALUES (2)").await,
        Some(0)
    );
    // The session writes to the binary log again: its transactions reach the other one.
    assert_eq!(
        active
            .rows::<i64>(LIMIT, "SELECT @@SESSION.sql_log_bin")
            .await
            .unwrap(),
        [1]
    );
    let (now_a, now_b) = (a.executed().await, b.executed().await);
    assert_eq!(
        now_a.minus(&before.0).count(),
        3,
        "three inserts, and no flag among them"
    );
    assert!(now_b.is_subset_of(&now_a), "nothing of the passive one's own");
}

async fn rows(server: &Server, shard: i32) -> [i64; 2] {
    let db = naming().name(shard);
    [
        server.number(&format!("SELECT COUNT(*) FROM {db}.t")).await,
        server.number(&format!("SELECT COUNT(*) FROM {db}.u")).await,
    ]
}

async fn a_fence_under_writers_loses_nothing(a: &Server, b: &Server) {
    let mut before = BTreeMap::new();
    for n in 0..SHARDS {
        before.insert(n, rows(a, n).await);
    }
    let writers = Writers::start(a, 6, SHARDS).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (mut active, mut passive) = (a.operator().await, b.operator().await);
    let mut took = vec![];
    // Batches of one and of three, over and over.
    for round in 0..12 {
        let batch = if round % 2 == 0 {
            set([round % 4])
        } else {
            set([0, 1, 2])
        };
        let began = Instant::now();
        let fenced = barrier(a, &mut active, &batch, WHOLE).await;
        took.push(began.elapsed());
        match fenced {
            Fenced::All(executed) => {
                assert!(
                    channel::reached(&mut passive, &executed, LIMIT / 10)
                        .await
                        .unwrap()
                );
                // What was acknowledged is there, on both, and stays all that is there.
                for n in batch.shards() {
                    let (here, there) = (rows(a, n).await, rows(b, n).await);
                    assert_eq!(here, there, "shard {n}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    assert_eq!(
                        here,
                        rows(a, n).await,
                        "shard {n} was written to behind the fence"
                    );
                }
            }
            // Another deadlock than the one that ends the client.
            Fenced::Held { shut, .. } => assert!(shut.is_subset(&batch)),
        }
        assert!(flags(a).await.shut.is_subset(&batch));
        shard_fence::open(&mut active, &naming(), &batch).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ledger = writers.end().await;
    took.sort();
    println!(
        "fences under writers took {took:?}; clients were told {:?}",
        ledger.refused
    );
    for n in 0..SHARDS {
        let done = ledger.done[&n];
        let expected = before[&n].map(|rows| rows + done);
        assert_eq!(rows(a, n).await, expected, "shard {n}");
    }
    assert!(ledger.refused.contains_key(&3989), "{:?}", ledger.refused);
    assert!(
        ledger.refused.keys().all(|code| matches!(code, 3989 | 1213)),
        "clients are told 3989 and 1213, and nothing else: {:?}",
        ledger.refused
    );
    until("the passive has all of it", || async {
        a.executed().await == b.executed().await
    })
    .await;
}

async fn a_prepared_transaction_is_seen_and_holds_the_barrier(a: &mut Server) {
    let (naming, batch) = (naming(), set([4]));
    let mut client = a.client().await;
    for sql in [
        "XA START 'x'",
        "INSERT INTO my_db00004.t (v) VALUES (9)",
        "XA END 'x'",
        "XA PREPARE 'x'",
    ] {
        assert_eq!(told(&mut client, sql).await, Some(0), "{sql}");
    }
    client.disconnect().await.unwrap();
    let mut active = a.operator().await;
    for restarted in [false, true] {
        if restarted {
            // The fence of another shard is to survive it as well.
            shard_fence::shut(&mut active, &naming, &set([0])).await.unwrap();
            a.kill();
            a.start().await;
            active = a.operator().await;
            assert_eq!(
                flags(a).await.shut,
                set([0]),
                "a fence survives the end of the server"
            );
            semisync::source_off(&mut active).await.unwrap();
            fence::open(&mut active).await.unwrap();
        }
        let seen = shard_fence::prepared(&mut active, &naming, &set(3..6))
            .await
            .unwrap();
        assert_eq!(
            (seen.count, seen.touch),
            (1, batch.clone()),
            "restarted: {restarted}"
        );
        let fenced = barrier(a, &mut active, &batch, WHOLE).await;
        let Fenced::Held { shut, by } = fenced else {
            panic!("{fenced:?}");
        };
        assert!(shut.is_empty());
        assert!(
            matches!(
                &by[..],
                [Holder {
                    shard: 4,
                    who: Who::Prepared,
                    ..
                }]
            ),
            "restarted: {restarted}, {by:?}"
        );
        // Nobody can end it but by its name.
        let ended = shard_fence::end_holders(&mut active, &naming, &batch, Duration::ZERO)
            .await
            .unwrap();
        assert_eq!(ended, []);
    }
    active.run(LIMIT, "XA ROLLBACK 'x'").await.unwrap();
    let fenced = barrier(a, &mut active, &batch, WHOLE).await;
    assert!(matches!(fenced, Fenced::All(_)), "{fenced:?}");
    assert_eq!(
        shard_fence::prepared(&mut active, &naming, &batch)
            .await
            .unwrap()
            .count,
        0
    );
    shard_fence::open(&mut active, &naming, &set([0, 4]))
        .await
        .unwrap();
}

/// A pair rebuilds a server that has fences; those that it has afterwards are the donor's.
async fn a_fenced_server_is_copied_over(a: &Server, b: &mut Server) {
    let mut active = a.operator().await;
    semisync::source_off(&mut active).await.unwrap();
    shard_fence::shut(&mut active, &naming(), &set([1]))
        .await
        .unwrap();
    let mut passive = b.operator().await;
    shard_fence::shut(&mut passive, &naming(), &set([2, 3]))
        .await
        .unwrap();
    passive
        .run(
            LIMIT,
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'nowhere' FOR CHANNEL 'from-p9'",
        )
        .await
        .unwrap();
    let donor = a.donor();
    clone::prepare(&mut passive, &donor).await.unwrap();
    let copied = clone::run(&mut passive, &donor).await.unwrap_err();
    // ER_RESTART_SERVER_FAILED: all is copied, and nobody starts it again here.
    assert_eq!(copied.code(), Some(3707), "{copied}");
    b.ended();
    b.start().await;
    assert_eq!(flags(b).await, flags(a).await);
    assert_eq!(channel::read(&mut b.operator().await).await.unwrap(), []);
    follow(b, a, &mut b.operator().await).await;
    let mut client = a.client().await;
    assert_eq!(
        told(&mut client, "INSERT INTO my_db00002.t (v) VALUES (1)").await,
        Some(0)
    );
    until("it follows", || async {
        b.executed().await == a.executed().await
    })
    .await;
    shard_fence::open(&mut active, &naming(), &set([1]))
        .await
        .unwrap();
}
