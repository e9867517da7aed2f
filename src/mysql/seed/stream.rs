//! One part of a table on its way: read once, sent to every target, never more than a few blocks ahead of the slowest.

use super::{
    control::Control,
    layout::Kind,
    rows::{self, Seen},
};
use crate::{
    deadline::{self, within},
    mysql::{
        Error,
        conn::{self, Access},
    },
};
use bytes::Bytes;
use futures::{
    StreamExt as _, future,
    stream::{self, BoxStream},
};
use mysql_async::{Conn, Row, prelude::Queryable as _};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc};

/// What is sent at a time.
const BLOCK: usize = 256 << 10;
/// Blocks that wait for a target. So a stream holds 2 MB at most, and one row of whatever size.
const AHEAD: usize = 3;
/// What one statement takes in: one transaction of the target.
const STATEMENT: u64 = 16 << 20;
/// A row larger than a block is sent in pieces of this size.
const PIECE: usize = 1 << 20;
/// For a server to go on, while it is not us it waits for.
const STALL: Duration = Duration::from_secs(120);

/// Why a part was not copied.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The source failed.
    Source(Error),
    /// A target failed, or the way to it.
    Target(Error),
    /// What was loaded is not what was read.
    Data(String),
    /// The caller wants it to end.
    Stopped,
}

/// A part that was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// There was a JSON value that its text may not bring back.
    pub(crate) doubtful: bool,
}

/// The statements of a part.
pub(crate) struct Part {
    pub(crate) select: String,
    pub(crate) load: String,
    pub(crate) kinds: Vec<Kind>,
}

enum Message {
    Block(Bytes),
    /// The statement ends here; so many rows, and so many warnings that are as they should be.
    End {
        rows: u64,
        warnings: u64,
    },
}

/// Copies a part. Afterwards a connection to a target that failed is gone; the source's is whole, or gone when it failed.
pub(crate) async fn copy(
    source: &mut Option<Conn>,
    access: &Access,
    targets: &mut [Option<Conn>],
    checks: &[String],
    part: &Part,
    control: &Control,
) -> Result<Done, Fault> {
    let Some(mut reader) = source.take() else {
        return Err(Fault::Source(Error::Protocol("the connection is gone".into())));
    };
    let (senders, receivers): (Vec<_>, Vec<_>) = targets.iter().map(|_| mpsc::channel(AHEAD)).unzip();
    let loads = targets.iter_mut().zip(receivers).zip(checks);
    let loads = loads.map(|((conn, rx), check)| load(conn, rx, format!("{check}{}", part.load)));
    let (read, loaded) =
        future::join(read(&mut reader, part, senders, control), future::join_all(loads)).await;
    match &read {
        Ok(_) => *source = Some(reader),
        Err(Read::Source(e)) if e.code().is_some() => *source = Some(reader),
        Err(Read::Source(_)) => {}
        // Rows are under way that nobody wants any more.
        Err(Read::Left | Read::Stopped | Read::Data(_)) => *source = quiet(reader, access).await,
    }
    // A target that fails leaves the reader without somebody to send to, and a reader that fails leaves the targets without an end.
    for fault in loaded.into_iter().filter_map(Result::err) {
        match fault {
            Load::Target(e) => return Err(Fault::Target(e)),
            Load::Data(why) => return Err(Fault::Data(why)),
            Load::Left => {}
        }
    }
    match read {
        Ok(done) => Ok(done),
        Err(Read::Source(e)) => Err(Fault::Source(e)),
        Err(Read::Data(why)) => Err(Fault::Data(why)),
        Err(Read::Stopped | Read::Left) => Err(Fault::Stopped),
    }
}

enum Read {
    Source(Error),
    Data(String),
    Stopped,
    Left,
}

async fn read(
    conn: &mut Conn,
    part: &Part,
    to: Vec<mpsc::Sender<Message>>,
    control: &Control,
) -> Result<Done, Read> {
    let source = |e: mysql_async::Error| Read::Source(e.into());
    let silent = |e: deadline::Elapsed| Read::Source(e.into());
    let mut result = within(STALL, conn.query_iter(part.select.as_str()))
        .await
        .map_err(silent)?
        .map_err(source)?;
    let mut done = Done::default();
    let mut block = Vec::with_capacity(BLOCK + BLOCK / 4);
    let (mut rows, mut warnings, mut counted, mut bytes) = (0, 0, 0, 0);
    loop {
        let row: Option<Row> = within(STALL, result.next())
            .await
            .map_err(silent)?
            .map_err(source)?;
        let last = row.is_none();
        if let Some(row) = row {
            let seen: Seen = rows::line(&mut block, &part.kinds, row).map_err(Read::Data)?;
            done.doubtful |= seen.doubtful;
            warnings += seen.warnings;
            rows += 1;
        }
        if block.len() >= BLOCK || (last && !block.is_empty()) {
            let size = block.len() as u64;
            control.read(rows - counted, size);
            counted = rows;
            bytes += size;
            let whole = Bytes::from(std::mem::replace(
                &mut block,
                Vec::with_capacity(BLOCK + BLOCK / 4),
            ));
            send(&to, &whole).await?;
            control.pace(size).await;
        }
        if control.is_stopped() {
            return Err(Read::Stopped);
        }
        if last || bytes >= STATEMENT {
            for tx in &to {
                tx.send(Message::End { rows, warnings })
                    .await
                    .map_err(|_| Read::Left)?;
            }
            (rows, warnings, counted, bytes) = (0, 0, 0, 0);
        }
        if last {
            return Ok(done);
        }
    }
}

