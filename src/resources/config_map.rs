//! The ConfigMap with one my.cnf a server. A change of it reaches a server when it is next started; what rolls the servers is
//! the hash of the specification.

use super::pair::PairContext;
use crate::api::names;
use crate::core::my_cnf::{Server, render};
use k8s_openapi::api::core::v1::ConfigMap;

/// Key of one server's file: `<pod>.cnf`.
pub fn key(pair: &str, ordinal: usize) -> String {
    format!("{}.cnf", names::pod(pair, ordinal))
}

/// `<pair>-mysql-config`.
pub fn config_map(ctx: &PairContext) -> ConfigMap {
    let file = |ordinal| {
        let server = Server {
            ordinal,
            server_id: ctx.server_ids().of(ordinal),
            host: &names::host(&ctx.namespace, &ctx.pair, ordinal),
            memory: ctx.memory(),
        };
        (key(&ctx.pair, ordinal), render(&server, &ctx.config))
    };
    ConfigMap {
        metadata: ctx.owned(names::config_map(&ctx.pair)),
        data: Some(names::ORDINALS.into_iter().map(file).collect()),
        ..ConfigMap::default()
    }
}
