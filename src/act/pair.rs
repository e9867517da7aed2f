//! Carries out what was decided about a pair. Each step on a server runs on the connection that observed it, under that server's
//! lock, and after the record was read once more (rule P7).

mod adopt;
mod error;
mod objects;
mod servers;

pub use error::Error;

use super::{apply, errant::Written, failpoint, server_error};
use crate::{
    api::{MySQLPair, ShardCluster, names},
    core::{
        credentials::Credentials,
        databases::Naming,
        pair::{
            self, Action, Decision, Record,
            moving::Moving,
            observed::{Ordinal, Server},
        },
    },
    mysql::{self, Session, fence, replication},
    observe::{
        pair::Found,
        servers::{Seen, Servers},
    },
    report,
};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::time::{Duration, Instant};

/// What was done in a pass, also when a later step of it failed.
#[derive(Debug, Default)]
pub struct Done {
    /// The pair as last written, if it was.
    pub written: Option<MySQLPair>,
    /// A new record was written.
    pub recorded: bool,
    /// When the recorded active server was opened.
    pub opened: Option<Timestamp>,
    /// The volume that was kept of a server that was replaced.
    pub kept: Option<String>,
    /// What was saved of errant transactions, and of which Pod.
    pub saved: Option<(String, Written)>,
    /// How long each step took that `status.lastChange` tells, by the name that it has there.
    pub steps: Vec<(&'static str, Duration)>,
}

/// What a pass acts with.
pub struct Hands<'a> {
    /// The API.
    pub client: &'a Client,
    /// What the API said.
    pub found: &'a Found,
    /// The servers that were seen.
    pub seen: &'a mut [Seen; 2],
    /// Connections and copies that outlive the pass.
    pub servers: &'a Servers,
    /// Passwords, when there are any.
    pub credentials: Option<&'a Credentials>,
    /// How databases are called, when that is known.
    pub naming: Option<&'a Naming>,
    /// The record that was decided upon, or written since.
    record: Option<Record>,
    locked: [bool; 2],
    /// The record was read under the locks that are held.
    confirmed: bool,
    /// The active server was closed for a switchover that is not recorded.
    closed: Option<Ordinal>,
    /// A receiver was stopped for it.
    stopped: Option<Ordinal>,
    /// Commits began to wait in this pass.
    joining: bool,
    /// What the record of the cluster said, read under the locks that are held and after the pair's own was written.
    moving: Option<Moving>,
    done: Done,
}

impl<'a> Hands<'a> {
    /// Nothing is locked, nothing written.
    pub fn new(
        client: &'a Client,
        found: &'a Found,
        seen: &'a mut [Seen; 2],
        servers: &'a Servers,
        credentials: Option<&'a Credentials>,
        naming: Option<&'a Naming>,
    ) -> Self {
        let record = pair::record(&found.name, &found.status());
        Self {
            client,
            found,
            seen,
            servers,
            credentials,
            naming,
            record,
            locked: [false; 2],
            confirmed: false,
            closed: None,
            stopped: None,
            joining: false,
            moving: None,
            done: Done::default(),
        }
    }

    /// Takes the steps in their order; the first that fails ends them.
    pub async fn act(mut self, decision: &Decision) -> (Done, Result<(), Error>) {
        let mut result = self.take_locks(&decision.actions).await;
        let last = decision.actions.last();
        let halt = decision.change.and_then(|_| failpoint::halt(&self.found.pair));
        let epoch = self.found.status().epoch;
        for (taken, action) in decision.actions.iter().enumerate() {
            if result.is_err() {
                break;
            }
            failpoint::reached(halt, taken, epoch).await;
            let began = Instant::now();
            result = self.step(action).await;
            let took = began.elapsed();
            tracing::info!(
                namespace = self.found.namespace,
                pair = self.found.name,
                ?action,
                reason = decision.overall.reason(),
                milliseconds = took.as_millis(),
                error = result.as_ref().err().map(tracing::field::display),
                "step"
            );
            match (&result, name_of(action)) {
                (Ok(()), Some(name)) => self.done.steps.push((name, took)),
                // A pair that goes is not held up by a server that cannot be closed.
                (Err(_), _)
                    if matches!(action, Action::Fence(_)) && last == Some(&Action::RemoveFinalizer) =>
                {
                    result = Ok(());
                }
                _ => {}
            }
        }
        if result.is_ok() {
            failpoint::reached(halt, decision.actions.len(), epoch).await;
        }
        if let (Err(source), Some(closed)) = (&result, self.closed) {
            let reopened = !source.is_unknown() && self.was_serving(closed) && self.take_back(closed).await;
            result = result.map_err(|source| Error::Aborted {
                reopened,
                source: Box::new(source),
            });
        }
        for (seen, locked) in self.seen.iter_mut().zip(self.locked) {
            if let (Some(session), true) = (&mut seen.session, locked)
                && !session.is_broken()
            {
                // A lock that is not given back goes with the connection.
                let _ = session.unlock().await;
            }
        }
        (self.done, result)
    }

