//! Makes databases and tables of shards on a pair's active server: one look, then only what is missing, on several connections.

use crate::{
    core::{
        databases::Naming,
        range::{Kind, Work},
        spans::SpanSet,
        tables::{Object, Statement, TableSet},
    },
    mysql::{connect, schema},
    observe::access::ActiveServer,
};
use futures::future;
use mysql_async::Conn;
use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// Connections that create at the same time. The server is bound by its disk, not by the round trips: more gain nothing, and leave less
/// for applications and replication.
pub const WORKERS: usize = 8;
/// Most names of undeclared tables that are kept.
const MAX_UNDECLARED: usize = 32;

/// What a piece of work is done with.
pub struct Job<'a> {
    /// The pair's active server.
    pub server: &'a ActiveServer,
    /// Names of the databases.
    pub naming: &'a Naming,
    /// The tables.
    pub tables: &'a TableSet,
    /// Told after each database, with the number that is done.
    pub done: &'a (dyn Fn(usize) + Sync),
    /// Set from outside to end early, after the databases that are being made.
    pub stop: &'a AtomicBool,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Every shard of the work has what it should; false when it was stopped early.
    pub complete: bool,
    /// Databases that were created.
    pub databases: usize,
    /// Tables and indexes that were created in databases that were there.
    pub tables: usize,
    /// Served shards without a database.
    pub missing: SpanSet,
    /// Tables that nobody declares.
    pub undeclared: BTreeSet<String>,
}

/// One database to be worked on.
struct Todo<'a> {
    database: String,
    create: bool,
    missing: Vec<&'a Statement>,
}

/// Does the work, once the server has shown that it is the recorded active one and open, on each connection anew.
///
/// # Errors
/// [`schema::NotActive`]; what was made until then stays, and is found by the next look.
pub async fn carry_out(job: &Job<'_>, work: &Work) -> Result<Done, schema::NotActive> {
    let mut conn = open(job).await?;
    let with_indexes = job
        .tables
        .statements()
        .iter()
        .any(|s| matches!(s.object, Object::Index { .. }));
    let have = schema::look(&mut conn, job.naming, &work.shards, with_indexes).await?;
    let mut done = Done::default();
    let mut todo = Vec::new();
    for shard in work.shards.shards() {
        let Some(tables) = have.get(&shard) else {
            if work.kind == Kind::Create {
                todo.push(Todo {
                    database: job.naming.name(shard),
                    create: true,
                    missing: job.tables.statements().iter().collect(),
                });
            } else {
                done.missing.extend([crate::api::ShardSpan::new(shard, shard)]);
            }
            continue;
        };
        undeclared(job.tables, tables, &mut done.undeclared);
        let missing = job.tables.missing(tables);
        if !missing.is_empty() {
            todo.push(Todo {
                database: job.naming.name(shard),
                create: false,
                missing,
            });
        }
    }
    drop(have);
    done.databases = todo.iter().filter(|t| t.create).count();
    done.tables = todo.iter().filter(|t| !t.create).map(|t| t.missing.len()).sum();
    let already = work.shards.len() - todo.len();
    make(job, conn, todo, already).await?;
    done.complete = !job.stop.load(Ordering::Relaxed);
    Ok(done)
}

async fn open(job: &Job<'_>) -> Result<Conn, schema::NotActive> {
    let mut conn = connect(&job.server.access).await?;
    schema::active(&mut conn, &job.server.uuid).await?;
    Ok(conn)
}

/// Works the list off on several connections; the first error ends all of them.
async fn make(
    job: &Job<'_>,
    first: Conn,
    todo: Vec<Todo<'_>>,
    already: usize,
) -> Result<(), schema::NotActive> {
    if todo.is_empty() {
        return Ok(());
    }
    // A connection takes as long to open as a database to create.
    let workers = WORKERS.min(todo.len().div_ceil(4)).max(1);
    let queue = Mutex::new(todo.into_iter());
    let count = AtomicUsize::new(already);
    let mut first = Some(first);
    let all = (0..workers).map(|_| {
        let own = first.take();
        let (queue, count) = (&queue, &count);
        async move {
            let mut conn = match own {
                Some(conn) => conn,
                None => open(job).await?,
            };
            while !job.stop.load(Ordering::Relaxed) {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(t) = next else { break };
                schema::create(&mut conn, &t.database, t.create, &t.missing).await?;
                (job.done)(count.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok::<(), schema::NotActive>(())
        }
    });
    future::try_join_all(all).await.map(drop)
}

fn undeclared(set: &TableSet, have: &schema::Tables, names: &mut BTreeSet<String>) {
    for (table, index) in have {
        if index.is_some() || names.len() >= MAX_UNDECLARED || names.contains(table) {
            continue;
        }
        let declared = set
            .statements()
            .iter()
            .any(|s| matches!(&s.object, Object::Table { table: t } if t.eq_ignore_ascii_case(table)));
        if !declared {
            names.insert(table.clone());
        }
    }
}

/// Tries the tables on a server. `Ok(Some)` says which statement it refuses.
///
/// # Errors
/// [`schema::NotActive`], when nothing can be said of them.
pub async fn try_tables(
    server: &ActiveServer,
    tables: &TableSet,
) -> Result<Option<schema::Refused>, schema::NotActive> {
    let mut conn = connect(&server.access).await?;
    schema::active(&mut conn, &server.uuid).await?;
    let refused = schema::dry_run(&mut conn, tables.hash(), tables.statements()).await?;
    // It runs with its binary log off: nobody else may get it.
    let _gone = crate::deadline::within(crate::deadline::QUERY, conn.disconnect()).await;
    Ok(refused)
}
