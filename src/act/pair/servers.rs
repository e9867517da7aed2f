//! The steps on servers.

use super::{super::errant, Error, Hands, key};
use crate::{
    api::names,
    core::{
        credentials::replication_user,
        gtid::GtidSet,
        pair::{
            Action,
            observed::{Ordinal, Server},
        },
    },
    deadline,
    mysql::{accounts, clone, fence, replication, semisync, state},
    resources::{errant::Origin, stateful_set::CONFIG_DIR},
};

impl Hands<'_> {
    /// A step that one server takes by itself.
    pub(super) async fn on(&mut self, action: &Action, i: Ordinal) -> Result<(), Error> {
        let session = self.session(i).await?;
        let (step, result) = match action {
            Action::Fence(_) => ("fence", fence::fence(session).await),
            Action::Open(_) => ("open", fence::open(session).await),
            Action::Close(_) => ("close", fence::close_in_time(session).await),
            Action::StopReceiver(_) => ("stop the receiver", replication::stop_receiver(session).await),
            Action::Apply(_) => ("apply what was received", replication::apply(session).await),
            Action::Discard(_) => ("discard what was received", replication::discard(session).await),
            Action::SourceOn { timeout, .. } => (
                "wait for acknowledgements",
                semisync::source_on(session, *timeout).await,
            ),
            Action::SourceOff(_) => (
                "stop waiting for acknowledgements",
                semisync::source_off(session).await,
            ),
            Action::Timeout { timeout, .. } => (
                "set the timeout of acknowledgements",
                semisync::timeout(session, *timeout).await,
            ),
            Action::SyncRelayLog { every, .. } => (
                "set how often what is received is brought to the disk",
                replication::sync_relay_log(session, *every).await,
            ),
            Action::LockOut { users, .. } => ("lock out", accounts::lock_out(session, users).await),
            Action::Start(_) => ("start replication", replication::start(session).await),
            Action::Stop(_) => ("stop replication", replication::stop(session).await),
            // The others are not of one server.
            _ => ("nothing", Ok(())),
        };
        self.done(i, step, result)
    }

    /// A position is sampled on one server and waited for on the other, whose locks are both held. After commits began to wait, every one
    /// that did not is in the sample.
    pub(super) async fn reach(&mut self, server: Ordinal, of: Ordinal) -> Result<(), Error> {
        self.lock(server).await?;
        if self.joining {
            let settled = replication::settle(self.session(of).await?).await;
            self.done(of, "settle its commits", settled)?;
        }
        let sampled = state::executed(self.session(of).await?).await;
        let set = self.done(of, "sample its position", sampled)?;
        let reached = replication::reach(self.session(server).await?, &set).await;
        self.done(server, "catch up", reached)
    }

    pub(super) async fn accounts(&mut self, server: Ordinal, followers: &[String]) -> Result<(), Error> {
        let (Some(credentials), Some(naming)) = (self.credentials, self.naming) else {
            return Err(Error::NoCredentials);
        };
        let session = self.session(server).await?;
        let result = accounts::set_up(session, credentials, naming, followers).await;
        self.done(server, "set up accounts", result)
    }

    pub(super) async fn follow(&mut self, server: Ordinal, source: Ordinal) -> Result<(), Error> {
        let password = &self.credentials.ok_or(Error::NoCredentials)?.replication_password;
        let (host, ca_file) = (self.host(source), ca_file());
        let uuid = match self.seen.get(server).map(|s| &s.server) {
            Some(Server::Up(s)) => s.uuid.clone(),
            _ => return Err(Error::NoConnection(self.pod(server))),
        };
        let session = self.session(server).await?;
        let source = replication::Source {
            host: &host,
            port: names::MYSQL_PORT,
            user: &replication_user(&uuid),
            password,
            ca_file: &ca_file,
        };
        let result = replication::follow(session, &source).await;
        self.done(server, "follow", result)
    }

    /// Reading old binary logs may take minutes: it goes on after the pass, over a connection of its own, and the next pass asks for it.
    pub(super) async fn save_errant(&mut self, server: Ordinal, set: &GtidSet) -> Result<(), Error> {
        self.confirm().await?;
        let pod = self.pod(server);
        let key = key(&self.found.namespace, &pod);
        let session = self.seen.get(server).and_then(|s| s.session.as_ref());
        let access = session
            .map(|s| s.access().clone())
            .ok_or_else(|| Error::NoConnection(pod.clone()))?;
        let of = pod.clone();
        let (client, set) = (self.client.clone(), set.clone());
        let (namespace, pair) = (self.found.namespace.clone(), self.found.name.clone());
        let cluster = self.found.pair.spec.cluster_ref.name.clone();
        let epoch = self.record.as_ref().map_or(0, |r| r.epoch);
        let start = move || async move {
            let origin = Origin {
                namespace: &namespace,
                cluster: &cluster,
                pair: &pair,
                epoch,
                pod: &pod,
            };
            errant::save(&client, &origin, &access, &set).await
        };
        match self.servers.save(&key, start).await {
            Some(saved) => {
                self.done.saved = Some((of, saved?));
                Ok(())
            }
            None => Err(Error::Busy("saving errant transactions")),
        }
    }

    /// Starts a copy, which goes on after the pass on the connection that observed the server, its lock held all the while.
    pub(super) async fn rebuild(&mut self, server: Ordinal, donor: Ordinal) -> Result<(), Error> {
        let key = key(&self.found.namespace, &self.pod(server));
        let donor = clone::Donor {
            host: self.host(donor),
            port: names::MYSQL_PORT,
            password: self
                .credentials
                .ok_or(Error::NoCredentials)?
                .replication_password
                .clone(),
            ca_file: ca_file(),
        };
        let pod = self.pod(server);
        let result = clone::prepare(self.session(server).await?, &donor).await;
        self.done(server, "prepare a copy", result)?;
        let session = self.seen.get_mut(server).and_then(|s| s.session.take());
        let mut session = session.ok_or_else(|| Error::NoConnection(pod.clone()))?;
        let task = tokio::spawn(async move {
            // The answer of one that went well never comes, mysqld ends before: what became of it is observed.
            match deadline::within(clone::LIMIT, clone::run(&mut session, &donor)).await {
                Ok(Ok(())) => tracing::info!(pod, "copied"),
                Ok(Err(error)) => tracing::info!(pod, %error, "the copy ended"),
                Err(error) => tracing::warn!(pod, %error, "the copy was given up"),
            }
        });
        self.servers.copy(&key, task);
        Ok(())
    }
}

fn ca_file() -> String {
    format!("{CONFIG_DIR}/tls/ca.crt")
}
