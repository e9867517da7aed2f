//! The record and the rest of `MySQLPair.status`: read and written in one place.

use super::{
    consent,
    decide::Decision,
    durable::durable,
    observed::{Before, Desired, Observed, Ordinal, Record},
    wish::Wish,
    words,
};
use crate::{
    api::{
        MySQLPairStatus, conditions,
        mysql_pair::{InSyncMember, Place, Role, SETTLED_LENGTH, ServerStatus},
        names,
    },
    core::gtid::GtidSet,
};
use k8s_openapi::jiff::Timestamp;

/// Longest error that is kept of a server, in bytes.
const MAX_ERROR: usize = 1000;

/// The place whose Pod is called `pod`.
fn place(pair: &str, pod: &str) -> Option<Ordinal> {
    names::ORDINALS.into_iter().find(|i| names::pod(pair, *i) == pod)
}

/// The record that a status holds. One that does not name the active server's data folder is none: it would prove nothing of
/// what is found there.
pub fn record(pair: &str, status: &MySQLPairStatus) -> Option<Record> {
    let active = place(pair, status.active.as_deref()?)?;
    let mut in_sync = [None, None];
    for member in &status.in_sync {
        if let Some(slot) = place(pair, &member.name).and_then(|i| in_sync.get_mut(i)) {
            *slot = Some(member.server_uuid.clone());
        }
    }
    let record = Record {
        active,
        epoch: status.epoch,
        in_sync,
        settled: set(status.settled_errant.as_deref()),
        given_up: set(status.given_up.as_deref()),
    };
    record.member(active).is_some().then_some(record)
}

/// What cannot be read settles nothing.
fn set(text: Option<&str>) -> GtidSet {
    text.and_then(|s| s.parse().ok()).unwrap_or_default()
}

/// The place that a status calls active, also when that is no record.
pub fn hint(pair: &str, status: &MySQLPairStatus) -> Option<Ordinal> {
    place(pair, status.active.as_deref()?)
}

impl Record {
    /// Writes the record into a status.
    pub fn write_to(&self, pair: &str, status: &mut MySQLPairStatus) {
        status.active = Some(names::pod(pair, self.active));
        status.epoch = self.epoch;
        status.in_sync = names::ORDINALS
            .into_iter()
            .filter_map(|i| {
                Some(InSyncMember {
                    name: names::pod(pair, i),
                    server_uuid: self.member(i)?.to_owned(),
                })
            })
            .collect();
        status.in_sync_servers = format!("{}/2", self.members());
        // One that is longer is not kept: were the copy to fail, it would be saved again, and a person asked again.
        let kept =
            |set: &GtidSet| Some(set.to_string()).filter(|s| !s.is_empty() && s.len() <= SETTLED_LENGTH);
        status.settled_errant = kept(&self.settled);
        status.given_up = kept(&self.given_up);
    }
}

impl Before {
    /// What a status said.
    pub fn of(pair: &str, status: &MySQLPairStatus) -> Self {
        let condition = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_);
        let server = |i: Ordinal| status.servers.iter().find(|s| s.name == names::pod(pair, i));
        let each = names::ORDINALS.map(server);
        Self {
            ready: condition(conditions::READY).is_some_and(|c| c.status == "True"),
            reason: condition(conditions::READY).map(|c| c.reason.clone()),
            stalled: condition(conditions::STALLED)
                .filter(|c| c.status == "True")
                .map(|c| c.reason.clone()),
            durable: condition(conditions::DURABLE).map(|c| c.reason.clone()),
            states: each.map(|s| s.map(|s| s.state.clone())),
            known: each.map(|s| s.and_then(|s| Some((s.server_uuid.clone()?, s.version.clone()?)))),
        }
    }
}

/// The whole status after a pass. `old` is what it was; what was not looked at stays as it was.
pub fn status(
    o: &Observed,
    d: &Decision,
    old: &MySQLPairStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> MySQLPairStatus {
    let mut new = old.clone();
    new.observed_generation = generation;
    if new.in_sync_servers.is_empty() {
        "0/2".clone_into(&mut new.in_sync_servers);
    }
    new.servers = names::ORDINALS.into_iter().map(|i| server(o, i)).collect();
    if !matches!(o.desired, Desired::ClusterMissing { .. })
        && let Some(active) = o.record.as_ref().and_then(|r| o.side(r.active).up())
    {
        new.shards = Some(active.shards.to_vec());
    }
    if matches!(d.wish, Wish::Done | Wish::Refused(_)) {
        new.observed_preferred_active = o.preferred.map(Place::of);
    }
    new.ignored_accept_data_loss = consent::ignored(o, &d.overall);
    conditions::set(&mut new.conditions, &d.overall.said(), generation, now);
    conditions::set(&mut new.conditions, &[durable(o)], generation, now);
    new
}

fn server(o: &Observed, i: Ordinal) -> ServerStatus {
    let up = o.side(i).up();
    let known = o.before.known.get(i).and_then(Option::as_ref);
    ServerStatus {
        name: o.pod_name(i),
        role: o.record.as_ref().map(|r| {
            if r.active == i {
                Role::Active
            } else {
                Role::Passive
            }
        }),
        state: words::word(o, i).to_owned(),
        server_uuid: up.map(|s| s.uuid.clone()).or_else(|| known.map(|k| k.0.clone())),
        version: up
            .map(|s| s.version.clone())
            .or_else(|| known.map(|k| k.1.clone())),
        last_error: words::last_error(o, i).map(|e| shorten(&e)),
    }
}

fn shorten(text: &str) -> String {
    if text.len() <= MAX_ERROR {
        return text.to_owned();
    }
    let end = (0..MAX_ERROR)
        .rev()
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}
