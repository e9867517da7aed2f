//! Fences of single shards (rule R3): `READ ONLY` of their databases, always outside the binary log, so that each server has its own.
//!
//! The fence of a batch on the server that takes its writes is a barrier: it waits for every open transaction that touched one of the
//! databases, and when it returns nothing can commit there any more. Meanwhile whoever comes waits behind it, readers as well, so it
//! gives up soon. What it has shut by then stays shut: the caller first puts on record that the batch is undone, and opens
//! after that. Clients get 3989 from a fenced database, and 1213 when they hold one table and want another while the fence is taken.

use super::{
    Error,
    conn::{ident, literal},
    session::{LOCK_WAIT, Session},
    state::{get, gtid},
};
use crate::{
    core::{databases::Naming, gtid::GtidSet, spans::SpanSet},
    deadline,
};
use mysql_async::Row;
use std::{
    fmt::{self, Write as _},
    time::Duration,
};

/// Databases of one string of statements, for those that are shut or opened aside.
const AT_ONCE: usize = 32;
/// What the barrier gives up with: somebody holds on to the database; it was the victim of a deadlock; its patience was over.
const HELD: [u16; 3] = [1205, 1213, 1317];
/// The least that there is, should nobody be there to end it earlier.
const BARRIER: &str = "SET SESSION sql_log_bin = 0, SESSION lock_wait_timeout = 1";
/// For a barrier that was told to end.
const ENDS: Duration = Duration::from_secs(1);
/// Between two looks at whether it waits.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// Accounts of the operator's own begin with this, as [`crate::core::credentials`] names them.
const OURS: &str = "shardwright_";
/// `ER_NO_SUCH_THREAD`.
const NO_SUCH_THREAD: u16 = 1094;
/// `ER_KILL_DENIED_ERROR`.
const KILL_DENIED: u16 = 1095;

/// Which shard databases a server has, and which of them are `READ ONLY`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Shards that have a database here.
    pub have: SpanSet,
    /// Those of them that are fenced.
    pub shut: SpanSet,
}

/// Reads the flags of all shard databases.
///
/// # Errors
/// As [`Error`].
pub async fn read(s: &mut Session, naming: &Naming) -> Result<Flags, Error> {
    let sql = format!(
        "SELECT CAST(schema_name AS CHAR), COALESCE(options, '') FROM information_schema.schemata_extensions WHERE schema_name LIKE {}",
        literal(&naming.like_pattern())
    );
    let rows: Vec<(String, String)> = s.rows(deadline::QUERY, sql).await?;
    Ok(flags(naming, &rows))
}

fn flags(naming: &Naming, rows: &[(String, String)]) -> Flags {
    let shards = |only_shut: bool| {
        rows.iter()
            .filter(|(_, options)| !only_shut || options.contains("READ ONLY=1"))
            .filter_map(|(name, _)| naming.parse(name))
            .collect()
    };
    Flags {
        have: shards(false),
        shut: shards(true),
    }
}

