//! The channel without a name, between the two servers of a pair.

use super::{Error, conn::literal, semisync, session::Session, state};
use crate::{core::gtid::GtidSet, deadline};
use std::time::{Duration, Instant};

/// What of the server's log of received transactions has to be executed before it may be opened (rule P4), seconds.
const APPLY_SECONDS: u32 = 1;
/// How long a follower may take to have what its source had, for a planned switchover or to join, seconds.
const REACH_SECONDS: u32 = 2;

/// The name of the channel between the servers of a pair: it has none.
pub(super) const OWN: &str = "";

/// For commits under way to end.
const SETTLES: Duration = Duration::from_secs(2);

/// Where a server takes transactions from.
pub struct Source<'a> {
    /// DNS name, which the source's certificate carries.
    pub host: &'a str,
    /// TCP port.
    pub port: u16,
    /// Replication account, of the server that follows.
    pub user: &'a str,
    /// Its password.
    pub password: &'a str,
    /// File on the server with the authority that signed the source's certificate.
    pub ca_file: &'a str,
}

/// Stops the channel, forgets what it was and what it fetched but did not apply, points it at `source` by GTID and starts it; what it
/// receives it acknowledges. What was fetched and not applied is fetched again: a member of the record, which may have acknowledged it, leaves
/// the record before.
///
/// # Errors
/// As [`Error`].
pub async fn follow(s: &mut Session, source: &Source<'_>) -> Result<(), Error> {
    discard(s).await?;
    semisync::acknowledge(s).await?;
    s.run(deadline::CHANGE, change(source)).await?;
    start(s).await
}

fn change(source: &Source<'_>) -> String {
    change_channel(source, OWN)
}

/// How every channel takes from its source: by GTID, over TLS that is verified, and without an end to its tries.
pub(super) fn change_channel(source: &Source<'_>, channel: &str) -> String {
    // The password stands in the statement only: it travels over TLS, and the server keeps it out of its logs.
    format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = {host}, SOURCE_PORT = {port}, SOURCE_USER = {user}, SOURCE_PASSWORD = {password}, \
         SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1, SOURCE_SSL_CA = {ca}, SOURCE_SSL_VERIFY_SERVER_CERT = 1, \
         SOURCE_HEARTBEAT_PERIOD = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 4294967295, \
         REQUIRE_ROW_FORMAT = 1, GTID_ONLY = 1 FOR CHANNEL {channel}",
        channel = literal(channel),
        host = literal(source.host),
        port = source.port,
        user = literal(source.user),
        password = literal(source.password),
        ca = literal(source.ca_file),
    )
}

/// Starts the channel as it is.
///
/// # Errors
/// As [`Error`].
pub async fn start(s: &mut Session) -> Result<(), Error> {
    s.run(deadline::CHANGE, "START REPLICA FOR CHANNEL ''").await
}

/// What was received, of a channel that leads somewhere.
const RECEIVED: &str = "SELECT s.received_transaction_set FROM performance_schema.replication_connection_status s \
    JOIN performance_schema.replication_connection_configuration c USING (channel_name) \
    WHERE channel_name = '' AND c.host <> ''";

const RECEIVER: &str =
    "SELECT service_state FROM performance_schema.replication_connection_status WHERE channel_name = ''";

/// The applier, when it has read all that was received and that ends in the middle of a transaction, as it does after the source was killed.
fn in_the_middle(channel: &str) -> String {
    format!(
        "SELECT t.processlist_id FROM performance_schema.replication_applier_status_by_coordinator c \
         JOIN performance_schema.threads t USING (thread_id) \
         WHERE c.channel_name = {} AND c.service_state = 'ON' AND c.processing_transaction <> '' \
         AND t.processlist_state LIKE 'Replica has read all relay log%'",
        literal(channel)
    )
}

fn applier_runs(channel: &str) -> String {
    format!(
        "SELECT COUNT(*) FROM performance_schema.replication_applier_status_by_coordinator \
         WHERE channel_name = {} AND service_state = 'ON'",
        literal(channel)
    )
}

/// For an applier that was told to end.
const APPLIER_ENDS: Duration = Duration::from_secs(2);
/// Between two looks at whether it has.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Stops the channel; one that is not there is stopped.
///
/// # Errors
/// As [`Error`].
pub async fn stop(s: &mut Session) -> Result<(), Error> {
    stop_channel(s, OWN).await
}

/// An applier whose commit waits for an acknowledgement cannot be killed, nor whoever waits for it to stop: that one would hold the server's lock
/// for as long as the commit waits, and what would end the waiting needs the lock. Two seconds are the least that there is.
/// <https://dev.mysql.com/doc/refman/9.7/en/replication-options-replica.html#sysvar_rpl_stop_replica_timeout>
pub(super) const SOON: &str = "SET GLOBAL rpl_stop_replica_timeout = 2";

