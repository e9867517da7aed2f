//! The steps on objects of the API.

use super::{
    super::{apply, replace},
    Error, Hands,
};
use crate::{
    api::{MySQLPair, names},
    core::pair::observed::Ordinal,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};

/// Time for a Pod in which nothing serves to end by itself.
const DOWN_GRACE_SECONDS: u32 = 10;

impl Hands<'_> {
    pub(super) async fn finalizer(&mut self, on: bool) -> Result<(), Error> {
        let pair = self.done.written.as_ref().unwrap_or(&self.found.pair);
        let mut finalizers = pair.finalizers().to_vec();
        finalizers.retain(|f| f != names::FINALIZER);
        if on {
            finalizers.push(names::FINALIZER.to_owned());
        }
        let body = serde_json::json!({
            "metadata": { "resourceVersion": pair.resource_version(), "finalizers": finalizers },
        });
        let pp = PatchParams {
            field_manager: Some(names::MANAGER_PAIR.to_owned()),
            ..PatchParams::default()
        };
        let api = Api::<MySQLPair>::namespaced(self.client.clone(), &self.found.namespace);
        let body = Patch::Merge(body);
        let call = api.patch(&self.found.name, &pp, &body);
        match apply::call("patch the finalizers of", apply::describe(pair), call).await {
            Ok(pair) => {
                self.done.written = Some(pair);
                Ok(())
            }
            // It went with its last finalizer.
            Err(e) if !on && e.is_not_found() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) async fn replace(&mut self, place: Ordinal, uid: Option<&str>) -> Result<(), Error> {
        self.confirm().await?;
        let (namespace, name) = (&self.found.namespace, &self.found.name);
        let seen = self.found.pods.get(place).and_then(Option::as_ref);
        if seen.and_then(|p| p.metadata.uid.as_deref()) != uid {
            return Ok(());
        }
        self.done.kept = replace::replace(self.client, namespace, name, place, seen).await?;
        Ok(())
    }

    pub(super) async fn delete_pod(&self, place: Ordinal, uid: &str, down: bool) -> Result<(), Error> {
        self.confirm().await?;
        let pod = self.found.pods.get(place).and_then(Option::as_ref);
        let Some(pod) = pod.filter(|p| p.metadata.uid.as_deref() == Some(uid)) else {
            return Ok(());
        };
        let dp = DeleteParams {
            grace_period_seconds: down.then_some(DOWN_GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let api = Api::<Pod>::namespaced(self.client.clone(), &self.found.namespace);
        match apply::call("delete", apply::describe(pod), api.delete(&self.pod(place), &dp)).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(()),
        }
    }
}
