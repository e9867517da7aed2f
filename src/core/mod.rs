//! The pure core: what is decided and computed, without a client, a clock or a runtime. `tests/purity.rs` holds it to that.

pub mod databases;
pub mod gtid;
pub mod note;
mod runs;
pub mod spans;
pub mod tables;
