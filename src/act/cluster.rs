//! What a ShardCluster is given: pairs and ranges of its layout, and the application's Secret.

use super::apply::{self, Error, Object, call, describe};
use crate::{
    api::{
        ShardCluster,
        names::{CLUSTER_LABEL, MANAGER_CLUSTER},
    },
    core::credentials::Credentials,
    resources::{layout, secrets},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _, api::PostParams};

/// Creates the pairs and ranges of the layout. What is there already is left as it is, so that a pass that died half-way is continued.
/// Returns how many objects were created.
///
/// # Errors
/// [`Error`]; what was created until then stays.
pub async fn seed_layout(client: &Client, cluster: &ShardCluster) -> Result<usize, Error> {
    let Some(seed) = layout::seed(cluster) else {
        return Ok(0);
    };
    let mut created = 0;
    for pair in &seed.pairs {
        created += usize::from(create(client, pair).await?);
    }
    for range in &seed.ranges {
        created += usize::from(create(client, range).await?);
    }
    Ok(created)
}

/// Creates an object that is not there; whether it was not.
async fn create<K: Object>(client: &Client, obj: &K) -> Result<bool, Error> {
    let api = Api::<K>::namespaced(client.clone(), &obj.namespace().unwrap_or_default());
    let pp = PostParams {
        field_manager: Some(MANAGER_CLUSTER.to_owned()),
        ..PostParams::default()
    };
    match call("create", describe(obj), api.create(&pp, obj)).await {
        Ok(_) => Ok(true),
        Err(e) if e.is_already_exists() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Makes the application's Secret what it should be; nothing is written when it is. `false`: there is one that is somebody else's, and it is
/// left alone.
///
/// # Errors
/// [`Error`].
pub async fn app_secret(
    client: &Client,
    cluster: &ShardCluster,
    credentials: &Credentials,
) -> Result<bool, Error> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let wanted = secrets::app(&namespace, &name, &cluster.uid().unwrap_or_default(), credentials);
    let found = apply::get::<Secret>(client, &namespace, &wanted.name_any()).await?;
    if found.as_ref().is_some_and(|f| !ours(f, &name)) {
        return Ok(false);
    }
    if !found.as_ref().is_some_and(|f| says(f, &wanted)) {
        apply::apply(client, MANAGER_CLUSTER, &wanted).await?;
    }
    Ok(true)
}

/// Whether the Secret is one that the operator made for a cluster of this name, also for an earlier one.
fn ours(found: &Secret, cluster: &str) -> bool {
    found.labels().get(CLUSTER_LABEL).map(String::as_str) == Some(cluster)
        || found
            .owner_references()
            .iter()
            .any(|o| o.kind == "ShardCluster" && o.name == cluster)
}

/// Whether `found` says all that is wanted.
fn says(found: &Secret, wanted: &Secret) -> bool {
    found.data == wanted.data
        && wanted
            .labels()
            .iter()
            .all(|(k, v)| found.labels().get(k) == Some(v))
        && found
            .owner_references()
            .iter()
            .map(|o| &o.uid)
            .eq(wanted.owner_references().iter().map(|o| &o.uid))
}
