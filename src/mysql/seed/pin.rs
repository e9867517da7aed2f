//! One position for many connections: the source's applier is stopped for a moment, and meanwhile each connection opens a snapshot.

use super::layout::{self, Database};
use crate::{
    core::gtid::GtidSet,
    deadline,
    mysql::{
        Access, Error, Session,
        conn::{self, literal},
    },
};
use futures::future;
use mysql_async::Conn;
use std::{collections::BTreeSet, time::Duration};
use uuid::Uuid;

/// For the applier to end the transactions that it has begun.
const STOPS: Duration = Duration::from_secs(60);
/// How often it is tried to find the source standing still.
const TRIES: usize = 3;
/// What a connection reads with: no limit of time, dates as they are, and the client may be slow, for it may be held back on purpose. With an
/// expiry of 0 estimates are asked of the tables, and not written down in the dictionary, which may be read-only.
const READER: &str = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', SESSION time_zone = '+00:00', \
    SESSION max_execution_time = 0, SESSION net_write_timeout = 28800, SESSION wait_timeout = 28800, \
    SESSION lock_wait_timeout = 60, SESSION information_schema_stats_expiry = 0, SESSION transaction_isolation = 'REPEATABLE-READ', SESSION sql_quote_show_create = 1, \
    SESSION show_create_table_verbosity = OFF, SESSION show_gipk_in_create_table_and_information_schema = ON";

/// A channel of a target that is stopped where the source stands, so that it can go on from there with more databases.
#[derive(Clone, Copy, Debug)]
pub struct Channel<'a> {
    /// The server that has the channel.
    pub server: &'a Access,
    /// Its name.
    pub name: &'a str,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Pin<'a> {
    /// The server that is read: one that takes no writes but those of its applier, so that it can stand still.
    pub source: &'a Access,
    /// Databases of which the layout is read.
    pub databases: &'a [String],
    /// Connections to each server.
    pub readers: usize,
    /// Servers that must have executed what the source has, and get snapshots then as well.
    pub beside: &'a [Access],
    /// A channel that has to stand there, too, and is left stopped.
    pub channel: Option<Channel<'a>>,
    /// For the others to get where the source stands.
    pub patience: Duration,
}

/// Connections to one server that all see the same state of it.
#[derive(Debug)]
pub struct Pinned {
    /// How the server is reached.
    pub access: Access,
    /// Databases that were asked for and are not there.
    pub missing: Vec<String>,
    pub(crate) databases: Vec<Database>,
    pub(crate) readers: Vec<Conn>,
}

/// Several servers at one position.
#[derive(Debug)]
pub struct Position {
    /// What the source had executed.
    pub gtid: GtidSet,
    /// The source.
    pub source: Pinned,
    /// The servers beside it.
    pub beside: Vec<Pinned>,
}

