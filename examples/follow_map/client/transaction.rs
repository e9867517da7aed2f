//! Transactions that are repeated where the shard is now.

use super::{follow::Follower, map::Place};
use futures::future::BoxFuture;
use mysql_async::{Conn, OptsBuilder, SslOpts, prelude::Queryable as _};
use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

/// `ER_SCHEMA_READ_ONLY`: the shard is being moved, or has been. Nothing was written.
pub const MOVING: u16 = 3989;
/// Errors after which the same transaction, from its beginning, may do at another place or a moment later: nothing was written.
const AGAIN: [u16; 10] = [
    MOVING, 1213, // deadlock, here with the fence of a shard that is about to move
    1205, // a lock was waited for too long
    1142, // a copy of the shard is being made here: the map is very old. Also told to whoever may never do that, hence the patience
    1049, // the shard's old copy was dropped here: the map is very old
    1290, // this server is not the active one (any more)
    3032, // it is being closed, and lets nobody in
    1040, // too many connections
    1053, // the server shuts down, or has ended the connection
    1317, // the statement was ended
];
/// Those of them that leave it open whether a COMMIT was done that they come in place of an answer to.
const UNSURE: [u16; 2] = [1053, 1317];
/// Until a newer map is there, or the same place is tried once more.
const PAUSE: Duration = Duration::from_millis(10);
/// For the name and the TCP connection.
const CONNECT: Duration = Duration::from_millis(250);
/// For TLS and the login.
const HELLO: Duration = Duration::from_secs(2);
/// For an answer that is still to come after the map has named another server.
const GRACE: Duration = Duration::from_millis(250);

/// Who writes: what the Secret `<cluster>-app` has.
#[derive(Clone)]
pub struct Account {
    /// `username`.
    pub user: String,
    /// `password`.
    pub password: String,
    /// `ca.crt`, PEM; without it the connections are not encrypted.
    pub ca: Option<Vec<u8>>,
}

/// Writes where the map says; one transaction at a time.
pub struct Client {
    map: Arc<Follower>,
    account: Account,
    /// For one transaction with all its repetitions.
    patience: Duration,
    /// For the answer to all statements of one try.
    answer: Duration,
    open: BTreeMap<(String, u16), Conn>,
}

/// A transaction that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<T> {
    /// What the work gave.
    pub value: T,
    /// Where it was committed.
    pub place: Place,
    /// Tries before that one.
    pub repeated: u32,
    /// When the connection stood, if a new one was made for it.
    pub connected: Option<Instant>,
}

/// A transaction that was not committed, or of which nobody knows.
#[derive(Debug)]
pub enum Error {
    /// The server refused it for good: nothing was written.
    Refused {
        /// The server's number.
        code: u16,
        /// Its words.
        why: String,
        /// Where.
        host: String,
    },
    /// It could not be done in time: nothing was written.
    NotInTime {
        /// The last failure.
        why: String,
        /// Where.
        host: String,
    },
    /// COMMIT was sent and no answer came: it may be there or not. Whoever must know gives the row a key of its own, and repeats the
    /// transaction: 1062 then says that it had been there.
    Unknown {
        /// The failure.
        why: String,
        /// Where.
        host: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { why, host, .. } => write!(f, "{host}: {why}"),
            Self::NotInTime { why, host } => write!(f, "not done in time; last of {host}: {why}"),
            Self::Unknown { why, host } => write!(f, "{host}: committed or not, nobody knows: {why}"),
        }
    }
}
impl std::error::Error for Error {}

/// How one try failed.
enum Failed {
    Again(String),
    Refused(u16, String),
    Unknown(String),
}

/// What is done by one try, with the connection and the database's name.
pub type Work<'a, T> = BoxFuture<'a, Result<T, mysql_async::Error>>;

impl Client {
    /// A client that gives a transaction up after `patience`.
    pub fn new(map: Arc<Follower>, account: Account, patience: Duration) -> Self {
        Self {
            map,
            account,
            patience,
            answer: Duration::from_secs(10),
            open: BTreeMap::new(),
        }
    }

    /// Runs several statements in one transaction on a shard, as often as it takes. `work` gets a connection that is inside of the transaction, and
    /// the name of the shard's database; all that it does on the connection is done anew in each try.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn transaction<T, W>(&mut self, shard: i32, work: W) -> Result<Done<T>, Error>
    where
        W: for<'a> FnMut(&'a mut Conn, &'a str) -> Work<'a, T>,
    {
        self.repeat(shard, true, work).await
    }

    /// The same for a single statement, which commits by itself.
    ///
    /// # Errors
    /// As [`Error`].
    pub async fn statement<T, W>(&mut self, shard: i32, work: W) -> Result<Done<T>, Error>
    where
        W: for<'a> FnMut(&'a mut Conn, &'a str) -> Work<'a, T>,
    {
        self.repeat(shard, false, work).await
    }

