//! The MySQLPair: what was seen of it, which state that is, and what is done about it. `docs/failover.md` has the table.

mod action;
mod cloned;
mod compare;
mod consent;
mod decide;
mod durable;
pub mod gate;
mod messages;
pub mod moving;
mod notes;
pub mod observed;
mod passive;
mod pods;
mod promotion;
pub mod reasons;
mod replace;
mod roll;
mod server;
mod state;
mod status;
mod steps;
pub mod storage;
mod verdict;
mod wish;
mod words;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use action::Action;
pub use decide::{Change, Children, Decision, children, decide};
pub use observed::{Observed, Record};
pub use pods::{NodeSeen, pod_state, volume};
pub use reasons::states;
pub use state::{GRACE, Lost, State, state};
pub use status::{hint, record, status};
pub use wish::Wish;
