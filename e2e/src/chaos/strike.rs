//! Doing what was drawn, and undoing it.

use super::fault::{Blow, Cut, Fault, Side};
use crate::fleet::Fleet;
use crate::shell;
use crate::testbed;
use crate::wait::{self, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use shardwright::api::names;
use shardwright::resources::stateful_set::MYSQLD_CONTAINER;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A drain that is still not done after this has no bounded end.
const DRAIN: Duration = Duration::from_secs(75);
/// Nodes of the test bed.
const NODES: usize = 3;
const HEAL: Duration = Duration::from_secs(60);

/// One server as it was when the blow was prepared.
struct Target {
    pod: Pod,
    name: String,
    node: String,
    container: String,
}

/// The operator that led.
struct Leader {
    pod: Pod,
    container: String,
}

/// A blow, with everything that it needs to know looked up beforehand: the API server may be gone when it is healed.
pub struct Strike<'a> {
    fleet: &'a Fleet,
    pair: &'a str,
    active: Target,
    passive: Target,
    leader: Leader,
    drain: Option<JoinHandle<Result<Duration>>>,
    /// What was done to whom, for the report.
    pub did: Vec<String>,
}

impl<'a> Strike<'a> {
    /// Looks up who is who.
    ///
    /// # Errors
    /// When the API does not answer, a server is not up, or no operator leads.
    pub async fn prepare(fleet: &'a Fleet, pair: &'a str) -> Result<Self> {
        let active = fleet.active(pair).await?;
        let leader = wait::until("an operator to lead", wait::SOON, || async {
            let Some(pod) = fleet.world.leader().await? else {
                return Ok(Seen::NotYet("nobody leads".into()));
            };
            let container = testbed::container_id(&pod, "operator")?;
            Ok(Seen::Yes(Leader { pod, container }))
        })
        .await?;
        Ok(Self {
            fleet,
            pair,
            active: target(fleet, pair, active).await?,
            passive: target(fleet, pair, 1 - active).await?,
            leader,
            drain: None,
            did: vec![],
        })
    }

    /// The faults of a blow, one after the other.
    ///
    /// # Errors
    /// When one cannot be done.
    pub async fn hit(&mut self, blow: &Blow) -> Result<()> {
        for (n, fault) in blow.faults.iter().enumerate() {
            if n > 0 {
                tokio::time::sleep(blow.apart).await;
            }
            let did = self.inject(*fault).await.with_context(|| fault.to_string())?;
            self.did.push(format!("{} {fault}: {did}", clock()));
        }
        Ok(())
    }

    /// Undoes what lasts, the last first.
    ///
    /// # Errors
    /// When something cannot be undone; the rest is undone all the same.
    pub async fn heal(&mut self, blow: &Blow) -> Result<()> {
        let mut first = Ok(());
        for fault in blow.faults.iter().rev() {
            match self.undo(*fault).await.with_context(|| format!("heal {fault}")) {
                Ok(Some(did)) => self.did.push(format!("{} {did}", clock())),
                Ok(None) => {}
                Err(e) if first.is_ok() => first = Err(e),
                Err(e) => self.did.push(format!("{} {e:#}", clock())),
            }
        }
        first
    }

    fn server(&self, side: Side) -> &Target {
        match side {
            Side::Active => &self.active,
            Side::Passive => &self.passive,
        }
    }

    async fn inject(&mut self, fault: Fault) -> Result<String> {
        let fleet: &Fleet = self.fleet;
        let world = &fleet.world;
        Ok(match fault {
            Fault::KillMysqld(side) => {
                let t = self.server(side);
                // A container that is between two starts has no process: as dead as it was to be.
                match testbed::kill_id(&t.container).await {
                    Ok(()) => t.name.clone(),
                    Err(e) => format!("{}: {e:#}", t.name),
                }
            }
            Fault::DeletePod(side) => self.delete(self.server(side), None).await?,
            Fault::ForcePod(side) => self.delete(self.server(side), Some(0)).await?,
            Fault::FreezeMysqld(side) => {
                let t = self.server(side);
                let n = testbed::signal_container(&t.container, "STOP").await?;
                format!("{}, {n} processes", t.name)
            }
            Fault::KillNode(side) => {
                let node = self.server(side).node.clone();
                world.bed(&["node", "kill", &node]).await?;
                node
            }
            Fault::CutOff(side, cut) => {
                let node = self.server(side).node.clone();
                let from = match cut {
                    Cut::Api => "api".to_owned(),
                    Cut::Both => "both".to_owned(),
                    Cut::Peer => match side {
                        Side::Active => self.passive.node.clone(),
                        Side::Passive => self.active.node.clone(),
                    },
                };
                world.bed(&["node", "partition", &node, &from]).await?;
                format!("{node} from {from}")
            }
            Fault::Drain(side) => {
                let node = self.server(side).node.clone();
                self.drain = Some(tokio::spawn(drain(node.clone())));
                node
            }
            Fault::KillOperator => match testbed::kill_id(&self.leader.container).await {
                Ok(()) => self.leader.pod.name_any(),
                Err(e) => format!("{}: {e:#}", self.leader.pod.name_any()),
            },
            Fault::FreezeOperator => {
                testbed::signal_container(&self.leader.container, "STOP").await?;
                self.leader.pod.name_any()
            }
            Fault::RestartApi => {
                world.bed(&["api", "stop"]).await?;
                "stopped".into()
            }
            Fault::FillVolume(side) => {
                let claim = self.claim(side);
                world.bed(&["volume", "fill", &claim]).await?;
                claim
            }
            Fault::LoseVolume => self.lose_volume().await?,
        })
    }

