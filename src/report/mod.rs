//! REPORT: status by compare-and-swap, then events, then metrics.

pub mod cluster;
pub mod events;
pub mod migration;
pub mod pair;
pub mod range;
pub mod status;
