use super::{
    observed::{ClusterSeen, HeldBack, Observed, PairSeen},
    *,
};
use crate::{
    api::{
        Placement, Seed, ShardRange, ShardRangeStatus, ShardSpan, conditions,
        shard_range::{DeletionPolicy, MoveHealth, MovePhase, RangeMigration},
    },
    core::{
        claims::Verdict,
        cluster::observed::{Checked, TablesSeen},
        placement::{self, moves},
        spans::SpanSet,
        tables,
    },
};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

fn set(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}
fn table_set() -> tables::TableSet {
    let spec = serde_json::from_value(json!({ "objects": [{ "name": "pins", "typeId": 1 }] })).unwrap();
    tables::build(Some(&spec), None).unwrap()
}
fn claimed() -> Placement {
    placement::claim(&Placement::default(), &set(0, 511), "p0", Some("r0")).unwrap()
}
fn served() -> Placement {
    placement::serve(&claimed(), &set(0, 511), "p0").unwrap()
}
fn seen(record: Option<Placement>) -> Observed {
    let r: ShardRange = serde_json::from_value(json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardRange",
        "metadata": { "name": "r0", "namespace": "ns", "generation": 2 },
        "spec": { "clusterRef": { "name": "c" }, "first": 0, "last": 511, "pairRef": { "name": "p0" } },
    }))
    .unwrap();
    let set = table_set();
    Observed {
        name: "r0".into(),
        generation: Some(2),
        deleting: false,
        finalizer: true,
        spec: r.spec,
        before: ShardRangeStatus::default(),
        cluster: Some(ClusterSeen {
            record,
            verdict: Verdict::Accepted,
            ambiguous: SpanSet::new(),
            held_back: None,
            tables_hash: Some(set.hash().to_owned()),
            tables: TablesSeen::Set {
                set,
                checked: Checked::NotYet(String::new()),
            },
        }),
        pairs: BTreeMap::from([(
            "p0".to_owned(),
            PairSeen {
                active: Some("p0-0".into()),
                uuid: Some("u".into()),
                trouble: None,
            },
        )]),
        published: None,
        look_due: false,
    }
}
/// Served, with every table, and said so.
fn ready() -> Observed {
    let mut o = seen(Some(served()));
    o.published = Some(set(0, 511));
    let outcome = Outcome {
        rolled_out: true,
        looked: true,
        ..Outcome::default()
    };
    o.before = say(&o, &plan(&o), &outcome, Timestamp::UNIX_EPOCH).status;
    o.published = None;
    o
}
fn idle(o: &Observed) -> Said {
    say(o, &plan(o), &Outcome::default(), Timestamp::UNIX_EPOCH)
}
fn words(s: &Said) -> (&'static str, String) {
    let is = |t| conditions::is_true(&s.status.conditions, t, Some(2));
    let word = match (
        is(conditions::READY),
        is(conditions::RECONCILING),
        is(conditions::STALLED),
    ) {
        (true, false, false) => "ready",
        (false, true, false) => "working",
        (false, false, true) => "stalled",
        _ => "broken",
    };
    let c = s
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == conditions::READY)
        .unwrap();
    (word, c.reason.clone())
}
fn kinds(p: &Plan) -> Vec<(Kind, String)> {
    p.work
        .iter()
        .map(|w| (w.kind, format!("{}:{}", w.pair, w.shards)))
        .collect()
}

#[test]
fn a_served_range_has_nothing_to_do_and_nothing_to_write() {
    let o = ready();
    let s = idle(&o);
    assert_eq!(
        (words(&s), kinds(&plan(&o))),
        (("ready", "Serving".into()), vec![])
    );
    assert_eq!((&s.status, s.notes.len()), (&o.before, 0));
    let st = &s.status;
    assert_eq!(
        (
            st.served_by_summary.as_str(),
            st.active.as_deref(),
            st.progress.as_str()
        ),
        ("p0:0-511", Some("p0-0"), "512/512")
    );
}