/// Stops the source's applier, opens the snapshots, and starts the applier again. No client of the pair notices: the receiver goes on, and
/// with it the acknowledgements. A future that is dropped in between leaves the applier stopped, as an operator that dies does; whoever
/// looks after the pair starts it again.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`] when the source does not stand still, or another one does not get there in time.
pub async fn pin(ask: &Pin<'_>) -> Result<Position, Error> {
    let mut source = Session::open(ask.source.clone()).await?;
    let mut readers = open(ask.source, ask.readers).await?;
    let mut beside = future::try_join_all(ask.beside.iter().map(|a| open(a, ask.readers))).await?;
    let mut channel = match ask.channel {
        Some(c) => Some((Session::open(c.server.clone()).await?, c.name)),
        None => None,
    };
    // What the others lack they get before the applier stops, so that it stops for a short time.
    let gtid = executed(&mut source).await?;
    let pair = servers_of_pair(&mut source).await?;
    let stand = Stand {
        gtid: &gtid,
        pair: &pair,
        patience: ask.patience,
    };
    let waits = ask
        .beside
        .iter()
        .zip(beside.iter_mut())
        .map(|(a, conns)| stand.waited_for(a, conns.first_mut()));
    future::try_join_all(waits).await?;
    for _ in 0..TRIES {
        let applies = applier_runs(&mut source, "").await?;
        let channel_applies = match &mut channel {
            Some((session, name)) => applier_runs(session, name).await?,
            None => false,
        };
        let found = async {
            if applies {
                source
                    .run(STOPS, "STOP REPLICA SQL_THREAD FOR CHANNEL ''")
                    .await?;
            }
            snapshots(ask, &mut source, &mut readers, &mut beside, &mut channel).await
        };
        let found = found.await;
        let started = if applies {
            start(&mut source, "").await
        } else {
            Ok(())
        };
        if !matches!(found, Ok(Some(_)))
            && channel_applies
            && let Some((session, name)) = &mut channel
        {
            start(session, name).await?;
        }
        let Some((gtid, databases, theirs)) = found? else {
            started?;
            continue;
        };
        started?;
        let pinned = |access: &Access, databases: Vec<Database>, readers| {
            let there: BTreeSet<&str> = databases.iter().map(|d| d.name.as_str()).collect();
            let missing = ask
                .databases
                .iter()
                .filter(|d| !there.contains(d.as_str()))
                .cloned()
                .collect();
            Pinned {
                access: access.clone(),
                missing,
                databases,
                readers,
            }
        };
        let beside = ask.beside.iter().zip(theirs).zip(beside);
        return Ok(Position {
            gtid,
            source: pinned(ask.source, databases, readers),
            beside: beside.map(|((a, d), r)| pinned(a, d, r)).collect(),
        });
    }
    Err(Error::NotReached(
        "the source does not stand still while its applier is stopped".into(),
    ))
}

/// Starts an applier that was stopped here, on another connection if this one broke meanwhile.
async fn start(s: &mut Session, channel: &str) -> Result<(), Error> {
    if s.is_broken() {
        *s = Session::open(s.access().clone()).await?;
    }
    let sql = format!("START REPLICA SQL_THREAD FOR CHANNEL {}", literal(channel));
    s.run(deadline::CHANGE, sql).await
}

type Layouts = (GtidSet, Vec<Database>, Vec<Vec<Database>>);

/// `None` when the source moved meanwhile.
async fn snapshots(
    ask: &Pin<'_>,
    source: &mut Session,
    readers: &mut [Conn],
    beside: &mut [Vec<Conn>],
    channel: &mut Option<(Session, &str)>,
) -> Result<Option<Layouts>, Error> {
    let gtid = executed(source).await?;
    let pair = servers_of_pair(source).await?;
    let stand = Stand {
        gtid: &gtid,
        pair: &pair,
        patience: ask.patience,
    };
    let waits = ask
        .beside
        .iter()
        .zip(beside.iter_mut())
        .map(|(a, conns)| stand.reached(a, conns.first_mut()));
    future::try_join_all(waits).await?;
    if let Some((session, name)) = channel {
        let mut conn = conn::connect(session.access()).await?;
        stand.reached(session.access(), Some(&mut conn)).await?;
        let name = literal(name);
        session
            .run(STOPS, format!("STOP REPLICA SQL_THREAD FOR CHANNEL {name}"))
            .await?;
    }
    let (ours, theirs) = future::try_join(
        see(readers, ask.databases),
        future::try_join_all(beside.iter_mut().map(|conns| see(conns, ask.databases))),
    )
    .await?;
    if executed(source).await? != gtid {
        let all = readers.iter_mut().chain(beside.iter_mut().flatten());
        future::try_join_all(all.map(|c| conn::run(c, deadline::QUERY, "ROLLBACK"))).await?;
        return Ok(None);
    }
    Ok(Some((gtid, ours, theirs)))
}

