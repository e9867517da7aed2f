//! Channels between pairs: the active server of one takes, through a filter, from the passive server of another.
//!
//! Each has a name, and every statement says it: one that does not acts on the channel within the pair as well.
//!
//! **Semi-sync.** The plugin has one switch for all receivers of a server, and a receiver that ends turns it off, whichever it is. What
//! another one reads next is then not understood (error 13122, it stops). So no receiver is stopped here while another one runs: those are
//! stopped before it, and started again after it. One that ended by itself leaves the others in that state: [`mend`].
//!
//! **Filters** are lost when mysqld ends, and what a filter leaves out counts as executed. So it is set and read back before every
//! start. It names the databases, never by `REPLICATE_DO_DB`, which goes by the session's default database.
//!
//! `PRIVILEGE_CHECKS_USER` would be a second filter that survives a restart. It is not used: the privilege is asked for before the filter is,
//! and the first account that is made on the source pair stops the channel.

use super::{
    Error,
    conn::literal,
    replication::{self, SOON, Source, change_channel, if_any, stop_channel, stop_receiver_of},
    session::Session,
    state::{get, gtid, receiver},
};
use crate::{
    core::{databases::Naming, gtid::GtidSet, pair::observed::Receiver, spans::SpanSet},
    deadline,
};
use mysql_async::Row;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// What the names of channels between pairs begin with.
const PREFIX: &str = "from-";
/// Errors of a receiver that has lost the semi-sync protocol: `could not queue event`, and `Failed to run 'after_read_event' hook`.
const OUT_OF_STEP: [u32; 2] = [13122, 13117];
/// Between two looks at whether an applier has stopped where it should.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The channel by which a server takes from `pair`. A pair's name has 45 characters at most, a channel's 64.
pub fn name(pair: &str) -> String {
    format!("{PREFIX}{pair}")
}

/// The pair that a channel of this name takes from.
pub fn pair(channel: &str) -> Option<&str> {
    channel.strip_prefix(PREFIX)
}

/// Which databases a channel brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(BTreeSet<String>);

