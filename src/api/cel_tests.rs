//! Every CEL rule of the three kinds, both ways: what it is there for is refused with its message, and its nearest neighbour is
//! accepted. The last test fails when a rule has no case here.

use super::{MySQLPair, ShardCluster, ShardRange, crds};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Sets the value at a path to something; `null` takes it out.
type Edit = (&'static str, Value);

/// One rule and what shows that it does what it says.
struct Case {
    kind: &'static str,
    /// Message of the rule, as it stands in the type.
    message: &'static str,
    /// What the object was before, as edits of the sample; `None` when it is created.
    old: Option<Vec<Edit>>,
    refused: Vec<Vec<Edit>>,
    accepted: Vec<Vec<Edit>>,
}

fn sample(kind: &str) -> Value {
    let spec = match kind {
        "ShardCluster" => json!({
            "shards": { "total": 1024 },
            "mysql": { "image": "mysql:9.7", "storage": { "size": "1Gi" } },
            "tables": { "objects": [{ "name": "pins", "typeId": 1 }], "mappings": [{ "name": "board_has_pins" }] },
            "layout": { "pairs": 2, "open": 512 },
        }),
        "ShardRange" => {
            json!({ "clusterRef": { "name": "main" }, "first": 0, "last": 511, "pairRef": { "name": "p0" } })
        }
        _ => json!({ "clusterRef": { "name": "main" } }),
    };
    json!({ "apiVersion": "shardwright.dev/v1alpha1", "kind": kind, "metadata": { "name": "main", "namespace": "shop" }, "spec": spec })
}

/// Pointers begin at the top; an object on the way that is not there is made.
fn edited(kind: &str, edits: &[Edit]) -> Value {
    let mut all = sample(kind);
    for (path, value) in edits {
        let (parents, last) = path.rsplit_once('/').unwrap();
        let mut at = &mut all;
        for name in parents.split('/').skip(1) {
            at = match name.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[name],
            };
        }
        if value.is_null() {
            at.as_object_mut().unwrap().remove(last);
        } else {
            at[last] = value.clone();
        }
    }
    all
}

/// Messages of the rules that refuse an object that is created, or that was `old`.
fn judge(kind: &str, new: Value, old: Option<Value>) -> Result<(), Vec<String>> {
    macro_rules! judge {
        ($kind:ty) => {{
            let new: $kind = serde_json::from_value(new).unwrap();
            match old {
                None => new.validate_cel(),
                Some(old) => new.validate_cel_update(&serde_json::from_value::<$kind>(old).unwrap()),
            }
            .map_err(|e| e.into_vec().into_iter().map(|e| e.message).collect())
        }};
    }
    match kind {
        "ShardCluster" => judge!(ShardCluster),
        "ShardRange" => judge!(ShardRange),
        _ => judge!(MySQLPair),
    }
}

fn created(
    kind: &'static str,
    message: &'static str,
    refused: Vec<Vec<Edit>>,
    accepted: Vec<Vec<Edit>>,
) -> Case {
    Case {
        kind,
        message,
        old: None,
        refused,
        accepted,
    }
}
fn changed(
    kind: &'static str,
    message: &'static str,
    old: Vec<Edit>,
    refused: Vec<Vec<Edit>>,
    accepted: Vec<Vec<Edit>>,
) -> Case {
    Case {
        kind,
        message,
        old: Some(old),
        refused,
        accepted,
    }
}

