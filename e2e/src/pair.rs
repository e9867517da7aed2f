//! One pair, as scenarios of failover ask for it: its record, what is done to its servers, and whether it is itself again.

use crate::fleet::{Fleet, conditions};
use crate::ledger::TABLE;
use crate::server::Server;
use crate::testbed;
use crate::wait::{self, BRING_UP, SOON, Seen};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use shardwright::api::mysql_pair::{ActiveChange, MySQLPairStatus};
use shardwright::api::{MySQLPair, names};
use shardwright::core::gtid::GtidSet;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// From a fault to a server that takes writes, with room for two busy cores: how fast it is, is what the benchmarks measure.
pub const TAKEN_OVER: Duration = Duration::from_secs(30);

/// The container of a Pod that runs mysqld, as the kubelet sees it.
///
/// # Errors
/// When there is none.
pub fn container(pod: &Pod) -> Result<&ContainerStatus> {
    let all = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    all.and_then(|a| a.iter().find(|c| c.name == "mysqld"))
        .with_context(|| format!("{} has no container with mysqld", pod.name_any()))
}

/// What is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Ordinal of the active server.
    pub active: usize,
    /// Its epoch.
    pub epoch: i64,
    /// `server_uuid` of each member.
    pub members: Vec<String>,
}

impl Record {
    /// The other one.
    pub fn passive(&self) -> usize {
        1 - self.active
    }
}

/// Locks on a server, for as long as this is held.
pub struct Locks(Server);

impl Locks {
    /// Lets go of them.
    ///
    /// # Errors
    /// When the connection is gone; then the locks are as well.
    pub async fn release(mut self) -> Result<()> {
        self.0.run("ROLLBACK").await
    }
}

/// A mysqld that was stopped before it listened: nobody can tell it from one that takes long to boot.
pub struct Booting {
    pid: u32,
    pod: String,
}

impl Booting {
    /// Lets it go on.
    ///
    /// # Errors
    /// When it is not there any more.
    pub async fn go_on(self) -> Result<()> {
        testbed::signal(&[self.pid], "CONT")
            .await
            .with_context(|| format!("the mysqld of {} that booted", self.pod))
    }
}

/// A row that is being written while the scenario goes on, and what its client was told in the end.
pub struct Pending {
    /// Its text.
    pub text: String,
    /// Connection on the server.
    pub connection: u64,
    answer: JoinHandle<Result<()>>,
}

impl Pending {
    /// What the client was told, or `None` when it was told nothing within `limit`.
    ///
    /// # Errors
    /// When the task died.
    pub async fn answer(self, limit: Duration) -> Result<Option<Result<()>>> {
        match tokio::time::timeout(limit, self.answer).await {
            Ok(told) => Ok(Some(told.context("the client died")?)),
            Err(_) => Ok(None),
        }
    }
}

