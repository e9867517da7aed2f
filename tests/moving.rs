//! Copying databases between real servers, and comparing them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

#[path = "servers/bench.rs"]
mod bench;
#[path = "servers/mod.rs"]
mod servers;
#[path = "servers/zoo.rs"]
mod zoo;

use mysql_async::prelude::Queryable as _;
use servers::{Server, start};
use shardwright::mysql::{
    Access,
    seed::{self, Channel, Control, Outcome, Pin, Position},
    verify::{self, Rows, Verdict, What},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).to_owned()).collect()
}

async fn pin(
    source: &Server,
    databases: &[String],
    beside: &[Access],
    channel: Option<Channel<'_>>,
) -> Position {
    let ask = Pin {
        source: &source.access,
        databases,
        readers: 3,
        beside,
        channel,
        patience: Duration::from_secs(60),
    };
    seed::pin(&ask).await.unwrap()
}

async fn copy(source: &Server, databases: &[String], targets: &[Access]) -> Outcome {
    let position = pin(source, databases, &[], None).await;
    seed::copy(position, targets.to_vec(), "ab", Arc::default())
        .await
        .unwrap()
}

async fn compare(source: &Server, databases: &[String], targets: &[Access]) -> verify::Found {
    let position = pin(source, databases, targets, None).await;
    verify::compare(position, &What::Everything, Arc::default()).await
}

fn verdict<'a>(found: &'a verify::Found, database: &str, table: &str) -> &'a Verdict {
    &found.tables[&(database.to_owned(), table.to_owned())]
}

