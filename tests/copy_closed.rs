//! Copies are closed for clients while they are made, on real servers: nobody who may write by a pattern writes into one, whatever connection he has; and
//! nothing of that is left when the copy is complete, dropped, cut short and made again, or on another server by CLONE.
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
        Access, clone, conn, fence,
        seed::{self, Control, Outcome, Pin},
        semisync, shard_drop, shard_fence,
    },
};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// What `INSERT` is refused with by privileges, and by READ ONLY.
const DENIED: Option<u16> = Some(1142);
const SHUT: Option<u16> = Some(3989);
/// Accounts of a test: one that may write by another pattern, and one that was granted the very database.
const ACCOUNTS: &str = r"CREATE USER 'wide'@'127.%' IDENTIFIED BY 'app-password'; GRANT SELECT, INSERT ON `my%`.* TO 'wide'@'127.%';
    CREATE USER 'own'@'%' IDENTIFIED BY 'app-password'; GRANT INSERT ON `my\_db_____`.* TO 'own'@'%'; GRANT SELECT, INSERT ON `my\_db00001`.* TO 'own'@'%';
    CREATE USER 'near'@'%' IDENTIFIED BY 'app-password'; GRANT SELECT, INSERT ON `my_db00001`.* TO 'near'@'%'";

fn set(shards: impl IntoIterator<Item = i32>) -> SpanSet {
    shards.into_iter().collect()
}

fn databases(shards: &SpanSet) -> Vec<String> {
    shards.shards().map(|n| naming().name(n)).collect()
}

/// Grants on a very database that keep somebody from writing.
async fn grants(server: &Server) -> i64 {
    server
        .number(r"SELECT COUNT(*) FROM mysql.db WHERE db LIKE 'my\\\\_db00%' AND insert_priv = 'N'")
        .await
}

/// What is written down of them.
async fn written(server: &Server) -> i64 {
    server
        .number("SELECT COUNT(*) FROM shardwright_seed.withheld")
        .await
}

async fn access(server: &Server) -> Access {
    server.operator().await.access().clone()
}

async fn copying(
    source: &Server,
    targets: [&Server; 2],
    shards: &SpanSet,
    control: &Arc<Control>,
) -> JoinHandle<Outcome> {
    let (from, names) = (access(source).await, databases(shards));
    let pin = Pin {
        source: &from,
        databases: &names,
        readers: 3,
        beside: &[],
        channel: None,
        patience: LIMIT,
    };
    let position = seed::pin(&pin).await.unwrap();
    let mut to = vec![];
    for target in targets {
        target
            .operator()
            .await
            .run(LIMIT, "SET GLOBAL super_read_only = OFF")
            .await
            .unwrap();
        to.push(access(target).await);
    }
    let control = control.clone();
    tokio::spawn(async move {
        Box::pin(seed::copy(position, to, "p0/p1", control))
            .await
            .unwrap()
    })
}

/// Begins to copy, and holds as soon as all databases are there.
async fn held(
    source: &Server,
    targets: [&Server; 2],
    shards: &SpanSet,
) -> (Arc<Control>, JoinHandle<Outcome>) {
    let control = Arc::new(Control::default());
    control.set_rate(0);
    let run = copying(source, targets, shards, &control).await;
    let names = databases(shards).join("', '");
    let tables = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema IN ('{names}')");
    for target in targets {
        until("the databases are there", || async {
            target.number(&tables).await == 2 * i64::try_from(shards.len()).unwrap()
        })
        .await;
    }
    (control, run)
}

async fn as_user(server: &Server, user: &str) -> Conn {
    let access = Access {
        user: user.into(),
        ..server.app()
    };
    conn::connect(&access).await.unwrap()
}

