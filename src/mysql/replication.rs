//! The channel without a name, between the two servers of a pair.

use super::{Error, conn::literal, session::Session};
use crate::{core::credentials::REPLICATION_USER, deadline};

/// Where a server takes transactions from.
pub struct Source<'a> {
    /// DNS name, which the source's certificate carries.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Password of the replication account.
    pub password: &'a str,
    /// File on the server with the authority that signed the source's certificate.
    pub ca_file: &'a str,
}

/// Stops the channel, forgets what it was and what it fetched but did not apply, points it at `source` by GTID and starts it.
/// What was fetched and not applied is fetched again.
///
/// # Errors
/// As [`Error`].
pub async fn follow(s: &mut Session, source: &Source<'_>) -> Result<(), Error> {
    stop(s).await?;
    s.run(deadline::CHANGE, "RESET REPLICA ALL FOR CHANNEL ''")
        .await?;
    // The password stands in the statement only: it travels over TLS, and the server keeps it out of its logs.
    let sql = format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = {host}, SOURCE_PORT = {port}, SOURCE_USER = {user}, SOURCE_PASSWORD = {password}, \
         SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1, SOURCE_SSL_CA = {ca}, SOURCE_SSL_VERIFY_SERVER_CERT = 1, \
         SOURCE_HEARTBEAT_PERIOD = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 4294967295, \
         REQUIRE_ROW_FORMAT = 1, GTID_ONLY = 1 FOR CHANNEL ''",
        host = literal(source.host),
        port = source.port,
        user = literal(REPLICATION_USER),
        password = literal(source.password),
        ca = literal(source.ca_file),
    );
    s.run(deadline::CHANGE, sql).await?;
    start(s).await
}

/// Starts the channel as it is.
///
/// # Errors
/// As [`Error`].
pub async fn start(s: &mut Session) -> Result<(), Error> {
    s.run(deadline::CHANGE, "START REPLICA FOR CHANNEL ''").await
}

/// Stops the channel; one that is not there is stopped.
///
/// # Errors
/// As [`Error`].
pub async fn stop(s: &mut Session) -> Result<(), Error> {
    match s.run(deadline::CHANGE, "STOP REPLICA FOR CHANNEL ''").await {
        // ER_REPLICA_CHANNEL_DOES_NOT_EXIST, ER_REPLICA_CONFIGURATION.
        Err(e) if matches!(e.code(), Some(3074 | 1200)) => Ok(()),
        other => other,
    }
}

/// Drops every channel: what a CLONE copied from its donor would make a server follow itself.
///
/// # Errors
/// As [`Error`].
pub async fn forget(s: &mut Session) -> Result<(), Error> {
    match s.run(deadline::CHANGE, "STOP REPLICA").await {
        Err(e) if e.code() == Some(1200) => {}
        other => other?,
    }
    s.run(deadline::CHANGE, "RESET REPLICA ALL").await
}
