//! Opening and closing a server. Nothing else in the operator writes `read_only` and `offline_mode`.

use super::{Error, semisync, session::Session};
use crate::deadline;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// For statements of applications that run on a server that is closed already.
const LAST_STATEMENTS: Duration = Duration::from_secs(1);
/// Between two looks at whether they have ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// On a closed server: applications that are inside a statement.
const CLOSED_AND_BUSY: &str = "SELECT COUNT(*) FROM performance_schema.processlist WHERE @@GLOBAL.super_read_only = 1 \
    AND command IN ('Query', 'Execute') AND user NOT LIKE 'shardwright\\_%' AND user NOT IN ('root', 'system user', 'event_scheduler')";

/// Whether it is closed: that was done when the last commit had ended, and none begins.
const CLOSED: &str = "SELECT @@GLOBAL.super_read_only";
/// Whose commit waits for an acknowledgement, or behind one that does in the same group. Replication's own threads have no client.
const WAITERS: &str = "SELECT id FROM performance_schema.processlist \
    WHERE state IN ('Waiting for semi-sync ACK from replica', 'waiting for handler commit') \
    AND user NOT IN ('system user', 'event_scheduler') AND id <> CONNECTION_ID()";
/// How often they are looked for, until none is new.
const LOOKS_FOR_WAITERS: usize = 5;
/// `ER_NO_SUCH_THREAD`: it has ended by itself.
const NO_SUCH_THREAD: u16 = 1094;
/// `ER_KILL_DENIED_ERROR`: an account with SYSTEM_USER, on a server that was started before the operator was given it.
const KILL_DENIED: u16 = 1095;

/// Closes a server that is not the recorded active one, whatever it was (second half of rule P6), in this order: clients are cut off, so
/// that whoever waits for an acknowledgement gets an error, also one that `offline_mode` lets in; only then does nobody wait any more; it is
/// closed for everybody, the operator included; clients may come again, to read. On one that is closed already, statements may end first, for a second. If then
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
    // `Rpl_semi_sync_source_wait_sessions` would count the applier, which has the new active server's commits by now: none acknowledges those here.
    let waiters: Vec<u64> = s.rows(deadline::QUERY, WAITERS).await?;
    if number(s, CLOSED).await? == 0 || !waiters.is_empty() {
        tracing::info!(?waiters, "clients are cut off from a server that is fenced");
        s.run(deadline::STEP, "SET GLOBAL offline_mode = ON").await?;
        cut_off_waiters(s).await?;
    }
    semisync::source_off(s).await?;
    s.run(deadline::STEP, "SET GLOBAL super_read_only = ON").await?;
    s.run(deadline::STEP, "SET GLOBAL offline_mode = OFF").await
}

/// Ends the connections of those who wait and have `CONNECTION_ADMIN`, the operator's own among them: `offline_mode` leaves them alone, and
/// the end of the source side would tell them OK. KILL shuts the client's socket before it returns; the thread itself waits on, and is counted
/// among `Rpl_semi_sync_source_wait_sessions`, until the source side is off. So what is waited for is that nobody new waits.
async fn cut_off_waiters(s: &mut Session) -> Result<(), Error> {
    let mut cut = BTreeSet::new();
    for _ in 0..LOOKS_FOR_WAITERS {
        let waiters: Vec<u64> = s.rows(deadline::QUERY, WAITERS).await?;
        let new: Vec<u64> = waiters.into_iter().filter(|id| cut.insert(*id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for id in new {
            match s.run(deadline::STEP, format!("KILL CONNECTION {id}")).await {
                Err(e) if e.code() == Some(NO_SUCH_THREAD) => {}
                // A person who is root. A server that is never closed for that would be worse.
                Err(e) if e.code() == Some(KILL_DENIED) => {
                    tracing::warn!(
                        id,
                        "a session that may not be ended is told OK for a commit that is lost"
                    );
                }
                other => other?,
            }
        }
    }
    Err(Error::NotReached(
        "commits of accounts that `offline_mode` lets in begin to wait again and again".into(),
    ))
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
