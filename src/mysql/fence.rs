//! Opening and closing a server. Nothing else in the operator writes `read_only` and `offline_mode`.

use super::{Error, semisync, session::Session};
use crate::deadline;
use std::time::{Duration, Instant};

/// For statements of applications that run on a server that is closed already.
const LAST_STATEMENTS: Duration = Duration::from_secs(1);
/// Between two looks at whether they have ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// On a closed server: applications that are inside a statement.
const CLOSED_AND_BUSY: &str = "SELECT COUNT(*) FROM performance_schema.processlist WHERE @@GLOBAL.super_read_only = 1 \
    AND command IN ('Query', 'Execute') AND user NOT LIKE 'shardwright\\_%' AND user NOT IN ('root', 'system user', 'event_scheduler')";

/// On a closed server: whether nobody waits for an acknowledgement. It was closed when the last commit had ended, and none begins.
const CLOSED_AND_AWAITED_BY_NOBODY: &str = "SELECT @@GLOBAL.super_read_only = 1 AND COALESCE((SELECT VARIABLE_VALUE = '0' \
    FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Rpl_semi_sync_source_wait_sessions'), 0)";

/// Closes a server that is not the recorded active one, whatever it was (second half of rule P6), in this order: clients are cut off, so
/// that whoever waits for an acknowledgement gets an error; only then does nobody wait any more; it is closed for everybody, the
/// operator included; clients may come again, to read. On one that is closed already, statements may end first, for a second. If then
/// nobody waits, as after a planned switchover, no client is cut off: one that is about to send its next statement could not tell whether
/// it was done, and is refused with 1290 instead.
///
/// # Errors
/// As [`Error`]. One that was cut short is repeated: a server in `offline_mode` is not left so.
pub async fn fence(s: &mut Session) -> Result<(), Error> {
    let began = Instant::now();
    while number(s, CLOSED_AND_BUSY).await? > 0 && began.elapsed() < LAST_STATEMENTS {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    if number(s, CLOSED_AND_AWAITED_BY_NOBODY).await? == 0 {
        s.run(deadline::STEP, "SET GLOBAL offline_mode = ON").await?;
    }
    semisync::source_off(s).await?;
    s.run(deadline::STEP, "SET GLOBAL super_read_only = ON").await?;
    s.run(deadline::STEP, "SET GLOBAL offline_mode = OFF").await
}

async fn number(s: &mut Session, sql: &str) -> Result<i64, Error> {
    let rows: Vec<i64> = s.rows(deadline::QUERY, sql).await?;
    Ok(rows.first().copied().unwrap_or(0))
}

/// Closes the active server for a planned switchover: within a second, or not at all. Statements that run go on, new writes and commits
/// get error 1290.
///
/// # Errors
/// As [`Error`]; 1205 when a session holds LOCK TABLES, or a commit waits, for longer than that.
pub async fn close_in_time(s: &mut Session) -> Result<(), Error> {
    s.run(deadline::STEP, "SET SESSION lock_wait_timeout = 1").await?;
    let closed = s.run(deadline::STEP, "SET GLOBAL super_read_only = ON").await;
    if !s.is_broken() {
        s.run(deadline::STEP, super::session::LOCK_WAIT).await?;
    }
    closed
}

/// Opens a server for everybody.
///
/// # Errors
/// As [`Error`].
pub async fn open(s: &mut Session) -> Result<(), Error> {
    s.run(
        deadline::STEP,
        "SET GLOBAL offline_mode = OFF, GLOBAL read_only = OFF",
    )
    .await
}
