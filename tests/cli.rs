//! The binary as a person or a script meets it: what it prints, and with which code it ends.
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

const MAP: &str = r#"{"schema":"shardwright.dev/shardmap/v1","cluster":{"namespace":"shop","name":"main","uid":"u"},"version":7,
"routing":{"mode":"ID","idLayout":{"shardShift":46,"shardBits":16,"typeShift":36,"typeBits":10,"localBits":36}},
"databases":{"prefix":"db","digits":5,"total":4096},"types":[{"typeId":1,"table":"pins"}],
"entries":[{"first":0,"last":511,"pair":"p0","active":{"host":"p0-0.p0.shop.svc","port":3306},"passive":{"host":"p0-1.p0.shop.svc","port":3306},"state":"Serving"},
{"first":3072,"last":3583,"pair":"p6","active":{"host":"p6-1.p6.shop.svc","port":3306},"passive":{"host":"p6-0.p6.shop.svc","port":3306},"state":"Serving"}]}"#;

fn hash_map() -> String {
    let layout = r#"{"mode":"ID","idLayout":{"shardShift":46,"shardBits":16,"typeShift":36,"typeBits":10,"localBits":36}}"#;
    MAP.replace(layout, r#"{"mode":"KeyHash","algorithm":"MD5","modulus":4096}"#)
        .replace(r#""first":3072,"last":3583"#, r#""first":512,"last":4095"#)
}

/// Runs the binary with `map` on its standard input.
fn with_map(args: &[&str], map: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardwright"))
        .args(args)
        .env_remove("SHARDWRIGHT_OUTPUT")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may end before it is written.
    let _ = child.stdin.take().unwrap().write_all(map.as_bytes());
    child.wait_with_output().unwrap()
}
fn ask(args: &[&str]) -> Output {
    with_map(args, MAP)
}
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
#[track_caller]
fn says(args: &[&str], want: &str) {
    let out = ask(args);
    assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    assert_eq!(text(&out.stdout), want, "{args:?}");
}
#[track_caller]
fn refuses(args: &[&str], code: i32, why: &str) {
    let out = ask(args);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
    assert!(
        said.starts_with("error: ") && said.contains(why),
        "{args:?}: {said}"
    );
}
fn json_of(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out.stdout)))
}

#[test]
fn an_id_is_made_and_taken_apart() {
    says(
        &[
            "id", "encode", "--shard", "3429", "--type", "1", "--local", "7075733",
        ],
        "241294492511762325\n",
    );
    says(
        &["id", "decode", "241294492511762325"],
        "241294492511762325  shard 3429  type 1  local 7075733\n",
    );
    says(
        &["id", "decode", "-o", "json", "241294492511762325", "0"],
        "{\"id\":\"241294492511762325\",\"shard\":3429,\"type\":1,\"local\":7075733}\n{\"id\":\"0\",\"shard\":0,\"type\":0,\"local\":0}\n",
    );
    says(
        &[
            "id", "encode", "--shard", "0", "--type", "0", "--local", "1", "-o", "json",
        ],
        "{\"id\":\"1\",\"shard\":0,\"type\":0,\"local\":1}\n",
    );
}

#[test]
fn a_bad_id_is_refused_with_code_2() {
    for (id, why) in [
        ("4611686018427387904", "reserved"),
        ("9223372036854775808", "reserved"),
        ("18446744073709551615", "reserved"),
        ("18446744073709551616", "out of range"),
        ("-1", "not a number"),
        ("0x10", "not a number"),
        ("pin", "not a number"),
        ("", "not a number"),
    ] {
        refuses(&["id", "decode", id], 2, why);
        refuses(&["locate", "--id", id, "--map", "-"], 2, why);
    }
    for (shard, type_id, local) in [
        ("65536", "0", "0"),
        ("0", "1024", "0"),
        ("0", "0", "68719476736"),
        ("-1", "0", "0"),
    ] {
        refuses(
            &[
                "id", "encode", "--shard", shard, "--type", type_id, "--local", local,
            ],
            2,
            "",
        );
    }
}

#[test]
fn one_bad_id_does_not_hide_the_good_ones() {
    let out = ask(&["id", "decode", "1", "x", "2"]);
    assert_eq!(
        (out.status.code(), text(&out.stdout).lines().count()),
        (Some(2), 2)
    );
    assert_eq!(text(&out.stderr).lines().count(), 1);
}