fn cases() -> Vec<Case> {
    let name = |n: usize| vec![("/metadata/name", json!("a".repeat(n)))];
    let named = |n: &str| vec![("/metadata/name", json!(n))];
    let hashed = |modulus: i32| json!({ "mode": "KeyHash", "algorithm": "MD5", "modulus": modulus });
    let mut all = cluster_cases(&hashed);
    all.extend([
        created(
            "ShardRange",
            "`first` must not be greater than `last`",
            vec![vec![("/spec/first", json!(512))]],
            vec![vec![("/spec/first", json!(511))]],
        ),
        created(
            "ShardRange",
            "`end` must differ from `start`",
            vec![vec![(
                "/spec/cutoverWindow",
                json!({ "start": "22:00", "end": "22:00" }),
            )]],
            vec![
                vec![(
                    "/spec/cutoverWindow",
                    json!({ "start": "22:00", "end": "04:00" }),
                )],
                vec![(
                    "/spec/cutoverWindow",
                    json!({ "start": "22:00", "end": "22:01", "days": ["Monday"] }),
                )],
            ],
        ),
        changed(
            "ShardRange",
            "`clusterRef` is immutable",
            vec![],
            vec![vec![("/spec/clusterRef/name", json!("other"))]],
            vec![vec![("/spec/last", json!(255))], vec![("/spec/pairRef/name", json!("p1"))]],
        ),
        created(
            "MySQLPair",
            "metadata.name must be at most 45 characters: names of Pods and Services are made from it",
            vec![name(46)],
            vec![name(45)],
        ),
        created(
            "MySQLPair",
            "metadata.name must begin with a letter and hold only a-z, 0-9 and -: names of Services are made from it",
            vec![named("0a"), named("a.b")],
            vec![named("a-0"), named("a")],
        ),
        changed(
            "MySQLPair",
            "`clusterRef` is immutable",
            vec![],
            vec![vec![("/spec/clusterRef/name", json!("other"))]],
            vec![vec![("/spec/reconciliation", json!("Paused"))]],
        ),
        changed(
            "MySQLPair",
            "`mysql.storage` is immutable: it may not be added or removed",
            vec![],
            vec![vec![("/spec/mysql", json!({ "storage": { "size": "2Gi" } }))]],
            vec![vec![("/spec/mysql", json!({ "image": "mysql:9.8" }))]],
        ),
        changed(
            "MySQLPair",
            "`mysql.storage` is immutable: it may not be added or removed",
            vec![("/spec/mysql", json!({ "storage": { "size": "2Gi" } }))],
            vec![vec![("/spec/mysql", json!({}))], vec![("/spec/mysql", Value::Null)]],
            vec![vec![("/spec/mysql", json!({ "storage": { "size": "2Gi" }, "config": "a = 1" }))]],
        ),
    ]);
    let storages = [
        ("ShardCluster", "/spec/mysql/storage"),
        ("MySQLPair", "/spec/mysql/storage"),
    ];
    let waits = |durability: Value| {
        vec![
            ("/spec/mysql/durability", durability),
            ("/spec/mysql/acknowledgementTimeoutSeconds", json!(3)),
        ]
    };
    let message =
        "`acknowledgementTimeoutSeconds` may not be set with durability Strict: it waits without end";
    all.extend([
        created(
            "ShardCluster",
            message,
            vec![waits(json!("Strict")), waits(Value::Null)],
            vec![
                waits(json!("Available")),
                vec![("/spec/mysql/durability", json!("Strict"))],
            ],
        ),
        created(
            "MySQLPair",
            message,
            vec![vec![(
                "/spec/mysql",
                json!({ "durability": "Strict", "acknowledgementTimeoutSeconds": 3 }),
            )]],
            vec![
                vec![(
                    "/spec/mysql",
                    json!({ "durability": "Available", "acknowledgementTimeoutSeconds": 3 }),
                )],
                vec![("/spec/mysql", json!({ "acknowledgementTimeoutSeconds": 3 }))],
                vec![("/spec/mysql", json!({ "durability": "Strict" }))],
            ],
        ),
    ]);
    for (kind, path) in storages {
        let storage = |s: Value| vec![(path, s)];
        let fast = json!({ "size": "1Gi", "className": "fast" });
        all.extend([
            changed(
                kind,
                "`size` may not shrink",
                storage(json!({ "size": "1Gi" })),
                ["1Mi", "1G", "1023Mi", "1073741823"]
                    .map(|size| storage(json!({ "size": size })))
                    .to_vec(),
                ["1Gi", "1024Mi", "2Gi", "1.5Gi", "1073741824"]
                    .map(|size| storage(json!({ "size": size })))
                    .to_vec(),
            ),
            changed(
                kind,
                "`className` is immutable",
                storage(fast.clone()),
                vec![storage(json!({ "size": "1Gi", "className": "slow" }))],
                vec![storage(fast.clone())],
            ),
            changed(
                kind,
                "`className` is immutable: it may not be added or removed",
                storage(fast.clone()),
                vec![storage(json!({ "size": "1Gi" }))],
                vec![storage(fast.clone())],
            ),
            changed(
                kind,
                "`className` is immutable: it may not be added or removed",
                storage(json!({ "size": "1Gi" })),
                vec![storage(fast)],
                vec![storage(json!({ "size": "1Gi" }))],
            ),
        ]);
    }
    all
}

