use super::{
    observed::{Checked, MapSeen, Observed, PairSeen, Progress, RangeSeen, TablesSeen},
    *,
};
use crate::{
    api::{
        MySQLPair, Placement, ShardCluster, ShardRange, ShardSpan, conditions,
        shard_cluster::{LayoutState, Tables},
    },
    core::{claims::PairFacts, placement, shard_map::ShardMap, spans::SpanSet, tables},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

fn set(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}
fn cluster(spec: &serde_json::Value) -> Observed {
    let mut all =
        json!({ "shards": { "total": 1024 }, "mysql": { "image": "m", "storage": { "size": "1Gi" } } });
    for (k, v) in spec.as_object().unwrap() {
        all[k] = v.clone();
    }
    let c: ShardCluster = serde_json::from_value(json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardCluster",
        "metadata": { "name": "c", "namespace": "ns", "uid": "u1", "generation": 3 },
        "spec": all,
    }))
    .unwrap();
    let mut o = Observed::new(&c);
    o.tables = TablesSeen::Set {
        set: tables::build(c.spec.tables.as_ref(), None).unwrap(),
        checked: Checked::Good,
    };
    o
}
fn pair(o: &mut Observed, name: &str, held: Option<SpanSet>) {
    o.pairs.insert(
        name.into(),
        PairSeen {
            facts: PairFacts {
                cluster: "c".into(),
                deleting: false,
                held,
            },
            active: Some(0),
            progress: Progress::Ready,
            seeded_by: None,
            trouble: None,
        },
    );
}
fn range(o: &mut Observed, name: &str, first: i32, last: i32, pair: &str) {
    let r: ShardRange = serde_json::from_value(json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardRange",
        "metadata": { "name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1 },
        "spec": { "clusterRef": { "name": "c" }, "first": first, "last": last, "pairRef": { "name": pair } },
    }))
    .unwrap();
    o.ranges.push(RangeSeen {
        progress: Progress::Ready,
        tables_hash: match &o.tables {
            TablesSeen::Set { set, .. } => Some(set.hash().to_owned()),
            _ => None,
        },
        ..RangeSeen::from(&r)
    });
}
/// Two pairs, two ranges, nothing recorded.
fn fleet() -> Observed {
    let mut o = cluster(&json!({}));
    pair(&mut o, "p0", Some(SpanSet::new()));
    pair(&mut o, "p1", Some(SpanSet::new()));
    range(&mut o, "r0", 0, 511, "p0");
    range(&mut o, "r1", 512, 1023, "p1");
    o
}
/// The same, all served and published.
fn served() -> Observed {
    let mut o = fleet();
    let p = record(&o, None).placement.unwrap();
    let p = placement::serve(&p, &set(0, 511), "p0").unwrap();
    let p = placement::serve(&p, &set(512, 1023), "p1").unwrap();
    let r = record(&o, Some(&p));
    o.map = ours(r.map.as_ref().unwrap());
    o.before = say(&o, &r, false, Timestamp::UNIX_EPOCH).status;
    o
}
fn ours(map: &ShardMap) -> MapSeen {
    MapSeen::Ours {
        version: map.version,
        map: Some(Box::new(map.clone())),
    }
}
fn ready(s: &Said) -> (&'static str, String) {
    let c = s
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == conditions::READY)
        .unwrap();
    let stalled = conditions::is_true(&s.status.conditions, conditions::STALLED, Some(3));
    let word = match (c.status.as_str(), stalled) {
        ("True", false) => "ready",
        ("False", true) => "stalled",
        ("False", false) => "working",
        _ => "broken",
    };
    (word, c.reason.clone())
}
fn said(o: &Observed, r: &Recorded) -> (&'static str, String) {
    ready(&say(o, r, false, Timestamp::UNIX_EPOCH))
}

#[test]
fn a_served_fleet_is_ready_and_has_nothing_to_write() {
    let o = served();
    let r = record(&o, o.placement());
    assert_eq!(r.placement.as_ref(), o.placement());
    assert_eq!(o.map, ours(r.map.as_ref().unwrap()));
    let s = say(&o, &r, false, Timestamp::from_second(99).unwrap());
    assert_eq!((ready(&s), &s.status), (("ready", "Serving".into()), &o.before));
    assert_eq!(s.notes, []);
    assert_eq!(
        (s.status.open_shards, s.status.pairs_ready.as_str()),
        (1024, "2/2")
    );
}

#[test]
fn the_first_claim_waits_until_every_pair_said_what_it_has() {
    let mut o = fleet();
    pair(&mut o, "p1", None);
    let r = record(&o, None);
    assert_eq!(
        (r.placement, r.map, &r.stops),
        (None, None, &vec![Stop::Asking(vec!["p1".into()])])
    );
    // A pair of another cluster is nobody's business.
    pair(&mut o, "p1", Some(SpanSet::new()));
    pair(&mut o, "other", None);
    o.pairs.get_mut("other").unwrap().facts.cluster = "d".into();
    assert!(record(&o, None).placement.is_some());
}