async fn send(to: &[mpsc::Sender<Message>], block: &Bytes) -> Result<(), Read> {
    let mut from = 0;
    while from < block.len() {
        let piece = block.slice(from..block.len().min(from + PIECE));
        from += piece.len();
        for tx in to {
            tx.send(Message::Block(piece.clone()))
                .await
                .map_err(|_| Read::Left)?;
        }
    }
    Ok(())
}

/// Ends the query of a connection whose snapshot is still wanted. `None` when it did not work.
async fn quiet(mut conn: Conn, access: &Access) -> Option<Conn> {
    let all = async {
        let mut other = conn::connect(access).await?;
        conn::run(&mut other, deadline::QUERY, format!("KILL QUERY {}", conn.id())).await?;
        // What was under way is read to its end, which is error 1317.
        let _ = within(deadline::CHANGE, conn.query_drop("DO 0")).await?;
        let sql =
            "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()";
        let open: Vec<i64> = conn::rows(&mut conn, deadline::QUERY, sql).await?;
        Ok::<_, Error>(open.first() == Some(&1))
    };
    match all.await {
        Ok(true) => Some(conn),
        _ => None,
    }
}

enum Load {
    Target(Error),
    Data(String),
    Left,
}

/// When the server was last given something that it has not asked to be followed yet.
#[derive(Default)]
struct Beat(Mutex<Option<Instant>>);

impl Beat {
    fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
    async fn stalled(&self) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if since.is_some_and(|s| s.elapsed() > STALL) {
                return;
            }
        }
    }
}

/// What a statement's rows end with.
#[derive(Default)]
struct End {
    said: Mutex<Option<(u64, u64)>>,
    /// The reader is gone: there is no end.
    left: Notify,
}

type Receiver = Arc<tokio::sync::Mutex<mpsc::Receiver<Message>>>;

async fn load(place: &mut Option<Conn>, rx: mpsc::Receiver<Message>, sql: String) -> Result<(), Load> {
    let rx: Receiver = Arc::new(tokio::sync::Mutex::new(rx));
    let mut complete = false;
    loop {
        let first = rx.lock().await.recv().await;
        match first {
            None if complete => return Ok(()),
            None => return Err(Load::Left),
            Some(Message::End { .. }) => complete = true,
            Some(Message::Block(first)) => {
                // A statement that is cut short leaves a connection that nobody may use: dropped, it ends the transaction.
                let Some(mut conn) = place.take() else {
                    return Err(Load::Target(Error::Protocol("the connection is gone".into())));
                };
                one_statement(&mut conn, first, &rx, &sql).await?;
                *place = Some(conn);
                complete = true;
            }
        }
    }
}

async fn one_statement(conn: &mut Conn, first: Bytes, rx: &Receiver, sql: &str) -> Result<(), Load> {
    let (beat, end) = (Arc::new(Beat::default()), Arc::new(End::default()));
    beat.set(Some(Instant::now()));
    let (rx, to_beat, to_end) = (rx.clone(), beat.clone(), end.clone());
    conn.set_infile_handler(async move { Ok(blocks(first, rx, to_beat, to_end)) });
    let answered = tokio::select! {
        answer = conn.query_drop(sql) => answer,
        () = beat.stalled() => return Err(Load::Target(Error::Timeout(STALL))),
        () = end.left.notified() => return Err(Load::Left),
    };
    answered.map_err(|e| Load::Target(e.into()))?;
    let said = *end.said.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((rows, expected)) = said else {
        return Err(Load::Data("the server did not take rows in".into()));
    };
    let (loaded, warnings) = (conn.affected_rows(), u64::from(conn.get_warnings()));
    if loaded == rows && warnings == expected.min(u64::from(u16::MAX)) {
        return Ok(());
    }
    let why: Vec<(String, u16, String)> = conn::rows(conn, deadline::QUERY, "SHOW WARNINGS LIMIT 1")
        .await
        .map_err(Load::Target)?;
    let why = why
        .first()
        .map(|(_, code, text)| format!(": {text} ({code})"))
        .unwrap_or_default();
    Err(Load::Data(format!(
        "of {rows} rows {loaded} were loaded, with {warnings} warnings where {expected} were due{why}"
    )))
}

fn blocks(
    first: Bytes,
    rx: Receiver,
    beat: Arc<Beat>,
    end: Arc<End>,
) -> BoxStream<'static, std::io::Result<Bytes>> {
    stream::unfold(Some(first), move |first| {
        let (rx, beat, end) = (rx.clone(), beat.clone(), end.clone());
        async move {
            if let Some(first) = first {
                return Some((Ok(first), None));
            }
            beat.set(None);
            let next = rx.lock().await.recv().await;
            beat.set(Some(Instant::now()));
            match next {
                Some(Message::Block(block)) => Some((Ok(block), None)),
                Some(Message::End { rows, warnings }) => {
                    *end.said.lock().unwrap_or_else(PoisonError::into_inner) = Some((rows, warnings));
                    None
                }
                // An end here would make the server commit what it has.
                None => {
                    end.left.notify_one();
                    future::pending().await
                }
            }
        }
    })
    .boxed()
}
