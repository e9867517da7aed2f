//! A connection to one server: over TLS, verified against the cluster's own authority, every await with a deadline.

use crate::deadline;
use mysql_async::{Conn, Opts, OptsBuilder, Row, SslOpts, prelude::FromRow, prelude::Queryable};
use std::time::Duration;
use tokio::net::TcpStream;

/// How a server is reached and who we are there.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Access {
    /// Address that is dialled: the Pod's IP, so that no lookup stands between the operator and a server.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// Name that the server's certificate has to carry.
    pub tls_name: String,
    /// Account.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The authority that the server's certificate has to be signed by, PEM.
    pub ca_pem: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}@{}:{} ({})",
            self.user, self.address, self.port, self.tls_name
        )
    }
}

/// What a server or the way to it answered instead of a result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Silence. It proves nothing about the server.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server refused the statement or the login, or the connection broke.
    #[error("{0}")]
    Mysql(#[source] Box<mysql_async::Error>),
    /// The connection is in a state that cannot be relied on.
    #[error("{0}")]
    Protocol(String),
    /// The server answered well, but is not where it should be by now.
    #[error("{0}")]
    NotReached(String),
}

impl From<mysql_async::Error> for Error {
    fn from(e: mysql_async::Error) -> Self {
        Self::Mysql(Box::new(e))
    }
}
impl From<deadline::Elapsed> for Error {
    fn from(e: deadline::Elapsed) -> Self {
        Self::Timeout(e.0)
    }
}

impl Error {
    /// The server's error number, when the server answered at all.
    /// <https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html>
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Mysql(e) => match &**e {
                mysql_async::Error::Server(s) => Some(s.code),
                _ => None,
            },
            _ => None,
        }
    }
    /// Whether the login was refused (1045): the server runs, but with other credentials.
    pub fn is_access_denied(&self) -> bool {
        self.code() == Some(1045)
    }
    /// The server has as many connections as it takes, in all or of this account (1040, 1203).
    pub fn is_out_of_connections(&self) -> bool {
        matches!(self.code(), Some(1040 | 1203))
    }
    /// A fixed set of words, for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Mysql(e) => match &**e {
                mysql_async::Error::Server(_) => "refused",
                mysql_async::Error::Io(_) => "connection",
                _ => "driver",
            },
            Self::Protocol(_) => "protocol",
            Self::NotReached(_) => "behind",
        }
    }
}

/// The largest packet that a connection takes: what the operator asks of a server fits into this many times over.
const PACKET: usize = 16 << 20;
/// The largest packet that the protocol knows: a row of an application's table may be as large.
const ROW_PACKET: usize = 1 << 30;

fn opts(a: &Access, packet: usize) -> Opts {
    let tls = SslOpts::default()
        .with_root_certs(vec![a.ca_pem.clone().into_bytes().into()])
        .with_disable_built_in_roots(true)
        .with_danger_tls_hostname_override(Some(a.tls_name.clone()));
    OptsBuilder::default()
        .ip_or_hostname(a.address.as_str())
        .tcp_port(a.port)
        .user(Some(a.user.as_str()))
        .pass(Some(a.password.as_str()))
        .ssl_opts(tls)
        .prefer_socket(false)
        .stmt_cache_size(0)
        // Given here, they are not asked of the server on each connect.
        .max_allowed_packet(Some(packet))
        .wait_timeout(Some(28_800))
        .tcp_nodelay(true)
        .into()
}

/// Opens a connection. Whether there is anybody at the address is tried first: a node that lost its power is told from a busy server by that,
/// and by nothing that the driver tells.
///
/// # Errors
/// [`Error::Timeout`] after [`deadline::REACH`] without a sign of its machine, or after [`deadline::CONNECT`]; or whatever the server answered.
pub async fn connect(access: &Access) -> Result<Conn, Error> {
    open(access, PACKET).await
}

/// As [`connect`], for rows of applications' tables, which may be larger than anything else that a server answers.
///
/// # Errors
/// As [`connect`].
pub async fn connect_for_rows(access: &Access) -> Result<Conn, Error> {
    open(access, ROW_PACKET).await
}

async fn open(access: &Access, packet: usize) -> Result<Conn, Error> {
    let address = (access.address.as_str(), access.port);
    let reached = deadline::within(deadline::REACH, TcpStream::connect(address)).await?;
    drop(reached.map_err(|e| mysql_async::Error::Io(e.into()))?);
    Ok(deadline::within(deadline::CONNECT, Conn::new(opts(access, packet))).await??)
}

/// Runs a statement that gives no rows. Several statements in one string run in order; the first error ends them.
///
/// # Errors
/// As [`Error`]; after a timeout the connection must not be used again.
pub async fn run(conn: &mut Conn, limit: Duration, sql: impl AsRef<str> + Send) -> Result<(), Error> {
    Ok(deadline::within(limit, conn.query_drop(sql.as_ref())).await??)
}

/// Runs a query and gives all its rows.
///
/// # Errors
/// As [`Error`]; after a timeout the connection must not be used again.
pub async fn rows<T>(conn: &mut Conn, limit: Duration, sql: impl AsRef<str> + Send) -> Result<Vec<T>, Error>
where
    T: FromRow + Send + 'static,
{
    Ok(deadline::within(limit, conn.query::<T, _>(sql.as_ref())).await??)
}

/// Runs a query and gives its first row, with its columns by name.
///
/// # Errors
/// As [`Error`]; after a timeout the connection must not be used again.
pub async fn row(
    conn: &mut Conn,
    limit: Duration,
    sql: impl AsRef<str> + Send,
) -> Result<Option<Row>, Error> {
    Ok(deadline::within(limit, conn.query_first::<Row, _>(sql.as_ref())).await??)
}

/// Runs several queries in one string, in one round trip, and gives the rows of each.
///
/// # Errors
/// As [`Error`]; the first query that fails ends the rest. After a timeout the connection must not be used again.
pub async fn sets(
    conn: &mut Conn,
    limit: Duration,
    sql: impl AsRef<str> + Send,
) -> Result<Vec<Vec<Row>>, Error> {
    let all = async {
        let mut result = conn.query_iter(sql.as_ref()).await?;
        let mut sets = vec![];
        while !result.is_empty() {
            sets.push(result.collect::<Row>().await?);
        }
        Ok::<_, mysql_async::Error>(sets)
    };
    Ok(deadline::within(limit, all).await??)
}

/// A string as a MySQL literal. `NO_BACKSLASH_ESCAPES` is not in the operator's sql_mode, so both are escaped.
pub fn literal(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('\'');
    for c in s.chars() {
        match c {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            '\0' => out.push_str("\\0"),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// A name as a MySQL identifier.
pub fn ident(s: &str) -> String {
    format!("`{}`", s.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_identifiers_cannot_be_left() {
        assert_eq!(literal(r"a'b\c"), r"'a''b\\c'");
        assert_eq!(ident("a`b"), "`a``b`");
    }

    #[test]
    fn the_password_is_never_shown() {
        let a = Access {
            address: "10.0.0.1".into(),
            port: 3306,
            tls_name: "p-0".into(),
            user: "u".into(),
            password: "secret".into(),
            ca_pem: String::new(),
        };
        assert!(!format!("{a:?}").contains("secret"));
    }
}
