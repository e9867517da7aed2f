//! ACT: carries out what was decided, in order, each step with a deadline and safe to repeat; the first failure ends the pass.

pub mod apply;
pub mod children;
pub mod cluster;
pub mod credentials;
pub mod databases;
pub mod errant;
pub mod failpoint;
pub mod migration;
#[cfg(test)]
pub(crate) mod mock;
pub mod pair;
pub mod placement;
pub mod publish;
pub mod range;
pub mod readiness;
pub mod replace;
pub mod secrets;
pub mod server_error;
pub mod storage;
pub mod tls;