#[test]
fn volumes_whose_pair_is_not_there_are_waited_for_unless_a_map_knows() {
    let mut o = fleet();
    o.volumes = ["p0".to_owned(), "p9".to_owned()].into();
    let r = record(&o, None);
    assert_eq!(
        (r.placement.is_none(), &r.stops, said(&o, &r)),
        (
            true,
            &vec![Stop::Volumes(vec!["p9".into()])],
            ("working", "AskingServers".into())
        )
    );
    o.map = served().map;
    assert!(record(&o, None).placement.is_some());
}

#[test]
fn an_empty_cluster_has_no_record_and_is_ready() {
    let mut o = cluster(&json!({}));
    let r = record(&o, None);
    assert_eq!(
        (r.placement.is_none(), said(&o, &r)),
        (true, ("ready", "Empty".into()))
    );
    // A range whose pair is not there needs no record either.
    range(&mut o, "r0", 0, 511, "p0");
    assert!(record(&o, None).placement.is_none());
}

#[test]
fn a_lost_record_comes_back_from_the_map_with_a_later_version() {
    let before = served();
    let mut o = fleet();
    o.uid = "u2".into();
    o.map = before.map.clone();
    let r = record(&o, None);
    let p = r.placement.clone().unwrap();
    assert!(r.restored);
    assert_eq!(
        (
            placement::serving(&p),
            placement::of_range(&p, "r1"),
            p.map_version
        ),
        (set(0, 1023), set(512, 1023), before.map.version() + 1)
    );
    let notes = changes(None, &r);
    assert!(
        notes.iter().any(|n| n.reason == reasons::RECORD_RESTORED),
        "{notes:?}"
    );
}

#[test]
fn a_lost_record_and_a_lost_map_come_back_from_the_servers() {
    let mut o = fleet();
    pair(&mut o, "p0", Some(set(0, 511)));
    pair(&mut o, "p1", Some(set(512, 1023)));
    o.now = 1_800_000_000;
    let p = record(&o, None).placement.unwrap();
    // Greater than whatever version was published before.
    assert_eq!(
        (placement::serving(&p), p.map_version),
        (set(0, 1023), 1_800_000_001)
    );
    pair(&mut o, "p1", Some(set(500, 1023)));
    let r = record(&o, None);
    assert_eq!(
        (r.placement.is_none(), said(&o, &r)),
        (true, ("stalled", "AmbiguousCopies".into()))
    );
}

#[test]
fn a_cluster_made_again_with_other_databases_does_not_touch_the_map() {
    let before = served();
    for shards in [
        json!({ "total": 512 }),
        json!({ "total": 1024, "databasePrefix": "x" }),
        json!({ "total": 1024, "digits": 4 }),
    ] {
        let mut o = fleet();
        o.map = before.map.clone();
        o.spec.shards = serde_json::from_value(shards).unwrap();
        let r = record(&o, None);
        assert_eq!(
            (r.placement.is_none(), r.map.is_none(), said(&o, &r)),
            (true, true, ("stalled", "KeySpaceDiffers".into()))
        );
    }
    // More shards of the same names are no other databases.
    let mut o = fleet();
    o.map = before.map.clone();
    o.spec.shards.total = 2048;
    assert!(record(&o, None).placement.is_some());
}

#[test]
fn a_changed_active_server_changes_the_map() {
    let mut o = served();
    o.pairs.get_mut("p1").unwrap().active = Some(1);
    let r = record(&o, o.placement());
    let (old, map) = (o.placement().unwrap().map_version, r.map.clone().unwrap());
    assert_eq!(
        (map.version, map.entries[1].active.host.as_str()),
        (old + 1, "p1-1.p1.ns.svc")
    );
    // One that is not known any more changes nothing.
    o.pairs.get_mut("p1").unwrap().active = None;
    assert_eq!(record(&o, o.placement()).placement.as_ref(), o.placement());
}

#[test]
fn a_served_shard_never_leaves_the_map() {
    let mut o = served();
    o.pairs.clear();
    o.map = MapSeen::Absent;
    let map = record(&o, o.placement()).map.unwrap();
    assert_eq!(map.shards(), set(0, 1023));
}

