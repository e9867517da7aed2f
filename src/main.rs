//! The one binary: `shardwright run | crds | id | locate | map`.
fn main() {}
