//! What a copy leaves on a target: the mark that says how far it is, the database, and at last the position.
//!
//! A mark is a row in a database of the operator's own, and not in the copied one: it is written before the copy is begun and taken away only
//! when the caller has the copy on record, so a half copy never looks like a whole one, whenever the operator dies. CLONE copies marks along
//! with what they mark, and they stay true.

use super::{layout::Database, withheld};
use crate::{
    core::gtid::GtidSet,
    deadline,
    mysql::{
        Access, Error, Session,
        conn::{self, ident, literal},
        shard_fence::{ASIDE, put_back},
    },
};
use futures::future;
use mysql_async::Conn;
use sha2::{Digest as _, Sha256};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// The operator's own database on a server that copies are made on.
pub(crate) const OWN: &str = "shardwright_seed";
/// For dropping a database.
const DROPS: Duration = Duration::from_secs(300);
/// What a connection writes with. Nothing of it is binlogged; errors of data become warnings with LOCAL, so sql_mode decides nothing
/// but what a zero is. Unique keys are checked: there is hardly anything to be gained.
const WRITER: &str = "SET NAMES utf8mb4; \
    SET SESSION sql_log_bin = 0, SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', SESSION time_zone = '+00:00', \
    SESSION foreign_key_checks = 0, SESSION unique_checks = 1, SESSION max_execution_time = 0, SESSION lock_wait_timeout = 10, \
    SESSION net_read_timeout = 28800, SESSION wait_timeout = 28800, SESSION sql_require_primary_key = 0, \
    SESSION sql_generate_invisible_primary_key = 0, SESSION explicit_defaults_for_timestamp = 1, SESSION autocommit = 1";

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The position that the copy is of.
    pub gtid: GtidSet,
    /// All of it is there, and the database is closed for writes.
    pub complete: bool,
}

/// Opens a connection that changes the server outside of its binary log.
async fn open(access: &Access) -> Result<Conn, Error> {
    let mut conn = conn::connect_for_rows(access).await?;
    conn::run(&mut conn, deadline::QUERY, WRITER).await?;
    let answer: Vec<(i64, i64)> = conn::rows(
        &mut conn,
        deadline::QUERY,
        "SELECT @@GLOBAL.super_read_only, @@SESSION.sql_log_bin",
    )
    .await?;
    match answer.first() {
        Some((0, 0)) => Ok(conn),
        Some((_, 0)) => Err(Error::Protocol(format!(
            "super_read_only is ON on {}: turn it off before copying (read_only may stay)",
            access.tls_name
        ))),
        _ => Err(Error::Protocol("sql_log_bin does not turn off".into())),
    }
}

/// The marks of a server.
///
/// # Errors
/// As [`Error`].
pub async fn marks(access: &Access) -> Result<BTreeMap<String, Mark>, Error> {
    let mut conn = conn::connect(access).await?;
    marks_on(&mut conn).await
}

async fn marks_on(conn: &mut Conn) -> Result<BTreeMap<String, Mark>, Error> {
    let sql = format!("SELECT database_name, gtid, complete FROM {OWN}.copies");
    let rows: Vec<(String, String, i64)> = match conn::rows(conn, deadline::QUERY, sql).await {
        // ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE.
        Err(e) if matches!(e.code(), Some(1049 | 1146)) => return Ok(BTreeMap::new()),
        other => other?,
    };
    rows.into_iter()
        .map(|(name, gtid, complete)| {
            let gtid = gtid
                .parse()
                .map_err(|e| Error::Protocol(format!("GTID set: {e}")))?;
            Ok((
                name,
                Mark {
                    gtid,
                    complete: complete == 1,
                },
            ))
        })
        .collect()
}

/// On whose behalf is copied: two runs with the same scope exclude each other, on each server.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The named lock, and what the names of the locks of its connections begin with.
    lock: String,
}

impl Scope {
    pub(crate) fn new(name: &str) -> Self {
        let mut lock = format!("{OWN}_");
        for byte in Sha256::digest(name.as_bytes()).iter().take(8) {
            // Writing to a String cannot fail.
            let _ = write!(lock, "{byte:02x}");
        }
        Self { lock }
    }

    /// The file that `LOAD DATA` names: there is none, but whose statement it is is seen by it.
    pub(crate) fn file(&self) -> &str {
        &self.lock
    }

    /// Opens a connection that rows are written with, and that is seen to be of this scope.
    pub(crate) async fn open(&self, access: &Access) -> Result<Conn, Error> {
        let mut conn = open(access).await?;
        let lock = format!("DO GET_LOCK('{}_{}', 0)", self.lock, conn.id());
        conn::run(&mut conn, deadline::QUERY, lock).await?;
        Ok(conn)
    }