#[test]
fn claimed_shards_are_created_and_then_served() {
    let o = seen(Some(claimed()));
    let p = plan(&o);
    assert_eq!(kinds(&p), [(Kind::Create, "p0:0-511".into())]);
    assert_eq!(words(&idle(&o)), ("working", "CreatingDatabases".into()));
    let outcome = Outcome {
        record: Some(served()),
        opened: set(0, 511),
        rolled_out: true,
        looked: true,
        ..Outcome::default()
    };
    let s = say(&o, &p, &outcome, Timestamp::UNIX_EPOCH);
    assert_eq!(
        (words(&s), s.status.tables_hash.as_deref(), s.publishing),
        (
            ("working", "PublishingMap".into()),
            Some(table_set().hash()),
            true
        )
    );
    let told: Vec<_> = s.notes.iter().map(|n| n.reason).collect();
    assert_eq!(told, [reasons::RANGE_ACCEPTED, reasons::SHARDS_OPENED]);
    // The next pass reads the map: only when it has all of them is the range Ready.
    let mut o = seen(Some(served()));
    o.before = s.status;
    assert!(idle(&o).publishing);
    o.published = Some(set(0, 510));
    assert!(idle(&o).publishing);
    o.published = Some(set(0, 511));
    let s = idle(&o);
    assert_eq!(words(&s), ("ready", "Serving".into()));
    let told: Vec<_> = s.notes.iter().map(|n| n.reason).collect();
    assert_eq!(told, [reasons::RANGE_READY]);
}

#[test]
fn nothing_is_created_without_a_claim_or_with_unchecked_tables() {
    assert_eq!(words(&idle(&seen(None))), ("working", "WaitingForRecord".into()));
    let mut o = seen(Some(claimed()));
    o.cluster.as_mut().unwrap().tables_hash = None;
    assert_eq!(
        (kinds(&plan(&o)), words(&idle(&o))),
        (vec![], ("working", "WaitingForTables".into()))
    );
    o.cluster.as_mut().unwrap().tables = TablesSeen::ConfigMapMissing { name: "x".into() };
    assert_eq!(
        (kinds(&plan(&o)), words(&idle(&o))),
        (vec![], ("stalled", "TablesUnusable".into()))
    );
    let mut o = seen(Some(claimed()));
    o.cluster.as_mut().unwrap().verdict = Verdict::PairNotFound {
        pair: "p0".into(),
        deleting: false,
    };
    assert_eq!(
        (kinds(&plan(&o)), words(&idle(&o))),
        (vec![], ("working", "PairNotFound".into()))
    );
}

#[test]
fn bad_tables_leave_a_served_range_ready() {
    let mut o = ready();
    o.cluster.as_mut().unwrap().tables = TablesSeen::ConfigMapMissing { name: "x".into() };
    o.look_due = true;
    let s = idle(&o);
    assert_eq!(
        (words(&s), kinds(&plan(&o))),
        (("ready", "Serving".into()), vec![])
    );
    assert_eq!(s.status.tables_hash, o.before.tables_hash);
}

#[test]
fn new_tables_and_shards_of_another_range_are_looked_at() {
    let mut o = ready();
    o.before.tables_hash = Some("older".into());
    assert_eq!(kinds(&plan(&o)), [(Kind::Tables, "p0:0-511".into())]);
    assert_eq!(words(&idle(&o)), ("working", "RollingOutTables".into()));
    // Handed over: whoever had them may have had other tables.
    let mut o = ready();
    o.before.served_by[0].last = 255;
    o.published = Some(set(0, 511));
    assert_eq!(kinds(&plan(&o)), [(Kind::Tables, "p0:0-511".into())]);
    let s = idle(&o);
    assert_eq!(
        (s.status.tables_hash.clone(), words(&s)),
        (None, ("working", "RollingOutTables".into()))
    );
    o.before = s.status;
    assert_eq!(kinds(&plan(&o)), [(Kind::Tables, "p0:0-511".into())]);
    let mut o = ready();
    o.look_due = true;
    assert_eq!(kinds(&plan(&o)), [(Kind::Look, "p0:0-511".into())]);
}

