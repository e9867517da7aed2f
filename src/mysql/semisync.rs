//! The source side of semi-synchronous replication. The replica side is on from boot, on both servers of a pair; no client can get an OK
//! while the source side waits, and none may be told one after it was turned off: [`super::fence`] sees to that.
//! <https://dev.mysql.com/doc/refman/9.7/en/replication-semisync-interface.html>

use super::{Error, session::Session};
use crate::deadline;

/// `ER_UNKNOWN_SYSTEM_VARIABLE`: the plugin is not there.
const NO_PLUGIN: u16 = 1193;

/// Commits wait from now on, for `timeout` milliseconds at most. It takes about a millisecond.
///
/// # Errors
/// As [`Error`].
pub async fn source_on(s: &mut Session, timeout: u64) -> Result<(), Error> {
    s.run(deadline::STEP, on(timeout)).await
}

fn on(timeout: u64) -> String {
    // The wait point and what happens without a replica are what rule P3 stands on.
    format!(
        "SET GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC, GLOBAL rpl_semi_sync_source_wait_no_replica = ON, \
         GLOBAL rpl_semi_sync_source_timeout = {timeout}, GLOBAL rpl_semi_sync_source_enabled = ON"
    )
}

/// Commits no longer wait, and those that do are told OK. It takes up to a second.
///
/// # Errors
/// As [`Error`].
pub async fn source_off(s: &mut Session) -> Result<(), Error> {
    match s
        .run(deadline::STEP, "SET GLOBAL rpl_semi_sync_source_enabled = OFF")
        .await
    {
        Err(e) if e.code() == Some(NO_PLUGIN) => Ok(()),
        other => other,
    }
}

/// Another time for commits to wait.
///
/// # Errors
/// As [`Error`].
pub async fn timeout(s: &mut Session, timeout: u64) -> Result<(), Error> {
    s.run(
        deadline::STEP,
        format!("SET GLOBAL rpl_semi_sync_source_timeout = {timeout}"),
    )
    .await
}

/// The server acknowledges what it receives, from the next connection to its source on.
///
/// # Errors
/// As [`Error`].
pub async fn acknowledge(s: &mut Session) -> Result<(), Error> {
    match s
        .run(deadline::STEP, "SET GLOBAL rpl_semi_sync_replica_enabled = ON")
        .await
    {
        Err(e) if e.code() == Some(NO_PLUGIN) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_timeout_is_set_before_anybody_waits() {
        let sql = super::on(4_294_967_295);
        let timeout = sql.find("source_timeout = 4294967295").unwrap();
        assert!(timeout < sql.find("source_enabled = ON").unwrap(), "{sql}");
        assert!(sql.contains("AFTER_SYNC"), "{sql}");
    }
}
