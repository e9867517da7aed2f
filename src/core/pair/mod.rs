//! The MySQLPair: what was seen of it, which state that is, and what is done about it. `docs/failover.md` has the table.

mod decide;
pub mod gate;
pub mod observed;
mod pods;
pub mod reasons;
mod roll;
mod state;
mod status;
pub mod storage;
mod verdict;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use decide::{Action, Children, Decision, children, decide};
pub use observed::{Observed, Record};
pub use pods::{pod_state, volume};
pub use state::{GRACE, State, state};
pub use status::{hint, record, status};
pub use verdict::states;
