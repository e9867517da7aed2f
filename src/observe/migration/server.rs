//! What is asked of one server of a move.

use super::{Found, Site};
use crate::{
    api::names,
    core::{
        cluster::observed::active,
        credentials::channel_user,
        migration::observed::{Blocker, ChannelSeen, CloneSeen, Place, ServerSeen},
        pair::observed::{CloneRun, CloneStage, Receiver, ServerState},
        spans::SpanSet,
    },
    deadline,
    mysql::{self, Session, channel, shard_fence, state},
    observe::servers::Target,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// For all that is asked of one server in one pass.
const PATIENCE: Duration = Duration::from_millis(2500);
/// The same with a new connection.
const NEW: Duration = Duration::from_secs(5);
/// A CLONE that ended so many seconds ago, or earlier, is one of an earlier move.
const FAILED: i64 = 60;

/// What a server answered.
pub(super) struct Answer {
    /// `None` when it has other data than the record says.
    pub(super) server: Option<ServerSeen>,
    pub(super) clone: CloneSeen,
}

pub(super) async fn ask(
    held: Option<Session>,
    target: Target,
    found: &Found,
    site: &Site,
    at: Place,
    blocked: &SpanSet,
    now: Timestamp,
) -> Result<(Session, Answer), mysql::Error> {
    if let Some(mut session) = held {
        let read = deadline::within(PATIENCE, server(&mut session, found, site, at, blocked, now));
        match read.await? {
            Ok(seen) => return Ok((session, seen)),
            Err(e) if session.is_broken() && !matches!(e, mysql::Error::Timeout(_)) => {}
            Err(e) => return Err(e),
        }
    }
    deadline::within(NEW, async {
        let mut session = Session::open(target.access).await?;
        let seen = server(&mut session, found, site, at, blocked, now).await?;
        Ok((session, seen))
    })
    .await?
}

async fn server(
    s: &mut Session,
    found: &Found,
    site: &Site,
    at: Place,
    blocked: &SpanSet,
    now: Timestamp,
) -> Result<Answer, mysql::Error> {
    let state = state::read(s, Some(&found.naming)).await?;
    let clone = clone_seen(&state);
    let server = recorded(s, state, found, site, at, blocked, now).await?;
    Ok(Answer { server, clone })
}

fn clone_seen(state: &ServerState) -> CloneSeen {
    let run = state.clone.as_ref();
    let is = |stage: CloneStage| run.filter(|c| c.stage == stage);
    let lately = |c: &&CloneRun| c.ended_ago.is_some_and(|ago| ago < FAILED);
    let interrupted = || (1317, "it was interrupted".to_owned());
    CloneSeen {
        running: is(CloneStage::Running).map(|c| c.bytes.unwrap_or_default()),
        failed: is(CloneStage::Failed)
            .filter(lately)
            .map(|c| c.error.clone().unwrap_or_else(interrupted)),
        hindered: if !state.can_clone {
            Some("a server has not got the clone plugin")
        } else if state.databases > state.shards.len() {
            Some("a server has databases that are no shards: they would be lost")
        } else {
            None
        },
    }
}

/// `None` when it has other data than the record says.
async fn recorded(
    s: &mut Session,
    state: ServerState,
    found: &Found,
    site: &Site,
    at: Place,
    blocked: &SpanSet,
    now: Timestamp,
) -> Result<Option<ServerSeen>, mysql::Error> {
    let Some(pair) = found.pair(at.end) else {
        return Ok(None);
    };
    let recorded = active(pair);
    let pod = site.pod(at);
    let status = pair.status.clone().unwrap_or_default();
    let member = status.in_sync.iter().find(|m| m.name == pod);
    let is_active = recorded == Some(at.server);
    let recorded_data = match member {
        Some(m) => m.server_uuid == state.uuid,
        // A passive server that is out, and joins again or is copied over.
        None => {
            !is_active
                && recorded.is_some()
                && state
                    .clone
                    .as_ref()
                    .is_none_or(|c| c.stage != CloneStage::Running)
        }
    };
    if !recorded_data {
        return Ok(None);
    }
    let flags = shard_fence::read(s, &found.naming).await?;
    let channels = channel::read(s).await?;
    let name = channel::name(site.pair(at.end.other()));
    let channel = channels.into_iter().find(|c| c.name == name);
    let host = site.host(Place::new(at.end, recorded.unwrap_or_default()));
    let follows = !is_active
        && state
            .channel
            .as_ref()
            .is_some_and(|c| c.runs() && c.leads_to(&host, &state.uuid));
    let mut blockers = vec![];
    if flags.have.overlaps(blocked) {
        let holders = shard_fence::holders(s, &found.naming, blocked).await?;
        // Comparisons read in transactions, too.
        for holder in holders.into_iter().filter(|h| !h.is_the_operators()) {
            let connection = match holder.who {
                shard_fence::Who::Client { id, .. } => Some(id),
                shard_fence::Who::Applier => continue,
                shard_fence::Who::Prepared => None,
            };
            let open = SignedDuration::try_from(holder.open).unwrap_or_default();
            blockers.push(Blocker {
                shard: holder.shard,
                connection,
                since: now.checked_sub(open).unwrap_or(now),
            });
        }
    }
    Ok(Some(ServerSeen {
        executed: state.executed,
        purged: state.purged,
        has: flags.have,
        shut: flags.shut,
        follows,
        channel: channel.map(|c| seen_channel(&c, found, site, at)),
        blockers,
    }))
}

fn seen_channel(c: &channel::State, found: &Found, site: &Site, at: Place) -> ChannelSeen {
    let (end, other) = (at.end, at.end.other());
    let as_it_should_be = c.user == channel_user(site.pair(end)) && c.port == names::MYSQL_PORT;
    let leads_to = names::ORDINALS
        .into_iter()
        .find(|i| as_it_should_be && c.host == site.host(Place::new(other, *i)));
    let (receiver, applier) = (c.receiver != Receiver::Off, c.applier);
    // An error of a thread that runs again, or tries to connect, is of the past. One that has lost the protocol is only started again.
    let receiver_error = c.receiver_error.clone().filter(|_| !receiver && !c.out_of_step());
    let applier_error = c.applier_error.clone().filter(|_| !applier);
    ChannelSeen {
        leads_to,
        filter: (!c.filter.is_empty()).then(|| c.filter.shards(&found.naming)),
        started: (receiver || applier) && !c.out_of_step(),
        runs: c.runs(),
        error: applier_error.or(receiver_error),
    }
}
