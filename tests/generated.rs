//! What is generated from the types and checked in has to be as the types would make it now.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

use shardwright::{api, cli};
use std::path::{Path, PathBuf};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|e| panic!("{path}: {e}; run `make generate`"))
}
#[track_caller]
fn same(path: &str, now: &str) {
    let there = read(path);
    let line = there.lines().zip(now.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| there.lines().count().min(now.lines().count())) + 1;
    assert!(
        there == now,
        "{path} is stale (first at line {line}): run `make generate` and commit what it writes"
    );
}

#[test]
fn crds_are_as_the_types() {
    for crd in api::crds() {
        same(
            &format!("crds/{}.yaml", crd.spec.names.plural),
            &cli::yaml(&crd).unwrap(),
        );
    }
    assert_eq!(
        std::fs::read_dir(file("crds")).unwrap().count(),
        3,
        "crds/ has a file of no kind"
    );
}

#[test]
fn the_reference_is_as_the_types() {
    let scenarios = cli::Scenarios::parse(&read("docs/field-scenarios.tsv")).unwrap();
    same(
        "docs/api.md",
        &cli::markdown(&api::crds(), Some(&scenarios)).unwrap(),
    );
}

#[test]
fn every_field_of_a_spec_names_a_scenario() {
    let scenarios = cli::Scenarios::parse(&read("docs/field-scenarios.tsv")).unwrap();
    let mut fields = Vec::new();
    for crd in api::crds() {
        let all = cli::fields(&crd, "spec").unwrap();
        fields.extend(
            all.iter()
                .filter(|f| f.is_leaf())
                .map(|f| format!("{}.{}", crd.spec.names.kind, f.path)),
        );
    }
    let without: Vec<_> = fields
        .iter()
        .filter(|f| scenarios.of(f).is_none_or(str::is_empty))
        .collect();
    assert!(
        without.is_empty(),
        "docs/field-scenarios.tsv names no scenario for {without:#?}"
    );
    let gone: Vec<_> = scenarios
        .iter()
        .map(|(path, _)| path)
        .filter(|p| !fields.iter().any(|f| f == p))
        .collect();
    assert!(
        gone.is_empty(),
        "docs/field-scenarios.tsv has fields that are in no spec: {gone:#?}"
    );
}
