//! Whether another server has to become active, and whether it can: rules P4 and P6.

use super::{
    compare::{Threads, applier_fault, threads},
    observed::{Observed, Ordinal, Record, Server, ServerState},
};
use crate::core::gtid::GtidSet;

/// What is wrong with the active server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It does not answer: dead, hung, or cut off. Which of them does not matter (rule P6).
    Unreachable,
    /// Its data folder is another one than was recorded.
    DataLost,
    /// Its volume is full: commits neither end nor fail.
    DiskFull,
}

impl Cause {
    /// For metrics and `status.lastChange`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "ActiveUnreachable",
            Self::DataLost => "ActiveDataLost",
            Self::DiskFull => "ActiveDiskFull",
        }
    }
}

/// Why the passive server cannot be promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It does not answer either.
    Unreachable,
    /// Its Pod is being deleted.
    Leaving,
    /// It is no member: it may lack what was acknowledged.
    NotMember,
    /// It is a member, and does not follow the active server: what it received is not known.
    Detached,
    /// What it received cannot be applied: number and text of the error.
    Applier((u32, String)),
    /// Its volume is full as well.
    DiskFull,
}

/// What is wrong with the recorded active server, if anything. One that refuses the operator's password, or one more
/// connection, serves its clients.
pub fn cause(o: &Observed, record: &Record) -> Option<Cause> {
    match &o.side(record.active).server {
        Server::Absent | Server::Unreachable(_) => Some(Cause::Unreachable),
        Server::Up(s) if record.member(record.active) != Some(s.uuid.as_str()) => Some(Cause::DataLost),
        Server::Up(s) if s.disk_full => Some(Cause::DiskFull),
        Server::AccessDenied(_) | Server::Full(_) | Server::Up(_) => None,
    }
}

/// Whether the passive server can be promoted; else why not.
pub fn fitness(o: &Observed, record: &Record) -> Result<(), Unfit> {
    let place = record.passive();
    let Some(server) = o.side(place).up() else {
        return Err(Unfit::Unreachable);
    };
    if o.side(place).pod.as_ref().is_none_or(|p| p.deleting) {
        return Err(Unfit::Leaving);
    }
    if record.member(place) != Some(server.uuid.as_str()) {
        return Err(Unfit::NotMember);
    }
    let host = o.host(record.active);
    let channel = server
        .channel
        .as_ref()
        .filter(|c| c.leads_to(&host, &server.uuid));
    let Some(channel) = channel else {
        return Err(Unfit::Detached);
    };
    if let Some(error) = applier_fault(channel) {
        return Err(Unfit::Applier(error));
    }
    if server.disk_full {
        return Err(Unfit::DiskFull);
    }
    Ok(())
}

/// Whether the passive server follows so closely that the active one can be handed over to it within a moment.
pub fn close_behind(o: &Observed, record: &Record) -> bool {
    let running = o.side(record.passive()).up().and_then(|s| s.channel.as_ref());
    let running = running.is_some_and(|c| matches!(threads(o, c), Threads::Run));
    let both = super::compare::Both::of(o, record);
    running && both.is_some_and(|b| b.lag() <= MAX_LAG && b.errant().is_empty())
}

/// More transactions than this are not waited for while nobody can write.
const MAX_LAG: u64 = 1000;

/// What the server at `place` received and has not executed.
pub fn unapplied(server: &ServerState) -> GtidSet {
    server
        .channel
        .as_ref()
        .map_or_else(GtidSet::new, |c| c.unapplied(&server.executed_later))
}

/// Transactions that the one that is given up had and the other one will not have, as far as this process knows: what that one received
/// and is `discarded` is among them.
pub fn given_up(o: &Observed, lost: Ordinal, kept: Ordinal, discarded: &GtidSet) -> Option<GtidSet> {
    let server = o.side(kept).up()?;
    match o.last_executed.get(lost)? {
        Some(had) => {
            let applied = unapplied(server).minus(discarded);
            Some(had.minus(&server.executed_later).minus(&applied).union(discarded))
        }
        None => Some(discarded.clone()).filter(|set| !set.is_empty()),
    }
}
