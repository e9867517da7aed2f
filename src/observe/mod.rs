//! OBSERVE: what the API and the servers say, as plain data. Nothing is changed here.

pub mod access;
pub mod caches;
pub mod cluster;
pub mod errant;
pub mod migration;
pub mod pair;
pub mod range;
pub mod sentinel;
pub mod servers;
