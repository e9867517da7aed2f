//! Deadlines: every await on the API or on a server has one (rule O3).

use std::time::Duration;

/// For one call of the Kubernetes API.
pub const API: Duration = Duration::from_secs(10);
/// For the first packet that comes back when a connection to a server is asked for. Its kernel sends it, so it is quick on a busy machine as
/// well; there is time for one that is lost to be sent again, after a second.
pub const REACH: Duration = Duration::from_millis(1500);
/// For a connection to a server, TLS and login included.
pub const CONNECT: Duration = Duration::from_secs(5);
/// For a statement that only reads state.
pub const QUERY: Duration = Duration::from_secs(5);
/// For a small statement of a failover, which a healthy server does in milliseconds; `STOP REPLICA` and turning semi-sync off take up to a second.
pub const STEP: Duration = Duration::from_secs(4);
/// For a statement that changes a server (accounts, channels, read_only).
pub const CHANGE: Duration = Duration::from_secs(15);
/// For the DDL of one database.
pub const DDL: Duration = Duration::from_secs(60);

/// No answer within the time that was given.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub struct Elapsed(pub Duration);

/// Waits for `future`, at most for `limit`.
///
/// # Errors
/// [`Elapsed`] when the time is over; the future is dropped.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| Elapsed(limit))
}
