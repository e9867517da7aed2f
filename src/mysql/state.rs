//! What is asked of a server in each pass: all of it in one round trip, for it is on the way of every failover.

use super::{Error, accounts::MARK_KEY, session::Session};
use crate::{
    core::{
        credentials::{APP_USER, CLONE_USER, REPLICATION_USER_PREFIX},
        databases::Naming,
        gtid::GtidSet,
        pair::observed::{Channel, CloneRun, CloneStage, FollowerAccount, Receiver, ServerState, SourceSide},
        spans::SpanSet,
    },
    deadline,
};
use mysql_async::{Row, prelude::FromValue};
use std::collections::HashMap;

/// The server itself.
const GLOBALS: &str = "SELECT @@GLOBAL.server_uuid, @@GLOBAL.version, @@GLOBAL.read_only, \
    @@GLOBAL.super_read_only, @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged, @@GLOBAL.offline_mode, \
    @@GLOBAL.sync_relay_log, \
    (SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone' AND plugin_status = 'ACTIVE')";

/// Those of somebody: not MySQL's own, nor the operator's, for the marks of copies and for trying statements.
const DATABASES: &str = "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata \
    WHERE schema_name NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys', 'shardwright_seed') \
    AND schema_name NOT LIKE 'shardwright\\_ddl\\_check\\_%'";

/// The channel without a name.
const CHANNEL: &str = "SELECT c.host, c.port, c.user, c.auto_position = '1', \
    c.ssl_allowed = 'YES' AND c.ssl_verify_server_certificate = 'YES', \
    s.service_state, s.last_error_number, s.last_error_message, a.service_state, s.received_transaction_set \
    FROM performance_schema.replication_connection_configuration c \
    JOIN performance_schema.replication_connection_status s USING (channel_name) \
    JOIN performance_schema.replication_applier_status a USING (channel_name) \
    WHERE c.channel_name = ''";

/// An applier may have several workers; the first error in the order workers, coordinator is what stopped it.
pub(super) const APPLIER_ERRORS: &str = "(SELECT last_error_number AS n, last_error_message AS m FROM \
    performance_schema.replication_applier_status_by_worker WHERE channel_name = '' AND last_error_number <> 0 LIMIT 1) \
    UNION ALL \
    (SELECT last_error_number, last_error_message FROM \
    performance_schema.replication_applier_status_by_coordinator WHERE channel_name = '' AND last_error_number <> 0 LIMIT 1)";

/// Without the plugins there is none of it.
const SEMI_SYNC: &str = "SELECT LOWER(variable_name), variable_value FROM performance_schema.global_variables WHERE variable_name IN \
    ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_source_timeout', 'rpl_semi_sync_replica_enabled') \
    UNION ALL \
    SELECT LOWER(variable_name), variable_value FROM performance_schema.global_status WHERE variable_name IN \
    ('Rpl_semi_sync_source_status', 'Rpl_semi_sync_source_clients', 'Rpl_semi_sync_source_wait_sessions', \
    'Rpl_semi_sync_source_yes_tx')";

/// What a receiver says that waits for space for its relay log.
const NO_SPACE_TO_RECEIVE: &str = "Waiting for disk space";
/// What a commit says that waits for space for its binary log, and one that waits behind another one in the same group. Of an applier the
/// time is its lag.
const COMMITS: &str = "waiting for handler commit";
/// Error of the server's log for a binary log that finds no space: when it does, and each ten minutes. It is kept after there is space again.
/// <https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html>
const NO_SPACE: &str = "MY-000035";
/// A commit that waits for so long, in seconds, waits for space if the log says so too.
const WAITS_FOR: u32 = 2;

/// A clone that is said to run since before mysqld was started is one that was cut short.
const CLONE: &str = "SELECT state, error_no, error_message, \
    TIMESTAMPDIFF(SECOND, COALESCE(end_time, begin_time), NOW()), \
    begin_time < NOW() - INTERVAL (SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Uptime') SECOND, \
    (SELECT CAST(SUM(data) AS UNSIGNED) FROM performance_schema.clone_progress), \
    (SELECT CAST(SUM(GREATEST(estimate, data)) AS UNSIGNED) FROM performance_schema.clone_progress), \
    IF(destination = 'LOCAL INSTANCE', SUBSTRING_INDEX(source, ':', 1), ''), COALESCE(gtid_executed, '') \
    FROM performance_schema.clone_status";

