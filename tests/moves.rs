//! Passes over a move between two pairs of real servers, with an API server that is a map in memory: shards go over while clients write, and
//! come back with all that was written since, whoever dies meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::many_single_char_names,
    reason = "a test may"
)]

mod mysqld;
mod stage;

use mysqld::LIMIT;
use shardwright::{controllers::migration::pass::Local, core::placement};
use stage::{Api, Stage, shards};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs, and a quiet machine: cargo test --test moves -- --ignored"]
async fn shards_go_to_another_pair_and_come_back_while_clients_write() {
    let mut s = Stage::new(&shards(4, 7), None).await;
    s.api.wish("r1", "p1", 3600);
    s.retained().await;
    assert_eq!(
        placement::shards(&s.api.placement(), |s| s.pair == "p1"),
        shards(4, 9)
    );
    tokio::time::sleep(Duration::from_millis(300)).await;
    s.api.wish("r1", "p0", 3600);
    s.over(&shards(0, 7)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs, and a quiet machine: cargo test --test moves -- --ignored"]
async fn ranges_change_places_and_the_old_copies_go_when_nobody_wants_them() {
    let mut s = Stage::new(&shards(4, 9), None).await;
    s.api.wish("r1", "p1", 3600);
    s.api.wish("r2", "p0", 3600);
    s.retained().await;
    s.api.wish("r1", "p1", 0);
    s.api.wish("r2", "p0", 0);
    s.over(&shards(0, 3).union(&shards(8, 9))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs, and a quiet machine: cargo test --test moves -- --ignored"]
async fn operators_that_die_anywhere_lose_nothing() {
    let mut s = Stage::new(&shards(4, 7), Some(0x2545_f491_4f6c_dd1d)).await;
    s.api.wish("r1", "p1", 3600);
    s.retained().await;
    s.api.wish("r1", "p0", 3600);
    s.over(&shards(0, 7)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs, and a quiet machine: cargo test --test moves -- --ignored"]
async fn a_wish_that_is_taken_back_early_leaves_nothing_behind() {
    let mut s = Stage::new(&shards(4, 7), None).await;
    s.api.wish("r1", "p1", 3600);
    let seeded = |api: &Api| api.placement().moves.iter().any(|m| !m.seeded.is_empty());
    s.until("copies", seeded).await;
    s.api.wish("r1", "p0", 3600);
    s.over(&shards(0, 7)).await;
}

/// All of them are verified, and a person is waited for.
async fn held() -> Stage {
    let mut s = Stage::new(&shards(4, 7), None).await;
    let rows = "INSERT INTO my_db00005.u (v) VALUES (1), (2)";
    s.servers[0].operator().await.run(LIMIT, rows).await.unwrap();
    s.api.hold("r1");
    s.api.wish("r1", "p1", 3600);
    let waits = |api: &Api| api.migration("r1")["reason"] == "WaitingForApproval";
    s.until("the approval to be waited for", waits).await;
    assert_eq!(s.api.verified(), shards(4, 7));
    s
}

/// Two who write to one row at both pairs at once, so that each gets what the other one wrote.
async fn cross(s: &Stage) {
    let [a, _, x, y] = &s.servers;
    let both = [(a, "from-p1", 10), (x, "from-p0", 20)];
    let shut = |shut: u8| format!("ALTER DATABASE my_db00005 READ ONLY = {shut}");
    for (server, channel, _) in both {
        let stop = format!("STOP REPLICA SQL_THREAD FOR CHANNEL '{channel}'");
        server.operator().await.run(LIMIT, stop).await.unwrap();
    }
    x.aside(&shut(0)).await;
    for (server, _, v) in both {
        let write = format!("UPDATE my_db00005.u SET v = {v} WHERE id = 1");
        server.operator().await.run(LIMIT, write).await.unwrap();
    }
    x.aside(&shut(1)).await;
    for (server, channel, _) in both {
        let start = format!("START REPLICA SQL_THREAD FOR CHANNEL '{channel}'");
        server.operator().await.run(LIMIT, start).await.unwrap();
    }
    values(s, [20, 20, 10, 10]).await;
    assert_eq!(y.number("SELECT COUNT(*) FROM my_db00005.u").await, 2);
}

async fn values(s: &Stage, expected: [i64; 4]) {
    for (server, expected) in s.servers.iter().zip(expected) {
        mysqld::until("the row to arrive", || async {
            server.number("SELECT v FROM my_db00005.u WHERE id = 1").await == expected
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs, and a quiet machine: cargo test --test moves -- --ignored"]
async fn what_was_changed_since_is_compared_before_anything_goes_over() {
    let mut s = held().await;
    cross(&s).await;
    // The operator of before had compared all of it a moment ago. This one does not know it.
    s.local = Local::default();
    s.api.approve("r1");
    let differs = |api: &Api| api.migration("r1")["reason"] == "CopiesDiffer";
    s.until("a difference to be found", differs).await;
    assert_eq!(s.api.verified(), shards(4, 4).union(&shards(6, 7)));
    let said = s.api.migration("r1").to_string();
    assert!(said.contains("shards 5 differ in my_db00005.u."), "{said}");
    let p = s.api.placement();
    assert_eq!(
        (placement::shards(&p, |s| s.pair == "p0"), p.batches),
        (shards(0, 7), 0)
    );
    // Mended, by the active server of the pair that serves it, and compared again because a person says so.
    let mend = "UPDATE my_db00005.u SET v = 30 WHERE id = 1";
    s.servers[0].operator().await.run(LIMIT, mend).await.unwrap();
    values(&s, [30; 4]).await;
    s.api.annotate("r1", "shardwright.dev/verify-again", "mended");
    s.retained().await;
    s.api.wish("r1", "p1", 0);
    s.over(&shards(0, 3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs, and a quiet machine: cargo test --test moves -- --ignored"]
async fn all_rows_are_compared_when_binary_logs_do_not_tell_what_was_changed() {
    let mut s = held().await;
    // Each new log ends those that have expired.
    let mut source = s.servers[1].operator().await;
    let expire = "SET GLOBAL binlog_expire_logs_seconds = 1";
    source.run(LIMIT, expire).await.unwrap();
    let purged = "SELECT @@GLOBAL.gtid_purged <> ''";
    for _ in 0..2 {
        source.run(LIMIT, "FLUSH BINARY LOGS").await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(s.servers[1].number(purged).await, 1);
    s.local = Local::default();
    s.api.approve("r1");
    s.until("them not to be verified", |api| api.verified().is_empty())
        .await;
    s.retained().await;
    s.api.wish("r1", "p1", 0);
    s.over(&shards(0, 3)).await;
}