#[test]
fn a_type_is_in_the_map_when_every_shard_has_its_table() {
    let mut o = served();
    let spec: Tables =
        serde_json::from_value(json!({ "objects": [{ "name": "pins", "typeId": 1 }] })).unwrap();
    let new = tables::build(Some(&spec), None).unwrap();
    o.spec.tables = Some(spec);
    o.tables = TablesSeen::Set {
        set: new.clone(),
        checked: Checked::Good,
    };
    let version = o.placement().unwrap().map_version;
    o.ranges[0].tables_hash = Some(new.hash().to_owned());
    assert_eq!(record(&o, o.placement()).map.unwrap().version, version);
    o.ranges[1].tables_hash = Some(new.hash().to_owned());
    let map = record(&o, o.placement()).map.unwrap();
    assert_eq!((map.version, map.table(1)), (version + 1, Some("pins")));
    // Nor is it while the set is refused.
    o.tables = TablesSeen::Set {
        set: new,
        checked: Checked::Refused(String::new()),
    };
    assert_eq!(record(&o, o.placement()).map.unwrap().version, version);
}

#[test]
fn a_map_that_is_gone_or_edited_is_published_as_it_was() {
    let mut o = served();
    let version = o.placement().unwrap().map_version;
    o.map = MapSeen::Absent;
    assert_eq!(record(&o, o.placement()).map.unwrap().version, version);
    o.map = MapSeen::Ours {
        version: 0,
        map: None,
    };
    assert_eq!(record(&o, o.placement()).map.unwrap().version, version);
    // Somebody wrote a later version: clients may have seen it.
    o.map = MapSeen::Ours {
        version: version + 5,
        map: None,
    };
    let r = record(&o, o.placement());
    assert_eq!(
        (r.map.unwrap().version, r.placement.unwrap().map_version),
        (version + 6, version + 6)
    );
}

#[test]
fn a_config_map_of_somebody_else_is_not_written() {
    let mut o = served();
    o.map = MapSeen::Foreign {
        why: "it is taken".into(),
    };
    let r = record(&o, o.placement());
    assert_eq!(
        (r.map.is_none(), said(&o, &r)),
        (true, ("stalled", "ShardMapNameTaken".into()))
    );
    assert_eq!(r.placement.as_ref(), o.placement());
}

#[test]
fn a_layout_is_carried_out_once() {
    let mut o = cluster(&json!({ "layout": { "pairs": 2, "open": 1024 } }));
    assert_eq!(layout(&o), Layout::Seed);
    let r = record(&o, None);
    assert_eq!(said(&o, &r), ("working", "SeedingLayout".into()));
    // It died half-way: the label says whose these are.
    pair(&mut o, "c-p0", None);
    o.pairs.get_mut("c-p0").unwrap().seeded_by = Some("u1".into());
    assert_eq!(layout(&o), Layout::Seed);
    // Those of an earlier cluster of the name are anyone's.
    o.pairs.get_mut("c-p0").unwrap().seeded_by = Some("u0".into());
    assert_eq!(layout(&o), Layout::Skip);
    o.before.layout = Some(LayoutState::Seeded);
    assert_eq!(layout(&o), Layout::Done);
}

#[test]
fn shards_without_a_range_are_told_once_and_stay_in_the_map() {
    let mut o = served();
    o.ranges.retain(|r| r.claim.name == "r0");
    let r = record(&o, o.placement());
    let s = say(&o, &r, false, Timestamp::UNIX_EPOCH);
    assert_eq!(
        (s.status.open_shards, ready(&s)),
        (1024, ("ready", "Serving".into()))
    );
    assert!(
        s.notes
            .iter()
            .any(|n| n.reason == reasons::SHARDS_NOT_COVERED && n.warning)
    );
    let covered = s
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == conditions::SHARDS_COVERED)
        .unwrap();
    assert!(
        covered.status == "False" && covered.message.contains("512-1023"),
        "{}",
        covered.message
    );
    o.before = s.status;
    let r = record(&o, o.placement());
    assert_eq!(say(&o, &r, false, Timestamp::UNIX_EPOCH).notes, []);
}

#[test]
fn a_hand_over_is_told_and_the_map_stays_as_it_is() {
    let mut o = served();
    o.ranges[0].claim.span = ShardSpan::new(0, 255);
    range(&mut o, "r2", 256, 511, "p1");
    let r = record(&o, o.placement());
    let notes = changes(o.placement(), &r);
    assert_eq!(
        notes.iter().map(|n| n.note.as_str()).collect::<Vec<_>>(),
        [
            "shards 256-511 on p0: r0 → r2; no data moved",
            "shards 256-511 set out: p0 → p1"
        ]
    );
    assert_eq!(
        r.map,
        Some(match &o.map {
            MapSeen::Ours { map: Some(m), .. } => (**m).clone(),
            _ => unreachable!(),
        })
    );
}