fn accounts() -> String {
    format!(
        "SELECT user, user_attributes->>'$.metadata.{MARK_KEY}', account_locked = 'Y' FROM mysql.user \
         WHERE host = '%' AND (user IN ('{CLONE_USER}', '{APP_USER}') OR LEFT(user, {}) = '{REPLICATION_USER_PREFIX}')",
        REPLICATION_USER_PREFIX.len()
    )
}

/// Dump threads, by account, and how many of them lead to a server that acknowledges: a receiver that does says so as it connects.
const DUMPS: &str = "SELECT p.user, COUNT(*), COUNT(v.thread_id) FROM performance_schema.processlist p \
    JOIN performance_schema.threads t ON t.processlist_id = p.id \
    LEFT JOIN performance_schema.user_variables_by_thread v ON v.thread_id = t.thread_id \
    AND v.variable_name IN ('rpl_semi_sync_replica', 'rpl_semi_sync_slave') AND v.variable_value = '1' \
    WHERE p.command LIKE 'Binlog Dump%' GROUP BY p.user";

/// Two columns: how many commits wait for an acknowledgement, and how many have had theirs; without the plugin there is none of it.
pub const ACKNOWLEDGEMENTS: &str = "(SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_wait_sessions'), \
    (SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_yes_tx')";

/// Whether a thread waits for space on the volume: a receiver; or a client's commit, with an entry in the log that is no older than its
/// statement. The log is looked at only when a commit waits for long.
fn disk_full() -> String {
    format!(
        "SELECT EXISTS (SELECT 1 FROM performance_schema.processlist WHERE state = '{NO_SPACE_TO_RECEIVE}') \
         OR EXISTS (SELECT 1 FROM performance_schema.processlist p WHERE p.state = '{COMMITS}' AND p.time >= {WAITS_FOR} \
         AND p.user <> 'system user' AND EXISTS (SELECT 1 FROM performance_schema.error_log e \
         WHERE e.error_code = '{NO_SPACE}' AND e.logged >= NOW() - INTERVAL (p.time + 1) SECOND))"
    )
}

fn look() -> String {
    [
        GLOBALS.to_owned(),
        DATABASES.to_owned(),
        CHANNEL.to_owned(),
        APPLIER_ERRORS.to_owned(),
        accounts(),
        DUMPS.to_owned(),
        SEMI_SYNC.to_owned(),
        disk_full(),
        CLONE.to_owned(),
    ]
    .join(";\n")
}

/// Everything that a pass wants to know of a server. Without `naming` no database counts as a shard's.
///
/// # Errors
/// As [`Error`].
pub async fn read(s: &mut Session, naming: Option<&Naming>) -> Result<ServerState, Error> {
    let sets = s.sets(deadline::QUERY, look()).await?;
    let sets: [Vec<Row>; 9] = sets
        .try_into()
        .map_err(|sets: Vec<_>| Error::Protocol(format!("{} answers to nine questions", sets.len())))?;
    let [
        globals,
        databases,
        channels,
        applier_errors,
        accounts,
        dumps,
        semi_sync,
        full,
        clones,
    ] = sets;
    let row = globals
        .first()
        .ok_or_else(|| Error::Protocol("no row where one is due".into()))?;
    let executed = gtid(&get::<String>(row, 4)?)?;
    let names: Vec<String> = databases.iter().map(|r| get(r, 0)).collect::<Result<_, _>>()?;
    let shards: SpanSet = names
        .iter()
        .filter_map(|n| naming.and_then(|naming| naming.parse(n)))
        .collect();
    let semi_sync = words(&semi_sync)?;
    let (account_marks, followers, foreign) = accounts_of(&accounts, &dumps)?;
    Ok(ServerState {
        uuid: get(row, 0)?,
        version: get(row, 1)?,
        read_only: get(row, 2)?,
        super_read_only: get(row, 3)?,
        offline: get(row, 6)?,
        executed_later: executed.clone(),
        executed,
        purged: gtid(&get::<String>(row, 5)?)?,
        channel: channel(&channels, &applier_errors)?,
        source: source(&semi_sync),
        semi_sync: has_plugins(&semi_sync),
        acknowledges: is_on(&semi_sync, "rpl_semi_sync_replica_enabled"),
        sync_relay_log: get(row, 7)?,
        disk_full: full.first().map_or(Ok(0), |r| get::<i64>(r, 0))? > 0,
        account_marks,
        followers,
        foreign,
        can_clone: get::<i64>(row, 8)? > 0,
        shards,
        databases: names.len(),
        clone: clone(&clones)?,
        links: None,
    })
}

