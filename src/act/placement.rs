//! The one way to change the record: read, decide, compare-and-swap, and from the start when somebody was faster.

use super::apply::{self, call, describe};
use crate::api::{Placement, ShardCluster};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};

/// How often a change is tried again when others write at the same time. Each loser means that another one got through.
const TRIES: usize = 16;

/// The record was not changed.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// A call of the API failed.
    #[error(transparent)]
    Api(#[from] apply::Error),
    /// The cluster is gone, or is another one of the same name by now.
    #[error("ShardCluster {0} is not the one that was seen")]
    Gone(String),
    /// The change was refused.
    #[error(transparent)]
    Refused(E),
    /// Others kept on writing.
    #[error("the record of ShardCluster {0} was changed by others {TRIES} times in a row")]
    Contended(String),
}

impl<E: std::error::Error + 'static> Error<E> {
    /// Whether it is worth to observe again at once.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Api(e) => e.is_conflict(),
            Self::Gone(_) | Self::Contended(_) => true,
            Self::Refused(_) => false,
        }
    }
}

/// Changes the record of the cluster that has `uid`: `change` is given the cluster as it is now, and is asked again after each conflict; it
/// has to be pure. `Ok(None)` from it means that nothing is to be written. `seen` saves the first reading. Returns the cluster as it then
/// is.
///
/// # Errors
/// [`Error`].
pub async fn update<E: std::error::Error + 'static>(
    client: &Client,
    manager: &str,
    namespace: &str,
    name: &str,
    uid: &str,
    mut seen: Option<ShardCluster>,
    mut change: impl FnMut(&ShardCluster) -> Result<Option<Placement>, E>,
) -> Result<ShardCluster, Error<E>> {
    let api = Api::<ShardCluster>::namespaced(client.clone(), namespace);
    for _ in 0..TRIES {
        let cluster = match seen.take() {
            Some(seen) => Some(seen),
            None => apply::get::<ShardCluster>(client, namespace, name).await?,
        };
        let cluster = cluster
            .filter(|c| c.uid().as_deref() == Some(uid))
            .ok_or_else(|| Error::Gone(format!("{namespace}/{name}")))?;
        let Some(next) = change(&cluster).map_err(Error::Refused)? else {
            return Ok(cluster);
        };
        if cluster.status.as_ref().and_then(|s| s.placement.as_ref()) == Some(&next) {
            return Ok(cluster);
        }
        // A merge patch replaces lists as a whole; with the resourceVersion it is a compare-and-swap.
        let body = serde_json::json!({
            "metadata": { "resourceVersion": cluster.resource_version() },
            "status": { "placement": next },
        });
        let pp = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body);
        let written = api.patch_status(name, &pp, &patch);
        match call("patch the record of", describe(&cluster), written).await {
            Ok(cluster) => return Ok(cluster),
            Err(e) if e.is_conflict() => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Error::Contended(format!("{namespace}/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::placement;
    use kube::client::Body;
    use std::convert::Infallible;

    type Request = http::Request<Body>;
    type Response = http::Response<Body>;

    fn cluster(version: &str, placement: Option<&Placement>) -> serde_json::Value {
        serde_json::json!({
            "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardCluster",
            "metadata": { "name": "c", "namespace": "ns", "uid": "u", "resourceVersion": version },
            "spec": { "shards": { "total": 16 }, "mysql": { "image": "m", "storage": { "size": "1Gi" } } },
            "status": { "placement": placement },
        })
    }
    fn json(status: u16, body: &serde_json::Value) -> Response {
        http::Response::builder()
            .status(status)
            .body(Body::from(serde_json::to_vec(body).unwrap()))
            .unwrap()
    }

    #[tokio::test]
    async fn a_conflict_is_decided_upon_afresh() {
        let (service, mut handle) = tower_test::mock::pair::<Request, Response>();
        let client = Client::new(service, "default");
        let shards = crate::core::spans::SpanSet::of(crate::api::ShardSpan::new(0, 7));
        let other = placement::claim(&Placement::default(), &shards, "p1", Some("r1")).unwrap();
        let theirs = other.clone();
        let server = tokio::spawn(async move {
            let (_, send) = handle.next_request().await.unwrap();
            send.send_response(json(200, &cluster("1", Some(&Placement::default()))));
            let (patch, send) = handle.next_request().await.unwrap();
            assert_eq!(
                (patch.method(), patch.uri().path()),
                (
                    &http::Method::PATCH,
                    "/apis/shardwright.dev/v1alpha1/namespaces/ns/shardclusters/c/status"
                )
            );
            let body: serde_json::Value =
                serde_json::from_slice(&patch.into_body().collect_bytes().await.unwrap()).unwrap();
            assert_eq!(body["metadata"]["resourceVersion"], "1");
            send.send_response(json(409, &serde_json::json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "m", "status": "Failure"})));
            let (_, send) = handle.next_request().await.unwrap();
            send.send_response(json(200, &cluster("2", Some(&theirs))));
        });
        // Somebody else has claimed the shards in between: nothing is to be written any more.
        let got = update(&client, "m", "ns", "c", "u", None, |c| {
            let p = c.status.as_ref().unwrap().placement.as_ref().unwrap();
            Ok::<_, Infallible>(placement::claim(p, &shards, "p0", Some("r0")).ok())
        })
        .await
        .unwrap();
        assert_eq!(got.status.unwrap().placement, Some(other));
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_cluster_made_again_under_the_name_is_not_touched() {
        let (service, mut handle) = tower_test::mock::pair::<Request, Response>();
        let client = Client::new(service, "default");
        let server = tokio::spawn(async move {
            let (_, send) = handle.next_request().await.unwrap();
            send.send_response(json(200, &cluster("1", None)));
        });
        let got = update(&client, "m", "ns", "c", "earlier", None, |_| {
            Ok::<_, Infallible>(Some(Placement::default()))
        })
        .await;
        assert!(matches!(got, Err(Error::Gone(_))));
        server.await.unwrap();
    }
}
