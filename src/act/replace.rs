//! Makes a server that is gone for good anew: its claim and its Pod are let go of, and its volume is kept.
//! [`crate::core::pair`] decides when.

use super::apply::{self, Error};
use crate::{api::names, resources::stateful_set};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};

/// Lets go of the server at `place`: its volume is kept (reclaim policy `Retain`), its claim is deleted, then its Pod, if it still is as it was
/// `seen`, without waiting for its kubelet. The StatefulSet makes both anew. Returns the name of the volume that is kept, where there
/// was one. Each step is safe to repeat; a claim is not deleted before its volume is safe; and nothing is done when the Pod is another one by
/// now, whose claim is a new one, or has changed: its node may be back, and the server may have become a member again. Without a Pod, only a
/// claim whose volume is lost is deleted.
///
/// # Errors
/// [`Error`].
pub async fn replace(
    client: &Client,
    namespace: &str,
    pair: &str,
    place: usize,
    seen: Option<&Pod>,
) -> Result<Option<String>, Error> {
    let pod = names::pod(pair, place);
    let name = format!("{}-{pod}", stateful_set::CLAIM);
    // The Pod after the claim: while the old Pod is there, the claim is the old one.
    let claim = apply::get::<PersistentVolumeClaim>(client, namespace, &name).await?;
    let live = apply::get::<Pod>(client, namespace, &pod).await?;
    let version = |pod: &Pod| (pod.uid(), pod.resource_version());
    if live.as_ref().map(version) != seen.map(version) || seen.is_none() && !is_lost(claim.as_ref()) {
        return Ok(None);
    }
    let mut kept = None;
    if let Some(claim) = &claim {
        kept = keep(client, claim).await?;
        // It goes when no Pod uses it any more, and only then is one of its name made again.
        apply::delete(client, claim).await?;
    }
    if let Some(seen) = seen {
        let api = Api::<Pod>::namespaced(client.clone(), namespace);
        let dp = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: seen.uid(),
                resource_version: seen.resource_version(),
            }),
            ..DeleteParams::default()
        };
        let call = api.delete(&pod, &dp);
        match apply::call("delete", format!("Pod {namespace}/{pod}"), call).await {
            // Gone, another one already, or changed.
            Err(e) if !e.is_not_found() && !e.is_conflict() => return Err(e),
            _ => {}
        }
    }
    tracing::info!(namespace, pod, kept, "let go of");
    Ok(kept)
}

fn is_lost(claim: Option<&PersistentVolumeClaim>) -> bool {
    let phase = claim.and_then(|c| c.status.as_ref()?.phase.as_deref());
    phase == Some("Lost")
}

