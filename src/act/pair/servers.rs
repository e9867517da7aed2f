//! The steps on servers.

use super::{super::errant, Error, Hands, key};
use crate::{
    api::names,
    core::{
        credentials::replication_user,
        databases::Naming,
        gtid::GtidSet,
        pair::{
            Action,
            moving::{Moving, acknowledging},
            observed::{Ordinal, Server},
        },
        spans::SpanSet,
    },
    deadline,
    mysql::{Session, accounts, channel, clone, fence, links, replication, semisync, shard_fence, state},
    resources::{errant::Origin, stateful_set::CONFIG_DIR},
};

/// The channel within the pair, which has no name.
const OWN: &str = "";

impl Hands<'_> {
    /// A step that one server takes by itself.
    pub(super) async fn on(&mut self, action: &Action, i: Ordinal) -> Result<(), Error> {
        let others = self.takes_from_others(i);
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
            Action::Stop(_) if others => ("stop replication", channel::stop(session, OWN).await),
            Action::Stop(_) => ("stop replication", replication::stop(session).await),
            Action::Quiet(_) => ("stop taking from other pairs", links::quiet(session).await),
            Action::Unlink(_) => ("stop taking from other pairs", links::unlink(session).await),
            Action::Mend(_) => (
                "bring its receivers back into step",
                channel::mend(session).await.map(drop),
            ),
            // The others are not of one server.
            _ => ("nothing", Ok(())),
        };
        self.done(i, step, result)
    }

    /// Whether the server has channels that take from other pairs: they would end with its own receiver.
    fn takes_from_others(&self, i: Ordinal) -> bool {
        match self.seen.get(i).map(|s| &s.server) {
            Some(Server::Up(s)) => s.links.as_ref().is_some_and(|l| !l.channels.is_empty()),
            _ => false,
        }
    }

    /// What moves ask of the pair, read under the lock of the server, and what its databases are changed with. Nothing without a cluster: there is nobody
    /// to say how they are called, nor where they belong.
    async fn databases(&mut self, server: Ordinal) -> Result<Option<(Moving, &Naming, &mut Session)>, Error> {
        let Some(naming) = self.naming else {
            return Ok(None);
        };
        self.session(server).await?;
        let moving = self.moving().await?;
        Ok(Some((moving, naming, self.session(server).await?)))
    }

    pub(super) async fn shut(&mut self, server: Ordinal) -> Result<(), Error> {
        let Some((moving, naming, session)) = self.databases(server).await? else {
            return Ok(());
        };
        let work = async {
            let flags = shard_fence::read(session, naming).await?;
            shard_fence::shut(session, naming, &moving.missing(&flags.have, &flags.shut)).await
        };
        let result = work.await;
        self.done(server, "close the databases of other pairs", result)
    }

    /// A client that reads may hold on to a database for as long as it likes: that one is left to the moves.
    pub(super) async fn unshut(&mut self, server: Ordinal, active: bool) -> Result<(), Error> {
        let Some((moving, naming, session)) = self.databases(server).await? else {
            return Ok(());
        };
        let work = async {
            let flags = shard_fence::read(session, naming).await?;
            let left = moving.left(&flags.shut, active);
            let holders = shard_fence::holders(session, naming, &left).await?;
            let held: SpanSet = holders.iter().map(|h| h.shard).collect();
            shard_fence::open(session, naming, &left.minus(&held)).await
        };
        let result = work.await;
        match result {
            // Somebody came in between.
            Err(error) if error.code().is_some() => {
                tracing::warn!(pod = self.pod(server), %error, "a database stays READ ONLY for now");
                Ok(())
            }
            result => self.done(server, "open the databases of the pair", result),
        }
    }

    /// The accounts that other pairs take with are barred, or let in.
    pub(super) async fn accounts_of_others(&mut self, action: &Action, server: Ordinal) -> Result<(), Error> {
        self.session(server).await?;
        let mut users = self.moving().await?.accounts;
        if let Some(Server::Up(s)) = self.seen.get(server).map(|s| &s.server)
            && matches!(action, Action::Bar(_))
        {
            // Those that are left of moves that are over, as well.
            users.extend(acknowledging(s));
            users.extend(
                s.links
                    .iter()
                    .flat_map(|l| l.accounts.iter().map(|a| a.user.clone())),
            );
        }
        users.sort();
        users.dedup();
        if users.is_empty() {
            return Ok(());
        }
        let session = self.session(server).await?;
        let result = match action {
            Action::Bar(_) => accounts::bar(session, &users).await,
            _ => accounts::admit(session, &users).await,
        };
        self.done(server, "set who of other pairs may take from it", result)
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
        let others = self.takes_from_others(server);
        let session = self.session(server).await?;
        let source = replication::Source {
            host: &host,
            port: names::MYSQL_PORT,
            user: &replication_user(&uuid),
            password,
            ca_file: &ca_file,
        };
        let stopped = if others {
            channel::stop(session, OWN).await
        } else {
            Ok(())
        };
        let result = match stopped {
            Ok(()) => replication::follow(session, &source).await,
            Err(e) => Err(e),
        };
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
        let host = self.host(donor);
        self.copy_over(server, host).await
    }

    /// The passwords and the authority of all pairs are those of the cluster.
    pub(super) async fn copy_over(&mut self, server: Ordinal, host: String) -> Result<(), Error> {
        let key = key(&self.found.namespace, &self.pod(server));
        let donor = clone::Donor {
            host,
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