    /// Connections of this scope, and those that load on its behalf.
    fn connections(&self) -> String {
        let lock = &self.lock;
        format!(
            "SELECT t.processlist_id FROM performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id \
             WHERE m.object_type = 'USER LEVEL LOCK' AND m.object_name LIKE '{lock}\\_%' AND t.processlist_id <> CONNECTION_ID() \
             UNION SELECT id FROM performance_schema.processlist WHERE info LIKE 'LOAD DATA LOCAL INFILE ''{lock}''%'"
        )
    }
}

/// The only run of a scope on a server, for as long as its connection holds.
pub(crate) struct Guard {
    conn: Conn,
    scope: Scope,
    /// What the run is known by, after the server was started anew as well.
    token: String,
    /// Goes before each statement: it fails with 1242 when another run has taken over.
    pub(crate) check: String,
}

/// Becomes the only run: one of an operator that was paused finds its connections ended when it wakes up, and its statements refused.
pub(crate) async fn take_over(access: &Access, scope: &Scope) -> Result<Guard, Error> {
    let mut conn = open(access).await?;
    let lock = &scope.lock;
    for _ in 0..3 {
        if got(&mut conn, scope).await? {
            let rest: Vec<Option<u64>> = conn::rows(&mut conn, deadline::QUERY, scope.connections()).await?;
            kill(&mut conn, rest).await?;
            prepare(&mut conn).await?;
            let sql = format!(
                "REPLACE INTO {OWN}.runs VALUES ('{lock}', UUID()); SELECT token FROM {OWN}.runs WHERE scope = '{lock}'"
            );
            let sets = conn::sets(&mut conn, deadline::CHANGE, sql).await?;
            let token = sets
                .iter()
                .flatten()
                .next()
                .and_then(|r| r.get_opt::<String, _>(0))
                .and_then(Result::ok);
            let token = token.ok_or_else(|| Error::Protocol("no row where one is due".into()))?;
            return Ok(guard(conn, scope, token));
        }
        let holder: Vec<Option<u64>> = conn::rows(
            &mut conn,
            deadline::QUERY,
            format!("SELECT IS_USED_LOCK('{lock}')"),
        )
        .await?;
        kill(&mut conn, holder).await?;
    }
    Err(Error::Protocol(format!(
        "another operator copies to {}",
        access.tls_name
    )))
}

fn guard(conn: Conn, scope: &Scope, token: String) -> Guard {
    let check = format!(
        "DO IF(IS_USED_LOCK('{}') <=> {}, 0, (SELECT 1 UNION SELECT 2)); ",
        scope.lock,
        conn.id()
    );
    Guard {
        conn,
        scope: scope.clone(),
        token,
        check,
    }
}

async fn got(conn: &mut Conn, scope: &Scope) -> Result<bool, Error> {
    let sql = format!("SELECT GET_LOCK('{}', 0)", scope.lock);
    let answer: Vec<Option<i64>> = conn::rows(conn, deadline::QUERY, sql).await?;
    Ok(answer.first().copied().flatten() == Some(1))
}

async fn kill(conn: &mut Conn, ids: Vec<Option<u64>>) -> Result<(), Error> {
    for id in ids.into_iter().flatten() {
        match conn::run(conn, deadline::QUERY, format!("KILL CONNECTION {id}")).await {
            // ER_NO_SUCH_THREAD.
            Err(e) if e.code() == Some(1094) => {}
            other => other?,
        }
    }
    Ok(())
}

impl Guard {
    /// Whether it still holds.
    pub(crate) async fn holds(&mut self) -> bool {
        let sql = format!("SELECT IS_USED_LOCK('{}') <=> CONNECTION_ID()", self.scope.lock);
        let answer: Result<Vec<i64>, Error> = conn::rows(&mut self.conn, deadline::QUERY, sql).await;
        answer.is_ok_and(|a| a.first() == Some(&1))
    }

    /// Takes the lock again on a server that was started anew, unless another run was there meanwhile: then it fails with 1242.
    pub(crate) async fn renew(&mut self, access: &Access) -> Result<(), Error> {
        let mut conn = open(access).await?;
        if !got(&mut conn, &self.scope).await? {
            return Err(Error::Protocol(format!(
                "another operator copies to {}",
                access.tls_name
            )));
        }
        let (lock, token) = (&self.scope.lock, literal(&self.token));
        let sql = format!(
            "DO IF((SELECT token FROM {OWN}.runs WHERE scope = '{lock}') <=> {token}, 0, (SELECT 1 UNION SELECT 2))"
        );
        conn::run(&mut conn, deadline::QUERY, sql).await?;
        *self = guard(conn, &self.scope, self.token.clone());
        Ok(())
    }