async fn make_zoo(server: &Server, database: &str) {
    server.sql(&format!("CREATE DATABASE {database}")).await;
    let mut conn = server.root().await;
    conn.query_drop(format!("USE {database}; SET NAMES utf8mb4"))
        .await
        .unwrap();
    for sql in zoo::statements() {
        conn.query_drop(&sql)
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", sql.chars().take(400).collect::<String>()));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mysqld: `make test` runs it"]
async fn every_kind_of_value_arrives_as_it_was() {
    let Some(source) = start("a", &[]).await else {
        return;
    };
    let (c, d) = (start("c", &[]).await.unwrap(), start("d", &[]).await.unwrap());
    source.open(false).await;
    c.open(true).await;
    d.open(true).await;
    make_zoo(&source, "zoo").await;
    source
        .sql("CREATE DATABASE bare DEFAULT CHARACTER SET latin1 COLLATE latin1_bin")
        .await;
    let (all, targets) = (names(&["bare", "zoo"]), [c.access.clone(), d.access.clone()]);
    let done = copy(&source, &all, &targets).await;
    assert_eq!(done.complete, all, "{done:?}");
    assert!(done.failed.is_empty() && done.ended.is_none(), "{done:?}");
    for t in [&c, &d] {
        assert!(seed::marks(&t.access).await.unwrap()["zoo"].complete);
        let fence = "SELECT options FROM information_schema.schemata_extensions WHERE schema_name = 'zoo'";
        assert_eq!(t.ask(fence).await, "READ ONLY=1");
        assert_eq!(t.ask("SELECT @@GLOBAL.gtid_executed").await, "");
        assert_eq!(t.ask("SELECT @@GLOBAL.local_infile").await, "0");
    }
    seed::count_as_executed(&targets, &done.gtid).await.unwrap();
    seed::count_as_executed(&targets, &done.gtid).await.unwrap();
    seed::release(&targets, &all).await.unwrap();
    assert!(seed::marks(&c.access).await.unwrap().is_empty());
    let found = compare(&source, &all, &targets).await;
    for ((database, table), verdict) in &found.tables {
        assert_eq!(*verdict, Verdict::Equal, "{database}.{table}");
    }
    assert!(
        found.tables.len() == 20
            && found.is_equal("zoo")
            && found.is_equal("bare")
            && !found.is_equal("none")
    );
    // The server's own checksum, which knows nothing of how the comparison goes about it.
    let tables = "SELECT GROUP_CONCAT(table_name ORDER BY table_name SEPARATOR '/') FROM information_schema.tables WHERE table_schema = 'zoo'";
    for table in source.ask(tables).await.split('/') {
        let sql = format!("CHECKSUM TABLE zoo.`{}`", table.replace('`', "``"));
        let (mut x, mut y) = (source.root().await, c.root().await);
        let ours: (String, Option<u64>) = x.query_first(&sql).await.unwrap().unwrap();
        let theirs: (String, Option<u64>) = y.query_first(&sql).await.unwrap().unwrap();
        assert_eq!(ours, theirs);
    }
    assert_eq!(c.ask("SELECT auto_increment FROM information_schema.tables WHERE table_schema = 'zoo' AND table_name = 'counted'").await, "1000");
}

const OBJECTS: &str = "CREATE TABLE pins (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, data JSON NOT NULL, ts TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)); \
    CREATE TABLE marks (a BIGINT, b BIGINT, n DOUBLE, PRIMARY KEY (a, b)); CREATE TABLE notes (t VARCHAR(100))";

/// A database with `rows` rows in its largest table.
async fn make(server: &Server, database: &str, rows: usize) {
    server
        .sql(&format!("CREATE DATABASE {database}; USE {database}; {OBJECTS}"))
        .await;
    let some = format!(
        "(WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) SELECT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ n FROM s) t"
    );
    server
        .sql(&format!(
            "USE {database}; INSERT INTO pins (id, data) SELECT n, JSON_OBJECT('n', n, 't', SHA2(n, 512)) FROM {some}; \
             INSERT INTO marks SELECT n DIV 7, n, SQRT(n) FROM {some}; INSERT INTO notes SELECT 'same' FROM {some} WHERE n < 100"
        ))
        .await;
}

/// Writes on all of `databases` until it is told to end.
fn load(server: &Server, databases: Vec<String>, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<u64> {
    let access = Access {
        user: "root".into(),
        password: "root".into(),
        ..server.access.clone()
    };
    tokio::spawn(async move {
        let mut conn = shardwright::mysql::connect(&access).await.unwrap();
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            for d in &databases {
                n += 1;
                let sql = format!(
                    "INSERT INTO {d}.pins (data) VALUES ('{{\"load\": {n}}}'); UPDATE {d}.pins SET data = '[{n}]' WHERE id = 1 + {n} % 1000; \
                     DELETE FROM {d}.marks WHERE b = {n}; INSERT INTO {d}.notes VALUES ('{n}')"
                );
                conn.query_drop(sql).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        n
    })
}

/// A pair of which the second follows the first, and two servers that shall take databases.
async fn servers() -> Option<[Server; 4]> {
    let a = start("a", &[]).await?;
    let (b, c, d) = (
        start("b", &[]).await?,
        start("c", &[]).await?,
        start("d", &[]).await?,
    );
    a.open(false).await;
    b.open(true).await;
    c.open(true).await;
    d.open(true).await;
    b.follow(&a, "").await;
    Some([a, b, c, d])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mysqld: `make test` runs it"]
async fn a_copy_made_under_load_goes_on_by_its_channel_and_stays_equal() {
    let Some([a, b, c, d]) = servers().await else {
        return;
    };
    let (first, more) = (names(&["db1", "db2"]), names(&["db3"]));
    for db in ["db1", "db2", "db3", "other"] {
        make(&a, db, 20_000).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let loading = load(&a, names(&["db1", "db2", "db3", "other"]), stop.clone());
    b.reach(&a).await;
    let targets = [d.access.clone(), c.access.clone()];
    let done = copy(&b, &first, &targets).await;
    assert_eq!((&done.complete, done.ended.is_none()), (&first, true), "{done:?}");
    seed::count_as_executed(&targets, &done.gtid).await.unwrap();
    seed::release(&targets, &first).await.unwrap();
    d.follow(&c, "").await;
    c.point(&b, "from-ab").await;
    c.sql(
        "CHANGE REPLICATION FILTER REPLICATE_WILD_DO_TABLE = ('db1.%', 'db2.%') FOR CHANNEL 'from-ab'; \
           START REPLICA FOR CHANNEL 'from-ab'",
    )
    .await;
    c.reach(&b).await;
    d.reach(&c).await;
    let found = compare(&b, &first, &targets).await;
    assert!(
        found.is_equal("db1") && found.is_equal("db2"),
        "{:?}",
        found.tables
    );
    assert_eq!(
        b.ask("SELECT service_state FROM performance_schema.replication_applier_status")
            .await,
        "ON"
    );

    // One more database joins the channel, where it stands.
    let channel = Channel {
        server: &c.access,
        name: "from-ab",
    };
    let position = pin(&b, &more, &[], Some(channel)).await;
    let done = seed::copy(position, targets.to_vec(), "ab", Arc::default())
        .await
        .unwrap();
    assert_eq!(done.complete, more, "{done:?}");
    seed::release(&targets, &more).await.unwrap();
    c.sql("CHANGE REPLICATION FILTER REPLICATE_WILD_DO_TABLE = ('db1.%', 'db2.%', 'db3.%') FOR CHANNEL 'from-ab'; \
           START REPLICA SQL_THREAD FOR CHANNEL 'from-ab'").await;
    let all = names(&["db1", "db2", "db3"]);
    let found = compare(&b, &all, &targets).await;
    assert!(all.iter().all(|d| found.is_equal(d)), "{:?}", found.tables);
    stop.store(true, Ordering::Relaxed);
    assert!(loading.await.unwrap() > 20);

    // What changes since is told by the binary log.
    b.reach(&a).await;
    let at = compare(&b, &all, &[]).await.gtid;
    a.sql("UPDATE db2.pins SET data = '{}' WHERE id = 5; INSERT INTO other.notes VALUES ('x')")
        .await;
    b.reach(&a).await;
    let set: BTreeSet<String> = all.iter().cloned().collect();
    let limit = Duration::from_secs(20);
    let touched = verify::touched(&b.access, &set, &at, limit).await.unwrap();
    let row = |n: i128| Rows::Keys {
        columns: names(&["id"]),
        keys: [vec![n]].into(),
    };
    let Some(tables) = &touched.tables["db2"] else {
        panic!("{touched:?}")
    };
    assert_eq!(
        (touched.tables.len(), tables.len(), &tables["pins"]),
        (1, 1, &row(5))
    );
    let nothing = verify::touched(&b.access, &set, &touched.until, limit)
        .await
        .unwrap();
    assert!(nothing.tables.is_empty());
    // One that somebody wrote on the target only is in the target's log.
    c.sql("ALTER DATABASE db3 READ ONLY = 0; UPDATE db3.pins SET ts = ts + INTERVAL 1 SECOND WHERE id IN (8, 9); ALTER DATABASE db3 READ ONLY = 1").await;
    let position = pin(&b, &all, &targets[1..], None).await;
    let mut what = verify::touched(&b.access, &set, &at, limit).await.unwrap();
    assert_eq!(what, touched);
    what.and(verify::touched(&c.access, &set, &at, limit).await.unwrap());
    // The ALTERs count for the whole database; what is left is the rows.
    assert_eq!(what.tables.get("db3"), Some(&None));
    what.tables
        .insert("db3".into(), Some([("pins".to_owned(), row(9))].into()));
    let found = verify::compare(position, &What::Since(what), Arc::default()).await;
    let different = Verdict::Different(vec!["c: another row with the key (9)".into()]);
    assert_eq!(*verdict(&found, "db3", "pins"), different);
    assert_eq!(*verdict(&found, "db2", "pins"), Verdict::Equal);
    assert_eq!(found.tables.len(), 5, "{:?}", found.tables);
    c.sql("ALTER DATABASE db3 READ ONLY = 0; UPDATE db3.pins SET ts = ts - INTERVAL 1 SECOND WHERE id IN (8, 9); ALTER DATABASE db3 READ ONLY = 1").await;
    d.reach(&c).await;

    // What changes behind everybody's back is found, and named.
    c.sql("SET sql_log_bin = 0; ALTER DATABASE db1 READ ONLY = 0; UPDATE db1.pins SET data = '\"changed\"' WHERE id = 777; \
           DELETE FROM db1.marks WHERE b = 19999; INSERT INTO db1.marks VALUES (-5, 6, 0)").await;
    // Two rows that exchange their values: an XOR of CRC32 would not see it.
    d.sql("SET sql_log_bin = 0; ALTER DATABASE db1 READ ONLY = 0; ALTER DATABASE db2 READ ONLY = 0; \
           UPDATE db1.notes SET t = 'sane' WHERE t = 'same' LIMIT 2; \
           UPDATE db2.marks SET n = IF(b = 18000, 1, 2) WHERE b IN (18000, 18001); ALTER TABLE db2.notes ADD x INT; DROP TABLE db2.pins").await;
    a.sql("UPDATE db2.marks SET n = IF(b = 18000, 2, 1) WHERE b IN (18000, 18001)")
        .await;
    d.sql("STOP REPLICA FOR CHANNEL ''").await;
    let found = compare(&b, &all, &targets).await;
    let said = |d: &str, t: &str| match verdict(&found, d, t) {
        Verdict::Different(how) => how.join("; "),
        other => panic!("{d}.{t}: {other:?}"),
    };
    assert_eq!(said("db1", "pins"), "c: another row with the key (777)");
    assert_eq!(
        said("db1", "marks"),
        "c: no row with the key (2857, 19999); c: a row too many with the key (-5, 6)"
    );
    assert_eq!(
        said("db1", "notes"),
        "d: 2 rows are missing and 2 are too many (the table has no primary key)"
    );
    assert!(said("db2", "notes").starts_with("d: defined as"));
    assert_eq!(said("db2", "pins"), "d: no such table");
    assert!(found.is_equal("db3") && !found.is_equal("db1") && !found.is_equal("db2"));
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mysqld: `make test` runs it"]
async fn a_run_that_is_cut_short_leaves_no_half_copy_that_looks_whole() {
    let (Some(mut a), Some(mut c), Some(d)) = (
        start("a", &[]).await,
        start("c", &[]).await,
        start("d", &[]).await,
    ) else {
        return;
    };
    a.open(false).await;
    c.open(true).await;
    d.open(true).await;
    make(&a, "big", 60_000).await;
    make(&a, "small", 10).await;
    let (all, targets) = (names(&["big", "small"]), [c.access.clone(), d.access.clone()]);

    // The source dies.
    let control = Arc::new(Control::default());
    control.set_rate(4 << 20);
    let position = pin(&a, &all, &[], None).await;
    let run = tokio::spawn(seed::copy(position, targets.to_vec(), "ab", control.clone()));
    until("it begins", || control.progress().bytes > 1 << 20).await;
    a.kill();
    let done = run.await.unwrap().unwrap();
    assert!(
        done.ended.is_some() && done.failed.is_empty() && !done.complete.contains(&"big".to_owned()),
        "{done:?}"
    );
    assert!(!seed::marks(&c.access).await.unwrap()["big"].complete);
    a.restart().await;
    a.open(false).await;

    // A target dies and comes back: the run goes on by itself.
    let control = Arc::new(Control::default());
    control.set_rate(4 << 20);
    let position = pin(&a, &all, &[], None).await;
    let run = tokio::spawn(seed::copy(position, targets.to_vec(), "ab", control.clone()));
    until("it begins", || control.progress().bytes > 2 << 20).await;
    c.kill();
    c.restart().await;
    c.open(true).await;
    control.set_rate(seed::UNLIMITED);
    let done = run.await.unwrap().unwrap();
    assert_eq!(
        (done.complete, done.failed.len()),
        (all.clone(), 0),
        "{:?}",
        done.ended
    );
    seed::count_as_executed(&targets, &done.gtid).await.unwrap();
    let found = compare(&a, &all, &targets).await;
    assert!(
        found.is_equal("big") && found.is_equal("small"),
        "{:?}",
        found.tables
    );

    // An operator is paused in the middle, another one takes over, and the first wakes up.
    let control = Arc::new(Control::default());
    control.set_rate(2 << 20);
    let old = tokio::spawn(seed::copy(
        pin(&a, &all, &[], None).await,
        targets.to_vec(),
        "ab",
        control.clone(),
    ));
    until("it begins", || control.progress().bytes > 1 << 20).await;
    control.set_rate(0);
    let done = copy(&a, &all, &targets).await;
    assert_eq!(done.complete, all, "{done:?}");
    control.set_rate(seed::UNLIMITED);
    let old = old.await.unwrap().unwrap();
    assert!(
        old.ended.is_some() && !old.complete.contains(&"big".to_owned()),
        "{old:?}"
    );
    let found = compare(&a, &all, &targets).await;
    assert!(
        found.is_equal("big") && found.is_equal("small"),
        "{:?}",
        found.tables
    );
    assert!(seed::marks(&c.access).await.unwrap()["big"].complete);

    // Stopped, and taken away again.
    let control = Arc::new(Control::default());
    control.set_rate(1 << 20);
    let run = tokio::spawn(seed::copy(
        pin(&a, &all, &[], None).await,
        targets.to_vec(),
        "ab",
        control.clone(),
    ));
    until("it begins", || control.progress().bytes > 1 << 20).await;
    control.stop();
    let done = run.await.unwrap().unwrap();
    assert!(
        done.ended.is_some() && !done.complete.contains(&"big".to_owned()),
        "{done:?}"
    );
    for t in &targets {
        seed::discard(t, &all).await.unwrap();
        assert!(seed::marks(t).await.unwrap().is_empty());
    }
    assert_eq!(
        c.ask("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name IN ('big', 'small')")
            .await,
        "0"
    );

    // A comparison that loses a server knows nothing of what it did not see.
    let done = copy(&a, &all, &targets).await;
    assert_eq!(done.complete, all, "{done:?}");
    let position = pin(&a, &all, &targets, None).await;
    c.kill();
    let found = verify::compare(position, &What::Everything, Arc::default()).await;
    for table in ["pins", "marks", "notes"] {
        assert!(
            matches!(verdict(&found, "big", table), Verdict::Unknown(_)),
            "{:?}",
            found.tables
        );
    }
    assert!(!found.is_equal("big") && !found.is_equal("small"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs mysqld: `make test` runs it"]
async fn what_cannot_be_copied_is_refused_by_name() {
    let (Some(a), Some(c)) = (start("a", &[]).await, start("c", &[]).await) else {
        return;
    };
    a.open(false).await;
    a.sql("CREATE DATABASE v; CREATE VIEW v.seen AS SELECT 1 x; CREATE DATABASE m; CREATE TABLE m.old (a INT) ENGINE = MyISAM; \
           CREATE DATABASE j; CREATE TABLE j.dated (id INT PRIMARY KEY, j JSON); INSERT INTO j.dated VALUES (1, '{}'), (2, JSON_OBJECT('d', CURRENT_DATE)); \
           CREATE DATABASE full; CREATE TABLE full.t (a INT); CREATE DATABASE well; CREATE TABLE well.t (a INT); \
           CREATE DATABASE fires; CREATE TABLE fires.t (a INT); CREATE TRIGGER fires.doubles BEFORE INSERT ON fires.t FOR EACH ROW SET NEW.a = 2 * NEW.a; \
           CREATE DATABASE ticks; CREATE EVENT ticks.hourly ON SCHEDULE EVERY 1 HOUR DO DO 0").await;
    let all = names(&["fires", "full", "j", "m", "none", "ticks", "v", "well"]);
    let targets = [c.access.clone()];
    let position = pin(&a, &all, &[], None).await;
    let closed = seed::copy(position, targets.to_vec(), "ab", Arc::default())
        .await
        .unwrap_err();
    assert!(
        closed.to_string().contains("super_read_only is ON on c"),
        "{closed}"
    );
    c.open(true).await;
    c.sql("CREATE DATABASE full; CREATE TABLE full.mine (a INT)")
        .await;
    let done = copy(&a, &all, &targets).await;
    assert_eq!(done.complete, ["well"], "{done:?}");
    for (database, why) in [
        ("v", "view v.seen"),
        ("fires", "trigger fires.doubles"),
        ("ticks", "event ticks.hourly"),
        ("m", "table m.old of engine MyISAM"),
        ("j", "table dated has JSON values"),
        ("full", "c has database full already"),
        ("none", "it is not on the source"),
    ] {
        let said = done.failed[database].to_string();
        assert!(said.contains(why), "{:?}", done.failed);
    }
    assert!(done.ended.is_none());
    assert_eq!(c.ask("SELECT COUNT(*) FROM full.mine").await, "0");
}