impl Fleet {
    /// The pair's status.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn status(&self, pair: &str) -> Result<MySQLPairStatus> {
        Ok(self.get::<MySQLPair>(pair).await?.status.unwrap_or_default())
    }

    /// The pair's record.
    ///
    /// # Errors
    /// When nothing is on record.
    pub async fn record(&self, pair: &str) -> Result<Record> {
        let status = self.status(pair).await?;
        let active = status.active.unwrap_or_default();
        let active = names::ORDINALS
            .into_iter()
            .find(|n| names::pod(pair, *n) == active)
            .ok_or_else(|| anyhow!("{pair}: active is {active:?}"))?;
        Ok(Record {
            active,
            epoch: status.epoch,
            members: status.in_sync.into_iter().map(|m| m.server_uuid).collect(),
        })
    }

    /// Waits until `to` is recorded as active, its mysqld takes writes, and the map and the Service lead there.
    ///
    /// # Errors
    /// When it is not so after `limit`.
    pub async fn served_by(&self, pair: &str, to: usize, limit: Duration) -> Result<Record> {
        let host = names::host(&self.ns, pair, to);
        let what = format!("{} to serve", names::pod(pair, to));
        wait::until(&what, limit, || async {
            let record = self.record(pair).await?;
            if record.active != to {
                let said = conditions(&self.get::<MySQLPair>(pair).await?);
                return Ok(Seen::NotYet(format!("recorded is {record:?}: {said:?}")));
            }
            let vitals = self.server(pair, to).await?.vitals().await?;
            if vitals.read_only {
                let said = conditions(&self.get::<MySQLPair>(pair).await?);
                return Ok(Seen::NotYet(format!("recorded and closed: {said:?}")));
            }
            let map = self.map().await?;
            let elsewhere: Vec<_> = map
                .entries
                .iter()
                .filter(|e| e.pair == pair && e.active.host != host)
                .collect();
            if !elsewhere.is_empty() {
                return Ok(Seen::NotYet(format!("the map says {elsewhere:?}")));
            }
            let leads = self.endpoints(&names::active_service(pair)).await?;
            Ok(if leads == [names::pod(pair, to)] {
                Seen::Yes(record)
            } else {
                Seen::NotYet(format!("the Service leads to {leads:?}"))
            })
        })
        .await
    }

    /// The Pods that a Service leads to.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn endpoints(&self, service: &str) -> Result<Vec<String>> {
        let selector = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        let slices = self.api::<EndpointSlice>().list(&selector).await?;
        let endpoints = slices.items.into_iter().flat_map(|s| s.endpoints);
        Ok(endpoints
            .filter_map(|e| e.target_ref.and_then(|t| t.name))
            .collect())
    }

    /// Waits until a number of servers is on record as in sync.
    ///
    /// # Errors
    /// When it is not so after `limit`.
    pub async fn members(&self, pair: &str, number: usize, limit: Duration) -> Result<Record> {
        wait::until(&format!("{number} members of {pair}"), limit, || async {
            let record = self.record(pair).await?;
            let said = conditions(&self.get::<MySQLPair>(pair).await?);
            Ok(if record.members.len() == number {
                Seen::Yes(record)
            } else {
                Seen::NotYet(format!("{record:?}: {said:?}"))
            })
        })
        .await
    }

    /// `status.lastChange`, which has to be of this epoch and complete.
    ///
    /// # Errors
    /// When it is not.
    pub async fn last_change(&self, pair: &str, epoch: i64) -> Result<ActiveChange> {
        wait::until(&format!("status.lastChange of epoch {epoch}"), SOON, || async {
            let change = self.status(pair).await?.last_change;
            Ok(match change {
                Some(c) if c.epoch == epoch && c.open_time.is_some() => Seen::Yes(c),
                other => Seen::NotYet(format!("{other:?}")),
            })
        })
        .await
    }

    /// Waits for an event on an object, whose note contains `word`; gives the note.
    ///
    /// # Errors
    /// When there is none after `limit`.
    pub async fn event(&self, object: &str, reason: &str, word: &str, limit: Duration) -> Result<String> {
        wait::until(&format!("an event {reason} on {object}"), limit, || async {
            let all = self.api::<Event>().list(&ListParams::default()).await?.items;
            let mut notes = all.into_iter().filter_map(|e| {
                let on = e.regarding.and_then(|r| r.name)? == object;
                (on && e.reason.as_deref() == Some(reason)).then(|| e.note.unwrap_or_default())
            });
            let found = notes.clone().find(|n| n.contains(word));
            Ok(match found {
                Some(note) => Seen::Yes(note),
                None => Seen::NotYet(format!("{:?}", notes.next())),
            })
        })
        .await
    }

    /// How often an event was published on an object. Those of one reason may be counted under the first one's note.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn told(&self, object: &str, reason: &str) -> Result<i32> {
        let all = self.api::<Event>().list(&ListParams::default()).await?.items;
        let on = |e: &&Event| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(object);
        let told = all
            .iter()
            .filter(on)
            .filter(|e| e.reason.as_deref() == Some(reason));
        Ok(told.map(|e| e.series.as_ref().map_or(1, |s| s.count)).sum())
    }

    /// Waits until an event was published once more than `before`.
    ///
    /// # Errors
    /// When it was not after a minute.
    pub async fn told_again(&self, object: &str, reason: &str, before: i32) -> Result<()> {
        wait::until(&format!("another event {reason} on {object}"), SOON, || async {
            let now = self.told(object, reason).await?;
            Ok(Seen::when(now > before, || format!("{before} before, {now} now")))
        })
        .await
    }

    /// A server's Pod.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn server_pod(&self, pair: &str, ordinal: usize) -> Result<Pod> {
        self.get(&names::pod(pair, ordinal)).await
    }

    /// The node that a server runs on.
    ///
    /// # Errors
    /// When it runs on none.
    pub async fn node_of(&self, pair: &str, ordinal: usize) -> Result<String> {
        let pod = self.server_pod(pair, ordinal).await?;
        pod.spec
            .and_then(|s| s.node_name)
            .with_context(|| format!("{} is on no node", names::pod(pair, ordinal)))
    }

    /// Sends a signal to a server's mysqld: KILL, STOP or CONT.
    ///
    /// # Errors
    /// When it does not run on this machine.
    pub async fn signal(&self, pair: &str, ordinal: usize, signal: &str) -> Result<()> {
        let pod = self.server_pod(pair, ordinal).await?;
        self.note(format!("{signal} to {}", pod.name_any()));
        let sent = testbed::signal_container(&testbed::container_id(&pod, "mysqld")?, signal).await?;
        ensure!(sent > 0, "no process of {} on this machine", pod.name_any());
        Ok(())
    }

    /// Kills the mysqld of some servers by -9, at once, and stops the next one of the server `held` before it listens.
    ///
    /// # Errors
    /// When they do not run on this machine, or `held` is not started again in time.
    pub async fn kill_and_hold(&self, pair: &str, victims: &[usize], held: usize) -> Result<Booting> {
        let mut old = vec![];
        for n in victims {
            let pod = self.server_pod(pair, *n).await?;
            let pids = testbed::processes_called(&pod, "mysqld")?;
            ensure!(pids.len() == 1, "mysqld of {}: {pids:?}", pod.name_any());
            old.extend(pids);
            // Its parent too: stopped with it, it would not notice that it is gone.
            old.extend(testbed::processes_called(&pod, "sh")?);
        }
        self.note(format!(
            "KILL to {victims:?} of {pair}, the next mysqld of {held} is held"
        ));
        let pod = self.server_pod(pair, held).await?;
        testbed::signal(&old, "KILL").await?;
        let begun = Instant::now();
        // It listens some hundred milliseconds after its start.
        let pid = loop {
            let new = testbed::processes_called(&pod, "mysqld")?;
            if let Some(pid) = new.into_iter().find(|p| !old.contains(p)) {
                break pid;
            }
            ensure!(begun.elapsed() < SOON, "{} is not started again", pod.name_any());
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        testbed::signal(&[pid], "STOP").await?;
        let booting = Booting {
            pid,
            pod: pod.name_any(),
        };
        if self.listens(pair, held).await? {
            booting.go_on().await?;
            bail!("{} listened before it was stopped", pod.name_any());
        }
        Ok(booting)
    }

    /// Whether a server's port takes connections.
    ///
    /// # Errors
    /// When its Pod has no address, or nothing answers at all.
    pub async fn listens(&self, pair: &str, ordinal: usize) -> Result<bool> {
        let pod = self.server_pod(pair, ordinal).await?;
        let (address, port) = self.world.reach(&pod, names::MYSQL_PORT).await?;
        let connect = tokio::net::TcpStream::connect((address.as_str(), port));
        match tokio::time::timeout(Duration::from_secs(5), connect).await {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused => Ok(false),
            Ok(Err(e)) => Err(e).with_context(|| format!("connect to {}", pod.name_any())),
            Err(_) => bail!("{}: neither connected nor refused", pod.name_any()),
        }
    }

    /// What a server received and has not executed, by its own word.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn unapplied(&self, pair: &str, ordinal: usize) -> Result<GtidSet> {
        let set: String = self
            .server(pair, ordinal)
            .await?
            .one(
                "SELECT GTID_SUBTRACT(RECEIVED_TRANSACTION_SET, @@GLOBAL.gtid_executed) \
                 FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ''",
            )
            .await?;
        Ok(set.replace('\n', "").parse()?)
    }

    /// Holds up the applier of a server: every row of the table in `shard`, and the place of every new one, is locked. What is
    /// received is acknowledged all the same.
    ///
    /// # Errors
    /// What the server answered.
    pub async fn hold_applier(&self, pair: &str, ordinal: usize, shard: i32) -> Result<Locks> {
        let table = format!("`{}`.`{TABLE}`", self.database(shard).await?);
        let mut server = self.server(pair, ordinal).await?;
        server.run("BEGIN").await?;
        let _: Vec<u64> = server
            .rows(&format!("SELECT local_id FROM {table} FOR SHARE"))
            .await?;
        Ok(Locks(server))
    }

    /// Begins to write a row to a server as an application does, and gives it once the server holds the statement up.
    ///
    /// # Errors
    /// When it was answered at once, or cannot be asked.
    pub async fn write_pending(&self, pair: &str, ordinal: usize, shard: i32) -> Result<Pending> {
        let table = format!("`{}`.`{TABLE}`", self.database(shard).await?);
        let text = format!(
            "pending row {}",
            crate::dice::Dice::new(crate::dice::Dice::seed_now()).below(u64::MAX)
        );
        let mut app = self.app(pair, ordinal).await?;
        let connection: u64 = app.one("SELECT CONNECTION_ID()").await?;
        let sql = format!("INSERT INTO {table} (data) VALUES (JSON_OBJECT('text', '{text}'))");
        let answer = tokio::spawn(async move { app.within(Duration::from_secs(300), &sql).await });
        let mut operator = self.server(pair, ordinal).await?;
        let waits = format!(
            "SELECT COUNT(*) FROM performance_schema.processlist WHERE ID = {connection} AND STATE LIKE '%semi-sync%'"
        );
        for _ in 0..100 {
            let waiting: u64 = operator.one(&waits).await?;
            if waiting == 1 {
                return Ok(Pending {
                    text,
                    connection,
                    answer,
                });
            }
            ensure!(
                !answer.is_finished(),
                "the row did not wait for an acknowledgement"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the row does not wait for an acknowledgement after 2s")
    }

    /// How often a row with this text is on each server.
    ///
    /// # Errors
    /// What the servers answered.
    pub async fn times_there(&self, pair: &str, shard: i32, text: &str) -> Result<[u64; 2]> {
        let table = format!("`{}`.`{TABLE}`", self.database(shard).await?);
        let sql = format!(
            "SELECT COUNT(*) FROM {table} WHERE JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) = '{text}'"
        );
        Ok([
            self.server(pair, 0).await?.one(&sql).await?,
            self.server(pair, 1).await?.one(&sql).await?,
        ])
    }

    /// Names of the Secrets that hold errant transactions of a pair.
    ///
    /// # Errors
    /// What the API answered.
    pub async fn errant_secrets(&self, pair: &str) -> Result<Vec<String>> {
        let all = self.api::<Secret>().list(&ListParams::default()).await?;
        let prefix = format!("{pair}-errant-");
        Ok(all
            .items
            .iter()
            .map(kube::ResourceExt::name_any)
            .filter(|n| n.starts_with(&prefix))
            .collect())
    }

    /// Everything is Ready, the pair is healthy by its servers' own word, both are in sync, and hold the same rows, among them every
    /// acknowledged one; new ones are taken.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn recovered(&self, pair: &str) -> Result<()> {
        self.all_ready(BRING_UP).await?;
        self.healthy(pair).await?;
        self.members(pair, 2, SOON).await?;
        self.counted(pair).await?;
        let shards = self.map().await?.shards();
        self.write(&shards).await?;
        self.counted(pair).await
    }

    /// Does something by hand while the operator keeps its own off the pair.
    ///
    /// # Errors
    /// What the API answered, or what was done.
    pub async fn while_paused(&self, pair: &str, by_hand: impl Future<Output = Result<()>>) -> Result<()> {
        self.edit::<MySQLPair>(pair, json!({"spec": {"reconciliation": "Paused"}}))
            .await?;
        let done = async {
            wait::until("the pair to say that it is paused", SOON, || async {
                let pair: MySQLPair = self.get(pair).await?;
                let said = conditions(&pair);
                let generation = pair.metadata.generation;
                let paused = said
                    .iter()
                    .any(|c| c.reason == "Paused" && c.observed_generation == generation);
                Ok(Seen::when(paused, || format!("{said:?}")))
            })
            .await?;
            by_hand.await
        }
        .await;
        self.edit::<MySQLPair>(pair, json!({"spec": {"reconciliation": "Enabled"}}))
            .await?;
        done
    }
}