    /// Ends the run. The last one turns off that rows are taken in.
    pub(crate) async fn end(&mut self) -> Result<(), Error> {
        let (check, lock) = (&self.check, &self.scope.lock);
        let sql = format!("{check}DELETE FROM {OWN}.runs WHERE scope = '{lock}'");
        conn::run(&mut self.conn, deadline::CHANGE, sql).await?;
        let left: Vec<i64> = conn::rows(
            &mut self.conn,
            deadline::QUERY,
            format!("SELECT COUNT(*) FROM {OWN}.runs WHERE IS_USED_LOCK(scope) IS NOT NULL"),
        )
        .await?;
        if left.first() == Some(&0) {
            accept_rows(&mut self.conn, false).await?;
        }
        Ok(())
    }

    /// Lets the server take `LOAD DATA LOCAL`. It lets a client send a file of its own; files of the server stay out of reach.
    pub(crate) async fn accept_rows(&mut self) -> Result<(), Error> {
        accept_rows(&mut self.conn, true).await
    }
}

async fn accept_rows(conn: &mut Conn, yes: bool) -> Result<(), Error> {
    conn::run(
        conn,
        deadline::CHANGE,
        format!("SET GLOBAL local_infile = {}", u8::from(yes)),
    )
    .await
}

/// Makes room for marks.
async fn prepare(conn: &mut Conn) -> Result<(), Error> {
    let sql = format!(
        "CREATE DATABASE IF NOT EXISTS {OWN}; CREATE TABLE IF NOT EXISTS {OWN}.copies \
         (database_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, gtid LONGTEXT NOT NULL, complete TINYINT NOT NULL); \
         CREATE TABLE IF NOT EXISTS {OWN}.withheld {}; \
         CREATE TABLE IF NOT EXISTS {OWN}.runs (scope VARCHAR(64) CHARACTER SET ascii PRIMARY KEY, token VARCHAR(64) NOT NULL)",
        withheld::TABLE
    );
    conn::run(conn, deadline::DDL, sql).await
}

/// Why a database is not begun on a target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Begin {
    #[error(transparent)]
    Mysql(#[from] Error),
    #[error("{0} has database {1} already, and it is no copy that was cut short: drop it there first")]
    Occupied(String, String),
}

/// Begins a copy: marks it, closes it for clients, takes away what an earlier one left that was cut short, and makes the database with its tables.
pub(crate) async fn begin(
    conn: &mut Conn,
    access: &Access,
    check: &str,
    d: &Database,
    gtid: &GtidSet,
) -> Result<(), Begin> {
    let name = literal(&d.name);
    let sql = format!(
        "SELECT 1 FROM {OWN}.copies WHERE database_name = {name}; {}",
        withheld::question(&d.name)
    );
    let answers = conn::sets(conn, deadline::CHANGE, sql).await?;
    let [marks, grants, written] = answers.as_slice() else {
        return Err(Error::Protocol("no answer where one is due".into()).into());
    };
    if marks.is_empty() {
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = {name}), \
             (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {name})"
        );
        let there: Vec<(i64, i64)> = conn::rows(conn, deadline::QUERY, sql).await?;
        // Without a table there is nothing to lose.
        if there
            .first()
            .is_none_or(|(database, tables)| *database > 0 && *tables > 0)
        {
            return Err(Begin::Occupied(access.tls_name.clone(), d.name.clone()));
        }
    }
    let accounts = withheld::by_pattern(grants, written)?;
    let mark = format!(
        "{check}REPLACE INTO {OWN}.copies VALUES ({name}, '{gtid}', 0){}",
        withheld::withhold(&d.name, &accounts)
    );
    let inside = conn::sets(conn, deadline::CHANGE, mark).await?;
    withheld::end(conn, &inside).await?;
    drop_database(conn, check, &d.name).await?;
    let mut sql = format!("{check}{}; USE {}", without_fence(&d.create), ident(&d.name));
    for t in &d.tables {
        sql.push_str("; ");
        sql.push_str(&t.create);
    }
    conn::run(conn, DROPS, sql).await?;
    Ok(())
}

/// Drops a database, fenced or not, if it is there.
async fn drop_database(conn: &mut Conn, check: &str, name: &str) -> Result<(), Error> {
    let name = ident(name);
    match conn::run(
        conn,
        deadline::DDL,
        format!("{check}ALTER DATABASE {name} READ ONLY = 0"),
    )
    .await
    {
        // ER_BAD_DB_ERROR, and what ALTER says instead.
        Err(e) if matches!(e.code(), Some(1049 | 3503)) => return Ok(()),
        other => other?,
    }
    conn::run(conn, DROPS, format!("{check}DROP DATABASE IF EXISTS {name}")).await
}