#[test]
fn what_a_pair_or_a_range_lacks_the_cluster_lacks() {
    for (progress, word, reasons) in [
        (
            Progress::Stalled("X: y".into()),
            "stalled",
            ["PairStalled", "RangeStalled"],
        ),
        (
            Progress::Working("X: y".into()),
            "working",
            ["PairsNotReady", "RangesNotReady"],
        ),
    ] {
        let mut o = served();
        o.pairs.get_mut("p1").unwrap().progress = progress.clone();
        let r = record(&o, o.placement());
        assert_eq!(said(&o, &r), (word, reasons[0].into()));
        let mut o = served();
        o.ranges[1].progress = progress;
        let r = record(&o, o.placement());
        assert_eq!(said(&o, &r), (word, reasons[1].into()));
    }
}

#[test]
fn bad_tables_stall_the_cluster_and_the_last_good_ones_stay_on_record() {
    let good = served();
    let hash = good.before.tables_hash.clone().unwrap();
    let spec: Tables =
        serde_json::from_value(json!({ "objects": [{ "name": "pins", "typeId": 1 }] })).unwrap();
    let new = tables::build(Some(&spec), None).unwrap();
    for (tables, word, reason) in [
        (
            TablesSeen::ConfigMapMissing { name: "ddl".into() },
            "stalled",
            "DdlConfigMapNotFound",
        ),
        (
            TablesSeen::NotAdmitted(tables::DdlError {
                place: tables::Place::Spec,
                what: "no".into(),
            }),
            "stalled",
            "DdlInvalid",
        ),
        (
            TablesSeen::Set {
                set: new.clone(),
                checked: Checked::Refused("line 3".into()),
            },
            "stalled",
            "DdlInvalid",
        ),
        (
            TablesSeen::Set {
                set: new.clone(),
                checked: Checked::NotYet("nobody".into()),
            },
            "working",
            "CheckingTables",
        ),
    ] {
        let mut o = served();
        o.tables = tables;
        let r = record(&o, o.placement());
        let s = say(&o, &r, false, Timestamp::UNIX_EPOCH);
        assert_eq!(
            (ready(&s), s.status.tables_hash.as_deref()),
            ((word, reason.into()), Some(hash.as_str()))
        );
    }
    let mut o = served();
    o.tables = TablesSeen::Set {
        set: new.clone(),
        checked: Checked::Good,
    };
    let r = record(&o, o.placement());
    let s = say(&o, &r, false, Timestamp::UNIX_EPOCH);
    assert_eq!(
        (ready(&s), s.status.tables_hash.as_deref()),
        (("working", "RollingOutTables".into()), Some(new.hash()))
    );
}

#[test]
fn a_record_that_was_edited_by_hand_is_not_worked_on() {
    let o = served();
    let mut p: Placement = o.placement().unwrap().clone();
    p.spans.reverse();
    let r = record(&o, Some(&p));
    assert_eq!((r.placement.as_ref(), r.map.is_none()), (Some(&p), true));
    assert_eq!(said(&o, &r), ("stalled", "RecordMalformed".into()));
}

#[test]
fn conditions_of_an_earlier_generation_do_not_count() {
    let p: MySQLPair = serde_json::from_value(json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "MySQLPair",
        "metadata": { "name": "p0", "namespace": "ns", "generation": 2 },
        "spec": { "clusterRef": { "name": "c" } },
        "status": { "active": "p0-1", "shards": [{ "first": 0, "last": 9 }], "conditions": [{
            "type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
    }))
    .unwrap();
    let seen = PairSeen::from(&p);
    assert_eq!((seen.active, seen.facts.held), (Some(1), Some(set(0, 9))));
    assert!(matches!(seen.progress, Progress::Working(_)));
}

#[test]
fn shards_that_are_wished_elsewhere_set_out() {
    let mut o = served();
    let before = o.placement().unwrap().clone();
    let wished = before.spans[0].clone();
    pair(&mut o, "p9", Some(SpanSet::new()));
    o.pairs.get_mut(&wished.pair).unwrap().facts.held = Some(placement::recorded(&before));
    for r in &mut o.ranges {
        r.claim.pair = "p9".into();
    }
    o.pairs.get_mut("p9").unwrap().trouble = Some("it is being made".into());
    let waits = record(&o, o.placement()).placement.unwrap();
    assert_eq!(waits.moves, vec![]);
    o.pairs.get_mut("p9").unwrap().trouble = None;
    let r = record(&o, o.placement());
    let after = r.placement.clone().unwrap();
    let m = &after.moves[0];
    assert_eq!((m.from.as_str(), m.to.as_str()), (wished.pair.as_str(), "p9"));
    assert_eq!(changes(Some(&before), &r).last().unwrap().reason, "MoveBegun");
    // Once.
    assert_eq!(record(&o, Some(&after)).placement.unwrap().moves, after.moves);
    assert_eq!(before.map_version, after.map_version);
}
