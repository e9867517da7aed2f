//! What is done to the active server, and how it is undone.

use crate::fleet::Fleet;
use crate::testbed;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use std::time::Instant;

/// What happens to the server that takes the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// kill -9 of mysqld.
    Killed,
    /// Its Pod is deleted by force.
    Deleted,
    /// `spec.preferredActive` names the other one. Of a plain server: its Pod is deleted, as a drain or a rolling change does.
    Planned,
    /// Its node loses power.
    NodeKilled,
    /// Its node is cut off from the API server and from the other nodes; its clients still reach it.
    Partitioned,
}

/// When it happened, and what has to be undone.
pub struct Blow {
    /// For what this process saw.
    pub at: Instant,
    /// For what others wrote down.
    pub wall: Timestamp,
    /// The node that has to be started or healed.
    node: Option<(&'static str, String)>,
}

impl Fault {
    /// All, the quick ones first.
    pub const ALL: [Self; 5] = [
        Self::Killed,
        Self::Deleted,
        Self::Planned,
        Self::NodeKilled,
        Self::Partitioned,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Killed => "kill -9 of the active mysqld",
            Self::Deleted => "forced deletion of the active Pod",
            Self::Planned => "planned switchover",
            Self::NodeKilled => "the active's node killed",
            Self::Partitioned => "the active's node partitioned",
        }
    }

    /// For people, of the plain server.
    pub fn plain_name(self) -> &'static str {
        match self {
            Self::Planned => "graceful deletion of the Pod",
            other => other.name(),
        }
    }

    /// Whether a node is hit, and whatever else runs on it.
    pub fn hits_node(self) -> bool {
        matches!(self, Self::NodeKilled | Self::Partitioned)
    }

    /// Strikes the Pod called `pod`; `planned` is what is done for [`Self::Planned`].
    ///
    /// # Errors
    /// When it cannot be done.
    pub async fn strike<F>(self, f: &Fleet, pod: &str, planned: F) -> Result<Blow>
    where
        F: AsyncFnOnce() -> Result<()>,
    {
        let target: Pod = f.get(pod).await?;
        let node = target.spec.as_ref().and_then(|s| s.node_name.clone());
        let node = node.with_context(|| format!("{pod} runs on no node"))?;
        let mysqld = testbed::first_process(&testbed::container_id(&target, "mysqld")?)?;
        let (at, wall) = (Instant::now(), Timestamp::now());
        let undo = match self {
            Self::Killed => {
                testbed::kill(mysqld).await?;
                None
            }
            Self::Deleted => {
                f.api::<Pod>()
                    .delete(pod, &DeleteParams::default().grace_period(0))
                    .await?;
                None
            }
            Self::Planned => {
                planned().await?;
                None
            }
            Self::NodeKilled => {
                f.world.bed(&["node", "kill", &node]).await?;
                Some("start")
            }
            Self::Partitioned => {
                f.world.bed(&["node", "partition", &node, "both"]).await?;
                Some("heal")
            }
        };
        Ok(Blow {
            at,
            wall,
            node: undo.map(|how| (how, node)),
        })
    }
}

impl Blow {
    /// Starts or heals the node.
    ///
    /// # Errors
    /// When the test bed fails.
    pub async fn undo(&self, f: &Fleet) -> Result<()> {
        if let Some((how, node)) = &self.node {
            f.world.bed(&["node", how, node]).await?;
        }
        Ok(())
    }
}

/// The node that the leading operator runs on.
///
/// # Errors
/// When there is no leader.
pub async fn leaders_node(f: &Fleet) -> Result<String> {
    let leader = f.world.leader().await?.context("no operator leads")?;
    let node = leader.spec.and_then(|s| s.node_name);
    node.context("the leader runs on no node")
}
