//! PURE: the objects that the operator makes, as functions of a specification. No client, no clock, no chance.

pub mod accounts_sql;
pub mod client_cnf;
pub mod compare;
pub mod config_map;
pub mod endpoint_slice;
pub mod errant;
pub mod labels;
pub mod layout;
pub mod network_policy;
pub mod pair;
pub mod pdb;
pub mod secrets;
pub mod services;
pub mod shard_map;
pub mod stateful_set;

pub use pair::{PairChildren, PairContext, pair_children};