    async fn undo(&mut self, fault: Fault) -> Result<Option<String>> {
        let fleet: &Fleet = self.fleet;
        let world = &fleet.world;
        Ok(match fault {
            Fault::KillMysqld(_)
            | Fault::DeletePod(_)
            | Fault::ForcePod(_)
            | Fault::KillOperator
            | Fault::LoseVolume => None,
            Fault::FreezeMysqld(side) => {
                testbed::signal_container(&self.server(side).container, "CONT").await?;
                Some(format!("{} goes on", self.server(side).name))
            }
            Fault::FreezeOperator => {
                testbed::signal_container(&self.leader.container, "CONT").await?;
                Some("the operator wakes up".into())
            }
            Fault::KillNode(side) => {
                world.bed(&["node", "start", &self.server(side).node]).await?;
                Some(format!("{} started", self.server(side).node))
            }
            Fault::CutOff(side, _) => {
                world.bed(&["node", "heal", &self.server(side).node]).await?;
                Some(format!("{} healed", self.server(side).node))
            }
            Fault::Drain(side) => {
                let took = match self.drain.take() {
                    Some(task) => task.await?,
                    None => Ok(Duration::ZERO),
                };
                let node = self.server(side).node.clone();
                wait::until("the node to take Pods again", HEAL, || async {
                    shell::kubectl(&["uncordon", &node]).await.map(|_| Seen::Yes(()))
                })
                .await?;
                Some(match took {
                    Ok(took) => format!("{node} was drained in {:.1} s", took.as_secs_f64()),
                    Err(e) => format!("{node}: {DRAIN_NOT_DONE}: {e:#}"),
                })
            }
            Fault::RestartApi => {
                world.bed(&["api", "start"]).await?;
                Some("the API server answers".into())
            }
            Fault::FillVolume(side) => {
                let claim = self.claim(side);
                // The node may be about to start.
                wait::until("the volume to be freed", HEAL, || async {
                    world
                        .bed(&["volume", "free", &claim])
                        .await
                        .map(|_| Seen::Yes(()))
                })
                .await?;
                Some(format!("{claim} freed"))
            }
        })
    }

    fn claim(&self, side: Side) -> String {
        format!("{}/{}", self.fleet.ns, claim_of(&self.server(side).name))
    }

    async fn delete(&self, target: &Target, grace: Option<u32>) -> Result<String> {
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        }
        // Not the one that has come in its place.
        .preconditions(kube::api::Preconditions {
            uid: target.pod.uid(),
            ..Default::default()
        });
        match self.fleet.api::<Pod>().delete(&target.name, &params).await {
            Ok(_) => Ok(target.name.clone()),
            Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => {
                Ok(format!("{} was gone", target.name))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Only while the other one is active and open: else the last good copy might be what goes.
    async fn lose_volume(&self) -> Result<String> {
        let active = self.fleet.active(self.pair).await?;
        ensure!(
            names::pod(self.pair, active) == self.active.name,
            "{} has become active meanwhile",
            self.passive.name
        );
        let vitals = self.fleet.server(self.pair, active).await?.vitals().await?;
        ensure!(!vitals.read_only, "{} is closed", self.active.name);
        let claims: Api<PersistentVolumeClaim> = self.fleet.api();
        let claim = claim_of(&self.passive.name);
        claims.delete(&claim, &DeleteParams::default()).await?;
        self.delete(&self.passive, None).await?;
        Ok(claim)
    }
}

/// What a drain is reported by that did not end.
pub const DRAIN_NOT_DONE: &str = "the drain did not end";

fn claim_of(pod: &str) -> String {
    format!("data-{pod}")
}

fn clock() -> String {
    k8s_openapi::jiff::Timestamp::now()
        .strftime("%H:%M:%S%.3f")
        .to_string()
}

async fn target(fleet: &Fleet, pair: &str, ordinal: usize) -> Result<Target> {
    let name = names::pod(pair, ordinal);
    let pod: Pod = fleet.get(&name).await?;
    let node = pod.spec.as_ref().and_then(|s| s.node_name.clone());
    Ok(Target {
        container: testbed::container_id(&pod, MYSQLD_CONTAINER)?,
        node: node.with_context(|| format!("{name} has no node"))?,
        name,
        pod,
    })
}

async fn drain(node: String) -> Result<Duration> {
    let begun = Instant::now();
    let args = [
        "drain",
        &node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        &format!("--timeout={}s", DRAIN.as_secs()),
    ];
    shell::run(DRAIN + Duration::from_secs(10), None, "kubectl", &args).await?;
    Ok(begun.elapsed())
}

impl Fleet {
    /// Undoes whatever a run that broke off may have left of its faults.
    pub async fn heal_everything(&self) -> Vec<String> {
        let mut said = vec![];
        let mut note = |r: Result<String>| {
            if let Err(e) = r {
                said.push(format!("{e:#}"));
            }
        };
        note(self.world.bed(&["api", "start"]).await);
        for n in 1..=NODES {
            let n = n.to_string();
            note(self.world.bed(&["node", "heal", &n]).await);
            note(self.world.bed(&["node", "start", &n]).await);
            note(shell::kubectl(&["uncordon", &format!("node-{n}")]).await);
        }
        said
    }
}