impl Filter {
    /// The databases of these shards, with all their tables.
    pub fn new(naming: &Naming, shards: &SpanSet) -> Self {
        Self(
            shards
                .shards()
                .map(|n| format!("{}.%", escaped(&naming.name(n))))
                .collect(),
        )
    }
    /// As `replication_applier_filters` gives it.
    fn read(rule: &str) -> Self {
        Self(
            rule.split(',')
                .filter(|p| !p.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }
    /// The shards that it lets through.
    pub fn shards(&self, naming: &Naming) -> SpanSet {
        self.0
            .iter()
            .filter_map(|p| naming.parse(&p.strip_suffix(".%")?.replace('\\', "")))
            .collect()
    }
    /// Without a pattern everything would pass: such a channel is not started.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn statement(&self, channel: &str) -> String {
        let patterns: Vec<String> = self.0.iter().map(|p| literal(p)).collect();
        format!(
            "CHANGE REPLICATION FILTER REPLICATE_WILD_DO_TABLE = ({}) FOR CHANNEL {}",
            patterns.join(", "),
            literal(channel)
        )
    }
}

/// A name in a pattern: `_` and `%` stand for themselves.
fn escaped(name: &str) -> String {
    name.replace('\\', r"\\").replace('_', r"\_").replace('%', r"\%")
}

/// Points the channel at `source` and leaves it stopped, whatever it was before. What it had fetched and not applied is fetched again.
///
/// # Errors
/// As [`Error`].
pub async fn point(s: &mut Session, channel: &str, source: &Source<'_>) -> Result<(), Error> {
    remove(s, channel).await?;
    s.run(deadline::CHANGE, change_channel(source, channel)).await
}

/// Starts the channel with this filter, and sees that the server has taken it before anything is applied.
///
/// # Errors
/// As [`Error`]; [`Error::Protocol`] for a filter that lets everything through, or that the server has not got.
pub async fn start(s: &mut Session, channel: &str, filter: &Filter) -> Result<(), Error> {
    set_filter(s, channel, filter).await?;
    s.run(
        deadline::CHANGE,
        format!("START REPLICA FOR CHANNEL {}", literal(channel)),
    )
    .await
}

/// As [`start`], but the applier stops as soon as all of `set` is executed: databases may be compared or copied there. It goes on with [`start`].
///
/// # Errors
/// As [`start`].
pub async fn start_until(
    s: &mut Session,
    channel: &str,
    filter: &Filter,
    set: &GtidSet,
) -> Result<(), Error> {
    set_filter(s, channel, filter).await?;
    let channel = literal(channel);
    s.run(
        deadline::CHANGE,
        format!(
            "START REPLICA SQL_THREAD UNTIL SQL_AFTER_GTIDS = '{set}' FOR CHANNEL {channel}; \
             START REPLICA IO_THREAD FOR CHANNEL {channel}"
        ),
    )
    .await
}

/// A filter is changed only while nothing is applied.
async fn set_filter(s: &mut Session, channel: &str, filter: &Filter) -> Result<(), Error> {
    if filter.is_empty() {
        return Err(Error::Protocol(format!(
            "channel {channel} is not started without a filter"
        )));
    }
    stop_applier(s, channel).await?;
    s.run(deadline::CHANGE, filter.statement(channel)).await?;
    let has = read_filter(s, channel).await?;
    if has == *filter {
        return Ok(());
    }
    Err(Error::Protocol(format!(
        "channel {channel} has another filter than the one that was set"
    )))
}

async fn read_filter(s: &mut Session, channel: &str) -> Result<Filter, Error> {
    let sql = format!(
        "SELECT filter_rule FROM performance_schema.replication_applier_filters \
         WHERE channel_name = {} AND filter_name = 'REPLICATE_WILD_DO_TABLE'",
        literal(channel)
    );
    let rules: Vec<String> = s.rows(deadline::QUERY, sql).await?;
    Ok(rules.first().map(|r| Filter::read(r)).unwrap_or_default())
}

/// Stops what is applied; the channel still receives. No other channel notices.
///
/// # Errors
/// As [`Error`].
pub async fn stop_applier(s: &mut Session, channel: &str) -> Result<(), Error> {
    if_any(
        s.run(
            deadline::CHANGE,
            format!("{SOON}; STOP REPLICA SQL_THREAD FOR CHANNEL {}", literal(channel)),
        )
        .await,
    )
}

/// Stops the channel; one that is not there is stopped. The receivers of the server's other channels are stopped for that moment, if they would
/// not survive it.
///
/// # Errors
/// As [`Error`].
pub async fn stop(s: &mut Session, channel: &str) -> Result<(), Error> {
    let others: Vec<String> = s.rows(deadline::QUERY, in_step_with(channel)).await?;
    for other in &others {
        stop_receiver_of(s, other).await?;
    }
    let stopped = stop_channel(s, channel).await;
    for other in &others {
        if !s.is_broken() {
            start_receiver(s, other).await?;
        }
    }
    stopped
}

async fn start_receiver(s: &mut Session, channel: &str) -> Result<(), Error> {
    s.run(
        deadline::CHANGE,
        format!("START REPLICA IO_THREAD FOR CHANNEL {}", literal(channel)),
    )
    .await
}

const SEMI_SYNC_REPLICA: &str = "EXISTS (SELECT 1 FROM performance_schema.global_variables \
    WHERE variable_name = 'rpl_semi_sync_replica_enabled' AND variable_value = 'ON')";

/// Receivers that run beside this one and would end with it.
fn in_step_with(channel: &str) -> String {
    let channel = literal(channel);
    format!(
        "SELECT channel_name FROM performance_schema.replication_connection_status \
         WHERE service_state <> 'OFF' AND channel_name <> {channel} AND {SEMI_SYNC_REPLICA} \
         AND EXISTS (SELECT 1 FROM performance_schema.replication_connection_status \
         WHERE channel_name = {channel} AND service_state <> 'OFF')"
    )
}

/// Receivers that run while the plugin's switch is off: what they read next ends them.
fn out_of_step() -> String {
    format!(
        "SELECT channel_name FROM performance_schema.replication_connection_status \
         WHERE service_state <> 'OFF' AND {SEMI_SYNC_REPLICA} AND EXISTS (SELECT 1 FROM performance_schema.global_status \
         WHERE variable_name = 'Rpl_semi_sync_replica_status' AND variable_value = 'OFF')"
    )
}

/// Receivers that have ended for that reason.
fn ended_out_of_step() -> String {
    format!(
        "SELECT channel_name FROM performance_schema.replication_connection_status \
         WHERE service_state = 'OFF' AND last_error_number IN ({}, {})",
        OUT_OF_STEP[0], OUT_OF_STEP[1]
    )
}

/// Brings the receivers of a server, the pair's own among them, back into step after one of them ended by itself. Gives the channels that it
/// started again; on a server where all is well there is none, and nothing is done.
///
/// # Errors
/// As [`Error`].
pub async fn mend(s: &mut Session) -> Result<Vec<String>, Error> {
    let running: Vec<String> = s.rows(deadline::QUERY, out_of_step()).await?;
    for channel in &running {
        stop_receiver_of(s, channel).await?;
    }
    let mut mended: Vec<String> = s.rows(deadline::QUERY, ended_out_of_step()).await?;
    mended.extend(running);
    mended.sort();
    mended.dedup();
    for channel in &mended {
        start_receiver(s, channel).await?;
    }
    Ok(mended)
}

/// Stops the channel and forgets it; one that is not there is forgotten.
///
/// # Errors
/// As [`Error`].
pub async fn remove(s: &mut Session, channel: &str) -> Result<(), Error> {
    stop(s, channel).await?;
    if_any(
        s.run(
            deadline::CHANGE,
            format!("RESET REPLICA ALL FOR CHANNEL {}", literal(channel)),
        )
        .await,
    )
}

/// Waits until the server has executed `set`. Of databases that a filter left out at any time it proves nothing (rule R4).
///
/// # Errors
/// As [`Error`].
pub async fn reached(s: &mut Session, set: &GtidSet, within: Duration) -> Result<bool, Error> {
    replication::wait(s, set, within.as_secs_f64()).await
}

/// Waits until the applier of a channel that was started by [`start_until`] has stopped. `false` when it has not in that time.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`], with what ails it, when it stopped before it had all of `set`.
pub async fn stopped_at(
    s: &mut Session,
    channel: &str,
    set: &GtidSet,
    within: Duration,
) -> Result<bool, Error> {
    let began = Instant::now();
    loop {
        let all = read(s).await?;
        let state = all.iter().find(|c| c.name == channel);
        let state = state.ok_or_else(|| Error::NotReached(format!("there is no channel {channel}")))?;
        if !state.applier {
            let executed = super::state::executed(s).await?;
            if set.is_subset_of(&executed) {
                return Ok(true);
            }
            let why = state.applier_error.as_ref();
            let why = why.map_or_else(
                || "somebody stopped it".to_owned(),
                |(n, text)| format!("{text} ({n})"),
            );
            return Err(Error::NotReached(format!(
                "the applier of channel {channel} stopped early: {why}"
            )));
        }
        if began.elapsed() > within {
            return Ok(false);
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// A channel between pairs, as a server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Host that it leads to.
    pub host: String,
    /// TCP port there.
    pub port: u16,
    /// Account that it logs in with.
    pub user: String,
    /// `server_uuid` that it met there last; empty before it met any.
    pub source: String,
    /// The receiver.
    pub receiver: Receiver,
    /// Number and text of its last error.
    pub receiver_error: Option<(u32, String)>,
    /// Whether the applier runs.
    pub applier: bool,
    /// Number and text of its last error.
    pub applier_error: Option<(u32, String)>,
    /// What it lets through; after a restart of the server, nothing is said, and everything would pass.
    pub filter: Filter,
    /// What it has received since it was set up.
    pub received: GtidSet,
    /// Transaction that was received last.
    pub queued: String,
    /// Transaction that was applied last.
    pub applied: String,
    /// Transactions that were received and are not executed.
    pub behind: u64,
    /// Age of the oldest transaction that is being applied, by the clocks of both servers; zero when there is none. Fine enough for people.
    pub lag: Duration,
}

impl State {
    /// Both threads run.
    pub fn runs(&self) -> bool {
        self.receiver == Receiver::On && self.applier
    }
    /// The receiver has lost the semi-sync protocol because another one ended: [`mend`] starts it again.
    pub fn out_of_step(&self) -> bool {
        let code = self.receiver_error.as_ref().map(|(code, _)| *code);
        self.receiver == Receiver::Off && code.is_some_and(|code| OUT_OF_STEP.contains(&code))
    }
}

const CHANNELS: &str = "SELECT c.channel_name, c.host, c.port, c.user, s.source_uuid, s.service_state, s.last_error_number, \
    s.last_error_message, a.service_state, s.received_transaction_set, s.last_queued_transaction, \
    COALESCE(f.filter_rule, ''), \
    COALESCE((SELECT w.last_applied_transaction FROM performance_schema.replication_applier_status_by_worker w \
    WHERE w.channel_name = c.channel_name ORDER BY w.last_applied_transaction_end_apply_timestamp DESC LIMIT 1), ''), \
    (SELECT TIMESTAMPDIFF(MICROSECOND, MIN(w.applying_transaction_original_commit_timestamp), NOW(6)) \
    FROM performance_schema.replication_applier_status_by_worker w \
    WHERE w.channel_name = c.channel_name AND w.applying_transaction <> ''), \
    @@GLOBAL.gtid_executed \
    FROM performance_schema.replication_connection_configuration c \
    JOIN performance_schema.replication_connection_status s USING (channel_name) \
    JOIN performance_schema.replication_applier_status a USING (channel_name) \
    LEFT JOIN performance_schema.replication_applier_filters f \
    ON f.channel_name = c.channel_name AND f.filter_name = 'REPLICATE_WILD_DO_TABLE' \
    WHERE c.channel_name <> '' ORDER BY c.channel_name";

const ERRORS: &str = "SELECT channel_name, last_error_number, last_error_message FROM \
    performance_schema.replication_applier_status_by_worker WHERE channel_name <> '' AND last_error_number <> 0 \
    UNION ALL \
    SELECT channel_name, last_error_number, last_error_message FROM \
    performance_schema.replication_applier_status_by_coordinator WHERE channel_name <> '' AND last_error_number <> 0";

/// All channels of a server that have a name, in the order of their names. A CLONE brings those of its donor along.
///
/// # Errors
/// As [`Error`].
pub async fn read(s: &mut Session) -> Result<Vec<State>, Error> {
    let sets = s.sets(deadline::QUERY, format!("{CHANNELS}; {ERRORS}")).await?;
    // A query that fails after the first one is only missing.
    let sets: [Vec<Row>; 2] = sets
        .try_into()
        .map_err(|sets: Vec<_>| Error::Protocol(format!("{} answers to two questions", sets.len())))?;
    let [channels, errors] = sets;
    let mut found = vec![];
    for row in &channels {
        found.push(state(row, &errors)?);
    }
    Ok(found)
}

fn state(row: &Row, errors: &[Row]) -> Result<State, Error> {
    let name: String = get(row, 0)?;
    let number: u32 = get(row, 6)?;
    let mut applier_error = None;
    for e in errors.iter().rev() {
        if get::<String>(e, 0)? == name {
            applier_error = Some((get(e, 1)?, get(e, 2)?));
        }
    }
    let received = gtid(&get::<String>(row, 9)?)?;
    let executed = gtid(&get::<String>(row, 14)?)?;
    let behind = received.minus(&executed).count();
    let lag: Option<i64> = get(row, 13)?;
    Ok(State {
        host: get(row, 1)?,
        port: get(row, 2)?,
        user: get(row, 3)?,
        source: get(row, 4)?,
        receiver: receiver(row, 5)?,
        receiver_error: (number != 0).then_some((number, get(row, 7)?)),
        applier: get::<String>(row, 8)? == "ON",
        applier_error,
        filter: Filter::read(&get::<String>(row, 11)?),
        received,
        queued: get(row, 10)?,
        applied: get(row, 12)?,
        behind,
        lag: Duration::from_micros(lag.and_then(|us| u64::try_from(us).ok()).unwrap_or(0)),
        name,
    })
}

#[cfg(test)]
mod tests;
