//! Carries out what was decided about a move. Each step on a server runs on the connection that observed it, under that server's lock, after the
//! record and both pairs were read once more (rule P7). A step whose lock was taken away fails, and is decided anew.

mod comparing;
mod copying;
mod record;
mod steps;
pub mod work;

pub use record::{Change, ChangeError};

use super::{
    apply::{self, Error as ApiError},
    placement as record_act,
    server_error::{self, ServerError},
};
use crate::{
    api::{MySQLPair, Placement, ShardCluster},
    core::{
        credentials::Credentials,
        databases::Naming,
        migration::{
            Action, Decision, Observed, Pairs,
            observed::{End, Place},
        },
        spans::SpanSet,
    },
    mysql::{self, Session},
    observe::migration::Site,
};
use kube::Client;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use work::Works;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The record was not changed.
    #[error(transparent)]
    Record(#[from] record_act::Error<ChangeError>),
    /// A server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The record or a pair is not what was seen: what was decided is void.
    #[error("the record, or one of the pairs, changed since it was read")]
    Superseded,
    /// The connection that observed the server is gone.
    #[error("{0}: the connection is gone")]
    NoConnection(String),
    /// There are no credentials to do it with.
    #[error("there are no credentials of MySQLPair {0}")]
    NoCredentials(String),
    /// The target has not got there in time.
    #[error("{0} has not got there in time")]
    Behind(String),
    /// Shards that could not be fenced, and why.
    #[error("shards {shards} could not be fenced: {by}")]
    Held {
        /// Which.
        shards: SpanSet,
        /// Who holds on to them.
        by: String,
    },
    /// A channel is there that is not to be.
    #[error("{0} has a channel of the move")]
    Linked(String),
    /// The deadline of a batch has passed.
    #[error("the batch is not through in time")]
    TooLate,
}

impl Error {
    /// Somebody wrote in between, or took a lock: nothing stands in the way of deciding anew.
    pub fn is_void(&self) -> bool {
        match self {
            Self::Superseded => true,
            Self::Api(e) => e.is_conflict(),
            Self::Record(e) => {
                e.is_conflict() || matches!(e, record_act::Error::Refused(ChangeError::Superseded))
            }
            _ => false,
        }
    }
    /// A server answered well but was not as far as it should be: it is asked again, without alarm.
    pub fn is_not_reached(&self) -> bool {
        matches!(self, Self::Server(e) if e.is_not_reached())
    }
    /// For metrics.
    pub fn label(&self) -> &'static str {
        match self {
            e if e.is_void() => "conflict",
            Self::Api(_) | Self::Record(record_act::Error::Api(_)) => "api",
            Self::Record(_) => "record",
            Self::Behind(_) => "behind",
            e if e.is_not_reached() => "behind",
            Self::Held { .. } => "held",
            Self::TooLate => "late",
            _ => "server",
        }
    }
}

/// What was done in a pass, also when a later step of it failed.
#[derive(Debug, Default)]
pub struct Done {
    /// The cluster as last read or written.
    pub cluster: Option<ShardCluster>,
    /// A batch is on record.
    pub begun: bool,
    /// It was cut over: the point of no return is behind it.
    pub cut_over: bool,
    /// From the first fence to the opening at the target.
    pub blocked: Option<Duration>,
}

/// What a pass acts with.
pub struct Hands<'a> {
    /// The API.
    pub client: &'a Client,
    /// Where the move is.
    pub site: &'a Site,
    /// What was decided upon.
    pub observed: &'a Observed,
    /// How databases are called.
    pub naming: &'a Naming,
    /// Passwords, by pair.
    pub credentials: &'a [Option<Credentials>; 2],
    /// The connections that observed.
    pub sessions: &'a mut BTreeMap<Place, Session>,
    /// What runs in the background.
    pub works: &'a mut Works,
    /// The record as it is to be found.
    record: Placement,
    /// The cluster as it was last seen.
    cluster: ShardCluster,
    locked: BTreeSet<Place>,
    /// The steps before the point of no return are over by then.
    until: Option<Instant>,
    /// The steps are those of a batch.
    batch: bool,
    fenced: Option<Instant>,
    beside: Option<Session>,
    done: Done,
}

impl<'a> Hands<'a> {
    /// Nothing is locked, nothing written. `cluster` is what was read.
    pub fn new(
        client: &'a Client,
        site: &'a Site,
        observed: &'a Observed,
        cluster: ShardCluster,
        with: (&'a Naming, &'a [Option<Credentials>; 2]),
        sessions: &'a mut BTreeMap<Place, Session>,
        works: &'a mut Works,
    ) -> Self {
        Self {
            client,
            site,
            observed,
            naming: with.0,
            credentials: with.1,
            sessions,
            works,
            record: observed.record.clone(),
            cluster,
            locked: BTreeSet::new(),
            until: None,
            batch: false,
            fenced: None,
            beside: None,
            done: Done::default(),
        }
    }

