//! REPORT: status by compare-and-swap, then events, then metrics.

pub mod events;
pub mod pair;
pub mod status;
