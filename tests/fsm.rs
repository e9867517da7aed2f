//! The states of a move, as `docs/` tells and draws them, are those of the code. `UPDATE_FSM=1 cargo test --test fsm` writes them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

use shardwright::core::migration::{dot, table};
use std::{fs, path::Path};

const BEGIN: &str = "<!-- begin: generated from src/core/migration/table.rs -->\n";
const END: &str = "<!-- end -->\n";

#[track_caller]
fn same(path: &str, now: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_FSM").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, now).unwrap();
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == now,
        "{path} is stale: run `UPDATE_FSM=1 cargo test --test fsm` and commit what it writes"
    );
}

#[test]
fn the_drawing_is_as_the_table() {
    same("docs/fsm/split.dot", &dot::dot());
}

#[test]
fn the_page_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/split.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page
        .split_once(BEGIN)
        .expect("the page says where the table begins");
    let (_, after) = rest.split_once(END).expect("and where it ends");
    same(
        "docs/split.md",
        &format!("{before}{BEGIN}{}{END}{after}", table::table()),
    );
}