    /// Whether the server was seen to take writes, and to have them acknowledged by the other one: only then may it do so again without
    /// more ado.
    fn was_serving(&self, i: Ordinal) -> bool {
        match self.seen.get(i).map(|s| &s.server) {
            Some(Server::Up(s)) => s.writable() && s.source.enabled,
            _ => false,
        }
    }

    /// The active server is opened again after a switchover that came to nothing, still under its lock. Whether it is.
    async fn take_back(&mut self, closed: Ordinal) -> bool {
        if self.confirm().await.is_err() {
            return false;
        }
        let stopped = self.stopped;
        if let Some(session) = stopped.and_then(|i| self.seen.get_mut(i)?.session.as_mut())
            && let Err(error) = replication::start(session).await
        {
            tracing::warn!(%error, "a receiver that was stopped does not start");
        }
        match self.seen.get_mut(closed).and_then(|s| s.session.as_mut()) {
            Some(session) => fence::open(session).await.is_ok(),
            None => false,
        }
    }

    async fn step(&mut self, action: &Action) -> Result<(), Error> {
        match action {
            Action::AddFinalizer => self.finalizer(true).await,
            Action::RemoveFinalizer => self.finalizer(false).await,
            Action::Record(record) => self.record(record).await,
            Action::DeletePod { place, uid, down } => self.delete_pod(*place, uid, *down).await,
            Action::SaveErrant { server, set } => self.save_errant(*server, set).await,
            Action::Replace { place, uid } => self.replace(*place, uid.as_deref()).await,
            Action::Rebuild { server, donor } => self.rebuild(*server, *donor).await,
            Action::CloneFrom { server, known, from } => self.clone_from(*server, known, from).await,
            Action::EndClone(i) => self.end_clone(*i).await,
            Action::Adopt { server, of, from } => self.adopt(*server, *of, from).await,
            Action::Follow { server, source } => self.follow(*server, *source).await,
            Action::Reach { server, of } => self.reach(*server, *of).await,
            Action::Accounts { server, followers } => self.accounts(*server, followers).await,
            Action::Open(i) => {
                self.on(action, *i).await?;
                self.done.opened = Some(Timestamp::now());
                Ok(())
            }
            Action::Close(i) => {
                // Before it is tried: one that fails half-way is opened again as well.
                self.session(*i).await?;
                self.closed = Some(*i);
                self.on(action, *i).await
            }
            Action::SourceOn { server, .. } => {
                self.on(action, *server).await?;
                self.joining = true;
                Ok(())
            }
            Action::StopReceiver(i) => {
                self.on(action, *i).await?;
                self.stopped = Some(*i);
                Ok(())
            }
            Action::Shut(i) => self.shut(*i).await,
            Action::Unshut { server, active } => self.unshut(*server, *active).await,
            Action::Bar(i) | Action::Admit(i) => self.accounts_of_others(action, *i).await,
            Action::Fence(i)
            | Action::Apply(i)
            | Action::Discard(i)
            | Action::SourceOff(i)
            | Action::SyncRelayLog { server: i, .. }
            | Action::Timeout { server: i, .. }
            | Action::LockOut { server: i, .. }
            | Action::Start(i)
            | Action::Stop(i)
            | Action::Quiet(i)
            | Action::Unlink(i)
            | Action::Mend(i) => self.on(action, *i).await,
        }
    }

    fn host(&self, i: Ordinal) -> String {
        names::host(&self.found.namespace, &self.found.name, i)
    }
    fn pod(&self, i: Ordinal) -> String {
        names::pod(&self.found.name, i)
    }
    fn done<T>(&self, i: Ordinal, step: &'static str, result: Result<T, mysql::Error>) -> Result<T, Error> {
        server_error::on(|| self.pod(i), step, result)
    }

    /// The connection that observed the server, with its lock, after the record was read once more.
    async fn session(&mut self, i: Ordinal) -> Result<&mut Session, Error> {
        self.lock(i).await?;
        if !self.confirmed {
            self.confirm().await?;
            self.confirmed = true;
        }
        let pod = self.pod(i);
        let session = self.seen.get_mut(i).and_then(|s| s.session.as_mut());
        session.ok_or(Error::NoConnection(pod))
    }

    /// Takes the locks of all servers that the steps change, before the first of them: whoever takes one of them away in between makes the
    /// step on that server fail, for it is never taken again. Fences come by themselves, and may come last.
    async fn take_locks(&mut self, actions: &[Action]) -> Result<(), Error> {
        for i in actions.iter().flat_map(servers_of) {
            self.lock(i).await?;
        }
        Ok(())
    }

