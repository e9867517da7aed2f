//! End-to-end scenarios.
fn main() {}
