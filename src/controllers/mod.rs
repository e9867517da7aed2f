//! Wiring: what wakes each controller, and the four rooms in their order.

pub mod backoff;
pub mod context;
pub mod pair;

pub use context::Context;
