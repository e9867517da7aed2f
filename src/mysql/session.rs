//! A connection that is held open between passes, and the named lock that makes an operator the only one to change a server.

use super::conn::{self, Access, Error};
use crate::deadline;
use mysql_async::{Conn, Row, prelude::FromRow};
use std::time::Duration;

/// The named lock of a server: whoever changes it holds this (rule P7).
const LOCK: &str = "shardwright";

/// How long a statement waits for somebody else's lock, unless it says otherwise.
pub(super) const LOCK_WAIT: &str = "SET SESSION lock_wait_timeout = 3";

/// What `mysql.config` may set for everybody must not change what our statements mean or how long they may take; and none of
/// them waits for somebody else's lock for longer than its own deadline.
const SETTINGS: &str = "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', \
    SESSION max_execution_time = 0, SESSION lock_wait_timeout = 3";

/// A connection. After any error other than the server's own answer it is broken and must be dropped: what it would answer next
/// might be the answer to an earlier question.
pub struct Session {
    conn: Conn,
    access: Access,
    broken: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.access)
    }
}

impl Session {
    /// Opens a connection.
    ///
    /// # Errors
    /// As [`conn::connect`].
    pub async fn open(access: Access) -> Result<Self, Error> {
        let conn = conn::connect(&access).await?;
        let mut s = Self {
            conn,
            access,
            broken: false,
        };
        s.run(deadline::QUERY, SETTINGS).await?;
        Ok(s)
    }

    /// How the server is reached.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Its number on the server, as KILL takes it.
    pub fn id(&self) -> u32 {
        self.conn.id()
    }

    /// Whether it must not be used any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Says that it must not be used any more: a statement was left before its answer.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
    }

    fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(e) = &result {
            self.broken |= e.code().is_none();
        }
        result
    }

    /// Runs a statement that gives no rows.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn run(&mut self, limit: Duration, sql: impl AsRef<str> + Send) -> Result<(), Error> {
        let result = conn::run(&mut self.conn, limit, sql).await;
        self.note(result)
    }

    /// Runs a query and gives all its rows.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn rows<T>(&mut self, limit: Duration, sql: impl AsRef<str> + Send) -> Result<Vec<T>, Error>
    where
        T: FromRow + Send + 'static,
    {
        let result = conn::rows(&mut self.conn, limit, sql).await;
        self.note(result)
    }

    /// Runs several queries in one round trip and gives the rows of each.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn sets(
        &mut self,
        limit: Duration,
        sql: impl AsRef<str> + Send,
    ) -> Result<Vec<Vec<Row>>, Error> {
        let result = conn::sets(&mut self.conn, limit, sql).await;
        self.note(result)
    }

    /// Runs a query that gives exactly one row.
    ///
    /// # Errors
    /// As [`Error`]; no row at all is [`Error::Protocol`].
    pub async fn row(&mut self, limit: Duration, sql: impl AsRef<str> + Send) -> Result<Row, Error> {
        let result = conn::row(&mut self.conn, limit, sql).await;
        self.note(result)?
            .ok_or_else(|| Error::Protocol("no row where one is due".into()))
    }

    /// Takes the server's named lock, and ends the connection of whoever holds it: an operator that was paused and wakes up
    /// finds its connection dead before it can do what it had in mind.
    ///
    /// # Errors
    /// As [`Error`]; [`Error::Protocol`] when another one takes it in between.
    pub async fn lock(&mut self) -> Result<(), Error> {
        // A connection that is killed holds the lock until it has ended.
        for seconds in [0, 1, 1] {
            let row: Vec<Option<i64>> = self
                .rows(deadline::QUERY, format!("SELECT GET_LOCK('{LOCK}', {seconds})"))
                .await?;
            if row.first().copied().flatten() == Some(1) {
                return Ok(());
            }
            let holder: Vec<Option<u64>> = self
                .rows(deadline::QUERY, format!("SELECT IS_USED_LOCK('{LOCK}')"))
                .await?;
            if let Some(id) = holder.first().copied().flatten() {
                self.end_connection(id, deadline::QUERY).await?;
            }
        }
        Err(Error::Protocol("another operator holds the server's lock".into()))
    }

    /// Ends another connection; one that has ended by itself is ended.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn end_connection(&mut self, id: u64, limit: Duration) -> Result<(), Error> {
        match self.run(limit, format!("KILL CONNECTION {id}")).await {
            // ER_NO_SUCH_THREAD.
            Err(e) if e.code() == Some(1094) => Ok(()),
            other => other,
        }
    }

    /// Opens another connection to the same server, for statements that may wait for an acknowledgement. Whoever waits for one cannot be
    /// killed: on this connection it would keep the server's lock for as long as that takes, and what would end the waiting needs the lock.
    /// Each statement there fails unless this connection holds the lock when it begins.
    ///
    /// # Errors
    /// As [`conn::connect`].
    pub async fn beside(&self) -> Result<Beside, Error> {
        Ok(Beside {
            session: Self::open(self.access.clone()).await?,
            holder: self.conn.id(),
        })
    }

    /// Whether this connection still holds the lock. Whoever takes it away ends the connection.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn holds_lock(&mut self) -> Result<bool, Error> {
        let held: Vec<i64> = self
            .rows(
                deadline::QUERY,
                format!("SELECT IS_USED_LOCK('{LOCK}') <=> CONNECTION_ID()"),
            )
            .await?;
        Ok(held.first() == Some(&1))
    }

    /// Gives the named lock back.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn unlock(&mut self) -> Result<(), Error> {
        self.rows::<Option<i64>>(deadline::QUERY, format!("SELECT RELEASE_LOCK('{LOCK}')"))
            .await
            .map(drop)
    }
}

/// Another connection to a server whose lock is held.
#[derive(Debug)]
pub struct Beside {
    session: Session,
    holder: u32,
}

impl Beside {
    /// Runs a statement that gives no rows, if the lock is held.
    ///
    /// # Errors
    /// As [`Error`]; 1242 when somebody else has taken the lock.
    pub async fn run(&mut self, limit: Duration, sql: impl AsRef<str> + Send) -> Result<(), Error> {
        self.session.run(limit, guarded(self.holder, sql.as_ref())).await
    }
}

/// The first statement that fails ends the string: a subquery with two rows fails, and nothing else here does.
fn guarded(holder: u32, sql: &str) -> String {
    format!("DO IF(IS_USED_LOCK('{LOCK}') <=> {holder}, 0, (SELECT 1 UNION SELECT 2)); {sql}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_lock_is_asked_for_before_the_statement() {
        let sql = super::guarded(7, "ALTER USER x ACCOUNT LOCK");
        let (guard, statement) = sql.split_once("; ").unwrap();
        assert!(guard.contains("IS_USED_LOCK('shardwright') <=> 7"), "{guard}");
        assert_eq!(statement, "ALTER USER x ACCOUNT LOCK");
    }
}
