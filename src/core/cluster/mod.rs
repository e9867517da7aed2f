//! The ShardCluster: what was seen of it, what follows for the record and the map, and what is said of it. `docs/placement.md` has the
//! states with their exact predicates.

mod decide;
pub mod observed;
pub mod reasons;
mod status;

#[cfg(test)]
mod tests;

pub use decide::{Layout, Recorded, Stop, changes, layout, record};
pub use observed::Observed;
pub use status::{Said, say};
