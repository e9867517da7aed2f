//! Asking one mysqld: over TLS, verified, every await with a deadline.

use crate::acknowledge::Stand;
use anyhow::{Context as _, Result, anyhow};
use mysql_async::{
    BinlogStream, BinlogStreamRequest, Conn, OptsBuilder, Row, SslOpts, prelude::FromRow, prelude::Queryable,
};
use std::time::Duration;

/// For connecting, and for one statement.
const LIMIT: Duration = Duration::from_secs(10);

/// Where a server is and who asks.
#[derive(Clone)]
pub struct Login {
    /// The Pod's IP, or a local port that is forwarded to it.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// Name that the certificate has to carry.
    pub tls_name: String,
    /// Account.
    pub user: String,
    /// Password.
    pub password: String,
    /// The authority to trust, PEM; without it the connection is not encrypted.
    pub ca: Option<String>,
}

/// An open connection.
pub struct Server {
    conn: Conn,
    name: String,
}

impl Login {
    /// Connects.
    ///
    /// # Errors
    /// What the server or the network answered.
    pub async fn connect(&self) -> Result<Server> {
        let tls = self.ca.as_ref().map(|ca| {
            SslOpts::default()
                .with_root_certs(vec![ca.clone().into_bytes().into()])
                .with_disable_built_in_roots(true)
                .with_danger_tls_hostname_override(Some(self.tls_name.clone()))
        });
        let opts = OptsBuilder::default()
            .ip_or_hostname(self.address.as_str())
            .tcp_port(self.port)
            .user(Some(self.user.as_str()))
            .pass(Some(self.password.as_str()))
            .ssl_opts(tls)
            .prefer_socket(false)
            .stmt_cache_size(0)
            .max_allowed_packet(Some(16 << 20))
            .wait_timeout(Some(28_800));
        let conn = tokio::time::timeout(LIMIT, Conn::new(opts))
            .await
            .with_context(|| format!("connect to {}: no answer within {LIMIT:?}", self.tls_name))?
            .with_context(|| format!("connect to {} as {}", self.tls_name, self.user))?;
        Ok(Server {
            conn,
            name: self.tls_name.clone(),
        })
    }
}

