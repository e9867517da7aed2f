//! Everything that is asked of a MySQL server: connections, and every statement that the operator sends.

pub mod accounts;
pub mod binlog;
pub mod channel;
pub mod clone;
pub mod conn;
pub mod fence;
pub mod links;
pub mod replication;
pub mod schema;
pub mod seed;
pub mod semisync;
pub mod session;
pub mod shard_drop;
pub mod shard_fence;
pub mod state;
pub mod verify;

pub use conn::{Access, Error, connect};
pub use session::Session;
