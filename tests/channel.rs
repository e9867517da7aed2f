//! Channels between two pairs of real servers: filtered, in both directions, over restarts and failovers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::many_single_char_names,
    reason = "a test may"
)]

mod mysqld;

use mysqld::{LIMIT, Server, credentials, follow, make, naming, pair, servers, tables, told, until};
use shardwright::{
    api::{MoveKey, Placement, Seed},
    core::{
        credentials::channel_user,
        gtid::GtidSet,
        pair::{moving::Moving, observed::Receiver},
        placement::{self, moves},
        spans::SpanSet,
    },
    mysql::{
        Session, accounts,
        channel::{self, Filter},
        fence, links, replication, semisync, shard_fence, state,
    },
};
use std::time::{Duration, Instant};

/// From the first pair to the second one, and back.
const THERE: &str = "from-p1";
const BACK: &str = "from-p2";

fn moving() -> SpanSet {
    (0..4).collect()
}
fn filter() -> Filter {
    Filter::new(&naming(), &moving())
}

/// The record by which shard 0 has moved from the first pair to the second one, and the others are about to.
fn record() -> Placement {
    let (key, first) = (MoveKey::new("p1", "p2"), (0..1).collect());
    let p = placement::claim(&Placement::default(), &(0..8).collect(), "p1", Some("r")).unwrap();
    let p = placement::serve(&p, &(0..8).collect(), "p1").unwrap();
    let p = moves::begin_move(&p, "p1", "p2", &moving(), Seed::PerDatabase).unwrap();
    let p = moves::seeded(&p, &key, &moving(), "").unwrap();
    let p = moves::follow(&p, &key).unwrap();
    let p = moves::verified(&p, &key, &moving()).unwrap();
    let p = moves::begin_batch(&p, &key, &first).unwrap();
    moves::cut_over(&p, &key, 1).unwrap()
}
async fn channels(server: &Server) -> Vec<channel::State> {
    channel::read(&mut server.operator().await).await.unwrap()
}
async fn channel(server: &Server, name: &str) -> channel::State {
    let all = channels(server).await;
    all.into_iter()
        .find(|c| c.name == name)
        .expect("the channel is there")
}
async fn own(server: &Server) -> (Receiver, bool, Option<u32>) {
    let s = state::read(&mut server.operator().await, None).await.unwrap();
    let c = s.channel.expect("the pair's own channel");
    (c.receiver, c.applier, c.receiver_error.map(|e| e.0))
}
/// Has the active server of one pair take from a server of another one.
async fn take(active: &Server, name: &str, from: &Server, pair: &str, s: &mut Session) {
    let (user, ca) = (channel_user(pair), active.ca_file());
    channel::point(s, name, &from.source(&user, &ca)).await.unwrap();
    channel::start(s, name, &filter()).await.unwrap();
}
async fn write(server: &Server, shard: i32) {
    let mut client = server.client().await;
    let sql = format!("INSERT INTO {}.t (v) VALUES (1)", naming().name(shard));
    assert_eq!(told(&mut client, &sql).await, Some(0));
}
async fn rows(server: &Server, shard: i32) -> i64 {
    server
        .number(&format!("SELECT COUNT(*) FROM {}.t", naming().name(shard)))
        .await
}
/// Waits until all of them have executed the same.
async fn converged(all: &[&Server]) -> GtidSet {
    let began = Instant::now();
    loop {
        let mut sets = vec![];
        for server in all {
            sets.push(server.executed().await);
        }
        if sets.iter().all(|s| *s == sets[0]) {
            return sets.swap_remove(0);
        }
        if began.elapsed() > LIMIT {
            for server in all {
                eprintln!(
                    "{}: {:?} {:#?}",
                    server.name,
                    own(server).await,
                    channels(server).await
                );
            }
            panic!("they do not converge: {sets:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until all of them have executed what this one has.
async fn arrived(from: &Server, all: &[&Server]) {
    let set = from.executed().await;
    for server in all {
        let mut s = server.operator().await;
        assert!(
            channel::reached(&mut s, &set, LIMIT / 10).await.unwrap(),
            "{}",
            server.name
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a MySQL, see tests/mysqld/mod.rs; `make test` runs it"]
async fn channels_between_pairs_of_real_servers() {
    let [mut a, mut b, mut c, d] = servers(["a", "b", "c", "d"], &credentials()).await;
    pair(&a, &b).await;
    pair(&c, &d).await;
    make(&a, 0..8).await;
    make(&c, 100..102).await;
    seed(&a, &b, &c, &d).await;

    accounts_take_from_passive_servers_only(&a, &b, &c, &d).await;
    only_what_the_filter_names_arrives(&a, &b, &c, &d).await;
    both_directions_make_no_loop(&a, &b, &c, &d).await;
    a_stop_leaves_every_other_channel_alone(&a, &c, &d).await;
    an_applier_stops_where_it_should(&a, &c).await;
    a_shard_is_cut_over_and_the_old_copy_follows(&a, &b, &c, &d).await;
    the_target_restarts_and_has_no_filter(&a, &b, &mut c, &d).await;
    the_source_fails_over(&mut a, &mut b, &c, &d).await;
    nothing_is_left_behind(&a, &b, &c, &d).await;
}

/// Empty copies of what moves, on both servers of the second pair, at the position of the first; fenced wherever they are not served.
async fn seed(a: &Server, b: &Server, c: &Server, d: &Server) {
    converged(&[a, b]).await;
    let at = a.executed().await;
    for target in [c, d] {
        for n in moving().shards() {
            target.aside(&tables(n)).await;
        }
        let mut s = target.operator().await;
        shard_fence::shut(&mut s, &naming(), &moving()).await.unwrap();
        s.run(LIMIT, format!("SET GLOBAL gtid_purged = '+{at}'"))
            .await
            .unwrap();
    }
    shard_fence::shut(&mut b.operator().await, &naming(), &moving())
        .await
        .unwrap();
    // It matches the name of a moving database, were `_` any character.
    a.operator()
        .await
        .run(
            LIMIT,
            "CREATE DATABASE myxdb00001; CREATE TABLE myxdb00001.t (id INT PRIMARY KEY)",
        )
        .await
        .unwrap();
}

async fn accounts_take_from_passive_servers_only(a: &Server, b: &Server, c: &Server, d: &Server) {
    for (active, passive, taker) in [(a, b, "p2"), (c, d, "p1")] {
        let mut s = active.operator().await;
        s.lock().await.unwrap();
        let password = &active.credentials.replication_password;
        accounts::make_channel_account(&mut s, taker, password)
            .await
            .unwrap();
        let executed = active.executed().await;
        converged(&[active, passive]).await;
        accounts::bar(&mut s, &[channel_user(taker)]).await.unwrap();
        assert_eq!(active.executed().await, executed, "it is kept out here alone");
        let locked = format!(
            "SELECT account_locked = 'Y' FROM mysql.user WHERE user = '{}'",
            channel_user(taker)
        );
        assert_eq!(
            (active.number(&locked).await, passive.number(&locked).await),
            (1, 0)
        );
    }
    // From the active one it gets nothing.
    let mut s = c.operator().await;
    take(c, THERE, a, "p2", &mut s).await;
    until("the active server refuses", || async {
        channel(c, THERE)
            .await
            .receiver_error
            .is_some_and(|(code, _)| code == 3118)
    })
    .await;
    take(c, THERE, b, "p2", &mut s).await;
    until("the passive one does not", || async {
        channel(c, THERE).await.runs()
    })
    .await;
    let seen = channel(c, THERE).await;
    assert_eq!(
        (seen.port, seen.source, seen.user, seen.filter),
        (b.port(), b.uuid.clone(), channel_user("p2"), filter())
    );
    // What the controllers of both pairs are told of it.
    let seen = links::read(&mut s).await.unwrap();
    let [link] = &seen.channels[..] else {
        unreachable!()
    };
    assert_eq!((link.name.as_str(), link.out_of_step), (THERE, false));
    for (server, locked, dumps) in [(a, true, 0), (b, false, 1)] {
        let seen = links::read(&mut server.operator().await).await.unwrap();
        let [outsider] = &seen.accounts[..] else {
            panic!("{seen:?}")
        };
        assert_eq!(outsider.user, channel_user("p2"));
        assert_eq!(
            (outsider.locked, outsider.dumps),
            (locked, dumps),
            "{}",
            server.name
        );
    }
    // Before a switchover it is stopped, and the pair's own goes on.
    links::quiet(&mut s).await.unwrap();
    assert_eq!(channel(c, THERE).await.receiver, Receiver::Off);
    assert_eq!(own(c).await, (Receiver::On, true, None));
    channel::start(&mut s, THERE, &filter()).await.unwrap();
    until("it goes on", || async { channel(c, THERE).await.runs() }).await;
    // The other channel of that server was not harmed by it.
    arrived(a, &[b, c, d]).await;
    let received = links::read(&mut s).await.unwrap().channels;
    let all = c.executed().await;
    assert!(
        received
            .iter()
            .all(|l| !l.received.is_empty() && l.received.is_subset_of(&all))
    );
    assert_eq!(own(c).await, (Receiver::On, true, None));
}

async fn only_what_the_filter_names_arrives(a: &Server, b: &Server, c: &Server, d: &Server) {
    for n in 0..8 {
        write(a, n).await;
    }
    // With another default database, in DDL, and what is beside the shards.
    let mut s = a.operator().await;
    s.run(
        LIMIT,
        "USE my_db00005; CREATE TABLE my_db00002.x (id INT PRIMARY KEY, j JSON); INSERT INTO my_db00002.x VALUES (1, '{}'); \
         USE my_db00002; ALTER TABLE my_db00002.x ADD n INT; CREATE TABLE my_db00006.x (id INT PRIMARY KEY); \
         INSERT INTO my_db00006.x VALUES (1); INSERT INTO myxdb00001.t VALUES (1); CREATE USER somebody@'%'",
    )
    .await
    .unwrap();
    arrived(a, &[b, c, d]).await;
    for target in [c, d] {
        for n in moving().shards() {
            assert_eq!(rows(target, n).await, 1, "shard {n} on {}", target.name);
        }
        assert_eq!(
            target.number("SELECT COUNT(n IS NULL) FROM my_db00002.x").await,
            1
        );
        let others = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name IN ('my_db00005', 'my_db00006', 'myxdb00001')";
        assert_eq!(target.number(others).await, 0);
        assert_eq!(
            target
                .number("SELECT COUNT(*) FROM mysql.user WHERE user = 'somebody'")
                .await,
            0
        );
    }
    let seen = channel(c, THERE).await;
    assert_eq!(
        (seen.behind, seen.lag, seen.queued == seen.applied),
        (0, Duration::ZERO, true),
        "{seen:?}"
    );
}

async fn both_directions_make_no_loop(a: &Server, b: &Server, c: &Server, d: &Server) {
    let mut s = a.operator().await;
    take(a, BACK, d, "p1", &mut s).await;
    let before = converged(&[a, b, c, d]).await;
    for _ in 0..10 {
        for n in 0..4 {
            write(a, n).await;
        }
        write(c, 100).await;
    }
    let after = converged(&[a, b, c, d]).await;
    assert_eq!(
        after.minus(&before).count(),
        50,
        "each transaction went round once"
    );
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(converged(&[a, b, c, d]).await, after, "and then it is quiet");
    for server in [a, b, c, d] {
        for n in 0..4 {
            assert_eq!(rows(server, n).await, 11, "shard {n} on {}", server.name);
        }
        assert_eq!(own(server).await, (Receiver::On, true, None), "{}", server.name);
    }
}

async fn a_stop_leaves_every_other_channel_alone(a: &Server, c: &Server, d: &Server) {
    let mut s = c.operator().await;
    let began = Instant::now();
    channel::stop(&mut s, THERE).await.unwrap();
    println!("a channel is stopped within {:?}", began.elapsed());
    let stopped = channel(c, THERE).await;
    assert!(stopped.receiver == Receiver::Off && !stopped.applier);
    // What comes next over the pair's own channel is what it went through before.
    write(c, 100).await;
    converged(&[c, d]).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(own(c).await, (Receiver::On, true, None));
    assert_eq!(channel::mend(&mut s).await.unwrap(), Vec::<String>::new());
    channel::stop(&mut s, THERE).await.unwrap();
    channel::start(&mut s, THERE, &filter()).await.unwrap();
    until("it runs", || async { channel(c, THERE).await.runs() }).await;

    // The reason for it: stopped alone, it takes the other one along. Should MySQL have mended that, this says so.
    s.run(LIMIT, format!("STOP REPLICA FOR CHANNEL '{THERE}'"))
        .await
        .unwrap();
    write(c, 100).await;
    until("the other receiver ends", || async {
        own(c).await.0 == Receiver::Off
    })
    .await;
    assert_eq!(own(c).await.2, Some(13122));
    channel::start(&mut s, THERE, &filter()).await.unwrap();
    assert_eq!(channel::mend(&mut s).await.unwrap(), [String::new()]);
    write(a, 0).await;
    write(c, 100).await;
    until("both run", || async {
        own(c).await.0 == Receiver::On && channel(c, THERE).await.runs()
    })
    .await;
    // And before the other one notices.
    s.run(LIMIT, format!("STOP REPLICA FOR CHANNEL '{THERE}'"))
        .await
        .unwrap();
    let mended = channel::mend(&mut s).await.unwrap();
    assert_eq!(mended, [String::new()]);
    channel::start(&mut s, THERE, &filter()).await.unwrap();
    write(c, 100).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(own(c).await.0, Receiver::On);
}

async fn an_applier_stops_where_it_should(a: &Server, c: &Server) {
    let mut s = c.operator().await;
    channel::stop_applier(&mut s, THERE).await.unwrap();
    write(a, 1).await;
    let set = a.executed().await;
    for _ in 0..20 {
        write(a, 1).await;
    }
    channel::start_until(&mut s, THERE, &filter(), &set)
        .await
        .unwrap();
    assert!(channel::stopped_at(&mut s, THERE, &set, LIMIT).await.unwrap());
    let uuid = uuid(a);
    let has = c.executed().await.of_server(uuid);
    assert_eq!(has, set.of_server(uuid), "that and nothing of what came later");
    let empty = channel::start(&mut s, THERE, &Filter::default()).await;
    assert!(empty.is_err(), "everything would pass");
    channel::start(&mut s, THERE, &filter()).await.unwrap();
    let all = a.executed().await;
    assert!(channel::reached(&mut s, &all, LIMIT / 10).await.unwrap());
}

fn uuid(server: &Server) -> uuid::Uuid {
    let one: GtidSet = format!("{}:1", server.uuid).parse().unwrap();
    one.servers()[0]
}

async fn a_shard_is_cut_over_and_the_old_copy_follows(a: &Server, b: &Server, c: &Server, d: &Server) {
    let shard: SpanSet = [0].into_iter().collect();
    let (mut from, mut to, mut beside) = (a.operator().await, c.operator().await, a.operator().await);
    let began = Instant::now();
    let patience = shard_fence::Patience {
        beside: &mut beside,
        limit: Duration::from_millis(300),
    };
    let fenced = shard_fence::fence(&mut from, &naming(), &shard, patience)
        .await
        .unwrap();
    let shard_fence::Fenced::All(executed) = fenced else {
        panic!("{fenced:?}");
    };
    assert!(
        channel::reached(&mut to, &executed, Duration::from_secs(1))
            .await
            .unwrap()
    );
    shard_fence::open(&mut to, &naming(), &shard).await.unwrap();
    println!("a shard is cut over within {:?}", began.elapsed());
    shard_fence::open(&mut d.operator().await, &naming(), &shard)
        .await
        .unwrap();
    write(c, 0).await;
    let mut client = a.client().await;
    assert_eq!(
        told(&mut client, "INSERT INTO my_db00000.t (v) VALUES (1)").await,
        Some(3989)
    );
    converged(&[a, b, c, d]).await;
    let expected = rows(c, 0).await;
    for server in [a, b, d] {
        assert_eq!(rows(server, 0).await, expected, "{}", server.name);
    }
}

async fn the_target_restarts_and_has_no_filter(a: &Server, b: &Server, c: &mut Server, d: &Server) {
    c.kill();
    write(a, 1).await;
    write(a, 7).await;
    c.start().await;
    let lost = channel(c, THERE).await;
    assert!(
        lost.filter.is_empty() && lost.receiver == Receiver::Off && !lost.applier,
        "{lost:?}"
    );
    // As the operator does it: the other one of the pair follows again, then it is opened.
    let mut s = c.operator().await;
    semisync::source_on(&mut s, 4_294_967_295).await.unwrap();
    fence::open(&mut s).await.unwrap();
    replication::start(&mut s).await.unwrap();
    channel::start(&mut s, THERE, &filter()).await.unwrap();
    write(a, 7).await;
    converged(&[a, b, c, d]).await;
    assert_eq!(channel(c, THERE).await.filter, filter());
    assert_eq!(channel(c, THERE).await.applier_error, None);
    assert_eq!(rows(c, 1).await, rows(a, 1).await);
}

async fn the_source_fails_over(a: &mut Server, b: &mut Server, c: &Server, d: &Server) {
    a.kill();
    // What the promotion of `b` has to do about channels, before commits wait there for an acknowledgement: nobody of another pair may
    // acknowledge. It holds whether that pair answers or not.
    let mut s = b.operator().await;
    replication::stop_receiver(&mut s).await.unwrap();
    replication::apply(&mut s).await.unwrap();
    replication::stop(&mut s).await.unwrap();
    let began = Instant::now();
    accounts::bar(&mut s, &[channel_user("p2")]).await.unwrap();
    println!(
        "the accounts of other pairs are kept out within {:?}",
        began.elapsed()
    );
    // What moves was shut here ahead of its cutover; what is still served by this pair is opened with it, and nothing else.
    let home: SpanSet = (1..4).collect();
    let flags = shard_fence::read(&mut s, &naming()).await.unwrap();
    let moving_away = Moving::of(&record(), "p1");
    assert!(moving_away.missing(&flags.have, &flags.shut).is_empty());
    let left = moving_away.left(&flags.shut, true);
    assert_eq!(left, home);
    shard_fence::open(&mut s, &naming(), &left).await.unwrap();
    fence::open(&mut s).await.unwrap();
    let shut = shard_fence::read(&mut s, &naming()).await.unwrap().shut;
    assert_eq!(shut, moving().minus(&home));
    write(b, 1).await;
    write(b, 5).await;
    until("it takes nothing from the new active server", || async {
        let c = channel(c, THERE).await;
        c.receiver != Receiver::On && c.receiver_error.is_some()
    })
    .await;

    // The old one comes back and follows. Its channel from the other pair goes, before anybody could start it.
    a.start().await;
    let mut back = a.operator().await;
    links::unlink(&mut back).await.unwrap();
    assert_eq!(channels(a).await, []);
    follow(a, b, &mut back).await;
    accounts::admit(&mut back, &[channel_user("p2")]).await.unwrap();
    let all = b.executed().await;
    replication::reach(&mut back, &all).await.unwrap();
    // Channels to both directions are set up anew, each from a passive server.
    take(c, THERE, a, "p2", &mut c.operator().await).await;
    until("it takes from the one that is passive now", || async {
        channel(c, THERE).await.runs()
    })
    .await;
    follow(b, a, &mut s).await;
    take(b, BACK, d, "p1", &mut s).await;
    semisync::source_on(&mut s, 4_294_967_295).await.unwrap();
    let waits = "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_clients'";
    assert_eq!(
        s.rows::<String>(LIMIT, waits).await.unwrap(),
        ["1"],
        "one server acknowledges"
    );
    write(b, 1).await;
    write(c, 0).await;
    converged(&[a, b, c, d]).await;
    for n in [0, 1] {
        let expected = rows(c, n).await;
        for server in [&*a, &*b, d] {
            assert_eq!(rows(server, n).await, expected, "shard {n} on {}", server.name);
        }
    }
    for server in [&*a, &*b, c, d] {
        assert_eq!(own(server).await.0, Receiver::On, "{}", server.name);
    }
}

async fn nothing_is_left_behind(a: &Server, b: &Server, c: &Server, d: &Server) {
    let everywhere = [a, b, c, d];
    for server in everywhere {
        let mut s = server.operator().await;
        for seen in channels(server).await {
            channel::remove(&mut s, &seen.name).await.unwrap();
        }
        // One that is not there is none.
        channel::remove(&mut s, THERE).await.unwrap();
        channel::stop(&mut s, THERE).await.unwrap();
    }
    for (active, taker) in [(b, "p2"), (c, "p1")] {
        let mut s = active.operator().await;
        s.lock().await.unwrap();
        accounts::drop_channel_account(&mut s, taker).await.unwrap();
    }
    write(b, 5).await;
    write(c, 100).await;
    converged(&[a, b]).await;
    converged(&[c, d]).await;
    for server in everywhere {
        assert_eq!(channels(server).await, [], "{}", server.name);
        let left = "SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'shardwright\\_m\\_%'";
        assert_eq!(server.number(left).await, 0, "{}", server.name);
        assert_eq!(own(server).await, (Receiver::On, true, None), "{}", server.name);
    }
}
