//! The three custom resources of `shardwright.dev/v1alpha1`, and what they share.
//!
//! Types only: their schema, their CEL rules and the constants that name things. The CRDs in `crds/`
//! are generated from here (`shardwright crds`); a test fails when they differ.

pub mod conditions;
pub mod mysql_pair;
pub mod mysql_template;
pub mod names;
pub mod placement;
mod schemas;
pub mod shard_cluster;
pub mod shard_range;

#[cfg(test)]
mod cel_tests;
#[cfg(test)]
mod samples_tests;
#[cfg(test)]
mod schema_tests;

pub use mysql_pair::{MySQLPair, MySQLPairSpec, MySQLPairStatus, Place};
pub use placement::{Move, MoveKey, MoveStage, PlacedSpan, Placement, Seed, ShardSpan, SpanState};
pub use shard_cluster::{ShardCluster, ShardClusterSpec, ShardClusterStatus};
pub use shard_range::{ShardRange, ShardRangeSpec, ShardRangeStatus};

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The API group of all three kinds.
pub const GROUP: &str = "shardwright.dev";
/// The one served and stored version.
pub const VERSION: &str = "v1alpha1";

/// A reference to an object of a known kind in the same namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object, in the same namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

impl LocalRef {
    /// A reference to the object called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

/// The three CRDs, in the order in which they are written to `crds/`.
pub fn crds()
-> Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> {
    use kube::CustomResourceExt as _;
    [ShardCluster::crd(), ShardRange::crd(), MySQLPair::crd()]
        .map(schemas::without_null)
        .into()
}