#[test]
fn a_missing_database_is_reported_until_it_is_back() {
    let mut o = ready();
    let outcome = Outcome {
        missing: set(7, 7),
        looked: true,
        ..Outcome::default()
    };
    let s = say(&o, &plan(&o), &outcome, Timestamp::UNIX_EPOCH);
    assert_eq!(words(&s), ("stalled", "DatabaseMissing".into()));
    assert_eq!(s.notes.len(), 1);
    // A pass that does not look knows no better.
    o.before = s.status;
    let s = idle(&o);
    assert_eq!(
        (words(&s), &s.status),
        (("stalled", "DatabaseMissing".into()), &o.before)
    );
    o.published = Some(set(0, 511));
    let outcome = Outcome {
        looked: true,
        rolled_out: true,
        ..Outcome::default()
    };
    let s = say(&o, &plan(&o), &outcome, Timestamp::UNIX_EPOCH);
    assert_eq!(words(&s), ("ready", "Serving".into()));
}

#[test]
fn shards_that_are_wished_elsewhere_say_what_they_wait_for() {
    let mut o = ready();
    o.spec.pair_ref.name = "p1".into();
    let s = idle(&o);
    assert_eq!(words(&s), ("working", "WaitingForMove".into()));
    assert_eq!(
        (kinds(&plan(&o)), s.status.served_by_summary.as_str()),
        (vec![], "p0:0-511")
    );
    let held = |o: &mut Observed, refused| {
        o.cluster.as_mut().unwrap().held_back = Some(HeldBack {
            why: "it is busy".into(),
            refused,
        });
    };
    held(&mut o, false);
    assert_eq!(words(&idle(&o)), ("working", "WaitingForMove".into()));
    held(&mut o, true);
    assert_eq!(words(&idle(&o)), ("stalled", "MoveRefused".into()));
}

#[test]
fn a_move_is_said_in_its_own_words_and_stays_when_it_is_over() {
    let mut o = ready();
    o.spec.pair_ref.name = "p1".into();
    let moving = moves::begin_move(&served(), "p0", "p1", &set(0, 511), Seed::PerDatabase).unwrap();
    o.cluster.as_mut().unwrap().record = Some(moving);
    assert_eq!(words(&idle(&o)), ("working", "Seeding".into()));
    let mut migration = RangeMigration {
        from: "p0".into(),
        to: "p1".into(),
        seed: Seed::PerDatabase,
        phase: MovePhase::Following,
        state: MoveHealth::Stalled,
        reason: "CopiesDiffer".into(),
        waits_for: "look".into(),
        progress: "Following 0/512".into(),
        shards: 512,
        shards_moved: 0,
        bytes_copied: 1,
        bytes_total: 1,
        eta_seconds: None,
        lag_transactions: Some(3),
        retain_until: None,
        write_block: None,
    };
    o.before.migration = Some(migration.clone());
    let s = idle(&o);
    assert_eq!(words(&s), ("stalled", "CopiesDiffer".into()));
    assert_eq!(s.status.migration, o.before.migration);
    migration.state = MoveHealth::Working;
    o.before.migration = Some(migration);
    assert_eq!(words(&idle(&o)), ("working", "CopiesDiffer".into()));
    // Off the record.
    o.cluster.as_mut().unwrap().record = Some(served());
    let over = idle(&o).status.migration.unwrap();
    assert_eq!((over.phase, over.lag_transactions), (MovePhase::Ended, None));
    assert_eq!(over.progress, "Ended");
}

#[test]
fn verdicts_become_conditions() {
    for (verdict, word) in [
        (
            Verdict::RangeOverlap {
                with: "x".into(),
                shards: set(0, 1),
            },
            "stalled",
        ),
        (Verdict::BeyondTotal { total: 4 }, "stalled"),
        (
            Verdict::PairOfOtherCluster {
                pair: "p".into(),
                cluster: "d".into(),
            },
            "stalled",
        ),
        (
            Verdict::PairNotFound {
                pair: "p".into(),
                deleting: false,
            },
            "working",
        ),
    ] {
        let mut o = ready();
        let reason = verdict.reason();
        o.cluster.as_mut().unwrap().verdict = verdict;
        let s = idle(&o);
        assert_eq!(words(&s), (word, reason.to_owned()));
        assert!(!conditions::is_true(
            &s.status.conditions,
            conditions::ACCEPTED,
            None
        ));
        // What it has, it goes on serving, and it is told once.
        assert_eq!(
            (s.status.served_by_summary.as_str(), s.notes.len()),
            ("p0:0-511", 1)
        );
    }
}

