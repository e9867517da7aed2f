//! What is asked of a server in each pass.

use super::{Error, accounts::MARK_KEY, session::Session};
use crate::{
    core::{
        credentials::{APP_USER, CLONE_USER, REPLICATION_USER},
        databases::Naming,
        gtid::GtidSet,
        pair::observed::{Channel, CloneRun, CloneStage, Receiver, ServerState},
        spans::SpanSet,
    },
    deadline,
};
use mysql_async::{Row, prelude::FromValue};

const GLOBALS: &str = "SELECT @@GLOBAL.server_uuid, @@GLOBAL.version, @@GLOBAL.read_only, @@GLOBAL.super_read_only, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged, \
    (SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone' AND plugin_status = 'ACTIVE')";

/// An applier may have several workers; the first error in the order coordinator, workers is what stopped it.
const CHANNEL: &str = "SELECT c.host, c.port, c.user, c.auto_position = '1', \
    c.ssl_allowed = 'YES' AND c.ssl_verify_server_certificate = 'YES', \
    s.service_state, s.last_error_number, s.last_error_message, a.service_state \
    FROM performance_schema.replication_connection_configuration c \
    JOIN performance_schema.replication_connection_status s USING (channel_name) \
    JOIN performance_schema.replication_applier_status a USING (channel_name) \
    WHERE c.channel_name = ''";

const APPLIER_ERRORS: &str = "(SELECT last_error_number AS n, last_error_message AS m FROM \
    performance_schema.replication_applier_status_by_worker WHERE channel_name = '' AND last_error_number <> 0 LIMIT 1) \
    UNION ALL \
    (SELECT last_error_number, last_error_message FROM \
    performance_schema.replication_applier_status_by_coordinator WHERE channel_name = '' AND last_error_number <> 0 LIMIT 1)";

/// A clone that is said to run since before mysqld was started is one that was cut short.
const CLONE: &str = "SELECT state, error_no, error_message, \
    TIMESTAMPDIFF(SECOND, COALESCE(end_time, begin_time), NOW()), \
    begin_time < NOW() - INTERVAL (SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Uptime') SECOND \
    FROM performance_schema.clone_status";

/// Everything that a pass wants to know of a server. Without `naming` no database counts as a shard's.
///
/// # Errors
/// As [`Error`].
pub async fn read(s: &mut Session, naming: Option<&Naming>) -> Result<ServerState, Error> {
    let row = s.row(deadline::QUERY, GLOBALS).await?;
    let executed = gtid(&get::<String>(&row, 4)?)?;
    let names: Vec<String> = s
        .rows(
            deadline::QUERY,
            "SELECT schema_name FROM information_schema.schemata \
             WHERE schema_name NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')",
        )
        .await?;
    let shards: SpanSet = names
        .iter()
        .filter_map(|n| naming.and_then(|naming| naming.parse(n)))
        .collect();
    Ok(ServerState {
        uuid: get(&row, 0)?,
        version: get(&row, 1)?,
        read_only: get(&row, 2)?,
        super_read_only: get(&row, 3)?,
        executed_later: executed.clone(),
        executed,
        purged: gtid(&get::<String>(&row, 5)?)?,
        channel: channel(s).await?,
        account_marks: marks(s).await?,
        can_clone: get::<i64>(&row, 6)? > 0,
        shards,
        databases: names.len(),
        clone: clone(s).await?,
    })
}

/// `gtid_executed` once more. With `reach`, a server that is applying is given up to `seconds` to have it all.
///
/// # Errors
/// As [`Error`].
pub async fn executed(s: &mut Session, reach: Option<(&GtidSet, f32)>) -> Result<GtidSet, Error> {
    if let Some((set, seconds)) = reach {
        let sql = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', {seconds})");
        s.rows::<Option<i64>>(deadline::QUERY, sql).await?;
    }
    let row = s.row(deadline::QUERY, "SELECT @@GLOBAL.gtid_executed").await?;
    gtid(&get::<String>(&row, 0)?)
}

async fn channel(s: &mut Session) -> Result<Option<Channel>, Error> {
    let rows: Vec<Row> = s.rows(deadline::QUERY, CHANNEL).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let host: String = get(row, 0)?;
    // What RESET REPLICA ALL leaves of the channel without a name.
    if host.is_empty() {
        return Ok(None);
    }
    let errors: Vec<(u32, String)> = s.rows(deadline::QUERY, APPLIER_ERRORS).await?;
    let number: u32 = get(row, 6)?;
    Ok(Some(Channel {
        host,
        port: get(row, 1)?,
        user: get(row, 2)?,
        auto_position: get(row, 3)?,
        verified_tls: get(row, 4)?,
        receiver: match get::<String>(row, 5)?.as_str() {
            "ON" => Receiver::On,
            "CONNECTING" => Receiver::Connecting,
            _ => Receiver::Off,
        },
        receiver_error: (number != 0).then_some((number, get(row, 7)?)),
        applier: get::<String>(row, 8)? == "ON",
        applier_error: errors.into_iter().next(),
    }))
}

async fn marks(s: &mut Session) -> Result<[Option<String>; 3], Error> {
    let sql = format!(
        "SELECT user, attribute->>'$.{MARK_KEY}' FROM information_schema.user_attributes WHERE host = '%' AND user IN \
         ('{REPLICATION_USER}', '{CLONE_USER}', '{APP_USER}')"
    );
    let found: Vec<(String, Option<String>)> = s.rows(deadline::QUERY, sql).await?;
    Ok([REPLICATION_USER, CLONE_USER, APP_USER].map(|user| found.iter().find(|(u, _)| u == user)?.1.clone()))
}

async fn clone(s: &mut Session) -> Result<Option<CloneRun>, Error> {
    let rows: Vec<Row> = s.rows(deadline::QUERY, CLONE).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let said: String = get(row, 0)?;
    let number = get::<Option<u32>>(row, 1)?.unwrap_or(0);
    let text = get::<Option<String>>(row, 2)?.unwrap_or_default();
    let ago: Option<i64> = get(row, 3)?;
    let cut_short = get::<Option<bool>>(row, 4)?.unwrap_or(false);
    let stage = match said.as_str() {
        "Completed" => CloneStage::Completed,
        "In Progress" if !cut_short => CloneStage::Running,
        "Not Started" => return Ok(None),
        _ => CloneStage::Failed,
    };
    Ok(Some(CloneRun {
        stage,
        error: (number != 0).then_some((number, text)),
        ended_ago: ago.filter(|_| stage != CloneStage::Running),
    }))
}

fn get<T: FromValue>(row: &Row, i: usize) -> Result<T, Error> {
    match row.get_opt(i) {
        Some(Ok(value)) => Ok(value),
        _ => Err(Error::Protocol(format!(
            "column {i} of an answer is not what it should be"
        ))),
    }
}

fn gtid(text: &str) -> Result<GtidSet, Error> {
    text.parse()
        .map_err(|e| Error::Protocol(format!("GTID set: {e}")))
}