/// Opens the snapshots of one server, and reads its layout: at once, for a definition has no snapshot.
async fn see(readers: &mut [Conn], databases: &[String]) -> Result<Vec<Database>, Error> {
    let begin = readers.iter_mut().map(|c| {
        conn::run(
            c,
            deadline::CHANGE,
            "SET NAMES utf8mb4; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
        )
    });
    future::try_join_all(begin).await?;
    let share = databases.len().div_ceil(readers.len().max(1)).max(1);
    let parts = readers
        .iter_mut()
        .zip(databases.chunks(share))
        .map(|(c, part)| layout::read(c, part));
    let found: Vec<Vec<Database>> = future::try_join_all(parts).await?;
    // From here on text travels as it is.
    future::try_join_all(
        readers
            .iter_mut()
            .map(|c| conn::run(c, deadline::QUERY, "SET NAMES binary")),
    )
    .await?;
    Ok(found.into_iter().flatten().collect())
}

async fn open(access: &Access, readers: usize) -> Result<Vec<Conn>, Error> {
    let one = || async {
        let mut conn = conn::connect_for_rows(access).await?;
        conn::run(&mut conn, deadline::QUERY, READER).await?;
        Ok::<_, Error>(conn)
    };
    future::try_join_all((0..readers.max(1)).map(|_| one())).await
}

/// Where the source stands.
struct Stand<'a> {
    gtid: &'a GtidSet,
    pair: &'a [Uuid],
    patience: Duration,
}

impl Stand<'_> {
    /// Waits until a server is there, and gives what it has executed then.
    async fn waited_for(&self, access: &Access, conn: Option<&mut Conn>) -> Result<GtidSet, Error> {
        let Some(conn) = conn else {
            return Ok(GtidSet::new());
        };
        let seconds = self.patience.as_secs().max(1);
        let sql = format!(
            "SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', {seconds}), @@GLOBAL.gtid_executed",
            self.gtid
        );
        let answer: Vec<(Option<i64>, String)> =
            conn::rows(conn, self.patience + deadline::QUERY, sql).await?;
        match answer.into_iter().next() {
            Some((Some(0), executed)) => set(&executed),
            _ => Err(Error::NotReached(format!(
                "{} does not have what the source has within {:?}",
                access.tls_name, self.patience
            ))),
        }
    }

    /// The same of one that must not be ahead: it may have taken from the other server of the pair before.
    async fn reached(&self, access: &Access, conn: Option<&mut Conn>) -> Result<(), Error> {
        let more = self.waited_for(access, conn).await?.minus(self.gtid);
        match self
            .pair
            .iter()
            .map(|id| more.of_server(*id))
            .find(|m| !m.is_empty())
        {
            Some(ahead) => Err(Error::NotReached(format!(
                "{} is ahead of the source: it has {ahead}",
                access.tls_name
            ))),
            None => Ok(()),
        }
    }
}

/// Who commits what the source has: the source and the one that it follows.
async fn servers_of_pair(s: &mut Session) -> Result<Vec<Uuid>, Error> {
    let sql = "SELECT @@GLOBAL.server_uuid UNION SELECT source_uuid FROM performance_schema.replication_connection_status \
        WHERE channel_name = ''";
    let answer: Vec<String> = s.rows(deadline::QUERY, sql).await?;
    Ok(answer.iter().filter_map(|id| Uuid::try_parse(id).ok()).collect())
}

fn set(text: &str) -> Result<GtidSet, Error> {
    text.parse()
        .map_err(|e| Error::Protocol(format!("GTID set: {e}")))
}

async fn executed(s: &mut Session) -> Result<GtidSet, Error> {
    let answer: Vec<String> = s.rows(deadline::QUERY, "SELECT @@GLOBAL.gtid_executed").await?;
    set(&answer.into_iter().next().unwrap_or_default())
}

async fn applier_runs(s: &mut Session, channel: &str) -> Result<bool, Error> {
    let sql = format!(
        "SELECT COUNT(*) FROM performance_schema.replication_applier_status WHERE channel_name = {} AND service_state = 'ON'",
        literal(channel)
    );
    let answer: Vec<i64> = s.rows(deadline::QUERY, sql).await?;
    Ok(answer.first().is_some_and(|n| *n > 0))
}