/// Fences these shards on this server alone. It may be passive: then `super_read_only` is off meanwhile (`read_only` stays on), and on again
/// afterwards. A database that is not there fails with 3503, one that somebody holds on to for three seconds with 1205; all before it are shut.
///
/// # Errors
/// As [`Error`].
pub async fn shut(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<(), Error> {
    set(s, naming, shards, true).await
}

/// Takes the fence of these shards away, on this server alone. As [`shut`] in everything else.
///
/// # Errors
/// As [`Error`].
pub async fn open(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<(), Error> {
    set(s, naming, shards, false).await
}

/// Takes every fence away, also of databases that are no shard's, on a server that is going to be overwritten: it is open to the operator, and
/// stays so.
///
/// # Errors
/// As [`Error`].
pub(super) async fn open_all(s: &mut Session) -> Result<(), Error> {
    let shut: Vec<String> = s
        .rows(
            deadline::QUERY,
            "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata_extensions WHERE options LIKE '%READ ONLY=1%'",
        )
        .await?;
    for part in shut.chunks(AT_ONCE) {
        let sql = part
            .iter()
            .fold("SET SESSION sql_log_bin = 0".to_owned(), |mut sql, name| {
                // Writing to a String cannot fail.
                let _ = write!(sql, "; ALTER DATABASE {} READ ONLY = 0", ident(name));
                sql
            });
        s.run(deadline::DDL, format!("{sql}; SET SESSION sql_log_bin = 1"))
            .await?;
    }
    Ok(())
}

async fn set(s: &mut Session, naming: &Naming, shards: &SpanSet, shut: bool) -> Result<(), Error> {
    let shards: Vec<i32> = shards.shards().collect();
    for part in shards.chunks(AT_ONCE) {
        let done = s
            .run(deadline::DDL, format!("{ASIDE}{}", alter(naming, part, shut)))
            .await;
        put_back(s).await?;
        done?;
    }
    Ok(())
}

/// Nothing of what follows reaches the binary log, or is refused on a passive server.
pub(super) const ASIDE: &str = "SET SESSION sql_log_bin = 0, GLOBAL super_read_only = OFF";

/// Undoes [`ASIDE`]. A server that was opened in between, by the next operator, keeps `super_read_only` off. A broken connection has ended
/// what it had for itself; a server that it left without `super_read_only` is still `read_only`, and closed again by whoever shuts there next.
pub(super) async fn put_back(s: &mut Session) -> Result<(), Error> {
    if s.is_broken() {
        return Ok(());
    }
    let sql = format!("{LOCK_WAIT}, SESSION sql_log_bin = 1, GLOBAL super_read_only = @@GLOBAL.read_only");
    s.run(deadline::CHANGE, sql).await
}

/// One statement a database, each with the semicolon before it.
fn alter(naming: &Naming, shards: &[i32], shut: bool) -> String {
    shards.iter().fold(String::new(), |mut sql, n| {
        // Writing to a String cannot fail.
        let _ = write!(
            sql,
            "; ALTER DATABASE {} READ ONLY = {}",
            ident(&naming.name(*n)),
            u8::from(shut)
        );
        sql
    })
}

/// What came of the fence of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// All of it is shut, and this was executed afterwards: every transaction of the batch is in it.
    All(GtidSet),
    /// Somebody holds on to a shard. What is shut of the batch stays shut until the caller opens it.
    Held {
        /// The part that is shut.
        shut: SpanSet,
        /// Who holds on to the rest; nobody, when they let go in between.
        by: Vec<Holder>,
    },
}

/// For how long a barrier may wait, and who ends it then.
#[derive(Debug)]
pub struct Patience<'a> {
    /// Another session on the same server: it is open before, for to open one takes longer than clients may wait.
    pub beside: &'a mut Session,
    /// For the whole batch. Past a second it is the server that gives up.
    pub limit: Duration,
}

/// The barrier: fences a batch on the open server that takes its writes, within that time. Prepared XA transactions hold it up like any other:
/// it is all shut only when there is none on it. [`holders`], asked beforehand, spare clients a wait that leads to nothing.
///
/// # Errors
/// As [`Error`]. What is shut is not known then; the flags tell, on another session when this one is broken.
pub async fn fence(
    s: &mut Session,
    naming: &Naming,
    batch: &SpanSet,
    patience: Patience<'_>,
) -> Result<Fenced, Error> {
    let shards: Vec<i32> = batch.shards().collect();
    let sql = format!("{BARRIER}{}", alter(naming, &shards, true));
    let refused = match impatiently(s, sql, patience).await {
        Ok(()) => None,
        // A connection that broke has nothing to put back, and answers nothing.
        Err(e) if s.is_broken() => return Err(e),
        Err(e) => Some(e),
    };
    let sql = format!("SELECT @@GLOBAL.gtid_executed; {LOCK_WAIT}, SESSION sql_log_bin = 1");
    let executed: Vec<String> = s.rows(deadline::QUERY, sql).await?;
    let Some(refused) = refused else {
        let executed = executed.first();
        let executed = executed.ok_or_else(|| Error::Protocol("no row where one is due".into()))?;
        return Ok(Fenced::All(gtid(executed)?));
    };
    if !refused.code().is_some_and(|code| HELD.contains(&code)) {
        return Err(refused);
    }
    let shut = read(s, naming).await?.shut.intersect(batch);
    let by = holders(s, naming, &batch.minus(&shut)).await?;
    Ok(Fenced::Held { shut, by })
}