fn cluster_cases(hashed: &impl Fn(i32) -> Value) -> Vec<Case> {
    const KIND: &str = "ShardCluster";
    let no_layout = || ("/spec/layout", Value::Null);
    let shards = |total: i32, digits: i32| {
        vec![
            no_layout(),
            (
                "/spec/shards",
                json!({ "total": total, "digits": digits, "databasePrefix": "db" }),
            ),
        ]
    };
    let object = |name: &str, id: i32| json!({ "name": name, "typeId": id });
    let objects = |all: &[Value]| vec![("/spec/tables/objects", json!(all))];
    let layout = |pairs: i32, open: i32| ("/spec/layout", json!({ "pairs": pairs, "open": open }));
    let routing = |r: Value| vec![("/spec/routing", r), no_layout()];
    let labels = |key: &str| vec![("/spec/mysql/podLabels", json!({ key: "x" }))];
    let annotations = |key: &str| vec![("/spec/mysql/podAnnotations", json!({ key: "x" }))];
    let migration = |pair: i32, cluster: i32| {
        vec![(
            "/spec/migration",
            json!({ "movesPerPair": pair, "movesPerCluster": cluster }),
        )]
    };
    vec![
        created(
            KIND,
            "`movesPerPair` must not exceed `movesPerCluster`",
            vec![migration(5, 4)],
            vec![migration(4, 4), migration(1, 1)],
        ),
        created(
            KIND,
            "metadata.name must be at most 40 characters: names of children are made from it",
            vec![vec![("/metadata/name", json!("a".repeat(41)))]],
            vec![vec![("/metadata/name", json!("a".repeat(40)))]],
        ),
        created(
            KIND,
            "metadata.name must begin with a letter and hold only a-z, 0-9 and -: names of Services are made from it",
            vec![
                vec![("/metadata/name", json!("1a"))],
                vec![("/metadata/name", json!("a.b"))],
            ],
            vec![
                vec![("/metadata/name", json!("a1"))],
                vec![("/metadata/name", json!("a"))],
            ],
        ),
        created(
            KIND,
            "`digits` must be enough to write the number of the last shard",
            vec![shards(11, 1), shards(101, 2), shards(1001, 3), shards(10001, 4)],
            vec![
                shards(10, 1),
                shards(100, 2),
                shards(1000, 3),
                shards(10000, 4),
                shards(65536, 5),
            ],
        ),
        created(
            KIND,
            "`databasePrefix` and `digits` together may not fit the name of a database of MySQL's own: the grant of the applications would cover it",
            [("my", 3), ("m", 4), ("s", 2), ("performance_sc", 4)]
                .map(|(prefix, digits)| {
                    let shards = json!({ "total": 10, "digits": digits, "databasePrefix": prefix });
                    vec![no_layout(), ("/spec/shards", shards)]
                })
                .to_vec(),
            [("my", 4), ("sys", 2), ("m", 5)]
                .map(|(prefix, digits)| {
                    let shards = json!({ "total": 10, "digits": digits, "databasePrefix": prefix });
                    vec![no_layout(), ("/spec/shards", shards)]
                })
                .to_vec(),
        ),
        changed(
            KIND,
            "`shards` is immutable",
            shards(1024, 5),
            vec![shards(2048, 5), shards(1024, 4)],
            vec![shards(1024, 5), vec![no_layout()]],
        ),
        created(
            KIND,
            "`algorithm` and `modulus` must be set in mode KeyHash",
            vec![
                routing(json!({ "mode": "KeyHash" })),
                routing(json!({ "mode": "KeyHash", "modulus": 1024 })),
            ],
            vec![routing(hashed(1024))],
        ),
        created(
            KIND,
            "`algorithm` and `modulus` may not be set in mode ID",
            vec![
                routing(json!({ "mode": "ID", "algorithm": "MD5" })),
                routing(json!({ "mode": "ID", "modulus": 1024 })),
            ],
            vec![routing(json!({ "mode": "ID" }))],
        ),
        created(
            KIND,
            "`routing.modulus` must equal `shards.total`",
            vec![routing(hashed(1000))],
            vec![routing(hashed(1024))],
        ),
        changed(
            KIND,
            "`routing` is immutable",
            routing(json!({ "mode": "ID" })),
            vec![routing(hashed(1024))],
            vec![routing(json!({ "mode": "ID" }))],
        ),
        changed(
            KIND,
            "`routing` is immutable: it may not be added or removed",
            routing(json!({ "mode": "ID" })),
            vec![vec![no_layout()]],
            vec![routing(json!({ "mode": "ID" }))],
        ),
        changed(
            KIND,
            "`routing` is immutable: it may not be added or removed",
            vec![no_layout()],
            vec![routing(json!({ "mode": "ID" }))],
            vec![vec![no_layout()]],
        ),
        created(
            KIND,
            "`objects[].typeId` must be unique",
            vec![objects(&[object("pins", 1), object("users", 1)])],
            vec![objects(&[object("pins", 1), object("users", 2)]), objects(&[])],
        ),
        created(
            KIND,
            "an object and a mapping may not have the same name",
            vec![objects(&[object("board_has_pins", 1)])],
            vec![vec![("/spec/tables/mappings", json!([]))]],
        ),
        created(
            KIND,
            "keys may not begin with `shardwright.dev/` or `app.kubernetes.io/`, those are the operator's",
            vec![labels("shardwright.dev/pair"), labels("app.kubernetes.io/name")],
            vec![labels("team"), labels("example.com/shardwright.dev")],
        ),
        created(
            KIND,
            "keys may not begin with `shardwright.dev/`, those are the operator's",
            vec![annotations("shardwright.dev/spec-hash")],
            vec![annotations("app.kubernetes.io/name"), annotations("team")],
        ),
        created(
            KIND,
            "`pairs` must not exceed `open`: a pair needs at least one shard",
            vec![vec![layout(5, 4)]],
            vec![vec![layout(4, 4)]],
        ),
        created(
            KIND,
            "`layout.open` must not exceed `shards.total`",
            vec![vec![layout(2, 1025)]],
            vec![vec![layout(2, 1024)]],
        ),
        created(
            KIND,
            "`layout.open` must equal `shards.total` in mode KeyHash: all mod shards are open",
            vec![vec![("/spec/routing", hashed(1024)), layout(2, 512)]],
            vec![vec![("/spec/routing", hashed(1024)), layout(2, 1024)]],
        ),
        changed(
            KIND,
            "`layout` may not be changed, it is carried out once: make further MySQLPairs and ShardRanges instead",
            vec![],
            vec![vec![layout(2, 1024)], vec![layout(3, 512)]],
            vec![vec![no_layout()], vec![layout(2, 512)]],
        ),
    ]
}

