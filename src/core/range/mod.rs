//! The ShardRange: what was seen of it, what is to be made on the servers, and what is said of it. `docs/placement.md` has the states
//! with their exact predicates.

mod decide;
pub mod observed;
pub mod reasons;
mod status;

#[cfg(test)]
mod tests;

pub use decide::{Finalizer, Kind, Plan, Work, plan};
pub use observed::Observed;
pub use status::{Outcome, Said, progress, say};