/// `gtid_executed` once more.
///
/// # Errors
/// As [`Error`].
pub async fn executed(s: &mut Session) -> Result<GtidSet, Error> {
    let row = s.row(deadline::QUERY, "SELECT @@GLOBAL.gtid_executed").await?;
    gtid(&get::<String>(&row, 0)?)
}

/// Whether it is closed for everybody, and has no database of anyone's.
///
/// # Errors
/// As [`Error`].
pub async fn closed_and_blank(s: &mut Session) -> Result<bool, Error> {
    let row = s.row(deadline::QUERY, "SELECT @@GLOBAL.super_read_only").await?;
    let databases: Vec<String> = s.rows(deadline::QUERY, DATABASES).await?;
    Ok(get::<bool>(&row, 0)? && databases.is_empty())
}

/// What is read a second time.
pub struct Later {
    /// `gtid_executed`.
    pub executed: GtidSet,
    /// Commits that wait for an acknowledgement.
    pub waiting: u32,
    /// Commits that were acknowledged.
    pub acknowledged: u64,
}

/// The second reading. With `reach`, a server that is applying is given up to `seconds` to have it all.
///
/// # Errors
/// As [`Error`].
pub async fn later(s: &mut Session, reach: Option<(&GtidSet, f32)>) -> Result<Later, Error> {
    if let Some((set, seconds)) = reach {
        let sql = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', {seconds})");
        s.rows::<Option<i64>>(deadline::QUERY, sql).await?;
    }
    let sql = format!("SELECT @@GLOBAL.gtid_executed, {ACKNOWLEDGEMENTS}");
    let row = s.row(deadline::QUERY, sql).await?;
    let number = |i| {
        Ok::<_, Error>(
            get::<Option<String>>(&row, i)?
                .and_then(|t| t.parse::<u64>().ok())
                .unwrap_or(0),
        )
    };
    Ok(Later {
        executed: gtid(&get::<String>(&row, 0)?)?,
        waiting: u32::try_from(number(1)?).unwrap_or(u32::MAX),
        acknowledged: number(2)?,
    })
}

fn has_plugins(semi_sync: &HashMap<String, String>) -> bool {
    ["rpl_semi_sync_source_enabled", "rpl_semi_sync_replica_enabled"]
        .iter()
        .all(|name| semi_sync.contains_key(*name))
}

fn channel(channels: &[Row], errors: &[Row]) -> Result<Option<Channel>, Error> {
    let Some(row) = channels.first() else {
        return Ok(None);
    };
    let host: String = get(row, 0)?;
    // What RESET REPLICA ALL leaves of the channel without a name.
    if host.is_empty() {
        return Ok(None);
    }
    let number: u32 = get(row, 6)?;
    let applier_error = match errors.first() {
        Some(e) => Some((get(e, 0)?, get(e, 1)?)),
        None => None,
    };
    Ok(Some(Channel {
        host,
        port: get(row, 1)?,
        user: get(row, 2)?,
        auto_position: get(row, 3)?,
        verified_tls: get(row, 4)?,
        receiver: receiver(row, 5)?,
        receiver_error: (number != 0).then_some((number, get(row, 7)?)),
        applier: get::<String>(row, 8)? == "ON",
        applier_error,
        received: gtid(&get::<String>(row, 9)?)?,
    }))
}

/// The state of a receiver, as `performance_schema.replication_connection_status` has it in that column.
pub(super) fn receiver(row: &Row, column: usize) -> Result<Receiver, Error> {
    Ok(match get::<String>(row, column)?.as_str() {
        "ON" => Receiver::On,
        "CONNECTING" => Receiver::Connecting,
        _ => Receiver::Off,
    })
}

/// Marks of the clone and the application's account, the accounts that servers follow with, and those that others acknowledge with.
type Accounts = ([Option<String>; 2], Vec<FollowerAccount>, Vec<String>);

