//! Everything that is asked of a MySQL server: connections, and every statement that the operator sends.

pub mod conn;

pub use conn::{Access, Error, connect};