#[test]
fn without_a_cluster_the_last_word_stands() {
    let mut o = ready();
    o.cluster = None;
    let s = idle(&o);
    assert_eq!(
        (words(&s), s.status.served_by_summary.as_str()),
        (("working", "ClusterNotFound".into()), "p0:0-511")
    );
    assert_eq!(plan(&o).finalizer, Finalizer::Keep);
}

#[test]
fn a_deletion_waits_only_for_shards_that_are_served() {
    let mut o = ready();
    o.deleting = true;
    o.cluster.as_mut().unwrap().verdict = Verdict::Deleting;
    assert_eq!(plan(&o).finalizer, Finalizer::Keep);
    let s = idle(&o);
    assert_eq!(words(&s), ("stalled", "ShardsNotHandedOver".into()));
    let ready = s
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == conditions::READY)
        .unwrap();
    assert!(
        ready.message.contains("0-511") && ready.message.contains("Retain"),
        "{}",
        ready.message
    );
    for free in [
        |o: &mut Observed| o.spec.deletion_policy = DeletionPolicy::Retain,
        |o: &mut Observed| o.cluster = None,
        |o: &mut Observed| o.cluster.as_mut().unwrap().record = None,
        |o: &mut Observed| o.cluster.as_mut().unwrap().record = Some(claimed()),
        |o: &mut Observed| {
            o.cluster.as_mut().unwrap().record = placement::hand_over(&served(), &set(0, 511), "r1").ok();
        },
    ] {
        let mut o = o.clone();
        free(&mut o);
        assert_eq!(plan(&o).finalizer, Finalizer::Remove);
    }
    let mut new = seen(None);
    new.finalizer = false;
    assert_eq!(plan(&new).finalizer, Finalizer::Add);
}

#[test]
fn a_pair_that_does_not_serve_takes_readiness_along() {
    let mut o = ready();
    o.pairs.get_mut("p0").unwrap().trouble = Some("ActiveUnavailable: p0-0 does not answer".into());
    let s = idle(&o);
    assert_eq!(words(&s), ("working", "PairNotServing".into()));
    let mut o = seen(Some(claimed()));
    o.pairs.get_mut("p0").unwrap().trouble = Some("WaitingForServers: both".into());
    assert_eq!(words(&idle(&o)), ("working", "WaitingForPair".into()));
}

#[test]
fn tables_that_nobody_declares_are_named_once() {
    let mut o = ready();
    let outcome = Outcome {
        looked: true,
        rolled_out: true,
        undeclared: ["old_boards".to_owned()].into(),
        ..Outcome::default()
    };
    let s = say(&o, &plan(&o), &outcome, Timestamp::UNIX_EPOCH);
    assert_eq!(words(&s), ("ready", "Serving".into()));
    assert!(s.notes.len() == 1 && s.notes[0].note.contains("old_boards"));
    o.before = s.status;
    let again = say(&o, &plan(&o), &outcome, Timestamp::UNIX_EPOCH);
    assert_eq!((&again.status, again.notes.len()), (&o.before, 0));
    assert_eq!(idle(&o).status, o.before);
}

#[test]
fn shards_on_two_pairs_are_listed_by_pair() {
    let mut o = ready();
    let p = placement::claim(&Placement::default(), &set(0, 99), "p0", Some("r0")).unwrap();
    let p = placement::claim(&p, &set(100, 199), "p1", Some("r0")).unwrap();
    let p = placement::claim(&p, &set(200, 511), "p0", Some("r0")).unwrap();
    let p = ["p0", "p1"].iter().fold(p, |p, pair| {
        placement::serve(&p, &placement::shards(&p, |s| s.pair == *pair), pair).unwrap()
    });
    o.cluster.as_mut().unwrap().record = Some(p);
    let s = idle(&o).status;
    assert_eq!(
        (s.served_by_summary.as_str(), s.served_by.len(), s.active),
        ("p0:0-99,200-511 p1:100-199", 3, None)
    );
}
