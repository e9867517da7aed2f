//! Saves errant transactions where they survive the server that has them, before that is overwritten (rule P8).

use super::apply::{self, Error as ApiError};
use crate::{
    api::names,
    core::{
        errant::{LIMIT, Script},
        gtid::GtidSet,
    },
    mysql::{self, Access, binlog},
    observe,
    resources::errant::{Origin, PARTS, secret},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::PostParams};

/// Why they are not saved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The server.
    #[error(transparent)]
    Server(#[from] mysql::Error),
    /// There are as many Secrets of this epoch as there may be.
    #[error(
        "{0} Secrets with errant transactions of this epoch are there already, and these are in none of them: {1}"
    )]
    Crowded(usize, GtidSet),
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Name of the Secret; `None` when all had been saved before.
    pub secret: Option<String>,
    /// Transactions of `set` that are saved now, whole.
    pub complete: GtidSet,
    /// Transactions of `set` of which only the name is saved now.
    pub by_name: GtidSet,
    /// What that Secret has of them, whole or by name.
    pub part: GtidSet,
}

/// Saves those transactions of `set` that no Secret has yet, as many as fit into one: it is called again while some are left. The
/// server at `access` is only read, over a connection of its own.
///
/// # Errors
/// [`Error`]. A Secret that somebody else made in the meantime is [`Error::Api`]; the next pass finds it.
pub async fn save(
    client: &Client,
    origin: &Origin<'_>,
    access: &Access,
    set: &GtidSet,
) -> Result<Written, Error> {
    let kept = observe::errant::saved(client, origin.namespace, origin.pair, origin.epoch).await?;
    let common = |of: &GtidSet| set.minus(&set.minus(of));
    let left = set.minus(&kept.complete).minus(&kept.by_name);
    let mut written = Written {
        secret: None,
        complete: common(&kept.complete),
        by_name: common(&kept.by_name),
        part: GtidSet::new(),
    };
    if left.is_empty() {
        return Ok(written);
    }
    let part = kept.free.ok_or_else(|| Error::Crowded(PARTS, left.clone()))?;
    let saved = binlog::read(access, &left, Script::new(LIMIT, part == PARTS)).await?;
    let secret = secret(origin, part, &saved);
    let api = Api::<Secret>::namespaced(client.clone(), origin.namespace);
    let pp = PostParams {
        field_manager: Some(names::MANAGER_PAIR.to_owned()),
        ..PostParams::default()
    };
    apply::call("create", apply::describe(&secret), api.create(&pp, &secret)).await?;
    written.complete = written.complete.union(&saved.complete);
    written.by_name = written.by_name.union(&saved.by_name);
    written.part = saved.complete.union(&saved.by_name);
    written.secret = secret.metadata.name;
    Ok(written)
}
