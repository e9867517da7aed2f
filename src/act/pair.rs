//! Carries out what was decided about a pair. Each step on a server runs on the connection that observed it, under that server's
//! lock, and after the record was read once more (rule P7).

use super::apply::{self, Error as ApiError};
use crate::{
    api::{MySQLPair, names},
    core::{
        credentials::Credentials,
        databases::Naming,
        pair::{self, Action, Decision, Record, observed::Ordinal},
    },
    deadline,
    mysql::{self, Session, accounts, clone, fence, replication},
    observe::{
        pair::Found,
        servers::{Seen, Servers},
    },
    report,
    resources::stateful_set::CONFIG_DIR,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};

/// Time for a Pod in which nothing serves to end by itself.
const DOWN_GRACE_SECONDS: u32 = 10;

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A server.
    #[error("{pod}: {step}: {source}")]
    Server {
        /// Its Pod.
        pod: String,
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: mysql::Error,
    },
    /// Somebody else changed the record, or the pair, in between: what was decided is void.
    #[error("the record changed since it was read")]
    Superseded,
    /// The connection that observed the server is gone.
    #[error("{0}: the connection is gone")]
    NoConnection(String),
    /// There are no credentials to do it with.
    #[error("there are no credentials")]
    NoCredentials,
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
    /// The record that was decided upon.
    record: Option<Record>,
    locked: [bool; 2],
    /// The pair as last written.
    written: Option<MySQLPair>,
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
            written: None,
        }
    }

    /// Takes the steps in their order; the first that fails ends them. Returns the pair as last written, if it was.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn act(mut self, decision: &Decision) -> Result<Option<MySQLPair>, Error> {
        let mut result = Ok(());
        for action in &decision.actions {
            tracing::info!(
                namespace = self.found.namespace,
                pair = self.found.name,
                ?action,
                reason = decision.overall.reason(),
                "step"
            );
            result = self.step(action).await;
            if result.is_err() {
                break;
            }
        }
        for (seen, locked) in self.seen.iter_mut().zip(self.locked) {
            if let (Some(session), true) = (&mut seen.session, locked) {
                // A lock that is not given back goes with the connection.
                let _ = session.unlock().await;
            }
        }
        result.map(|()| self.written)
    }

    async fn step(&mut self, action: &Action) -> Result<(), Error> {
        match action {
            Action::AddFinalizer => self.finalizer(true).await,
            Action::RemoveFinalizer => self.finalizer(false).await,
            Action::Record(record) => self.record(record).await,
            Action::DeletePod { place, uid, down } => self.delete_pod(*place, uid, *down).await,
            Action::Fence(i) => {
                let session = self.session(*i).await?;
                let result = fence::close(session).await;
                self.done(*i, "close", result)
            }
            Action::Open(i) => {
                let session = self.session(*i).await?;
                let result = fence::open(session).await;
                self.done(*i, "open", result)
            }
            Action::Accounts(i) => {
                let (Some(credentials), Some(naming)) = (self.credentials, self.naming) else {
                    return Err(Error::NoCredentials);
                };
                let session = self.session(*i).await?;
                let result = accounts::set_up(session, credentials, naming).await;
                self.done(*i, "set up accounts", result)
            }
            Action::Follow { server, source } => {
                let password = &self.credentials.ok_or(Error::NoCredentials)?.replication_password;
                let (host, ca_file) = (self.host(*source), ca_file());
                let session = self.session(*server).await?;
                let source = replication::Source {
                    host: &host,
                    port: names::MYSQL_PORT,
                    password,
                    ca_file: &ca_file,
                };
                let result = replication::follow(session, &source).await;
                self.done(*server, "follow", result)
            }
            Action::Start(i) => {
                let session = self.session(*i).await?;
                let result = replication::start(session).await;
                self.done(*i, "start replication", result)
            }
            Action::Stop(i) => {
                let session = self.session(*i).await?;
                let result = replication::stop(session).await;
                self.done(*i, "stop replication", result)
            }
            Action::Rebuild { server, donor } => self.rebuild(*server, *donor).await,
        }
    }

    fn host(&self, i: Ordinal) -> String {
        names::host(&self.found.namespace, &self.found.name, i)
    }
    fn pod(&self, i: Ordinal) -> String {
        names::pod(&self.found.name, i)
    }
    fn done(&self, i: Ordinal, step: &'static str, result: Result<(), mysql::Error>) -> Result<(), Error> {
        result.map_err(|source| Error::Server {
            pod: self.pod(i),
            step,
            source,
        })
    }

    /// The connection that observed the server, with its lock, after the record was read once more.
    async fn session(&mut self, i: Ordinal) -> Result<&mut Session, Error> {
        let pod = self.pod(i);
        let first = self.locked.get(i).is_some_and(|l| !l);
        if first {
            let session = self.seen.get_mut(i).and_then(|s| s.session.as_mut());
            let session = session.ok_or_else(|| Error::NoConnection(pod.clone()))?;
            session.lock().await.map_err(|source| Error::Server {
                pod: pod.clone(),
                step: "lock",
                source,
            })?;
            if let Some(l) = self.locked.get_mut(i) {
                *l = true;
            }
            self.confirm().await?;
        }
        let session = self.seen.get_mut(i).and_then(|s| s.session.as_mut());
        session.ok_or(Error::NoConnection(pod))
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

    /// Rule P2: by compare-and-swap on what was read at the beginning of the pass.
    async fn record(&mut self, record: &Record) -> Result<(), Error> {
        let old = self.found.status();
        let mut new = old.clone();
        record.write_to(&self.found.name, &mut new);
        let seen = self.written.as_ref().unwrap_or(&self.found.pair);
        let written =
            report::status::write(self.client, names::MANAGER_PAIR, seen, seen.status.as_ref(), &new).await?;
        if written.is_some() {
            self.written = written;
        }
        self.record = Some(record.clone());
        Ok(())
    }

    async fn finalizer(&mut self, on: bool) -> Result<(), Error> {
        let pair = &self.found.pair;
        let mut finalizers = pair.finalizers().to_vec();
        finalizers.retain(|f| f != names::FINALIZER);
        if on {
            finalizers.push(names::FINALIZER.to_owned());
        }
        let body = serde_json::json!({
            "metadata": { "resourceVersion": pair.resource_version(), "finalizers": finalizers },
        });
        let pp = PatchParams {
            field_manager: Some(names::MANAGER_PAIR.to_owned()),
            ..PatchParams::default()
        };
        let api = Api::<MySQLPair>::namespaced(self.client.clone(), &self.found.namespace);
        let body = Patch::Merge(body);
        let call = api.patch(&self.found.name, &pp, &body);
        match apply::call("patch the finalizers of", apply::describe(pair), call).await {
            Ok(pair) => {
                self.written = Some(pair);
                Ok(())
            }
            // It went with its last finalizer.
            Err(e) if !on && e.is_not_found() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    async fn delete_pod(&self, place: Ordinal, uid: &str, down: bool) -> Result<(), Error> {
        self.confirm().await?;
        let pod = self.found.pods.get(place).and_then(Option::as_ref);
        let Some(pod) = pod.filter(|p| p.metadata.uid.as_deref() == Some(uid)) else {
            return Ok(());
        };
        let dp = DeleteParams {
            grace_period_seconds: down.then_some(DOWN_GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let api = Api::<Pod>::namespaced(self.client.clone(), &self.found.namespace);
        match apply::call("delete", apply::describe(pod), api.delete(&self.pod(place), &dp)).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Starts a copy, which goes on after the pass on the connection that observed the server, its lock held all the while.
    async fn rebuild(&mut self, server: Ordinal, donor: Ordinal) -> Result<(), Error> {
        let key = key(&self.found.namespace, &self.pod(server));
        if self.servers.copying(&key) {
            return Ok(());
        }
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

/// Under which the connections of a server are held.
pub fn key(namespace: &str, pod: &str) -> String {
    format!("{namespace}/{pod}")
}

fn ca_file() -> String {
    format!("{CONFIG_DIR}/tls/ca.crt")
}