#[test]
fn the_samples_are_accepted() {
    for kind in ["ShardCluster", "ShardRange", "MySQLPair"] {
        judge(kind, sample(kind), None).unwrap();
        judge(kind, sample(kind), Some(sample(kind))).unwrap();
    }
}

#[test]
fn each_rule_refuses_what_it_is_there_for_and_nothing_beside() {
    for case in cases() {
        let old = || case.old.as_ref().map(|edits| edited(case.kind, edits));
        for edits in &case.refused {
            let error = judge(case.kind, edited(case.kind, edits), old());
            let error = error.expect_err(&format!(
                "{}: {:?} is accepted, though {}",
                case.kind, edits, case.message
            ));
            assert!(
                error.iter().any(|m| m == case.message),
                "{}: {edits:?}: {error:#?}",
                case.kind
            );
        }
        for edits in &case.accepted {
            let judged = judge(case.kind, edited(case.kind, edits), old());
            assert_eq!(
                judged,
                Ok(()),
                "{}: {edits:?} is refused by `{}`",
                case.kind,
                case.message
            );
        }
    }
}

#[test]
fn no_rule_is_without_a_case() {
    let mut rules = BTreeSet::new();
    for crd in crds() {
        let schema = crd.spec.versions[0]
            .schema
            .as_ref()
            .and_then(|s| s.open_api_v3_schema.as_ref())
            .unwrap();
        messages(schema, &crd.spec.names.kind, &mut rules);
    }
    let tried: BTreeSet<_> = cases()
        .iter()
        .map(|c| (c.kind.to_owned(), c.message.to_owned()))
        .collect();
    assert_eq!(tried, rules);
}

fn messages(schema: &JSONSchemaProps, kind: &str, all: &mut BTreeSet<(String, String)>) {
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        let message = rule
            .message
            .clone()
            .unwrap_or_else(|| panic!("{kind}: `{}` has no message", rule.rule));
        all.insert((kind.to_owned(), message));
    }
    schema
        .properties
        .iter()
        .flat_map(|p| p.values())
        .for_each(|p| messages(p, kind, all));
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        messages(item, kind, all);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
        messages(value, kind, all);
    }
}