#[test]
fn an_object_is_located() {
    says(
        &["locate", "--id", "241294492511762325", "--map", "-"],
        "shard     3429\ndatabase  db03429\ntable     pins (type 1)\nlocal id  7075733\npair      p6\nactive    p6-1.p6.shop.svc:3306\npassive   p6-0.p6.shop.svc:3306\n",
    );
    let found = json_of(&ask(&[
        "locate",
        "--id",
        "241294492511762325",
        "--map",
        "-",
        "-o",
        "json",
    ]));
    let host = |h: &str| json!({ "host": h, "port": 3306 });
    assert_eq!(
        found,
        json!({
            "shard": 3429, "database": "db03429", "type": 1, "table": "pins", "local": 7_075_733, "pair": "p6",
            "active": host("p6-1.p6.shop.svc"), "passive": host("p6-0.p6.shop.svc"), "mapVersion": 7
        })
    );
    let unknown_type = json_of(&ask(&[
        "locate",
        "--id",
        "68719476737",
        "--map",
        "-",
        "-o",
        "json",
    ]));
    assert_eq!(
        (unknown_type["type"].clone(), unknown_type.get("table").is_some()),
        (json!(1), true)
    );
    let unknown_type = json_of(&ask(&[
        "locate",
        "--id",
        "137438953473",
        "--map",
        "-",
        "-o",
        "json",
    ]));
    assert_eq!(
        (unknown_type["type"].clone(), unknown_type.get("table")),
        (json!(2), None)
    );
    says(
        &["locate", "--shard", "511", "--map", "-"],
        "shard     511\ndatabase  db00511\npair      p0\nactive    p0-0.p0.shop.svc:3306\npassive   p0-1.p0.shop.svc:3306\n",
    );
}

#[test]
fn a_key_is_located_by_its_hash() {
    let out = with_map(
        &["locate", "--key", "1.2.3.4", "--map", "-", "-o", "json"],
        &hash_map(),
    );
    let found = json_of(&out);
    assert_eq!(
        (&found["shard"], &found["database"], &found["pair"]),
        (&json!(1537), &json!("db01537"), &json!("p6"))
    );
    assert_eq!(
        with_map(&["locate", "--id", "1", "--map", "-"], &hash_map())
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn what_cannot_be_located_is_told_apart() {
    refuses(
        &["locate", "--shard", "900", "--map", "-"],
        1,
        "shard 900 (database db00900) is not open",
    );
    refuses(
        &["locate", "--shard", "4096", "--map", "-"],
        2,
        "last shard is 4095",
    );
    refuses(&["locate", "--shard", "x", "--map", "-"], 2, "no shard");
    refuses(&["locate", "--key", "a", "--map", "-"], 2, "give --id");
    refuses(&["locate", "--map", "-"], 2, "required");
    refuses(&["locate", "--shard", "1"], 2, "required");
    refuses(
        &["locate", "--shard", "1", "--id", "1", "--map", "-"],
        2,
        "cannot be used with",
    );
    refuses(
        &["locate", "--shard", "1", "--map", "-", "--cluster", "c"],
        2,
        "cannot be used with",
    );
    refuses(
        &["locate", "--shard", "1", "--map", "/nowhere/map.json"],
        1,
        "cannot read /nowhere/map.json",
    );
    refuses(&["nonsense"], 2, "nonsense");
    let out = with_map(&["locate", "--shard", "1", "--map", "-"], "[]");
    assert_eq!(
        (out.status.code(), text(&out.stderr).contains("not a shard map")),
        (Some(2), true)
    );
}

#[test]
fn a_cluster_that_cannot_be_reached_is_a_failure_and_no_bad_input() {
    let out = Command::new(env!("CARGO_BIN_EXE_shardwright"))
        .args(["map", "show", "--namespace", "shop", "--cluster", "main"])
        .env("KUBECONFIG", "/nowhere/config")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(
        text(&out.stderr).contains("no access to a Kubernetes cluster"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_map_is_shown() {
    says(
        &["map", "show", "--file", "-"],
        "cluster   shop/main\nversion   7\nrouting   ID\nshards    1024 open, of 4096\ntypes     1 = pins\n\n\
         SHARDS     DATABASES        PAIR  ACTIVE                 PASSIVE                STATE\n\
         0-511      db00000-db00511  p0    p0-0.p0.shop.svc:3306  p0-1.p0.shop.svc:3306  Serving\n\
         3072-3583  db03072-db03583  p6    p6-1.p6.shop.svc:3306  p6-0.p6.shop.svc:3306  Serving\n",
    );
    let shown = json_of(&ask(&["map", "show", "--file", "-", "-o", "json"]));
    assert_eq!(shown, serde_json::from_str::<Value>(MAP).unwrap());
}

#[test]
fn crds_are_printed_or_written() {
    let out = ask(&["crds"]);
    let kinds = text(&out.stdout)
        .lines()
        .filter(|l| *l == "kind: CustomResourceDefinition")
        .count();
    assert_eq!(
        (kinds, text(&out.stdout).lines().filter(|l| *l == "---").count()),
        (3, 2)
    );
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("crds");
    let out = ask(&["crds", "--output-dir", folder.to_str().unwrap()]);
    assert!(out.status.success() && out.stdout.is_empty());
    for plural in ["shardclusters", "shardranges", "mysqlpairs"] {
        assert!(folder.join(format!("{plural}.yaml")).is_file());
    }
}
