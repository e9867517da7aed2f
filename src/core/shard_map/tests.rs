use super::*;
use crate::api::{
    PlacedSpan,
    mysql_template::{Durability, MysqlTemplate, Replacement, Storage},
    shard_cluster::{ObjectTable, Routing as RoutingSpec, Shards, Tables},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn spec() -> ShardClusterSpec {
    let object = |name: &str, type_id| ObjectTable {
        name: name.into(),
        type_id,
    };
    ShardClusterSpec {
        shards: Shards {
            total: 1024,
            database_prefix: "db".into(),
            digits: 5,
        },
        routing: None,
        mysql: MysqlTemplate {
            image: "mysql:9.7".into(),
            image_pull_policy: None,
            image_pull_secrets: vec![],
            config: None,
            storage: Storage {
                size: Quantity("1Gi".into()),
                class_name: None,
            },
            durability: Durability::default(),
            acknowledgement_timeout_seconds: None,
            replacement: Replacement::default(),
            resources: None,
            scheduling: None,
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
        },
        tables: Some(Tables {
            objects: vec![object("users", 2), object("pins", 1)],
            ..Tables::default()
        }),
        layout: None,
        shard_map: None,
        migration: crate::api::shard_cluster::Migration::default(),
    }
}
fn span(first: i32, last: i32, pair: &str, state: SpanState) -> PlacedSpan {
    PlacedSpan {
        first,
        last,
        pair: pair.into(),
        state,
        range: Some("r".into()),
    }
}
fn placement() -> Placement {
    use SpanState::{Creating, Serving};
    Placement {
        map_version: 7,
        spans: vec![
            span(0, 255, "p0", Serving),
            span(256, 511, "p0", Serving),
            span(512, 767, "p1", Serving),
            span(768, 1023, "p1", Creating),
        ],
        ..Placement::default()
    }
}
fn actives(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(p, o)| ((*p).to_owned(), *o)).collect()
}
fn map(pairs: &[(&str, usize)], previous: Option<&ShardMap>) -> ShardMap {
    build(
        "shop",
        "main",
        "u-1",
        &spec(),
        &placement(),
        &actives(pairs),
        previous,
    )
}

#[test]
fn both_forms_are_these_bytes() {
    let map = map(&[("p0", 0), ("p1", 1)], None);
    assert_eq!(
        map.ranges_json(),
        r#"[{"range":[0,511],"master":"p0-0.p0.shop.svc","slave":"p0-1.p0.shop.svc"},{"range":[512,767],"master":"p1-1.p1.shop.svc","slave":"p1-0.p1.shop.svc"}]"#
    );
    assert_eq!(
        map.shardmap_json(),
        concat!(
            r#"{"schema":"shardwright.dev/shardmap/v1","cluster":{"namespace":"shop","name":"main","uid":"u-1"},"version":7,"#,
            r#""routing":{"mode":"ID","idLayout":{"shardShift":46,"shardBits":16,"typeShift":36,"typeBits":10,"localBits":36}},"#,
            r#""databases":{"prefix":"db","digits":5,"total":1024},"types":[{"typeId":1,"table":"pins"},{"typeId":2,"table":"users"}],"#,
            r#""entries":[{"first":0,"last":511,"pair":"p0","active":{"host":"p0-0.p0.shop.svc","port":3306},"passive":{"host":"p0-1.p0.shop.svc","port":3306},"state":"Serving"},"#,
            r#"{"first":512,"last":767,"pair":"p1","active":{"host":"p1-1.p1.shop.svc","port":3306},"passive":{"host":"p1-0.p1.shop.svc","port":3306},"state":"Serving"}]}"#
        )
    );
    assert_eq!(ShardMap::parse(&map.shardmap_json()).unwrap(), map);
}

#[test]
fn a_map_of_mod_shards_says_so() {
    let mut spec = spec();
    spec.routing = Some(RoutingSpec {
        mode: RoutingMode::KeyHash,
        algorithm: Some(HashAlgorithm::MD5),
        modulus: Some(1024),
    });
    let map = build("shop", "main", "u-1", &spec, &placement(), &BTreeMap::new(), None);
    let json = map.shardmap_json();
    assert!(
        json.contains(r#""routing":{"mode":"KeyHash","algorithm":"MD5","modulus":1024}"#),
        "{json}"
    );
    assert_eq!(
        (ShardMap::parse(&json).unwrap(), map.ranges_json().as_str()),
        (map, "[]")
    );
}

#[test]
fn a_pair_whose_active_is_unknown_stands_as_before() {
    let before = map(&[("p0", 1), ("p1", 0)], None);
    let after = map(&[("p1", 1)], Some(&before));
    assert_eq!(
        (after.entries.len(), after.locate(0).unwrap().active.host.as_str()),
        (2, "p0-1.p0.shop.svc")
    );
    assert_eq!(after.locate(600).unwrap().active.host, "p1-1.p1.shop.svc");
    // Nobody ever knew it.
    assert_eq!(map(&[("p1", 1)], None).shards().to_string(), "512-767");
}

#[test]
fn the_hash_is_of_the_content_and_not_of_the_version() {
    let a = map(&[("p0", 0), ("p1", 1)], None);
    let later = ShardMap {
        version: 8,
        ..a.clone()
    };
    assert_eq!(
        (a.content_hash().len(), a.content_hash()),
        (64, later.content_hash())
    );
    assert_ne!(
        a.content_hash(),
        map(&[("p0", 1), ("p1", 1)], None).content_hash()
    );
}

#[test]
fn a_shard_is_found_at_both_ends_of_its_entry() {
    let map = map(&[("p0", 0), ("p1", 1)], None);
    let pair = |shard| map.locate(shard).map(|e| e.pair.as_str());
    assert_eq!(
        (pair(0), pair(511), pair(512), pair(767)),
        (Some("p0"), Some("p0"), Some("p1"), Some("p1"))
    );
    assert_eq!((pair(768), pair(-1), pair(65535)), (None, None, None));
    assert_eq!((map.table(1), map.table(3)), (Some("pins"), None));
}

#[test]
fn what_is_no_map_is_refused() {
    let good = map(&[("p0", 0), ("p1", 1)], None).shardmap_json();
    for (text, why) in [
        (map(&[("p0", 0)], None).ranges_json(), "not a shard map"),
        (good.replace("shardmap/v1", "shardmap/v2"), "this program reads"),
        (good.replace(r#""first":512"#, r#""first":511"#), "entry 511-767"),
        (
            good.replace(r#""total":1024"#, r#""total":700"#),
            "beyond shard 699",
        ),
        ("{}".to_owned(), "missing field `schema`"),
    ] {
        let error = ShardMap::parse(&text).expect_err(&text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    ShardMap::parse(&good.replace(r#""version":7"#, r#""version":7,"later":true"#)).unwrap();
}