/// Ends a copy: closes the database for writes, gives back to clients what was withheld from them, then says that it is complete.
pub(crate) async fn finish(conn: &mut Conn, check: &str, name: &str) -> Result<(), Error> {
    let sql = format!(
        "{check}USE {OWN}; ALTER DATABASE {} READ ONLY = 1; {}",
        ident(name),
        withheld::written(&[name.to_owned()])
    );
    let answers = conn::sets(conn, deadline::DDL, sql).await?;
    withheld::lift(conn, check, &answers).await?;
    let sql = format!(
        "{check}UPDATE {OWN}.copies SET complete = 1 WHERE database_name = {}",
        literal(name)
    );
    conn::run(conn, deadline::CHANGE, sql).await
}

/// Takes marks away, and what is withheld from clients, on every server, of copies that the caller has on record. Repeating it is harmless.
///
/// # Errors
/// As [`Error`].
pub async fn release(targets: &[Access], databases: &[String]) -> Result<(), Error> {
    if databases.is_empty() {
        return Ok(());
    }
    let names = databases
        .iter()
        .map(|d| literal(d))
        .collect::<Vec<_>>()
        .join(", ");
    let names = &names;
    let all = targets.iter().map(|a| async move {
        let mut conn = open(a).await?;
        if marks_on(&mut conn).await?.is_empty() {
            return Ok(());
        }
        withheld::lift_all(&mut conn, databases).await?;
        let sql = format!("DELETE FROM {OWN}.copies WHERE database_name IN ({names})");
        conn::run(&mut conn, deadline::CHANGE, sql).await
    });
    future::try_join_all(all).await.map(drop)
}

/// As [`release`], on one server that may be closed, and over a connection that has its lock. Marks may be of half copies: nothing is withheld
/// from clients afterwards.
///
/// # Errors
/// As [`Error`].
pub async fn forget(s: &mut Session, databases: &[String]) -> Result<(), Error> {
    if databases.is_empty() {
        return Ok(());
    }
    withheld::lift_here(s, databases).await?;
    let names: Vec<String> = databases.iter().map(|d| literal(d)).collect();
    let sql = format!(
        "{ASIDE}; DELETE FROM {OWN}.copies WHERE database_name IN ({})",
        names.join(", ")
    );
    let done = s.run(deadline::CHANGE, sql).await;
    put_back(s).await?;
    match done {
        // ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE: none was ever made there.
        Err(e) if matches!(e.code(), Some(1049 | 1146)) => Ok(()),
        other => other,
    }
}

/// Takes copies away that nothing depends on: those of `databases` that have a mark, with their marks. One without a mark is left alone.
///
/// # Errors
/// As [`Error`].
pub async fn discard(target: &Access, databases: &[String]) -> Result<(), Error> {
    let mut conn = open(target).await?;
    let marks = marks_on(&mut conn).await?;
    for name in databases.iter().filter(|d| marks.contains_key(*d)) {
        drop_database(&mut conn, "", name).await?;
        withheld::lift_all(&mut conn, std::slice::from_ref(name)).await?;
        let sql = format!("DELETE FROM {OWN}.copies WHERE database_name = {}", literal(name));
        conn::run(&mut conn, deadline::CHANGE, sql).await?;
    }
    Ok(())
}

/// Lets each server count as executed what the copies have in them (`GTID_PURGED`), so that a channel begins right behind it. The one that
/// follows the other comes first in `targets`: else it would be told, if it connected anew just then, that what it lacks is gone.
///
/// # Errors
/// As [`Error`].
pub async fn count_as_executed(targets: &[Access], gtid: &GtidSet) -> Result<(), Error> {
    for access in targets {
        let mut conn = conn::connect(access).await?;
        let lacks = gtid.minus(&executed(&mut conn).await?);
        if lacks.is_empty() {
            continue;
        }
        conn::run(
            &mut conn,
            deadline::CHANGE,
            format!("SET GLOBAL gtid_purged = '+{lacks}'"),
        )
        .await?;
        if !gtid.is_subset_of(&executed(&mut conn).await?) {
            return Err(Error::NotReached(format!(
                "{} does not count {gtid} as executed",
                access.tls_name
            )));
        }
    }
    Ok(())
}

async fn executed(conn: &mut Conn) -> Result<GtidSet, Error> {
    let answer: Vec<String> = conn::rows(conn, deadline::QUERY, "SELECT @@GLOBAL.gtid_executed").await?;
    let text = answer.into_iter().next().unwrap_or_default();
    text.parse()
        .map_err(|e| Error::Protocol(format!("GTID set: {e}")))
}

/// `SHOW CREATE DATABASE` without what says that it is closed for writes.
pub(crate) fn without_fence(create: &str) -> String {
    create.replace(" /* READ ONLY = 1 */", "")
}
