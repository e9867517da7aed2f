//! A pair is cloned over an empty one, on real servers, by the statements that the operator uses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::many_single_char_names,
    reason = "a test may"
)]

mod mysqld;

use mysqld::{LIMIT, Server, credentials, fences::flags, follow, make, naming, pair, servers, told, until};
use shardwright::{
    core::{credentials::channel_user, gtid::GtidSet, pair::observed::CloneStage, spans::SpanSet},
    mysql::{
        accounts,
        channel::{self, Filter},
        clone, fence, replication, semisync, shard_fence, state,
    },
};

const SHARDS: i32 = 4;

async fn seen(server: &Server) -> shardwright::core::pair::observed::ServerState {
    state::read(&mut server.operator().await, Some(&naming()))
        .await
        .unwrap()
}

/// Copies one over the other, and starts it again as a kubelet would.
async fn clone_over(server: &mut Server, donor: &Server) {
    let mut s = server.operator().await;
    clone::prepare(&mut s, &donor.donor()).await.unwrap();
    let copied = clone::run(&mut s, &donor.donor()).await.unwrap_err();
    // ER_RESTART_SERVER_FAILED: all is copied, and nobody starts it again here.
    assert_eq!(copied.code(), Some(3707), "{copied}");
    server.ended();
    server.start().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn a_pair_is_cloned_over_an_empty_one() {
    let [a, b, mut c, mut d] = servers(["a", "b", "c", "d"], &credentials()).await;
    pair(&a, &b).await;
    pair(&c, &d).await;
    make(&a, 0..SHARDS).await;
    let mut source = a.operator().await;
    source.lock().await.unwrap();
    accounts::make_channel_account(&mut source, "p9", "password")
        .await
        .unwrap();
    b.aside("CREATE DATABASE shardwright_seed; CREATE TABLE shardwright_seed.copies (a INT)")
        .await;
    b.aside("CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'nowhere' FOR CHANNEL 'from-p9'")
        .await;
    until("b has it all", || async {
        b.executed().await == a.executed().await
    })
    .await;
    semisync::source_off(&mut c.operator().await).await.unwrap();
    assert!(seen(&c).await.blank() && seen(&d).await.blank());

    a_clone_that_nobody_wants_is_ended(&b, &d).await;

    // The passive server first.
    let known = c.executed().await.union(&d.executed().await);
    let has = replication::stop_for_good(&mut d.operator().await).await;
    assert!(has.unwrap().is_subset_of(&known));
    clone_over(&mut d, &b).await;
    let cloned = seen(&d).await;
    let run = cloned.clone.clone().unwrap();
    assert_eq!(
        (run.stage, run.donor.as_str()),
        (CloneStage::Completed, "127.0.0.1")
    );
    assert_eq!(
        (&run.brought, &cloned.purged),
        (&cloned.executed, &cloned.executed)
    );
    assert!(b.executed().await.is_subset_of(&run.brought));
    let shards: SpanSet = (0..SHARDS).collect();
    assert!(cloned.shards == shards && !cloned.blank() && cloned.super_read_only);

    // It takes over from one that has nothing, and is closed.
    let mut active = c.operator().await;
    assert!(!state::closed_and_blank(&mut active).await.unwrap());
    fence::close_in_time(&mut active).await.unwrap();
    assert!(state::closed_and_blank(&mut active).await.unwrap());
    let counted = c.executed().await;
    let mut s = d.operator().await;
    s.lock().await.unwrap();
    for _ in 0..2 {
        clone::adopt(&mut s, &counted).await.unwrap();
    }
    assert_eq!(channel::read(&mut s).await.unwrap(), []);
    let adopted = seen(&d).await;
    assert_eq!((&adopted.channel, adopted.followers.len()), (&None, 0));
    assert_eq!(adopted.executed, run.brought.union(&counted));
    let left = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'shardwright_seed'";
    assert_eq!(d.number(left).await, 0);
    let left = "SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'shardwright\\_m\\_%'";
    assert_eq!(d.number(left).await, 0);
    shard_fence::shut(&mut s, &naming(), &shards).await.unwrap();
    fence::open(&mut s).await.unwrap();
    let mut client = d.client().await;
    let insert = "INSERT INTO my_db00001.t (v) VALUES (1)";
    assert_eq!(told(&mut client, insert).await, Some(3989));
    let uuids = [c.uuid.clone(), d.uuid.clone()];
    accounts::set_up(&mut s, &d.credentials, &naming(), &uuids)
        .await
        .unwrap();
    // No number is given twice.
    let new = d.executed().await.minus(&adopted.executed);
    assert!(!new.is_empty() && new.minus(&counted) == new);

    // The other one is copied within the pair.
    clone_over(&mut c, &d).await;
    assert_eq!(flags(&c).await, flags(&d).await);
    follow(&c, &d, &mut c.operator().await).await;
    until("it follows", || async {
        c.executed().await == d.executed().await
    })
    .await;

    // What was written since comes over the filtered channel, to both.
    let mut client = a.client().await;
    semisync::source_off(&mut source).await.unwrap();
    for sql in [insert, "INSERT INTO my_db00003.t (v) VALUES (1)"] {
        assert_eq!(told(&mut client, sql).await, Some(0));
    }
    let (user, ca) = (channel_user("p1"), d.ca_file());
    let password = &a.credentials.replication_password;
    accounts::make_channel_account(&mut source, "p1", password)
        .await
        .unwrap();
    until("b has it all", || async {
        b.executed().await == a.executed().await
    })
    .await;
    channel::point(&mut s, "from-p0", &b.source(&user, &ca))
        .await
        .unwrap();
    let filter = Filter::new(&naming(), &(0..2).collect());
    channel::start(&mut s, "from-p0", &filter).await.unwrap();
    let all: GtidSet = a.executed().await;
    until("it arrives", || async { all.is_subset_of(&c.executed().await) }).await;
    for server in [&c, &d] {
        let rows = async |shard: i32| {
            let sql = format!("SELECT COUNT(*) FROM {}.t", naming().name(shard));
            server.number(&sql).await
        };
        assert_eq!((rows(1).await, rows(3).await), (1, 0), "{}", server.name);
    }
}

/// It is empty then, has its own accounts, and may be cloned over again.
async fn a_clone_that_nobody_wants_is_ended(donor: &Server, server: &Server) {
    let slow = "SET GLOBAL clone_max_data_bandwidth = 1";
    for at in [donor, server] {
        at.operator().await.run(LIMIT, slow).await.unwrap();
    }
    let mut s = server.operator().await;
    let from = donor.donor();
    let running = tokio::spawn(async move {
        clone::prepare(&mut s, &from).await.unwrap();
        clone::run(&mut s, &from).await
    });
    let runs = || async {
        let run = seen(server).await.clone;
        run.is_some_and(|c| c.stage == CloneStage::Running && c.donor == "127.0.0.1")
    };
    until("it runs", runs).await;
    clone::end(&mut server.operator().await).await.unwrap();
    running.await.unwrap().unwrap_err();
    until("it ends", || async { !runs().await }).await;
    let ended = seen(server).await;
    assert!(ended.blank() && ended.clone.unwrap().stage == CloneStage::Failed);
    for at in [donor, server] {
        let usual = "SET GLOBAL clone_max_data_bandwidth = 0";
        at.operator().await.run(LIMIT, usual).await.unwrap();
    }
}
