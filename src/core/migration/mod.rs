//! Split-migrations, the pure part: what has to move, which databases are fenced, and what is done next. `docs/placement.md`
//! tells of the moves on record.
//!
//! The record ([`crate::api::Placement`]) has a list of *moves*: links between two pairs, changed by the transitions of
//! [`super::placement::moves`]. Which way a shard goes over its link follows from the wish (`pairRef`) of its range, so that going back is the
//! same as going there, with the ends exchanged.

mod action;
pub mod batch;
mod decide;
pub mod dot;
pub mod fences;
pub mod intent;
mod name;
pub mod observed;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod reasons;
mod stages;
mod state;
pub mod table;
mod verdict;
pub mod wish;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use action::{Action, Change, Pairs};
pub use decide::{DROPS, Decision, decide};
pub use observed::{End, Observed, Place};
pub use state::{State, state};
