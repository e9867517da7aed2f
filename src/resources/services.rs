//! The Services of a pair.

use super::labels;
use super::pair::PairContext;
use crate::api::names;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Name of the one port, in the Services, their EndpointSlices and the Pods.
pub const PORT_NAME: &str = "mysql";

fn ports(target: IntOrString) -> Vec<ServicePort> {
    vec![ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port: names::MYSQL_PORT.into(),
        protocol: Some("TCP".to_owned()),
        target_port: Some(target),
        ..ServicePort::default()
    }]
}

/// Headless, so that each server has a name, also while it is not ready: the other one and the operator have to find it then.
pub fn headless(ctx: &PairContext) -> Service {
    Service {
        metadata: ctx.owned(names::headless_service(&ctx.pair)),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: Some(ports(IntOrString::String(PORT_NAME.to_owned()))),
            publish_not_ready_addresses: Some(true),
            selector: Some(labels::pair_selector(&ctx.pair)),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Leads to the active server.
pub fn active(ctx: &PairContext) -> Service {
    by_role(ctx, names::active_service(&ctx.pair))
}

/// Leads to the passive server.
pub fn passive(ctx: &PairContext) -> Service {
    by_role(ctx, names::passive_service(&ctx.pair))
}

/// Without a selector: the operator writes the EndpointSlice itself, from the record and not from labels of Pods, which is a
/// hop less and can't lag behind a decision.
fn by_role(ctx: &PairContext, name: String) -> Service {
    Service {
        metadata: ctx.owned(name),
        spec: Some(ServiceSpec {
            // A number: without a selector there is no Pod whose port's name could be looked up.
            ports: Some(ports(IntOrString::Int(names::MYSQL_PORT.into()))),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