/// Sees to it that the volume of a claim outlives it; `None` when it has none, or none that is there.
async fn keep(client: &Client, claim: &PersistentVolumeClaim) -> Result<Option<String>, Error> {
    const RETAIN: &str = "Retain";
    let Some(name) = claim.spec.as_ref().and_then(|s| s.volume_name.clone()) else {
        return Ok(None);
    };
    let object = format!("PersistentVolume {name}");
    let api = Api::<PersistentVolume>::all(client.clone());
    let Some(volume) = apply::call("get", object.clone(), api.get_opt(&name)).await? else {
        return Ok(None);
    };
    let policy = volume
        .spec
        .as_ref()
        .and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
    if policy != Some(RETAIN) {
        let patch = Patch::Merge(serde_json::json!({
            "metadata": { "uid": volume.uid() },
            "spec": { "persistentVolumeReclaimPolicy": RETAIN },
        }));
        let pp = PatchParams {
            field_manager: Some(names::MANAGER_PAIR.to_owned()),
            ..PatchParams::default()
        };
        apply::call("patch", object, api.patch(&name, &pp, &patch)).await?;
    }
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::mock::Api as Mock;
    use serde_json::{Value, json};

    const CLAIM: &str = "GET /api/v1/namespaces/n/persistentvolumeclaims/data-p-1";
    const POD: &str = "GET /api/v1/namespaces/n/pods/p-1";
    const DELETE_CLAIM: &str = "DELETE /api/v1/namespaces/n/persistentvolumeclaims/data-p-1";
    const DELETE_POD: &str = "DELETE /api/v1/namespaces/n/pods/p-1";

    fn pod(uid: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p-1", "namespace": "n", "uid": uid, "resourceVersion": "7" } })
    }
    fn seen() -> Pod {
        serde_json::from_value(pod("pod-uid")).unwrap()
    }
    fn claim() -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "data-p-1", "namespace": "n", "uid": "claim-uid" },
            "spec": { "volumeName": "pv-7" },
        })
    }
    fn volume(policy: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": "pv-7", "uid": "volume-uid" },
            "spec": { "persistentVolumeReclaimPolicy": policy },
        })
    }
    fn status(code: u16) -> Value {
        let reason = if code == 404 { "NotFound" } else { "Forbidden" };
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "m" })
    }
    fn gone() -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {} })
    }

    #[tokio::test]
    async fn the_volume_is_kept_before_the_claim_goes_and_the_pod_goes_last() {
        let mock = Mock::new([
            (CLAIM, 200, claim()),
            (POD, 200, pod("pod-uid")),
            ("GET /api/v1/persistentvolumes/pv-7", 200, volume("Delete")),
            ("PATCH /api/v1/persistentvolumes/pv-7", 200, volume("Retain")),
            (DELETE_CLAIM, 200, gone()),
            (DELETE_POD, 200, gone()),
        ]);
        let kept = replace(&mock.client(), "n", "p", 1, Some(&seen())).await.unwrap();
        assert_eq!(kept.as_deref(), Some("pv-7"));
        let sent = mock.done();
        assert_eq!(sent[3]["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(sent[3]["metadata"]["uid"], "volume-uid");
        assert_eq!(sent[4]["preconditions"]["uid"], "claim-uid");
        assert_eq!(sent[5]["preconditions"]["uid"], "pod-uid");
        assert_eq!(sent[5]["preconditions"]["resourceVersion"], "7");
        assert_eq!(sent[5]["gracePeriodSeconds"], 0);
    }

    #[tokio::test]
    async fn a_volume_that_cannot_be_kept_keeps_its_claim_and_its_pod() {
        let mock = Mock::new([
            (CLAIM, 200, claim()),
            (POD, 200, pod("pod-uid")),
            ("GET /api/v1/persistentvolumes/pv-7", 403, status(403)),
        ]);
        let error = replace(&mock.client(), "n", "p", 1, Some(&seen()))
            .await
            .unwrap_err();
        assert!(error.is_refused(), "{error}");
        mock.done();
    }

    #[tokio::test]
    async fn a_claim_that_is_gone_leaves_the_pod_to_delete() {
        let mock = Mock::new([
            (CLAIM, 404, status(404)),
            (POD, 200, pod("pod-uid")),
            (DELETE_POD, 404, status(404)),
        ]);
        let kept = replace(&mock.client(), "n", "p", 1, Some(&seen())).await.unwrap();
        assert_eq!(kept, None);
        mock.done();
    }

    #[tokio::test]
    async fn one_that_was_made_anew_already_or_has_changed_is_left_alone() {
        let mut back = pod("pod-uid");
        back["metadata"]["resourceVersion"] = "8".into();
        for (seen, live) in [
            (Some(seen()), pod("new-uid")),
            (None, pod("new-uid")),
            (Some(seen()), back),
        ] {
            let mock = Mock::new([(CLAIM, 200, claim()), (POD, 200, live)]);
            let kept = replace(&mock.client(), "n", "p", 1, seen.as_ref()).await.unwrap();
            assert_eq!(kept, None);
            mock.done();
        }
    }

    #[tokio::test]
    async fn without_a_pod_only_a_lost_claim_goes() {
        let mock = Mock::new([(CLAIM, 200, claim()), (POD, 404, status(404))]);
        assert_eq!(replace(&mock.client(), "n", "p", 1, None).await.unwrap(), None);
        mock.done();
        let mut lost = claim();
        lost["status"]["phase"] = "Lost".into();
        let mock = Mock::new([
            (CLAIM, 200, lost),
            (POD, 404, status(404)),
            ("GET /api/v1/persistentvolumes/pv-7", 404, status(404)),
            (DELETE_CLAIM, 200, gone()),
        ]);
        assert_eq!(replace(&mock.client(), "n", "p", 1, None).await.unwrap(), None);
        mock.done();
    }
}
