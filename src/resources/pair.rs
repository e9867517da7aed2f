//! A pair's children, all at once.

use super::labels::{self, Labels};
use crate::api::mysql_template::MysqlTemplate;
use crate::api::{MySQLPair, ShardCluster};
use crate::core::my_cnf::{ConfigError, ServerIds, UserConfig};
use crate::core::{quantity, spec_hash::spec_hash};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// All that a pair's children are made from.
#[derive(Clone, Debug)]
pub struct PairContext {
    /// Namespace.
    pub namespace: String,
    /// Name of the MySQLPair.
    pub pair: String,
    /// UID of the MySQLPair, which owns them.
    pub uid: String,
    /// Name of the ShardCluster.
    pub cluster: String,
    /// The cluster's template with the pair's overrides laid over it.
    pub template: MysqlTemplate,
    /// The template's `config`, checked.
    pub config: UserConfig,
}

impl PairContext {
    /// Lays the pair's overrides over the cluster's template and checks its `config`.
    ///
    /// # Errors
    /// [`ConfigError`]: the children that exist are then to be left as they are.
    pub fn new(pair: &MySQLPair, cluster: &ShardCluster) -> Result<Self, ConfigError> {
        let template = cluster.spec.mysql.with(pair.spec.mysql.as_ref());
        let config = UserConfig::parse(template.config.as_deref().unwrap_or_default())?;
        Ok(Self {
            namespace: pair.metadata.namespace.clone().unwrap_or_default(),
            pair: pair.metadata.name.clone().unwrap_or_default(),
            uid: pair.metadata.uid.clone().unwrap_or_default(),
            cluster: pair.spec.cluster_ref.name.clone(),
            template,
            config,
        })
    }

    /// Metadata of a child that goes with the pair.
    pub fn owned(&self, name: String) -> ObjectMeta {
        let owner = labels::owner("MySQLPair", &self.pair, &self.uid);
        labels::metadata(&self.namespace, name, self.labels(), Some(owner))
    }

    /// Metadata of a child that outlives the pair.
    pub fn unowned(&self, name: String) -> ObjectMeta {
        labels::metadata(&self.namespace, name, self.labels(), None)
    }

    /// Labels of every child.
    pub fn labels(&self) -> Labels {
        labels::of_pair(&self.cluster, &self.pair)
    }

    /// The hash that rolls the Pods when it changes.
    pub fn spec_hash(&self) -> String {
        spec_hash(&self.template, &self.config)
    }

    /// `server_id`s of the two servers.
    pub fn server_ids(&self) -> ServerIds {
        ServerIds::new(&self.namespace, &self.cluster, &self.pair)
    }

    /// Memory of a server's container in bytes: its limit, else its request.
    pub fn memory(&self) -> Option<u64> {
        let r = self.template.resources.as_ref()?;
        let of = |m: &Option<
            std::collections::BTreeMap<_, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
        >| { quantity::bytes(&m.as_ref()?.get("memory")?.0) };
        of(&r.limits).or_else(|| of(&r.requests))
    }
}

/// The children that are made from the specification alone, in the order in which they are best applied. Destructure it
/// without `..`, so that one that is added later is not forgotten. The Secrets ([`super::secrets`]) and the EndpointSlices
/// ([`super::endpoint_slice`]) need more than that.
#[derive(Clone, Debug, PartialEq)]
pub struct PairChildren {
    /// One my.cnf a server.
    pub config_map: ConfigMap,
    /// Gives the servers their names.
    pub headless_service: Service,
    /// Leads to the active server.
    pub active_service: Service,
    /// Leads to the passive server.
    pub passive_service: Service,
    /// Lets one server be evicted at a time.
    pub pod_disruption_budget: PodDisruptionBudget,
    /// Who may connect to the servers, and they to whom.
    pub network_policy: NetworkPolicy,
    /// The two servers.
    pub stateful_set: StatefulSet,
}

/// Builds them.
pub fn pair_children(ctx: &PairContext) -> PairChildren {
    PairChildren {
        config_map: super::config_map::config_map(ctx),
        headless_service: super::services::headless(ctx),
        active_service: super::services::active(ctx),
        passive_service: super::services::passive(ctx),
        pod_disruption_budget: super::pdb::pod_disruption_budget(ctx),
        network_policy: super::network_policy::network_policy(ctx),
        stateful_set: super::stateful_set::stateful_set(ctx),
    }
}

#[cfg(test)]
pub(crate) mod tests;
