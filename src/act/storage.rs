//! Makes claims ask for what is specified: [`crate::core::pair::storage`] says which.

use super::apply::{self, Error};
use crate::{
    api::conditions::Said,
    core::pair::storage::{Claim, Expansion, Growth, Outcome, growth, said},
};
use k8s_openapi::{
    api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use std::collections::HashMap;

/// Patches the claims of a pair that ask for less than `size`, where their class allows it; says how large the volumes are.
///
/// # Errors
/// [`Error`], but for what the API refuses: that is said.
pub async fn of_pair(
    client: &Client,
    manager: &str,
    size: &Quantity,
    claims: &[Option<PersistentVolumeClaim>; 2],
) -> Result<Said, Error> {
    let mut classes = HashMap::new();
    let mut outcomes = vec![];
    for live in claims {
        let Some(live) = live else {
            outcomes.push(None);
            continue;
        };
        let claim = Claim::of(live);
        if !claim.asks_for_less(&size.0) {
            outcomes.push(Some(Outcome::Is(claim)));
            continue;
        }
        let class = claim.class.clone().unwrap_or_default();
        let expansion = if let Some(known) = classes.get(&class) {
            *known
        } else {
            let found = expansion(client, &class).await?;
            classes.insert(class, found);
            found
        };
        outcomes.push(Some(match growth(&size.0, &claim, expansion) {
            Some(Growth::Ask) => match ask(client, manager, live, size).await {
                Ok(()) => Outcome::Asked(claim),
                Err(e) if e.is_refused() => Outcome::Refused(claim, e.source.describe()),
                Err(e) => return Err(e),
            },
            Some(Growth::NotAllowed) => Outcome::NotAllowed(claim),
            None => Outcome::Is(claim),
        }));
    }
    Ok(said(&size.0, &outcomes))
}

async fn expansion(client: &Client, class: &str) -> Result<Expansion, Error> {
    if class.is_empty() {
        return Ok(Expansion::NotAllowed);
    }
    let api = Api::<StorageClass>::all(client.clone());
    match apply::call("get", format!("StorageClass {class}"), api.get_opt(class)).await {
        Ok(found) if found.as_ref().and_then(|c| c.allow_volume_expansion) == Some(true) => {
            Ok(Expansion::Allowed)
        }
        Ok(_) => Ok(Expansion::NotAllowed),
        Err(e) if e.is_refused() => Ok(Expansion::Unknown),
        Err(e) => Err(e),
    }
}

async fn ask(
    client: &Client,
    manager: &str,
    claim: &PersistentVolumeClaim,
    size: &Quantity,
) -> Result<(), Error> {
    let patch = Patch::Merge(serde_json::json!({
        "metadata": { "uid": claim.uid() },
        "spec": { "resources": { "requests": { "storage": size } } },
    }));
    let pp = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let name = claim.name_any();
    let api =
        Api::<PersistentVolumeClaim>::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let call = api.patch(&name, &pp, &patch);
    apply::call("patch", apply::describe(claim), call).await?;
    tracing::info!(claim = apply::describe(claim), size = size.0, "asked for more");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{act::mock::Api as Mock, core::pair::storage};
    use serde_json::{Value, json};

    fn claim(name: &str, requested: &str) -> PersistentVolumeClaim {
        let claim = json!({
            "metadata": { "name": name, "namespace": "n", "uid": format!("{name}-uid") },
            "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": requested } } },
            "status": { "capacity": { "storage": requested } },
        });
        serde_json::from_value(claim).unwrap()
    }
    fn class(expandable: bool) -> Value {
        json!({ "metadata": { "name": "fast" }, "provisioner": "p", "allowVolumeExpansion": expandable })
    }
    async fn tell(mock: &Mock, claims: [Option<PersistentVolumeClaim>; 2]) -> &'static str {
        let size = Quantity("2Gi".into());
        of_pair(&mock.client(), "m", &size, &claims).await.unwrap().reason
    }

    #[tokio::test]
    async fn both_claims_are_patched_by_uid_and_the_class_is_read_once() {
        let mock = Mock::new([
            (
                "GET /apis/storage.k8s.io/v1/storageclasses/fast",
                200,
                class(true),
            ),
            (
                "PATCH /api/v1/namespaces/n/persistentvolumeclaims/data-0",
                200,
                json!(claim("data-0", "2Gi")),
            ),
            (
                "PATCH /api/v1/namespaces/n/persistentvolumeclaims/data-1",
                200,
                json!(claim("data-1", "2Gi")),
            ),
        ]);
        let reason = tell(
            &mock,
            [Some(claim("data-0", "1Gi")), Some(claim("data-1", "1Gi"))],
        )
        .await;
        assert_eq!(reason, storage::STORAGE_GROWING);
        let sent = mock.done();
        assert_eq!(
            sent[1],
            json!({ "metadata": { "uid": "data-0-uid" }, "spec": { "resources": { "requests": { "storage": "2Gi" } } } })
        );
    }

    #[tokio::test]
    async fn nothing_is_asked_when_all_is_well() {
        let mock = Mock::new([]);
        let reason = tell(
            &mock,
            [Some(claim("data-0", "2Gi")), Some(claim("data-1", "2048Mi"))],
        )
        .await;
        assert_eq!(reason, storage::LARGE_ENOUGH);
    }

    #[tokio::test]
    async fn a_class_that_does_not_allow_it_is_said_and_nothing_is_sent() {
        let mock = Mock::new([(
            "GET /apis/storage.k8s.io/v1/storageclasses/fast",
            200,
            class(false),
        )]);
        let reason = tell(
            &mock,
            [Some(claim("data-0", "1Gi")), Some(claim("data-1", "1Gi"))],
        )
        .await;
        assert_eq!(reason, storage::STORAGE_NOT_EXPANDABLE);
        mock.done();
    }

    #[tokio::test]
    async fn who_may_not_look_at_classes_asks_and_is_told() {
        let forbidden = |message: &str| json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message });
        let mock = Mock::new([
            (
                "GET /apis/storage.k8s.io/v1/storageclasses/fast",
                403,
                forbidden("no classes for you"),
            ),
            (
                "PATCH /api/v1/namespaces/n/persistentvolumeclaims/data-0",
                403,
                forbidden("only dynamically provisioned pvc can be resized"),
            ),
        ]);
        let size = Quantity("2Gi".into());
        let said = of_pair(&mock.client(), "m", &size, &[Some(claim("data-0", "1Gi")), None])
            .await
            .unwrap();
        assert_eq!(said.reason, storage::STORAGE_REFUSED);
        assert!(
            said.message
                .ends_with("only dynamically provisioned pvc can be resized"),
            "{}",
            said.message
        );
        mock.done();
    }
}