/// Runs it, and ends it when it waits for longer. Only while it is seen to wait: a server that is told so at the very end of a statement gives no
/// answer to it. Should it happen all the same, when the holder lets go in that very moment, the session is given up.
async fn impatiently(s: &mut Session, sql: String, patience: Patience<'_>) -> Result<(), Error> {
    let id = s.id();
    {
        // Not all in one string: told to end between two statements of it, mysqld leaves out the rest, answers too.
        let work = async {
            for statement in sql.split("; ") {
                s.run(deadline::CHANGE, statement).await?;
            }
            Ok(())
        };
        tokio::pin!(work);
        let mut pause = patience.limit;
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(pause) => {}
            }
            pause = BETWEEN_LOOKS;
            if !end_waiting(patience.beside, id).await {
                continue;
            }
            if let Ok(done) = deadline::within(ENDS, &mut work).await {
                return done;
            }
            break;
        }
    }
    s.give_up();
    Err(Error::Timeout(ENDS))
}

/// Whether it waited and was told to end. When that cannot be done, the server's own patience ends it.
async fn end_waiting(beside: &mut Session, id: u32) -> bool {
    let waits = format!(
        "SELECT COUNT(*) FROM performance_schema.processlist WHERE id = {id} AND state LIKE 'Waiting for %lock'"
    );
    let waits: Result<Vec<i64>, Error> = beside.rows(deadline::QUERY, waits).await;
    if !waits.is_ok_and(|n| n.first().is_some_and(|n| *n > 0)) {
        return false;
    }
    let told = beside.run(deadline::STEP, format!("KILL QUERY {id}")).await;
    told.is_ok()
}

/// A transaction that has touched a shard and is not over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The shard.
    pub shard: i32,
    /// Whose it is.
    pub who: Who,
    /// How long it has been open; of a prepared one nobody knows.
    pub open: Duration,
}

/// Whose transaction it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A client's.
    Client {
        /// `PROCESSLIST_ID`: what KILL takes.
        id: u64,
        /// Account.
        user: String,
        /// Where it comes from.
        host: String,
    },
    /// A thread of replication.
    Applier,
    /// A prepared XA transaction's: no session has it any more, and only XA COMMIT or XA ROLLBACK ends it.
    Prepared,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shard = self.shard;
        match &self.who {
            Who::Client { id, user, host } => write!(
                f,
                "a transaction of {user}@{host} (connection {id}) on shard {shard}, open for {} ms",
                self.open.as_millis()
            ),
            Who::Applier => write!(f, "replication's applier on shard {shard}"),
            Who::Prepared => write!(
                f,
                "a prepared XA transaction on shard {shard}: XA RECOVER names it, XA COMMIT or XA ROLLBACK ends it"
            ),
        }
    }
}