async fn open_copies(server: &Server, shards: &SpanSet) {
    let mut s = server.operator().await;
    shard_fence::open(&mut s, &naming(), shards).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn copies_are_closed_for_clients_while_they_are_made() {
    let [a, c, mut d] = servers(["a", "c", "d"], &credentials()).await;
    let mut source = a.operator().await;
    source.lock().await.unwrap();
    fence::open(&mut source).await.unwrap();
    make(&a, 1..4).await;
    for n in 1..4 {
        let fill = format!(
            "INSERT INTO my_db0000{n}.t (v) VALUES (1), (2); INSERT INTO my_db0000{n}.u (v) VALUES (3)"
        );
        source.run(LIMIT, fill).await.unwrap();
    }
    pair(&c, &d).await;

    nobody_writes_into_one(&a, &c, &d).await;
    what_was_cut_short_is_made_again(&a, &c, &mut d).await;
    what_is_not_needed_leaves_nothing(&a, &c, &d).await;
    a_server_that_is_copied_over_has_them_as_well(&a, &c, &mut d).await;
}

async fn nobody_writes_into_one(a: &Server, c: &Server, d: &Server) {
    let shards = set([1, 2]);
    c.aside(ACCOUNTS).await;
    // The shard lived there once: one client has it as its default database, another one comes from elsewhere.
    make(c, [1]).await;
    let mut before = c.client().await;
    assert_eq!(told(&mut before, "USE my_db00001").await, Some(0));
    assert_eq!(told(&mut before, "INSERT INTO t (v) VALUES (7)").await, Some(0));
    let mut elsewhere = c.client().await;
    assert_eq!(
        told(&mut elsewhere, "INSERT INTO my_db00001.t (v) VALUES (7)").await,
        Some(0)
    );
    c.operator()
        .await
        .run(LIMIT, "DROP DATABASE my_db00001")
        .await
        .unwrap();
    until("both have dropped it", || async {
        d.executed().await == c.executed().await
    })
    .await;
    // What mysqld does by itself, and why connections are ended: to one that is in a database that comes back, the grant means nothing.
    let cached = "GRANT SELECT ON `my\\_db00003`.* TO 'app'@'%'";
    let mut inside = c.client().await;
    c.aside("CREATE DATABASE my_db00003").await;
    assert_eq!(told(&mut inside, "USE my_db00003").await, Some(0));
    c.aside(&format!(
        "DROP DATABASE my_db00003; {cached}; CREATE DATABASE my_db00003; CREATE TABLE my_db00003.t (v INT)"
    ))
    .await;
    let insert = "INSERT INTO my_db00003.t VALUES (1)";
    assert_eq!(told(&mut inside, insert).await, Some(0));
    assert_eq!(told(&mut elsewhere, insert).await, DENIED);
    c.aside(&format!(
        "DROP DATABASE my_db00003; {}",
        cached.replace("GRANT", "REVOKE").replace(" TO ", " FROM ")
    ))
    .await;
    assert_eq!(grants(c).await, 0);

    let counted = [c.executed().await, d.executed().await];
    let (control, run) = held(a, [d, c], &shards).await;
    assert_eq!(
        told(&mut before, "INSERT INTO t (v) VALUES (8)").await,
        None,
        "it was ended"
    );
    let insert = "INSERT INTO my_db00001.t (v) VALUES (8)";
    let mut new = c.client().await;
    for client in [&mut elsewhere, &mut new] {
        assert_eq!(told(client, insert).await, DENIED);
        assert_eq!(
            told(client, "UPDATE my_db00002.t SET v = 9 WHERE id = 1").await,
            DENIED
        );
    }
    assert_eq!(told(&mut new, "USE my_db00001").await, Some(0));
    assert_eq!(told(&mut new, "INSERT INTO t (v) VALUES (8)").await, DENIED);
    for user in ["wide", "near"] {
        assert_eq!(told(&mut as_user(c, user).await, insert).await, DENIED, "{user}");
    }
    // app, near and wide on the first one, app, own and wide on the second: own has a grant of its own on the first.
    for server in [c, d] {
        assert_eq!(written(server).await, if server.name == "c" { 6 } else { 2 });
    }
    control.set_rate(seed::UNLIMITED);
    let done = run.await.unwrap();
    assert_eq!(done.complete, databases(&shards), "{done:?}");
    assert_eq!(counted, [c.executed().await, d.executed().await]);
    assert_eq!((written(c).await, written(d).await), (0, 0));
    assert_eq!((grants(c).await, grants(d).await), (0, 0));
    let own = r"SELECT COUNT(*) FROM mysql.db WHERE user = 'own' AND db = 'my\\_db00001' AND insert_priv = 'Y' AND select_priv = 'Y'";
    assert_eq!(c.number(own).await, 1);
    assert_eq!(
        told(&mut new, insert).await,
        None,
        "it would have kept what it was told at USE"
    );
    assert_eq!(told(&mut elsewhere, insert).await, SHUT);
    // As a cutover does.
    open_copies(c, &shards).await;
    for user in ["app", "wide", "near", "own"] {
        assert_eq!(told(&mut as_user(c, user).await, insert).await, Some(0), "{user}");
    }
    assert_eq!(told(&mut elsewhere, insert).await, Some(0));
}

async fn what_was_cut_short_is_made_again(a: &Server, c: &Server, d: &mut Server) {
    let shards = set([3]);
    let (_, run) = held(a, [d, c], &shards).await;
    // As an operator that dies, and then the server.
    run.abort();
    let _ = run.await;
    d.kill();
    d.start().await;
    follow(d, c, &mut d.operator().await).await;
    for (server, accounts) in [(c, 3), (&*d, 1)] {
        assert_eq!(
            (written(server).await, grants(server).await),
            (accounts, accounts),
            "{}",
            server.name
        );
    }
    let insert = "INSERT INTO my_db00003.t (v) VALUES (8)";
    assert_eq!(told(&mut c.client().await, insert).await, DENIED);
    let done = copying(a, [d, c], &shards, &Arc::default()).await.await.unwrap();
    assert_eq!(done.complete, databases(&shards), "{done:?}");
    for server in [c, &*d] {
        assert_eq!((written(server).await, grants(server).await), (0, 0));
        seed::discard(&access(server).await, &databases(&shards))
            .await
            .unwrap();
    }
}

async fn what_is_not_needed_leaves_nothing(a: &Server, c: &Server, d: &Server) {
    let shards = set([3]);
    let (_, run) = held(a, [d, c], &shards).await;
    run.abort();
    let _ = run.await;
    assert_eq!((grants(c).await, grants(d).await), (3, 1));
    // Dropped on one server; on the other one only the marks are forgotten, as where a copy was to be begun and no database was there yet.
    dropped(c, &shards).await;
    let mut s = d.operator().await;
    s.run(LIMIT, "SET GLOBAL super_read_only = ON").await.unwrap();
    for _ in 0..2 {
        seed::forget(&mut s, &databases(&shards)).await.unwrap();
    }
    assert_eq!((written(d).await, grants(d).await), (0, 0));
    assert_eq!(d.number("SELECT @@GLOBAL.super_read_only").await, 1);
    assert!(seed::marks(&access(d).await).await.unwrap().len() == 2);
    d.aside("DROP DATABASE my_db00003").await;
}

async fn dropped(server: &Server, shards: &SpanSet) {
    let mut s = server.operator().await;
    shard_fence::shut(&mut s, &naming(), shards).await.unwrap();
    let done = shard_drop::drop(&mut s, &naming(), shards, Duration::from_secs(20))
        .await
        .unwrap();
    assert_eq!(done.dropped, *shards);
    assert_eq!(
        (written(server).await, grants(server).await),
        (0, 0),
        "{}",
        server.name
    );
    seed::forget(&mut s, &databases(shards)).await.unwrap();
}

async fn a_server_that_is_copied_over_has_them_as_well(a: &Server, c: &Server, d: &mut Server) {
    let shards = set([3]);
    let (_, run) = held(a, [d, c], &shards).await;
    run.abort();
    let _ = run.await;
    semisync::source_off(&mut c.operator().await).await.unwrap();
    let (mut passive, donor) = (d.operator().await, c.donor());
    clone::prepare(&mut passive, &donor).await.unwrap();
    let copied = clone::run(&mut passive, &donor).await.unwrap_err();
    // ER_RESTART_SERVER_FAILED: all is copied, and nobody starts it again here.
    assert_eq!(copied.code(), Some(3707), "{copied}");
    d.ended();
    d.start().await;
    for server in [c, &*d] {
        assert_eq!((written(server).await, grants(server).await), (3, 3));
        dropped(server, &shards).await;
    }
}
