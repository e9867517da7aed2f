//! The push of shard maps: every replica watches the published maps and answers `GET /maps/<namespace>/<cluster>` by long poll.
//!
//! A mounted ConfigMap lags by up to a minute; an answer here follows the publication by milliseconds.

mod registry;
mod serve;
mod watch;

pub use registry::{Answer, Key, Maps, Published};
pub use serve::router;
pub use watch::{follow, keep_in_touch, watches};