/// As [`stop`], for the channel of that name and no other.
pub(super) async fn stop_channel(s: &mut Session, channel: &str) -> Result<(), Error> {
    stop_receiver_of(s, channel).await?;
    give_up_the_rest(s, channel).await?;
    if_any(
        s.run(
            deadline::CHANGE,
            format!("{SOON}; STOP REPLICA FOR CHANNEL {}", literal(channel)),
        )
        .await,
    )
}

/// With its receiver stopped, an applier in the middle of a transaction would wait for the rest of it, which never comes: STOP REPLICA takes a
/// minute then. Killed, it ends at once, and with it what it had begun; a START goes on from the last whole transaction. An applier runs with
/// all privileges, so only an account with SYSTEM_USER may kill it
/// (<https://dev.mysql.com/doc/refman/9.7/en/account-categories.html>): one that has it not yet waits that minute.
async fn give_up_the_rest(s: &mut Session, channel: &str) -> Result<(), Error> {
    let coordinators: Vec<u64> = s.rows(deadline::QUERY, in_the_middle(channel)).await?;
    let Some(id) = coordinators.first() else {
        return Ok(());
    };
    match s.run(deadline::STEP, format!("KILL CONNECTION {id}")).await {
        // ER_NO_SUCH_THREAD.
        Err(e) if e.code() == Some(1094) => {}
        // ER_KILL_DENIED_ERROR.
        Err(e) if e.code() == Some(1095) => return Ok(()),
        other => other?,
    }
    let began = Instant::now();
    while s
        .rows::<i64>(deadline::QUERY, applier_runs(channel))
        .await?
        .first()
        != Some(&0)
    {
        if began.elapsed() > APPLIER_ENDS {
            return Err(Error::NotReached("the applier does not end".into()));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Ok(())
}

/// The receiver, while it runs.
fn receivers(channel: &str) -> String {
    format!(
        "SELECT t.processlist_id FROM performance_schema.replication_connection_status s \
         JOIN performance_schema.threads t USING (thread_id) WHERE s.channel_name = {} AND s.service_state <> 'OFF'",
        literal(channel)
    )
}

/// Stops the receiver: from then on no server gets an acknowledgement from this one (rule P6). The applier goes on. One whose source is
/// silent would hear of a STOP after two seconds only; a KILL shuts its socket, and the STOP that follows finds it ending.
///
/// # Errors
/// As [`Error`].
pub async fn stop_receiver(s: &mut Session) -> Result<(), Error> {
    stop_receiver_of(s, OWN).await
}

/// As [`stop_receiver`], for the channel of that name and no other.
pub(super) async fn stop_receiver_of(s: &mut Session, channel: &str) -> Result<(), Error> {
    let receivers: Vec<u64> = s.rows(deadline::QUERY, receivers(channel)).await?;
    for id in receivers {
        match s.run(deadline::STEP, format!("KILL CONNECTION {id}")).await {
            // Ended by itself, or not to be killed by this account yet: what counts is what follows.
            Err(e) if matches!(e.code(), Some(1094 | 1095)) => {}
            other => other?,
        }
    }
    if_any(
        s.run(
            deadline::STEP,
            format!("STOP REPLICA IO_THREAD FOR CHANNEL {}", literal(channel)),
        )
        .await,
    )
}

/// Applies what was received (rule P4): starts the applier and waits until all of it is executed. Returns at once when it is.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`], with what ails the applier, when it is not within a second.
pub async fn apply(s: &mut Session) -> Result<(), Error> {
    let received: Vec<String> = s.rows(deadline::QUERY, RECEIVED).await?;
    // A server that never followed has nothing to apply, and no applier to start.
    let Some(received) = received.first() else {
        return Ok(());
    };
    s.run(deadline::STEP, "START REPLICA SQL_THREAD FOR CHANNEL ''")
        .await?;
    let received: GtidSet = received
        .parse()
        .map_err(|e| Error::Protocol(format!("GTID set: {e}")))?;
    if wait(s, &received, f64::from(APPLY_SECONDS)).await? {
        return Ok(());
    }
    let errors: Vec<(u32, String)> = s.rows(deadline::QUERY, state::APPLIER_ERRORS).await?;
    let lacks = received.minus(&state::executed(s).await?);
    Err(Error::NotReached(errors.into_iter().next().map_or_else(
        || {
            format!(
                "{} received transactions are not applied within {APPLY_SECONDS} s",
                lacks.count()
            )
        },
        |(number, text)| format!("the applier stopped: {text} ({number})"),
    )))
}

/// After so many events what is received is brought to the disk; it holds at once.
/// <https://dev.mysql.com/doc/refman/9.7/en/replication-options-replica.html#sysvar_sync_relay_log>
///
/// # Errors
/// As [`Error`].
pub async fn sync_relay_log(s: &mut Session, every: u64) -> Result<(), Error> {
    s.run(deadline::STEP, format!("SET GLOBAL sync_relay_log = {every}"))
        .await
}

/// Returns when every transaction that was in the binary log is executed: one that went past the point where commits wait, before they
/// did, is in `gtid_executed` then. (A new binary log begins when all transactions of the one before are committed.)
///
/// # Errors
/// As [`Error`].
pub async fn settle(s: &mut Session) -> Result<(), Error> {
    // Beside the lock: it waits for commits, and these may wait for an acknowledgement.
    let mut beside = s.beside().await?;
    beside.run(SETTLES, "FLUSH NO_WRITE_TO_BINLOG BINARY LOGS").await
}

/// Waits until the server has executed `set`, and sees that it receives then: one whose channel was set up anew in between may have
/// acknowledged what it no longer has, until its new connection ends the old one on its source.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`] when it has not within two seconds, or does not receive.
pub async fn reach(s: &mut Session, set: &GtidSet) -> Result<(), Error> {
    if wait(s, set, f64::from(REACH_SECONDS)).await? {
        let state: Vec<String> = s.rows(deadline::QUERY, RECEIVER).await?;
        return match state.first().map(String::as_str) {
            Some("ON") => Ok(()),
            _ => Err(Error::NotReached("its receiver does not run".into())),
        };
    }
    let lacks = set.minus(&state::executed(s).await?);
    Err(Error::NotReached(format!(
        "{} transactions are not there within {REACH_SECONDS} s",
        lacks.count()
    )))
}

/// Whether the server has executed `set` within `seconds`.
pub(super) async fn wait(s: &mut Session, set: &GtidSet, seconds: f64) -> Result<bool, Error> {
    let sql = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', {seconds})");
    let answer: Vec<Option<i64>> = s.rows(deadline::QUERY, sql).await?;
    Ok(answer.first().copied().flatten() == Some(0))
}

/// Stops the channel without a name, and throws away what was received and not applied; one that is not there is none.
///
/// # Errors
/// As [`Error`].
pub async fn discard(s: &mut Session) -> Result<(), Error> {
    stop(s).await?;
    if_any(s.run(deadline::CHANGE, "RESET REPLICA ALL FOR CHANNEL ''").await)
}

/// Drops every channel, those between pairs as well: what a CLONE copied from its donor would make a server follow itself, and what it is going
/// to overwrite needs none. Nothing else acts on a channel that it does not name.
///
/// # Errors
/// As [`Error`].
pub async fn forget(s: &mut Session) -> Result<(), Error> {
    stop(s).await?;
    if_any(s.run(deadline::CHANGE, "STOP REPLICA").await)?;
    s.run(deadline::CHANGE, "RESET REPLICA ALL").await
}

/// Stops the channel within the pair. All that the server has executed, or received.
///
/// # Errors
/// As [`Error`].
pub async fn stop_for_good(s: &mut Session) -> Result<GtidSet, Error> {
    stop(s).await?;
    let sets: Vec<String> = s
        .rows(
            deadline::QUERY,
            "SELECT @@GLOBAL.gtid_executed UNION ALL \
             SELECT received_transaction_set FROM performance_schema.replication_connection_status WHERE channel_name = ''",
        )
        .await?;
    sets.iter()
        .try_fold(GtidSet::new(), |all, set| Ok(all.union(&state::gtid(set)?)))
}

/// A channel that is not there needs nothing.
pub(super) fn if_any(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        // ER_REPLICA_CHANNEL_DOES_NOT_EXIST, ER_REPLICA_CONFIGURATION.
        Err(e) if matches!(e.code(), Some(3074 | 1200)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_follows_with_its_own_account_by_gtid_and_only_whom_it_can_verify() {
        let sql = change(&Source {
            host: "p-0.p.n.svc",
            port: 3306,
            user: "shardwright_r_0123456789abcdef",
            password: "it's",
            ca_file: "/etc/ca.crt",
        });
        for part in [
            "SOURCE_USER = 'shardwright_r_0123456789abcdef'",
            "SOURCE_PASSWORD = 'it''s'",
            "SOURCE_AUTO_POSITION = 1",
            "SOURCE_SSL_VERIFY_SERVER_CERT = 1",
            "SOURCE_RETRY_COUNT = 4294967295",
        ] {
            assert!(sql.contains(part), "{sql}");
        }
    }
}
