//! The decision core, explored: every world that two servers, two operators and their clients can get into by so many faults
//! (see `docs/failover.md`). It calls the shipped [`super::decide`] on what an operator sees, and carries out what comes of it step by step;
//! between any two steps anything else may happen. In every world the rules P1 to P8 are asked for ([`broken`]), and that it ends healthy when it is
//! left alone ([`fair`]).
//!
//! What it takes for granted of MySQL, each measured or read there: a commit that waits is in the binary log, so it is committed when mysqld
//! starts again; source side off tells waiting commits OK, and so does a shutdown while no follower is connected, which is why clients are cut off before it; a dump thread that ends takes the acknowledgements on its way with it; a
//! receiver that was stopped acknowledges nothing more; `FLUSH BINARY LOGS` waits for commits that are under way; a CLONE logs in at its
//! donor before it drops anything. Of Kubernetes: a status is written by compare-and-swap; a Pod is deleted as it was seen.

#![allow(
    clippy::cast_possible_truncation,
    clippy::large_types_passed_by_value,
    clippy::struct_excessive_bools,
    clippy::collapsible_match,
    clippy::many_single_char_names,
    reason = "a world is small numbers and switches, and is copied at every move"
)]

mod acts;
mod broken;
mod explore;
mod fair;
mod faults;
mod moves;
mod observe;
mod plans;
mod safeguards;
mod tests;
mod world;
