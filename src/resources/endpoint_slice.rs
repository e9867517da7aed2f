//! The EndpointSlices of `<pair>-active` and `<pair>-passive`, which the operator writes itself.

use super::pair::PairContext;
use super::services::PORT_NAME;
use crate::api::names;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use std::net::IpAddr;

/// Who writes the slice: the cluster's own controllers leave it alone then.
pub const SLICE_MANAGED_BY: &str = "shardwright.dev";

/// The Pod that a Service leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the Pod.
    pub pod: String,
    /// UID of the Pod.
    pub uid: String,
    /// Its address.
    pub ip: IpAddr,
    /// The node it runs on.
    pub node: Option<String>,
}

/// The slice of the Service called `service`, with `target` as its one ready address, or with none.
///
/// The family of addresses of a slice can't change, so a slice of IPv6 addresses has a name of its own.
pub fn endpoint_slice(ctx: &PairContext, service: &str, target: Option<&Target>) -> EndpointSlice {
    let v6 = target.is_some_and(|t| t.ip.is_ipv6());
    let mut metadata = ctx.owned(if v6 {
        format!("{service}-v6")
    } else {
        service.to_owned()
    });
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/service-name".to_owned(), service.to_owned());
    labels.insert(
        "endpointslice.kubernetes.io/managed-by".to_owned(),
        SLICE_MANAGED_BY.to_owned(),
    );
    let endpoint = |t: &Target| Endpoint {
        addresses: vec![t.ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        node_name: t.node.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(ctx.namespace.clone()),
            name: Some(t.pod.clone()),
            uid: Some(t.uid.clone()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    };
    EndpointSlice {
        metadata,
        address_type: if v6 { "IPv6" } else { "IPv4" }.to_owned(),
        endpoints: target.map(endpoint).into_iter().collect(),
        ports: Some(vec![EndpointPort {
            name: Some(PORT_NAME.to_owned()),
            port: Some(names::MYSQL_PORT.into()),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
    }
}