    /// Takes the server's lock, unless it is held already. What was read before it proves nothing any more.
    async fn lock(&mut self, i: Ordinal) -> Result<(), Error> {
        if self.locked.get(i).is_some_and(|l| *l) {
            return Ok(());
        }
        let pod = self.pod(i);
        let session = self.seen.get_mut(i).and_then(|s| s.session.as_mut());
        let session = session.ok_or(Error::NoConnection(pod))?;
        let locked = session.lock().await;
        self.done(i, "lock", locked)?;
        if let Some(l) = self.locked.get_mut(i) {
            *l = true;
        }
        self.confirmed = false;
        self.moving = None;
        Ok(())
    }

    /// Whether the record and the pair are still what was decided upon.
    async fn confirm(&self) -> Result<(), Error> {
        let now = apply::get::<MySQLPair>(self.client, &self.found.namespace, &self.found.name).await?;
        let seen = &self.found.pair;
        let same = now.is_some_and(|now| {
            let status = now.status.clone().unwrap_or_default();
            now.metadata.uid == seen.metadata.uid
                && now.metadata.generation == seen.metadata.generation
                && now.metadata.deletion_timestamp == seen.metadata.deletion_timestamp
                && pair::record(&self.found.name, &status) == self.record
        });
        if same { Ok(()) } else { Err(Error::Superseded) }
    }

    /// Rule P2: by compare-and-swap on what was read at the beginning of the pass, or written in it. The servers that the other steps change
    /// are locked by then: so the swap is at the same time the reading of the record under their locks.
    async fn record(&mut self, record: &Record) -> Result<(), Error> {
        let seen = self.done.written.as_ref().unwrap_or(&self.found.pair);
        let mut new = seen.status.clone().unwrap_or_default();
        record.write_to(&self.found.name, &mut new);
        let written = report::pair::write(self.client, seen, &new).await?;
        if written.is_some() {
            self.done.written = written;
            self.confirmed = true;
        }
        // As it can be read there.
        self.record = pair::record(&self.found.name, &new);
        self.done.recorded = true;
        self.closed = None;
        self.moving = None;
        Ok(())
    }

    /// What moves ask of the pair, by the record of the cluster as it is now. A batch that is begun later finds that the pair has another record,
    /// or this server locked (`docs/split.md`).
    async fn moving(&mut self) -> Result<Moving, Error> {
        if let Some(moving) = &self.moving {
            return Ok(moving.clone());
        }
        let name = &self.found.pair.spec.cluster_ref.name;
        let cluster = apply::get::<ShardCluster>(self.client, &self.found.namespace, name).await?;
        let placement = cluster.and_then(|c| c.status?.placement).unwrap_or_default();
        let moving = Moving::of(&placement, &self.found.name);
        self.moving = Some(moving.clone());
        Ok(moving)
    }
}

/// The servers that a step changes, or whose position it takes.
fn servers_of(action: &Action) -> Vec<Ordinal> {
    match action {
        Action::Open(i)
        | Action::Close(i)
        | Action::StopReceiver(i)
        | Action::Apply(i)
        | Action::Discard(i)
        | Action::SourceOff(i)
        | Action::Start(i)
        | Action::Stop(i)
        | Action::Bar(i)
        | Action::Admit(i)
        | Action::Quiet(i)
        | Action::Unlink(i)
        | Action::Mend(i)
        | Action::Shut(i)
        | Action::Unshut { server: i, .. }
        | Action::SourceOn { server: i, .. }
        | Action::SyncRelayLog { server: i, .. }
        | Action::Timeout { server: i, .. }
        | Action::Accounts { server: i, .. }
        | Action::LockOut { server: i, .. }
        | Action::Follow { server: i, .. }
        | Action::CloneFrom { server: i, .. }
        | Action::EndClone(i)
        | Action::Rebuild { server: i, .. } => vec![*i],
        Action::Reach { server, of } | Action::Adopt { server, of, .. } => vec![*server, *of],
        // A fence is a pass of its own on its server; the others change none.
        Action::Fence(_)
        | Action::AddFinalizer
        | Action::RemoveFinalizer
        | Action::Record(_)
        | Action::SaveErrant { .. }
        | Action::Replace { .. }
        | Action::DeletePod { .. } => vec![],
    }
}

/// The name of a step in `status.lastChange`.
fn name_of(action: &Action) -> Option<&'static str> {
    Some(match action {
        Action::Close(_) => "closed",
        Action::Reach { .. } => "reached",
        Action::Record(_) => "recorded",
        Action::StopReceiver(_) => "received",
        Action::Apply(_) => "applied",
        Action::Discard(_) => "discarded",
        Action::Open(_) => "opened",
        _ => return None,
    })
}

/// Under which the connections of a server are held.
pub fn key(namespace: &str, pod: &str) -> String {
    format!("{namespace}/{pod}")
}
