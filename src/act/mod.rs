//! ACT: carries out what was decided, in order, each step with a deadline and safe to repeat; the first failure ends the pass.

pub mod apply;
pub mod credentials;
pub mod tls;
