use super::*;
use crate::{
    api::{ShardSpan, shard_cluster::Shards},
    core::credentials::channel_user,
};

fn naming(prefix: &str) -> Naming {
    Naming::from(&Shards {
        total: 1024,
        database_prefix: prefix.into(),
        digits: 5,
    })
}

#[test]
fn a_filter_takes_no_underscore_for_any_character_and_goes_round() {
    let naming = naming("my_db");
    let shards: SpanSet = [1, 2, 700].into_iter().collect();
    let filter = Filter::new(&naming, &shards);
    let sql = filter.statement("from-p1");
    assert_eq!(
        sql,
        r"CHANGE REPLICATION FILTER REPLICATE_WILD_DO_TABLE = ('my\\_db00001.%', 'my\\_db00002.%', 'my\\_db00700.%') FOR CHANNEL 'from-p1'"
    );
    // As the server shows it.
    let read = Filter::read(r"my\_db00001.%,my\_db00700.%,my\_db00002.%");
    assert_eq!(read, filter);
    assert_eq!(read.shards(&naming), shards);
    assert!(Filter::read("").is_empty());
}

#[test]
fn a_channel_is_called_after_the_pair_that_it_takes_from() {
    let longest = "p".repeat(45);
    assert!(name(&longest).len() <= 64);
    assert_eq!(pair(&name(&longest)), Some(longest.as_str()));
    assert_eq!(pair(""), None);
}

#[test]
fn it_follows_as_the_pairs_own_channel_does_but_by_its_name() {
    let source = Source {
        host: "p1-1.p1.n.svc",
        port: 3306,
        user: &channel_user("p2"),
        password: "secret",
        ca_file: "/etc/ca.crt",
    };
    let sql = change_channel(&source, "from-p1");
    for part in [
        "SOURCE_SSL_VERIFY_SERVER_CERT = 1",
        "SOURCE_AUTO_POSITION = 1",
        "REQUIRE_ROW_FORMAT = 1",
        "FOR CHANNEL 'from-p1'",
    ] {
        assert!(sql.contains(part), "{sql}");
    }
}

#[test]
fn no_statement_is_without_the_name_of_its_channel() {
    let code = include_str!("../channel.rs");
    for statement in [
        "START REPLICA",
        "STOP REPLICA",
        "RESET REPLICA",
        "CHANGE REPLICATION",
    ] {
        for line in code
            .lines()
            .filter(|l| l.contains(statement) && !l.trim_start().starts_with("//"))
        {
            assert!(line.contains("FOR CHANNEL"), "{line}");
        }
    }
}

#[test]
fn shards_of_a_filter_are_spans() {
    let naming = naming("db");
    let shards = SpanSet::of(ShardSpan::new(256, 511));
    assert_eq!(Filter::new(&naming, &shards).shards(&naming), shards);
}
