//! The pure core: what is decided and computed, without a client, a clock or a runtime. `tests/purity.rs` holds it to that.

pub mod canonical_json;
pub mod claims;
pub mod cluster;
pub mod credentials;
pub mod databases;
pub mod errant;
pub mod gtid;
pub mod id;
pub mod key_hash;
pub mod migration;
pub mod my_cnf;
pub mod note;
pub mod pair;
pub mod placement;
pub mod quantity;
pub mod range;
mod runs;
mod sha256;
pub mod shard_map;
pub mod spans;
pub mod spec_hash;
pub mod tables;
