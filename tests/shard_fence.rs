//! Fences of shards on two real servers: under writers, with open transactions, with prepared ones, and over a restart.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

mod mysqld;

use mysql_async::Conn;
use mysqld::{LIMIT, Server, credentials, follow, make, naming, pair, servers, told, until};
use shardwright::{
    core::spans::SpanSet,
    mysql::{
        Session, channel, clone, fence, semisync,
        shard_fence::{self, Fenced, Flags, Holder, Patience, Who},
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

const SHARDS: i32 = 8;

fn set(shards: impl IntoIterator<Item = i32>) -> SpanSet {
    shards.into_iter().collect()
}

async fn flags(server: &Server) -> Flags {
    shard_fence::read(&mut server.operator().await, &naming())
        .await
        .unwrap()
}

/// The server gives up before.
const WHOLE: Duration = Duration::from_secs(10);

async fn barrier(server: &Server, s: &mut Session, batch: &SpanSet, limit: Duration) -> Fenced {
    let mut beside = server.operator().await;
    let patience = Patience {
        beside: &mut beside,
        limit,
    };
    shard_fence::fence(s, &naming(), batch, patience).await.unwrap()
}

async fn holders(s: &mut Session, shards: &SpanSet) -> Vec<Holder> {
    shard_fence::holders(s, &naming(), shards).await.unwrap()
}

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
    an_open_transaction_holds_the_barrier_for_a_second(&a).await;
    its_patience_is_as_short_as_one_likes(&a).await;
    whoever_wants_a_second_table_meanwhile_is_the_victim(&a).await;
    a_holder_is_ended_past_its_deadline(&a).await;
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

/// What clients were told.
#[derive(Debug, Default)]
struct Ledger {
    /// Transactions that were acknowledged, for each shard.
    done: BTreeMap<i32, i64>,
    /// Errors.
    refused: BTreeMap<u16, u32>,
    /// The slowest transaction that was acknowledged, for each shard.
    slowest: BTreeMap<i32, Duration>,
}

struct Writers {
    ledger: Arc<Mutex<Ledger>>,
    end: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    /// Starts some, each with transactions of one row in both tables of one shard after the other.
    async fn start(server: &Server, count: i32, shards: i32) -> Self {
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
    async fn end(self) -> Ledger {
        self.end.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        Arc::into_inner(self.ledger).unwrap().into_inner().unwrap()
    }
}

async fn write(
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

async fn begin(server: &Server, shard: i32) -> (Conn, u64) {
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

    // Against transactions that let go at about the time when it is told to end: the session stays good, and it is known what is shut.
    let writers = Writers::start(a, 4, 4).await;
    let mut beside = a.operator().await;
    let (mut all, mut held) = (0, 0);
    for n in 0..60 {
        let patience = Patience {
            beside: &mut beside,
            limit: Duration::from_millis(n % 6 + 1),
        };
        let batch = set(0..4);
        let fenced = shard_fence::fence(&mut active, &naming(), &batch, patience)
            .await
            .unwrap();
        let shut = flags(a).await.shut;
        match fenced {
            Fenced::All(_) => {
                all += 1;
                assert_eq!(shut, batch);
            }
            Fenced::Held { shut: said, .. } => {
                held += 1;
                assert_eq!(shut, said);
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
    println!("told to end at about the time when it does: {all} were through, {held} were not");
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
    for sql in ["BEGIN", "INSERT INTO my_db00005.u (v) VALUES (7)"] {
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
