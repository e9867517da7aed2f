//! Transactions that a server committed, read from its binary logs and written down (rule P8).

mod decode;
mod values;

use super::{Access, Error, conn};
use crate::{
    core::{
        errant::{Saved, Script, TOO_MUCH},
        gtid::GtidSet,
    },
    deadline,
};
use futures::StreamExt as _;
use mysql_async::{BinlogStream, BinlogStreamRequest, Conn, Sid, binlog::EventType};
use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

/// The `server_id` that the connection shows. Nothing replicates to us: it only has to be nobody else's (those of servers are
/// hashes, [`crate::core::my_cnf::ServerIds`]), and a second reader with it ends the first.
const READER: u32 = 4_294_967_290;
/// How often the server says that it is still there while it finds nothing to send.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The longest silence.
const SILENCE: Duration = Duration::from_secs(10);
/// For all of it, when something was read: that is kept, and the rest is read the next time.
const ENOUGH: Duration = Duration::from_secs(20);
/// For all of it: the server may have to look through many binary logs before it comes to the first transaction.
const IN_ALL: Duration = Duration::from_secs(300);
/// The server has purged what was asked for, or cannot read its binary logs (`ER_SOURCE_FATAL_ERROR_READING_BINLOG`).
const UNREADABLE: u16 = 1236;

/// Reads `wanted` from the server at `access` into `script`. What its binary logs no longer have, or what cannot be decoded or is
/// too much, is named only. When time runs out, or the script is full and not the last one, some of `wanted` is in neither set.
///
/// # Errors
/// As [`Error`]; [`Error::Protocol`] when the server has not executed all of `wanted`, so it is not the one that was meant.
pub async fn read(access: &Access, wanted: &GtidSet, mut script: Script) -> Result<Saved, Error> {
    let began = Instant::now();
    let mut gone = GtidSet::new();
    // Why what is left is named only.
    let mut rest = None;
    loop {
        let mut conn = conn::connect(access).await?;
        let (executed, purged) = sets(&mut conn).await?;
        if !wanted.is_subset_of(&executed) {
            return Err(Error::Protocol(format!(
                "the server does not have {}",
                wanted.minus(&executed)
            )));
        }
        gone = gone.union(&wanted.minus(&wanted.minus(&purged)));
        let left = wanted.minus(&gone).minus(&script.read());
        if left.is_empty() {
            break;
        }
        let except = executed.minus(&left).union(&purged);
        let mut stream = request(conn, &except).await?;
        let ended = follow(&mut stream, &mut script, began).await?;
        // It may be broken in whatever way; nothing is asked of it any more.
        let _ = deadline::within(deadline::QUERY, stream.close()).await;
        match ended {
            Ended::Out => break,
            Ended::Full => {
                rest = script.is_last().then(|| TOO_MUCH.to_owned());
                break;
            }
            Ended::End => {
                script.end();
                rest = (!script.is_full()).then(|| "the binary log does not have it".to_owned());
                break;
            }
            // One transaction is given up, the others may be readable.
            Ended::Unreadable(why) if script.give_up(&why).is_some() => {}
            Ended::Unreadable(why) => {
                rest = Some(why);
                break;
            }
        }
    }
    let mut saved = script.finish();
    saved.name_only(&gone, "the server no longer has the binary log that had it");
    let left = wanted.minus(&saved.all());
    if let Some(why) = rest {
        saved.name_only(&left, &why);
    }
    if saved.all().is_empty() {
        return Err(Error::Timeout(IN_ALL));
    }
    Ok(saved)
}

/// `gtid_executed` and `gtid_purged`.
async fn sets(conn: &mut Conn) -> Result<(GtidSet, GtidSet), Error> {
    let row: Vec<(String, String)> = conn::rows(
        conn,
        deadline::QUERY,
        "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged",
    )
    .await?;
    let (executed, purged) = row
        .into_iter()
        .next()
        .ok_or_else(|| Error::Protocol("no row where one is due".into()))?;
    let set = |text: String| {
        text.parse::<GtidSet>()
            .map_err(|e| Error::Protocol(e.to_string()))
    };
    Ok((set(executed)?, set(purged)?))
}

/// Asks for everything but `except`, up to the end of the binary logs.
async fn request(mut conn: Conn, except: &GtidSet) -> Result<BinlogStream, Error> {
    let nanoseconds = HEARTBEAT.as_nanos();
    conn::run(
        &mut conn,
        deadline::QUERY,
        format!("SET @source_heartbeat_period = {nanoseconds}, @source_binlog_checksum = 'CRC32'"),
    )
    .await?;
    let blocks = except
        .by_origin()
        .map(|part| part.to_string().parse::<Sid<'static>>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::Protocol(e.to_string()))?;
    let request = BinlogStreamRequest::new(READER)
        .with_gtid()
        .with_gtid_set(blocks)
        .with_non_blocking();
    Ok(deadline::within(deadline::QUERY, conn.get_binlog_stream(request)).await??)
}

/// How a stream ended.
enum Ended {
    /// With the binary logs.
    End,
    /// With our time.
    Out,
    /// With the room for text.
    Full,
    /// With something that cannot be read, now or later.
    Unreadable(String),
}

async fn follow(stream: &mut BinlogStream, script: &mut Script, began: Instant) -> Result<Ended, Error> {
    let mut compressed = false;
    loop {
        let limit = if script.read().is_empty() { IN_ALL } else { ENOUGH };
        if began.elapsed() >= limit {
            return Ok(Ended::Out);
        }
        if script.is_full() {
            return Ok(Ended::Full);
        }
        let event = match deadline::within(SILENCE, stream.next()).await? {
            None => return Ok(Ended::End),
            Some(Ok(event)) => event,
            Some(Err(e)) => {
                return match unreadable(&e) {
                    Some(why) => Ok(Ended::Unreadable(why)),
                    None => Err(e.into()),
                };
            }
        };
        // The driver unpacks a compressed transaction, and passes over one that it cannot unpack.
        let kind = event.header().event_type();
        if kind == Ok(EventType::TRANSACTION_PAYLOAD_EVENT) {
            compressed = true;
            continue;
        }
        if compressed && matches!(kind, Ok(EventType::GTID_EVENT | EventType::GTID_TAGGED_LOG_EVENT)) {
            compressed = false;
            if script.is_empty() {
                script.broken("it is compressed and cannot be unpacked");
            }
        }
        decode::event(script, &event, |id| stream.get_tme(id));
    }
}

/// Why asking once more would bring the same; `None` when it may not.
fn unreadable(e: &mysql_async::Error) -> Option<String> {
    match e {
        mysql_async::Error::Server(s) if s.code == UNREADABLE => Some(s.message.clone()),
        // What arrived cannot be understood, or is larger than what is taken; a connection that breaks has other kinds.
        mysql_async::Error::Io(mysql_async::IoError::Io(e))
            if matches!(e.kind(), ErrorKind::Other | ErrorKind::InvalidData) =>
        {
            Some(e.to_string())
        }
        _ => None,
    }
}
