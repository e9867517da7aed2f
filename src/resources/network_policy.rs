//! The NetworkPolicy of a pair: in by MySQL's port alone, out only to name servers and to the servers of the same cluster.
//!
//! Who may log in is a matter of accounts and TLS, not of addresses: applications run in any namespace and connect straight to
//! the servers that the shard map names, so MySQL's port is open to every Pod. Clients outside of the cluster need a policy of
//! the user's own beside this one (policies add up). Nothing else of the Pod is reachable, and a server that was broken into
//! reaches nothing but other servers of its fleet, which it has to: they replicate and are copied from each other.

use super::labels;
use super::pair::PairContext;
use crate::api::names::{CLUSTER_LABEL, MYSQL_PORT};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// `<pair>`.
pub fn network_policy(ctx: &PairContext) -> NetworkPolicy {
    let port = |number: i32, protocol: &str| NetworkPolicyPort {
        port: Some(IntOrString::Int(number)),
        protocol: Some(protocol.to_owned()),
        ..NetworkPolicyPort::default()
    };
    let mysql = || Some(vec![port(MYSQL_PORT.into(), "TCP")]);
    let any_namespace = NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        ..NetworkPolicyPeer::default()
    };
    let same_cluster = NetworkPolicyPeer {
        pod_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(CLUSTER_LABEL.to_owned(), ctx.cluster.clone())])),
            ..LabelSelector::default()
        }),
        ..NetworkPolicyPeer::default()
    };
    NetworkPolicy {
        metadata: ctx.owned(ctx.pair.clone()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(labels::pair_label_selector(&ctx.pair)),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: Some(vec![any_namespace]),
                ports: mysql(),
            }]),
            egress: Some(vec![
                // To any address: a name server may be a Pod, a node's own or one outside of the cluster.
                NetworkPolicyEgressRule {
                    ports: Some(vec![port(53, "UDP"), port(53, "TCP")]),
                    to: None,
                },
                NetworkPolicyEgressRule {
                    ports: mysql(),
                    to: Some(vec![same_cluster]),
                },
            ]),
        }),
    }
}
