//! `shardwright plan` as a person or a script meets it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

const CLUSTER: &str = "apiVersion: shardwright.dev/v1alpha1
kind: ShardCluster
metadata: { name: main, namespace: shop }
spec: { shards: { total: 1024 }, mysql: { image: mysql, storage: { size: 1Gi } } }
";

fn range(name: &str, first: i32, last: i32, pair: &str) -> String {
    format!(
        "---\napiVersion: shardwright.dev/v1alpha1\nkind: ShardRange\nmetadata: {{ name: {name}, namespace: shop }}\n\
         spec: {{ clusterRef: {{ name: main }}, first: {first}, last: {last}, pairRef: {{ name: {pair} }} }}\n"
    )
}
fn pair(name: &str) -> String {
    format!(
        "---\napiVersion: shardwright.dev/v1alpha1\nkind: MySQLPair\nmetadata: {{ name: {name}, namespace: shop }}\nspec: {{ clusterRef: {{ name: main }} }}\n"
    )
}
/// As `kubectl get … -o json` prints it: 0 to 511 on p0 by r0, 512 to 1023 on p1 by r1; both pairs Ready.
fn live() -> Value {
    let object = |kind: &str, name: &str, spec: Value, status: Value| {
        json!({ "apiVersion": "shardwright.dev/v1alpha1", "kind": kind, "spec": spec, "status": status,
            "metadata": { "name": name, "namespace": "shop", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" } })
    };
    let placed = |first: i32, pair: &str, range: &str| json!({ "first": first, "last": first + 511, "pair": pair, "state": "Serving", "range": range });
    let spec = |first: i32, pair: &str| json!({ "clusterRef": { "name": "main" }, "first": first, "last": first + 511, "pairRef": { "name": pair } });
    let ready = |first: i32| {
        json!({ "active": "x", "shards": [{ "first": first, "last": first + 511 }], "conditions": [{ "type": "Ready", "status": "True", "reason": "R",
            "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
    };
    let placement =
        json!({ "mapVersion": 3, "mapHash": "x", "spans": [placed(0, "p0", "r0"), placed(512, "p1", "r1")] });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        object("ShardCluster", "main", json!({ "shards": { "total": 1024 }, "mysql": { "image": "m", "storage": { "size": "1Gi" } } }),
            json!({ "placement": placement })),
        object("ShardRange", "r0", spec(0, "p0"), json!({})),
        object("ShardRange", "r1", spec(512, "p1"), json!({})),
        object("MySQLPair", "p0", json!({ "clusterRef": { "name": "main" } }), ready(0)),
        object("MySQLPair", "p1", json!({ "clusterRef": { "name": "main" } }), ready(512)),
    ] })
}

fn file(name: &str, text: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plan");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
fn run(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardwright"))
        .arg("plan")
        .args(args)
        .env("KUBECONFIG", "/nowhere/config")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("SHARDWRIGHT_OUTPUT")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}
/// Plans `manifests` over what is live.
fn plan(test: &str, manifests: &str, more: &[&str]) -> Output {
    let live = file(&format!("{test}.json"), &live().to_string());
    let mut args = vec!["-f", "-", "--live", &live];
    args.extend(more);
    run(&args, manifests)
}
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
#[track_caller]
fn said(out: &Output) -> &str {
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout)
}
#[track_caller]
fn refuses(out: &Output, code: i32, why: &str) {
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{said}");
    assert!(said.starts_with("error: ") && said.contains(why), "{said}");
}

#[test]
fn a_split_is_told_beforehand() {
    let manifests = range("r0", 0, 255, "p0") + &range("r2", 256, 511, "p2") + &pair("p2");
    let out = plan("split", &manifests, &[]);
    assert_eq!(
        said(&out),
        "cluster   shop/main\nmove      256 shards\nhand over 256 shards, where they lie\ncreate    0 shards\nrefuse    0 shards\n\n\
         ACTION    SHARDS   COUNT  BYTES  FROM  TO  RANGE  WHEN  HOW       WHY\n\
         HandOver  256-511  256    0      r0    r2  r2     -     -         where they lie, on p0: no data moves\n\
         Move      256-511  256    -      p0    p2  r2     Now   Physical\n"
    );
    let out = plan("split-json", &manifests, &["-o", "json"]);
    let lines: Vec<Value> = said(&out)
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let shards = json!([{ "first": 256, "last": 511 }]);
    assert_eq!(
        lines,
        [
            json!({ "namespace": "shop", "cluster": "main", "action": "HandOver", "shards": shards, "count": 256, "bytes": 0, "from": "r0", "to": "r2",
                "ranges": ["r2"], "message": "where they lie, on p0: no data moves" }),
            json!({ "namespace": "shop", "cluster": "main", "action": "Move", "shards": shards, "count": 256, "from": "p0", "to": "p2",
                "ranges": ["r2"], "seed": "Physical", "when": "Now" }),
        ]
    );
}

#[test]
fn what_is_live_already_changes_nothing() {
    let out = plan("same", &(range("r0", 0, 511, "p0") + &pair("p1")), &[]);
    assert!(
        said(&out).starts_with("cluster   shop/main\nmove      0 shards\n"),
        "{}",
        said(&out)
    );
    assert_eq!(said(&out).lines().count(), 5);
    assert_eq!(said(&plan("same-json", CLUSTER, &["-o", "json"])), "");
}

#[test]
fn a_range_that_is_refused_is_named_and_the_plan_is_made() {
    let out = plan("refused", &range("r0", 0, 511, "p9"), &["-o", "json"]);
    let line: Value = serde_json::from_str(said(&out)).unwrap();
    assert_eq!(
        (&line["action"], &line["reason"]),
        (&json!("Refuse"), &json!("PairNotFound"))
    );
    let out = plan("overlap", &range("r9", 500, 600, "p1"), &[]);
    assert!(
        said(&out).contains("refuse    101 shards") && said(&out).contains("RangeOverlap"),
        "{}",
        said(&out)
    );
}

#[test]
fn a_range_may_be_taken_away_with_it() {
    let new = range("r8", 0, 255, "p0") + &range("r9", 256, 511, "p1");
    let out = plan("replaced", &new, &["--delete", "r0"]);
    let rows: Vec<_> = said(&out)
        .lines()
        .skip(7)
        .map(|l| l.split("  ").next().unwrap())
        .collect();
    assert_eq!(rows, ["HandOver", "HandOver", "Move"]);
    let out = plan("without", &new, &[]);
    assert!(said(&out).contains("RangeOverlap"), "{}", said(&out));
    refuses(
        &plan("nobody", &new, &["--delete", "r7"]),
        2,
        "there is no ShardRange r7",
    );
    refuses(
        &plan("both", &new, &["--delete", "r8"]),
        2,
        "to be deleted as well",
    );
}

/// 100 to 299 go from p0 to p2, 300 to 511 from p0 to p3: two moves of one pair.
fn two_moves() -> String {
    range("r0", 0, 99, "p0")
        + &range("r2", 100, 299, "p2")
        + &range("r3", 300, 511, "p3")
        + &pair("p2")
        + &pair("p3")
}
/// When each move sets out, and the word for why not now.
fn setting_out(out: &Output) -> Vec<(String, String)> {
    let lines = said(out).lines().map(|l| serde_json::from_str(l).unwrap());
    let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    lines
        .filter(|l: &Value| l["action"] == "Move")
        .map(|l| (word(&l, "when"), word(&l, "reason")))
        .collect()
}
fn now() -> (String, String) {
    ("Now".into(), String::new())
}
fn later(why: &str) -> (String, String) {
    ("Later".into(), why.into())
}

#[test]
fn how_many_go_at_once_may_be_asked() {
    let out = plan("queue", &two_moves(), &["-o", "json"]);
    assert_eq!(setting_out(&out), [now(), later("PairBusy")]);
    let out = plan("at-once", &two_moves(), &["-o", "json", "--per-pair", "2"]);
    assert_eq!(setting_out(&out), [now(), now()]);
}

#[test]
fn how_many_go_at_once_is_what_the_cluster_says() {
    let json = ["-o", "json"];
    let with = |migration: &str| {
        let spec = format!("spec: {{ migration: {migration},");
        CLUSTER.replace("spec: {", &spec) + &two_moves()
    };
    for (migration, second) in [
        ("{ movesPerPair: 2 }", now()),
        ("{ movesPerPair: 1, movesPerCluster: 8 }", later("PairBusy")),
        ("{ movesPerPair: 2, movesPerCluster: 1 }", later("ClusterBusy")),
    ] {
        let out = plan("manifest", &with(migration), &json);
        assert_eq!(setting_out(&out), [now(), second], "{migration}");
    }

    // The live object, when the manifests have no ShardCluster; they count before it, when they have one.
    let mut live = live();
    live["items"][0]["spec"]["migration"] = json!({ "movesPerPair": 2, "movesPerCluster": 4 });
    let live = file("migration.json", &live.to_string());
    let over = |manifests: &str, more: &[&str]| {
        let mut args = vec!["-f", "-", "--live", &live, "-o", "json"];
        args.extend(more);
        setting_out(&run(&args, manifests))
    };
    assert_eq!(over(&two_moves(), &[]), [now(), now()]);
    assert_eq!(
        over(&with("{ movesPerPair: 1 }"), &[]),
        [now(), later("PairBusy")]
    );
    assert_eq!(
        over(&two_moves(), &["--per-pair", "1"]),
        [now(), later("PairBusy")]
    );
    assert_eq!(
        over(&two_moves(), &["--per-cluster", "1"]),
        [now(), later("ClusterBusy")]
    );
}

#[test]
fn a_new_cluster_is_planned_from_nothing() {
    let manifests = CLUSTER.replace("main", "other")
        + &pair("q0").replace("main", "other")
        + &range("s0", 0, 9, "q0").replace("main", "other");
    let out = plan("new", &manifests, &[]);
    assert!(
        said(&out).contains("Create  0-9") && said(&out).contains("create    10 shards"),
        "{}",
        said(&out)
    );
}

#[test]
fn what_is_no_manifest_of_ours_is_refused() {
    let config_map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: { name: x }\n";
    let many = range("r0", 0, 511, "p0") + config_map + &pair("p1").replace("v1alpha1", "v2");
    let out = plan("kinds", &many, &[]);
    refuses(&out, 2, "object 2: kind ConfigMap of v1 is not planned with");
    refuses(
        &out,
        2,
        "object 3: kind MySQLPair of shardwright.dev/v2 is not planned with",
    );
    for (manifests, why) in [
        ("[1, 2", "-: "),
        ("a: 1\n", "it has no `kind`"),
        (
            &range("r0", 0, 511, "p0").replace("first", "frist"),
            "ShardRange r0: missing field `first`",
        ),
        (
            &range("r0", 9, 1, "p0"),
            "`first` must not be greater than `last`",
        ),
        (
            &range("r0", 0, 511, "p0").repeat(2),
            "ShardRange r0 is there twice",
        ),
        (
            &range("r0", 0, 511, "p0").replace("main", "mian"),
            "`clusterRef` is immutable",
        ),
        (
            &range("r9", 0, 511, "p0").replace("main", "mian"),
            "there is no ShardCluster mian",
        ),
        (
            &(range("r0", 0, 1, "p0") + &pair("p1").replace("shop", "other")),
            "one at a time",
        ),
        (&CLUSTER.replace("1024", "2048"), "`shards` is immutable"),
    ] {
        refuses(&plan("bad", manifests, &[]), 2, why);
    }
    refuses(&run(&[], ""), 2, "give --file");
    refuses(
        &run(&["-f", "/nowhere/x.yaml"], ""),
        1,
        "cannot read /nowhere/x.yaml",
    );
}

#[test]
fn without_a_file_of_live_objects_the_cluster_is_asked() {
    refuses(
        &run(&["-f", "-"], &range("r0", 0, 1, "p0")),
        1,
        "no access to a Kubernetes cluster",
    );
}

#[test]
fn what_bytes_are_is_said_in_the_help() {
    let out = run(&["--help"], "");
    let help = text(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("How large a database is, only its server knows"),
        "{help}"
    );
}
