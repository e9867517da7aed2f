//! Wiring: what wakes each controller, and the four rooms in their order.

pub mod backoff;
pub mod busy;
pub mod cluster;
pub mod context;
pub mod migration;
pub mod pair;
pub mod range;
pub mod turns;
mod watch;

pub use context::Context;

use crate::shutdown::Signal;
use std::sync::Arc;

/// Runs every controller until the signal was given and their running passes have ended.
pub async fn all(ctx: Arc<Context>, stop: Signal) {
    futures::join!(
        cluster::run(Arc::clone(&ctx), stop.clone()),
        range::run(Arc::clone(&ctx), stop.clone()),
        pair::run(Arc::clone(&ctx), stop.clone()),
        migration::run(ctx, stop),
    );
}