impl Server {
    /// All rows of a query.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn rows<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Result<Vec<T>> {
        tokio::time::timeout(LIMIT, self.conn.query::<T, _>(sql))
            .await
            .with_context(|| format!("{}: no answer within {LIMIT:?} to: {sql}", self.name))?
            .with_context(|| format!("{}: {sql}", self.name))
    }

    /// The first row of a query.
    ///
    /// # Errors
    /// What the server answered, or that there was no row.
    pub async fn one<T: FromRow + Send + 'static>(&mut self, sql: &str) -> Result<T> {
        let rows = self.rows::<T>(sql).await?;
        rows.into_iter()
            .next()
            .ok_or_else(|| anyhow!("{}: no row for: {sql}", self.name))
    }

    /// The first row, columns by name; `None` without one.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn row(&mut self, sql: &str) -> Result<Option<Row>> {
        Ok(self.rows::<Row>(sql).await?.into_iter().next())
    }

    /// A statement without rows.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn run(&mut self, sql: &str) -> Result<()> {
        self.within(LIMIT, sql).await
    }

    /// A statement without rows that may take long.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn within(&mut self, limit: Duration, sql: &str) -> Result<()> {
        tokio::time::timeout(limit, self.conn.query_drop(sql))
            .await
            .with_context(|| format!("{}: no answer within {limit:?} to: {sql}", self.name))?
            .with_context(|| format!("{}: {sql}", self.name))
    }

    /// Reads the rows of a query to the end, one after the other, and gives how many there were.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn read_all(&mut self, limit: Duration, sql: &str) -> Result<u64> {
        let conn = &mut self.conn;
        let read = async {
            let mut rows = 0;
            let answer = conn.query_iter(sql).await?;
            answer.for_each_and_drop(|_| rows += 1).await?;
            Ok::<u64, mysql_async::Error>(rows)
        };
        tokio::time::timeout(limit, read)
            .await
            .with_context(|| format!("{}: not all rows within {limit:?} of: {sql}", self.name))?
            .with_context(|| format!("{}: {sql}", self.name))
    }

    /// Runs an INSERT and gives the auto-increment value that it was given.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn insert(&mut self, sql: &str) -> Result<u64> {
        self.run(sql).await?;
        self.conn
            .last_insert_id()
            .ok_or_else(|| anyhow!("{}: no id was given by: {sql}", self.name))
    }

    /// Takes the binary log from here on as a semi-synchronous replica would, and acknowledges nothing; until what is given is dropped.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn take_binary_log(mut self, server_id: u32) -> Result<BinlogStream> {
        self.run("SET @rpl_semi_sync_replica = 1").await?;
        let asked = self.conn.get_binlog_stream(BinlogStreamRequest::new(server_id));
        tokio::time::timeout(LIMIT, asked)
            .await
            .with_context(|| format!("{}: no binary log within {LIMIT:?}", self.name))?
            .with_context(|| format!("{}: binary log", self.name))
    }

    /// What the server is, for the scenarios.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn vitals(&mut self) -> Result<Vitals> {
        let (read_only, super_read_only, uuid, gtid): (u8, u8, String, String) = self
            .one("SELECT @@GLOBAL.read_only, @@GLOBAL.super_read_only, @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed")
            .await?;
        Ok(Vitals {
            read_only: read_only != 0,
            super_read_only: super_read_only != 0,
            uuid,
            gtid: gtid.replace('\n', ""),
        })
    }

    /// Whether it takes writes, and who waits for whom.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn stand(&mut self) -> Result<Stand> {
        let (uuid, closed, waits, acknowledges): (String, u8, Option<u8>, Option<String>) = self
            .one(
                "SELECT @@GLOBAL.server_uuid, @@GLOBAL.read_only OR @@GLOBAL.offline_mode, (SELECT VARIABLE_VALUE = 'ON' FROM performance_schema.global_status \
                 WHERE VARIABLE_NAME = 'Rpl_semi_sync_source_status'), (SELECT SOURCE_UUID FROM \
                 performance_schema.replication_connection_status JOIN performance_schema.global_status ON \
                 VARIABLE_NAME = 'Rpl_semi_sync_replica_status' AND VARIABLE_VALUE = 'ON' \
                 WHERE CHANNEL_NAME = '' AND SERVICE_STATE = 'ON')",
            )
            .await?;
        Ok(Stand {
            uuid,
            open: closed == 0,
            waits: waits == Some(1),
            acknowledges: acknowledges.filter(|u| !u.is_empty()),
        })
    }

    /// What the server says of its replication.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn replication(&mut self) -> Result<Option<Replication>> {
        let Some(mut row) = self.row("SHOW REPLICA STATUS").await? else {
            return Ok(None);
        };
        let mut text = |column: &str| {
            row.take_opt::<Option<String>, _>(column)
                .and_then(Result::ok)
                .flatten()
        };
        Ok(Some(Replication {
            receiver: text("Replica_IO_Running").as_deref() == Some("Yes"),
            applier: text("Replica_SQL_Running").as_deref() == Some("Yes"),
            source: text("Source_Host").unwrap_or_default(),
            tls: text("Source_SSL_Allowed").as_deref() == Some("Yes"),
            auto_position: text("Auto_Position").unwrap_or_default() == "1",
            error: [text("Last_IO_Error"), text("Last_SQL_Error")]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
        }))
    }

    /// Names of the databases that begin with `prefix`.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn databases(&mut self, prefix: &str) -> Result<Vec<String>> {
        let prefix = prefix.replace('_', r"\_");
        self.rows(&format!(
            "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE '{prefix}%' ORDER BY 1"
        ))
        .await
    }

    /// `database.table` of every table in databases that begin with `prefix`.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn tables(&mut self, prefix: &str) -> Result<Vec<String>> {
        let prefix = prefix.replace('_', r"\_");
        self.rows(&format!(
            "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA LIKE '{prefix}%' ORDER BY 1"
        ))
        .await
    }
}

/// A server's own word on whether it takes writes, who it is and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// `@@read_only`.
    pub read_only: bool,
    /// `@@super_read_only`.
    pub super_read_only: bool,
    /// `@@server_uuid`.
    pub uuid: String,
    /// `@@gtid_executed`, without line breaks.
    pub gtid: String,
}

/// A server's own word on its replication.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are answers of the server, each on its own"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// The receiver thread is connected.
    pub receiver: bool,
    /// The applier runs.
    pub applier: bool,
    /// Host that it receives from.
    pub source: String,
    /// Whether it asks for TLS.
    pub tls: bool,
    /// Whether it finds its position by GTIDs.
    pub auto_position: bool,
    /// The last errors.
    pub error: String,
}

/// The server's error number inside an error of this module.
pub fn code(e: &anyhow::Error) -> Option<u16> {
    e.chain()
        .find_map(|c| match c.downcast_ref::<mysql_async::Error>() {
            Some(mysql_async::Error::Server(s)) => Some(s.code),
            _ => None,
        })
}