/// Who holds on to databases of these shards. Without `performance_schema` nobody is found; the barrier finds them all the same.
///
/// # Errors
/// As [`Error`].
pub async fn holders(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<Vec<Holder>, Error> {
    if shards.is_empty() {
        return Ok(vec![]);
    }
    let sets = s.sets(deadline::QUERY, who_holds(naming)).await?;
    let mut holders: Vec<Holder> = vec![];
    for row in sets.iter().flatten() {
        holders.extend(holder(naming, row)?.filter(|h| shards.contains(h.shard)));
    }
    holders.sort();
    holders.dedup_by(|a, b| (a.shard, &a.who) == (b.shard, &b.who));
    Ok(holders)
}

/// A lock without a session is a prepared transaction's: its thread is gone, or, after a restart, the server's first one. A database that is
/// waited for is not held.
fn who_holds(naming: &Naming) -> String {
    format!(
        "SELECT CAST(m.object_schema AS CHAR), t.processlist_id, COALESCE(t.processlist_user, ''), COALESCE(t.processlist_host, ''), \
         COALESCE(t.name, ''), CAST(COALESCE(MAX(e.timer_wait) DIV 1000000000, MAX(t.processlist_time) * 1000, 0) AS UNSIGNED) \
         FROM performance_schema.metadata_locks m \
         LEFT JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id \
         LEFT JOIN performance_schema.events_transactions_current e ON e.thread_id = m.owner_thread_id AND e.state = 'ACTIVE' \
         WHERE m.object_schema LIKE {} AND m.lock_status = 'GRANTED' AND NOT (t.processlist_id <=> CONNECTION_ID()) \
         GROUP BY m.object_schema, t.processlist_id, t.processlist_user, t.processlist_host, t.name",
        literal(&naming.like_pattern())
    )
}

fn holder(naming: &Naming, row: &Row) -> Result<Option<Holder>, Error> {
    let Some(shard) = naming.parse(&get::<String>(row, 0)?) else {
        return Ok(None);
    };
    let thread: String = get(row, 4)?;
    let who = match get::<Option<u64>>(row, 1)? {
        _ if thread.starts_with("thread/sql/replica") || thread.starts_with("thread/sql/slave") => {
            Who::Applier
        }
        None => Who::Prepared,
        Some(id) => Who::Client {
            id,
            user: get(row, 2)?,
            host: get(row, 3)?,
        },
    };
    Ok(Some(Holder {
        shard,
        open: Duration::from_millis(if who == Who::Prepared { 0 } else { get(row, 5)? }),
        who,
    }))
}

/// Ends the connections of clients whose transactions have held these shards for at least as long as that; they find it closed, and
/// nothing of the transaction is done. The operator's own are left alone. Gives those that were ended.
///
/// # Errors
/// As [`Error`].
pub async fn end_holders(
    s: &mut Session,
    naming: &Naming,
    shards: &SpanSet,
    after: Duration,
) -> Result<Vec<Holder>, Error> {
    let mut ended: Vec<Holder> = vec![];
    for holder in holders(s, naming, shards).await? {
        let Who::Client { id, user, .. } = &holder.who else {
            continue;
        };
        if holder.open < after || user.starts_with(OURS) {
            continue;
        }
        match s.run(deadline::STEP, format!("KILL CONNECTION {id}")).await {
            Ok(()) => ended.push(holder),
            // It has ended by itself; or it is an account with SYSTEM_USER, and the operator has not got that yet.
            Err(e) if matches!(e.code(), Some(NO_SUCH_THREAD | KILL_DENIED)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(ended)
}

/// Prepared XA transactions of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// How many there are, whatever they touch.
    pub count: usize,
    /// Of the shards that were asked for, those that one of them touches; all of them, when the server does not tell.
    pub touch: SpanSet,
}

/// Asks for prepared XA transactions (`XA RECOVER`), and which of `shards` they touch. MySQL does not say which of them touches what.
///
/// # Errors
/// As [`Error`].
pub async fn prepared(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<Prepared, Error> {
    let mut sets = s
        .sets(deadline::QUERY, format!("XA RECOVER; {}", who_holds(naming)))
        .await?
        .into_iter();
    let count = sets.next().map_or(0, |rows| rows.len());
    if count == 0 {
        return Ok(Prepared::default());
    }
    let mut touched: Vec<i32> = vec![];
    for row in sets.flatten() {
        touched.extend(
            holder(naming, &row)?
                .filter(|h| h.who == Who::Prepared)
                .map(|h| h.shard),
        );
    }
    let known = !touched.is_empty();
    let touched: SpanSet = touched.into_iter().collect();
    Ok(Prepared {
        count,
        touch: if known {
            touched.intersect(shards)
        } else {
            shards.clone()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ShardSpan, shard_cluster::Shards};

    fn naming() -> Naming {
        Naming::from(&Shards {
            total: 1024,
            database_prefix: "my_db".into(),
            digits: 5,
        })
    }

    #[test]
    fn flags_are_those_of_the_clusters_databases_and_of_no_others() {
        let rows = [
            ("my_db00001", "READ ONLY=1"),
            ("my_db00002", ""),
            ("my_dbxxxxx", "READ ONLY=1"),
        ];
        let rows = rows.map(|(n, o)| (n.to_owned(), o.to_owned()));
        let flags = flags(&naming(), &rows);
        assert_eq!(flags.have, SpanSet::of(ShardSpan::new(1, 2)));
        assert_eq!(flags.shut, SpanSet::of(ShardSpan::new(1, 1)));
    }

    #[test]
    fn a_fence_is_taken_outside_the_binary_log() {
        let sql = format!("{ASIDE}{}", alter(&naming(), &[3, 4], true));
        assert_eq!(
            sql,
            "SET SESSION sql_log_bin = 0, GLOBAL super_read_only = OFF; ALTER DATABASE `my_db00003` READ ONLY = 1; \
             ALTER DATABASE `my_db00004` READ ONLY = 1"
        );
    }

    #[test]
    fn who_holds_on_to_a_shard_is_said_with_what_ends_it() {
        let who = Who::Client {
            id: 7,
            user: "app".into(),
            host: "10.0.0.1".into(),
        };
        let text = Holder {
            shard: 3,
            who,
            open: Duration::from_millis(1500),
        }
        .to_string();
        assert_eq!(
            text,
            "a transaction of app@10.0.0.1 (connection 7) on shard 3, open for 1500 ms"
        );
    }
}
