//! A client as an application has it: it writes numbered rows without end, one after the other, and remembers what became of each.
//!
//! It takes one of two ways to the server: by the published map, which it follows by long poll ([`Route::by_map`]), or by one address that
//! stays, such as a Service's ([`Route::fixed`]). Nothing that it does waits for ever: see the limits below.

mod book;
mod check;
mod fleet;
mod follow;

pub use book::{Book, Ending, Gap, Try};
pub use check::{Held, Losses, Rows, agree, rows};
pub use fleet::cluster_ip;
pub use follow::Follower;

use crate::server::{Login, Server, code};
use anyhow::{Context as _, Result, anyhow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Between two tries.
pub const PAUSE: Duration = Duration::from_millis(10);
/// For the name and the TCP connection: a dead address says nothing.
pub const CONNECT: Duration = Duration::from_millis(250);
/// For TLS and the login.
const HELLO: Duration = Duration::from_secs(1);
/// For the answer to one INSERT.
pub const ANSWER: Duration = Duration::from_secs(1);
/// For an answer that is still to come after the map has named another server.
const GRACE: Duration = Duration::from_millis(50);
/// mysqld is read-only: nothing was written, and the connection is good.
const READ_ONLY: u16 = 1290;
/// Errors of the server that come in place of an answer to a commit: shutdown, and a query or a connection that was killed.
const UNKNOWN: [u16; 4] = [1053, 1317, 1927, 3024];

/// The way to the server that takes writes.
#[derive(Clone)]
pub enum Route {
    /// Where the map says, by the names in it.
    Map(Arc<Follower>, Login),
    /// Always the same address.
    Fixed(Login),
}

impl Route {
    /// Follows the map. Address and name of `login` are replaced by those in the map.
    pub fn by_map(follower: Follower, login: Login) -> Self {
        Self::Map(Arc::new(follower), login)
    }

    /// One address for good.
    pub fn fixed(login: Login) -> Self {
        Self::Fixed(login)
    }

    /// Where to write now, and the version of the map that says so; `None` while no map has come.
    fn place(&self) -> Option<(i64, Login)> {
        match self {
            Self::Fixed(login) => Some((0, login.clone())),
            Self::Map(follower, login) => {
                let told = follower.told()?;
                let login = Login {
                    address: told.host.clone(),
                    port: told.port,
                    tls_name: told.host,
                    ..login.clone()
                };
                Some((told.version, login))
            }
        }
    }

    /// Ends when the map names another server than the one of `login`.
    async fn moved(&self, from: &str) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Map(follower, _) => follower.other_than(from).await,
        }
    }

    fn failed(&self) {
        if let Self::Map(follower, _) = self {
            follower.ask_anew();
        }
    }
}

/// What is written, and how.
#[derive(Clone, Debug)]
pub struct Work {
    /// What the rows are told apart by; unique in the table.
    pub client: String,
    /// Table, with its database.
    pub table: String,
    /// Between two tries.
    pub pause: Duration,
    /// For the answer to a row, whatever the map says meanwhile; without it [`ANSWER`], and hardly any longer once the map names another server.
    pub patience: Option<Duration>,
}

/// Writes until it is stopped.
pub struct Writer {
    /// What became of each row.
    pub book: Arc<Book>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Begins to write.
    pub fn start(work: Work, route: Route) -> Self {
        let book = Arc::new(Book::new(&work.client));
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(write(work, route, book.clone(), stop.clone()));
        Self { book, stop, task }
    }

    /// Ends it when the present try has ended.
    ///
    /// # Errors
    /// When it died.
    pub async fn stop(self) -> Result<Arc<Book>> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.context("the writer died")?;
        Ok(self.book)
    }
}

/// A connection and where it leads to.
struct Open {
    server: Server,
    host: String,
}

async fn write(work: Work, route: Route, book: Arc<Book>, stop: Arc<AtomicBool>) {
    let mut open: Option<Open> = None;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let begun = Instant::now();
        let mut connected = None;
        let (host, ending) = match ready(&route, open.take()).await {
            Err((host, e)) => (host, Ending::NotSent(format!("{e:#}"))),
            Ok((mut there, new)) => {
                connected = new.then(Instant::now);
                let ending = insert(&work, &route, number, &mut there).await;
                let host = there.host.clone();
                if keeps(&route, &ending) {
                    open = Some(there);
                }
                (host, ending)
            }
        };
        if !matches!(ending, Ending::Acknowledged) {
            route.failed();
        }
        book.note(Try {
            number,
            begun,
            connected,
            ended: Instant::now(),
            host,
            ending,
        });
        if !work.pause.is_zero() {
            tokio::time::sleep(work.pause).await;
        }
    }
}

/// Whether the connection is used again. Behind an address that stays, another server may be found only by connecting again.
fn keeps(route: &Route, ending: &Ending) -> bool {
    match ending {
        Ending::Acknowledged => true,
        Ending::Refused(READ_ONLY, _) => matches!(route, Route::Map(..)),
        _ => false,
    }
}

/// The open connection if it leads where it should, else a new one; and whether it is new.
async fn ready(route: &Route, open: Option<Open>) -> Result<(Open, bool), (String, anyhow::Error)> {
    let Some((_, login)) = route.place() else {
        return Err((String::new(), anyhow!("no map yet")));
    };
    if let Some(open) = open
        && open.host == login.address
    {
        return Ok((open, false));
    }
    let host = login.address.clone();
    let connected = tokio::select! {
        connected = connect(&login) => connected,
        () = route.moved(&host) => Err(anyhow!("the map names another server")),
    };
    match connected {
        Ok(server) => Ok((Open { server, host }, true)),
        Err(e) => Err((host, e)),
    }
}

/// Connects, each step within its limit.
///
/// # Errors
/// When the address does not answer in time, or the server refuses.
pub async fn connect(login: &Login) -> Result<Server> {
    // The library has no limit for the connection alone, and its own would have to be as long as the login takes. So the address is tried first.
    let address = tokio::time::timeout(CONNECT, async {
        let mut all = tokio::net::lookup_host((login.address.as_str(), login.port)).await?;
        let address = all.next().context("the name has no address")?;
        drop(tokio::net::TcpStream::connect(address).await?);
        anyhow::Ok(address)
    })
    .await
    .context("no connection in time")??;
    let login = Login {
        address: address.ip().to_string(),
        ..login.clone()
    };
    tokio::time::timeout(HELLO, login.connect())
        .await
        .context("no login in time")?
}

async fn insert(work: &Work, route: &Route, number: u64, open: &mut Open) -> Ending {
    let sql = format!(
        "INSERT INTO {} (data) VALUES (JSON_OBJECT('client', '{}', 'row', {number}))",
        work.table, work.client
    );
    let limit = work.patience.unwrap_or(ANSWER);
    let answer = tokio::select! {
        answer = tokio::time::timeout(limit, open.server.run(&sql)) => answer,
        () = late(route, &open.host), if work.patience.is_none() => return Ending::Unknown("the map names another server".into()),
    };
    match answer {
        Ok(Ok(())) => Ending::Acknowledged,
        Ok(Err(e)) => match code(&e) {
            Some(code) if !UNKNOWN.contains(&code) => Ending::Refused(code, format!("{e:#}")),
            _ => Ending::Unknown(format!("{e:#}")),
        },
        Err(_) => Ending::Unknown(format!("no answer within {limit:?}")),
    }
}

async fn late(route: &Route, host: &str) {
    route.moved(host).await;
    tokio::time::sleep(GRACE).await;
}
