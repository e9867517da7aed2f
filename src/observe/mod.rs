//! OBSERVE: what the API and the servers say, as plain data. Nothing is changed here.

pub mod pair;
pub mod servers;