    async fn repeat<T, W>(&mut self, shard: i32, several: bool, mut work: W) -> Result<Done<T>, Error>
    where
        W: for<'a> FnMut(&'a mut Conn, &'a str) -> Work<'a, T>,
    {
        let begun = Instant::now();
        let mut repeated = 0;
        loop {
            let place = self.map.map().and_then(|m| m.place(shard));
            let (host, version) = place
                .as_ref()
                .map_or((String::new(), 0), |p| (p.host.clone(), p.version));
            let failed = match place {
                None => Failed::Again("the shard is in no map yet".into()),
                Some(place) => match self.attempt(shard, &place, several, &mut work).await {
                    Ok((value, connected)) => {
                        return Ok(Done {
                            value,
                            place,
                            repeated,
                            connected,
                        });
                    }
                    Err(failed) => failed,
                },
            };
            let why = match failed {
                Failed::Refused(code, why) => return Err(Error::Refused { code, why, host }),
                Failed::Unknown(why) => return Err(Error::Unknown { why, host }),
                Failed::Again(why) => why,
            };
            if begun.elapsed() >= self.patience {
                return Err(Error::NotInTime { why, host });
            }
            // Most of the time the newer map is on its way already.
            self.map.ask_anew();
            self.map.newer(version, PAUSE).await;
            repeated += 1;
        }
    }

    /// One try. The connection is kept only when the server is known to have ended the transaction.
    async fn attempt<T, W>(
        &mut self,
        shard: i32,
        place: &Place,
        several: bool,
        work: &mut W,
    ) -> Result<(T, Option<Instant>), Failed>
    where
        W: for<'a> FnMut(&'a mut Conn, &'a str) -> Work<'a, T>,
    {
        let key = (place.host.clone(), place.port);
        let (mut conn, connected) = if let Some(conn) = self.open.remove(&key) {
            (conn, None)
        } else {
            tokio::select! {
                conn = self.connect(place) => (conn.map_err(Failed::Again)?, Some(Instant::now())),
                () = self.map.elsewhere(shard, place) => return Err(Failed::Again("the map names another server".into())),
            }
        };
        let mut committing = !several;
        let done = {
            let all = run(&mut conn, &place.database, several, &mut committing, work);
            tokio::select! {
                done = timeout(self.answer, all) => done.unwrap_or_else(|_| Err(Lost::Silent)),
                () = late(&self.map, shard, place) => Err(Lost::Silent),
            }
        };
        match done {
            Ok(value) => {
                self.open.insert(key, conn);
                Ok((value, connected))
            }
            Err(Lost::Silent) if committing => Err(Failed::Unknown("no answer".into())),
            Err(Lost::Silent) => Err(Failed::Again("no answer".into())),
            Err(Lost::Said(mysql_async::Error::Server(e))) => {
                let (code, why) = (e.code, e.to_string());
                if committing && UNSURE.contains(&code) {
                    return Err(Failed::Unknown(why));
                }
                let rolled_back = !several
                    || timeout(HELLO, conn.query_drop("ROLLBACK"))
                        .await
                        .is_ok_and(|r| r.is_ok());
                if rolled_back && !UNSURE.contains(&code) {
                    self.open.insert(key, conn);
                }
                if AGAIN.contains(&code) {
                    Err(Failed::Again(why))
                } else {
                    Err(Failed::Refused(code, why))
                }
            }
            Err(Lost::Said(e)) if committing => Err(Failed::Unknown(e.to_string())),
            // The connection is gone, and the transaction with it.
            Err(Lost::Said(e)) => Err(Failed::Again(e.to_string())),
        }
    }

    async fn connect(&self, place: &Place) -> Result<Conn, String> {
        // The library has no limit for the TCP connection alone, and a dead address says nothing: it is tried first.
        let tcp = async {
            let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
            stream.peer_addr()
        };
        let address = match timeout(CONNECT, tcp).await {
            Ok(address) => address.map_err(|e| e.to_string())?,
            Err(_) => return Err("no connection in time".into()),
        };
        let tls = self.account.ca.clone().map(|ca| {
            SslOpts::default()
                .with_root_certs(vec![ca.into()])
                .with_disable_built_in_roots(true)
                .with_danger_tls_hostname_override(Some(place.host.clone()))
        });
        let opts = OptsBuilder::default()
            .ip_or_hostname(address.ip().to_string())
            .tcp_port(place.port)
            .user(Some(self.account.user.as_str()))
            .pass(Some(self.account.password.as_str()))
            .ssl_opts(tls)
            .prefer_socket(false)
            .stmt_cache_size(0)
            // Else two more round trips ask for them.
            .max_allowed_packet(Some(16 << 20))
            .wait_timeout(Some(28_800));
        match timeout(HELLO, Conn::new(opts)).await {
            Ok(conn) => conn.map_err(|e| e.to_string()),
            Err(_) => Err("no login in time".into()),
        }
    }
}

/// How a try got no good answer.
enum Lost {
    /// By none at all.
    Silent,
    /// By an error.
    Said(mysql_async::Error),
}

impl From<mysql_async::Error> for Lost {
    fn from(e: mysql_async::Error) -> Self {
        Self::Said(e)
    }
}

async fn run<T, W>(
    conn: &mut Conn,
    database: &str,
    several: bool,
    committing: &mut bool,
    work: &mut W,
) -> Result<T, Lost>
where
    W: for<'a> FnMut(&'a mut Conn, &'a str) -> Work<'a, T>,
{
    if several {
        conn.query_drop("START TRANSACTION").await?;
    }
    let value = work(conn, database).await?;
    if several {
        *committing = true;
        conn.query_drop("COMMIT").await?;
    }
    Ok(value)
}

async fn late(map: &Follower, shard: i32, place: &Place) {
    map.elsewhere(shard, place).await;
    sleep(GRACE).await;
}