fn accounts_of(accounts: &[Row], dumps: &[Row]) -> Result<Accounts, Error> {
    let mut running: HashMap<String, u32> = HashMap::new();
    let mut foreign = vec![];
    for row in dumps {
        let (user, dumps, acknowledge): (String, u32, u32) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        if !user.starts_with(REPLICATION_USER_PREFIX) && acknowledge > 0 {
            foreign.push(user.clone());
        }
        running.insert(user, dumps);
    }
    foreign.sort();
    let (mut marks, mut followers) = ([None, None], vec![]);
    let [clone, app] = &mut marks;
    for row in accounts {
        let (user, mark, locked): (String, Option<String>, bool) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        match user.as_str() {
            CLONE_USER => *clone = mark,
            APP_USER => *app = mark,
            _ => followers.push(FollowerAccount {
                dumps: running.remove(&user).unwrap_or(0),
                user,
                mark,
                locked,
            }),
        }
    }
    Ok((marks, followers, foreign))
}

/// Names, in small letters, and values.
fn words(rows: &[Row]) -> Result<HashMap<String, String>, Error> {
    rows.iter().map(|r| Ok((get(r, 0)?, get(r, 1)?))).collect()
}

fn is_on(words: &HashMap<String, String>, name: &str) -> bool {
    words.get(name).is_some_and(|v| v == "ON" || v == "1")
}

fn source(words: &HashMap<String, String>) -> SourceSide {
    let number = |name: &str| words.get(name).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
    let small = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
    SourceSide {
        enabled: is_on(words, "rpl_semi_sync_source_enabled"),
        waits: is_on(words, "rpl_semi_sync_source_status"),
        clients: small("rpl_semi_sync_source_clients"),
        waiting: small("rpl_semi_sync_source_wait_sessions"),
        acknowledged: number("rpl_semi_sync_source_yes_tx"),
        timeout: number("rpl_semi_sync_source_timeout"),
    }
}

fn clone(rows: &[Row]) -> Result<Option<CloneRun>, Error> {
    let Some(row) = rows.first() else { return Ok(None) };
    let said: String = get(row, 0)?;
    let number = get::<Option<u32>>(row, 1)?.unwrap_or(0);
    let text = get::<Option<String>>(row, 2)?.unwrap_or_default();
    let ago: Option<i64> = get(row, 3)?;
    let cut_short = get::<Option<bool>>(row, 4)?.unwrap_or(false);
    let (copied, to_copy): (Option<u64>, Option<u64>) = (get(row, 5)?, get(row, 6)?);
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
        bytes: copied
            .zip(to_copy)
            .filter(|(_, of)| stage == CloneStage::Running && *of > 0),
        donor: get::<Option<String>>(row, 7)?.unwrap_or_default(),
        brought: match stage {
            CloneStage::Completed => gtid(&get::<String>(row, 8)?)?,
            _ => GtidSet::new(),
        },
    }))
}

pub(super) fn get<T: FromValue>(row: &Row, i: usize) -> Result<T, Error> {
    match row.get_opt(i) {
        Some(Ok(value)) => Ok(value),
        _ => Err(Error::Protocol(format!(
            "column {i} of an answer is not what it should be"
        ))),
    }
}

pub(super) fn gtid(text: &str) -> Result<GtidSet, Error> {
    text.parse()
        .map_err(|e| Error::Protocol(format!("GTID set: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_nine_questions_in_one_string() {
        assert_eq!(look().split(";\n").count(), 9);
        assert!(!look().contains("SHOW"), "{}", look());
    }

    #[test]
    fn a_server_without_the_plugins_neither_waits_nor_acknowledges() {
        assert_eq!(source(&HashMap::new()), SourceSide::default());
        assert!(!has_plugins(&HashMap::new()));
    }

    #[test]
    fn what_semi_sync_says_of_itself() {
        let said = [
            ("rpl_semi_sync_source_enabled", "ON"),
            ("rpl_semi_sync_source_timeout", "4294967295"),
            ("rpl_semi_sync_source_status", "OFF"),
            ("rpl_semi_sync_source_clients", "1"),
            ("rpl_semi_sync_source_wait_sessions", "3"),
            ("rpl_semi_sync_source_yes_tx", "17"),
        ];
        let said = said.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let expected = SourceSide {
            enabled: true,
            waits: false,
            clients: 1,
            waiting: 3,
            acknowledged: 17,
            timeout: 4_294_967_295,
        };
        assert_eq!(source(&said), expected);
    }
}
