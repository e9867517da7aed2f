//! What the watches of the pair controller have told, kept in memory: what is urgent is decided upon it without a call.

use crate::{
    api::ShardCluster,
    core::pair::{self, NodeSeen, observed::PodState},
};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::runtime::reflector::{ObjectRef, Store};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The nodes, if the operator may look at them.
#[derive(Clone)]
pub struct Nodes {
    /// Those that there are.
    pub store: Store<Node>,
    /// All of them were seen: one that is not there is missing.
    pub complete: Arc<AtomicBool>,
}

/// What the watches of one scope have told.
#[derive(Clone)]
pub struct Caches {
    /// The Pods of pairs.
    pub pods: Store<Pod>,
    /// The clusters.
    pub clusters: Store<ShardCluster>,
    /// The nodes.
    pub nodes: Nodes,
    /// Where the Services of pairs lead to.
    pub slices: Store<EndpointSlice>,
}

impl Caches {
    /// The Pod of this name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        let key = ObjectRef::new(name).within(namespace);
        self.pods.get(&key).map(|p| (*p).clone())
    }
    /// The cluster of this name.
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<ShardCluster> {
        let key = ObjectRef::new(name).within(namespace);
        self.clusters.get(&key).map(|c| (*c).clone())
    }
    /// The slice of this name.
    pub fn slice(&self, namespace: &str, name: &str) -> Option<Arc<EndpointSlice>> {
        self.slices.get(&ObjectRef::new(name).within(namespace))
    }
    /// Pods in our own words, with what is known of their nodes.
    pub fn pod_states(&self, pods: &[Option<Pod>; 2], now: Timestamp) -> [Option<PodState>; 2] {
        pods.each_ref().map(|pod| {
            let pod = pod.as_ref()?;
            let node = self.nodes.of(pod);
            let seen = match &node {
                Some(node) => NodeSeen::There(node),
                None if self.nodes.complete.load(Ordering::Relaxed) => NodeSeen::Missing,
                None => NodeSeen::Unknown,
            };
            Some(pair::pod_state(pod, seen, now))
        })
    }
}

impl Nodes {
    fn of(&self, pod: &Pod) -> Option<Arc<Node>> {
        let name = pod.spec.as_ref()?.node_name.as_deref()?;
        self.store.get(&ObjectRef::new(name))
    }
}

/// Whether a node is as it should be: what is said of others wakes the pairs that have a Pod there.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}
