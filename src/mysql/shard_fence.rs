//! Fences of single shards (rule R3): `READ ONLY` of their databases, always outside the binary log, so that each server has its own.
//!
//! The fence of a batch on the server that takes its writes is a barrier: it waits for every open transaction that touched one of the
//! databases, and when it returns nothing can commit there any more. Meanwhile whoever comes waits behind it, readers as well, so it
//! gives up soon. What it has shut by then stays shut: the caller first puts on record that the batch is undone, and opens
//! after that. Clients get 3989 from a fenced database, and 1213 when they hold one table and want another while the fence is taken.

mod holders;

pub use holders::{Holder, Prepared, Who, end_holders, holders, of_the_operator, prepared};

use super::{
    Error,
    conn::{ident, literal},
    session::{LOCK_WAIT, Session},
    state::gtid,
};
use crate::{
    core::{databases::Naming, gtid::GtidSet, spans::SpanSet},
    deadline,
};
use std::{fmt::Write as _, time::Duration};

/// Databases of one string of statements, for those that are shut or opened aside.
const AT_ONCE: usize = 32;
/// What the barrier gives up with: somebody holds on to the database; it was the victim of a deadlock; its patience was over.
pub const HELD: [u16; 3] = [1205, 1213, 1317];
/// Tries to open what is to be served.
const OPENINGS: usize = 3;
/// The least that there is, should nobody be there to end it earlier.
const BARRIER: &str = "SET SESSION sql_log_bin = 0, SESSION lock_wait_timeout = 1";
/// For a barrier that was told to end.
const ENDS: Duration = Duration::from_secs(1);
/// Between two looks at whether it waits.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

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

/// Opens these shards on the server that serves them. They can be written nowhere meanwhile, so nobody may hold that up: when it has waited for a
/// second, whoever has a closed one of them in a transaction, and can only have read it, is ended. Gives those that were.
///
/// # Errors
/// As [`Error`]; 1205 when it is held up all the same, by an account of the operator's own or one that may not be ended.
pub async fn open_served(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<Vec<Holder>, Error> {
    let mut ended = vec![];
    for _ in 1..OPENINGS {
        let shut = read(s, naming).await?.shut.intersect(shards);
        match set_within(s, naming, &shut, false, ", SESSION lock_wait_timeout = 1").await {
            Err(e) if e.code().is_some_and(|code| HELD.contains(&code)) => {}
            done => return done.map(|()| ended),
        }
        // What is open by now has writers.
        let shut = read(s, naming).await?.shut.intersect(shards);
        ended.extend(end_holders(s, naming, &shut, Duration::ZERO).await?);
    }
    let shut = read(s, naming).await?.shut.intersect(shards);
    open(s, naming, &shut).await?;
    Ok(ended)
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
    set_within(s, naming, shards, shut, "").await
}

/// With further variables, which [`put_back`] puts back.
async fn set_within(
    s: &mut Session,
    naming: &Naming,
    shards: &SpanSet,
    shut: bool,
    variables: &str,
) -> Result<(), Error> {
    let shards: Vec<i32> = shards.shards().collect();
    for part in shards.chunks(AT_ONCE) {
        let done = s
            .run(
                deadline::DDL,
                format!("{ASIDE}{variables}{}", alter(naming, part, shut)),
            )
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
}