    /// Takes the steps in their order; the first that fails ends them. `halt` names the step before which this operator does nothing more about the
    /// move, for tests.
    pub async fn act(mut self, decision: &Decision, halt: Option<&str>) -> (Done, Result<(), Error>) {
        self.batch = decision.deadline.is_some();
        let mut result = self.prepare(decision).await;
        for (taken, action) in decision.actions.iter().enumerate() {
            if result.is_err() {
                break;
            }
            super::failpoint::before(halt, &decision.actions, taken).await;
            let began = Instant::now();
            result = self.in_time(action, decision).await;
            tracing::info!(
                namespace = self.site.namespace,
                r#move = %self.site.key,
                state = decision.state.name(),
                ?action,
                milliseconds = began.elapsed().as_millis(),
                error = result.as_ref().err().map(tracing::field::display),
                "step"
            );
        }
        if result.is_ok() {
            super::failpoint::before(halt, &decision.actions, decision.actions.len()).await;
        }
        for at in &self.locked {
            if let Some(session) = self.sessions.get_mut(at)
                && !session.is_broken()
            {
                // A lock that is not given back goes with the connection.
                let _ = session.unlock().await;
            }
        }
        self.done.cluster = Some(self.cluster);
        (self.done, result)
    }

    /// One step. Those of a batch have until its deadline: what was under way then is left, and with it the connections, whose answers would be those to
    /// earlier questions.
    async fn in_time(&mut self, action: &Action, decision: &Decision) -> Result<(), Error> {
        let Some(left) = self.left()? else {
            return Box::pin(self.step(action, decision)).await;
        };
        let step = Box::pin(self.step(action, decision));
        if let Ok(done) = crate::deadline::within(left, step).await {
            return done;
        }
        self.sessions.clear();
        self.locked.clear();
        Err(Error::TooLate)
    }

    /// Takes the locks of all servers that the steps name, then reads the record and both pairs once more.
    async fn prepare(&mut self, decision: &Decision) -> Result<(), Error> {
        let mut locks: BTreeSet<Place> = decision.actions.iter().flat_map(Action::locks).collect();
        // An account is made, and others counted upon, where a channel is pointed.
        for action in &decision.actions {
            if let Action::Point { at, source, .. } = action {
                let other = Place::new(at.end, usize::from(at.server == 0));
                locks.extend(Some(other).filter(|at| self.sessions.contains_key(at)));
                locks.insert(self.observed.active(source.end));
            }
        }
        // What copies in the background holds these two itself.
        locks.retain(
            |at| !matches!(decision.actions.first(), Some(Action::Seed { into, .. }) if *into == at.end),
        );
        if self.batch {
            let source = decision.actions.iter().find_map(|a| match a {
                Action::Fence { at, .. } => Some(*at),
                _ => None,
            });
            if let Some(at) = source {
                let session = self.sessions.get(&at).ok_or_else(|| self.no_connection(at))?;
                let opened = Session::open(session.access().clone()).await;
                self.beside = Some(self.on(at, "open another connection", opened)?);
            }
        }
        for at in locks {
            self.lock(at).await?;
        }
        if self.locked.is_empty() {
            return Ok(());
        }
        self.confirm().await
    }

    async fn lock(&mut self, at: Place) -> Result<(), Error> {
        if self.locked.contains(&at) {
            return Ok(());
        }
        let locked = self.session(at)?.lock().await;
        self.on(at, "lock", locked)?;
        self.locked.insert(at);
        Ok(())
    }

    fn no_connection(&self, at: Place) -> Error {
        Error::NoConnection(self.site.pod(at))
    }

    fn session(&mut self, at: Place) -> Result<&mut Session, Error> {
        let pod = self.site.pod(at);
        self.sessions
            .get_mut(&at)
            .filter(|s| !s.is_broken())
            .ok_or(Error::NoConnection(pod))
    }

    fn on<T>(&self, at: Place, step: &'static str, result: Result<T, mysql::Error>) -> Result<T, Error> {
        server_error::on(|| self.site.pod(at), step, result)
    }

    fn credentials_of(&self, end: End) -> Result<&Credentials, Error> {
        self.credentials
            .get(end as usize)
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::NoCredentials(self.site.pair(end).to_owned()))
    }

    /// Whether the record and both pairs are what was decided upon.
    async fn confirm(&mut self) -> Result<(), Error> {
        let (cluster, pairs) = futures::try_join!(
            async {
                let got = apply::get::<ShardCluster>(self.client, &self.site.namespace, &self.site.cluster);
                Ok::<_, Error>(got.await?)
            },
            self.pairs(),
        )?;
        let cluster = cluster
            .filter(|c| c.metadata.uid == self.cluster.metadata.uid)
            .ok_or(Error::Superseded)?;
        let placement = cluster.status.as_ref().and_then(|s| s.placement.as_ref());
        let same = placement.is_some_and(|p| record::same(&self.record, p, &self.site.key));
        if !same || pairs != self.observed.pairs() {
            return Err(Error::Superseded);
        }
        self.cluster = cluster;
        Ok(())
    }

    /// Who is active in each pair, since which epoch, as the API has it now; a pair that is not there is as it was seen.
    async fn pairs(&self) -> Result<Pairs, Error> {
        let get = |end: End| async move {
            let pair =
                apply::get::<MySQLPair>(self.client, &self.site.namespace, self.site.pair(end)).await?;
            let seen = self.observed.pair(end);
            Ok::<_, Error>(match pair {
                Some(p) => (
                    crate::core::cluster::observed::active(&p).unwrap_or_default(),
                    p.status.as_ref().map_or(0, |s| s.epoch),
                ),
                None => (seen.active, seen.epoch),
            })
        };
        let (from, to) = futures::try_join!(get(End::From), get(End::To))?;
        Ok([from, to])
    }

    /// How long a step of a batch may take.
    fn left(&self) -> Result<Option<Duration>, Error> {
        match self.until {
            Some(until) => until
                .checked_duration_since(Instant::now())
                .filter(|d| !d.is_zero())
                .map(Some)
                .ok_or(Error::TooLate),
            None => Ok(None),
        }
    }
}
