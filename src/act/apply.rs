//! Server-side apply of one object, and only when something would change (rule O2).

use crate::{
    api::names::{CLUSTER_LABEL, PAIR_LABEL},
    deadline,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions, ValidationDirective},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// A call of the Kubernetes API that failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {object}: {}", .source.describe())]
pub struct Error {
    /// What was tried.
    pub verb: &'static str,
    /// On what.
    pub object: String,
    /// Why it failed.
    #[source]
    pub source: Cause,
}

/// Why a call of the API failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The API answered with an error, or could not be reached.
    #[error(transparent)]
    Kube(Box<kube::Error>),
    /// No answer in time.
    #[error(transparent)]
    Elapsed(#[from] deadline::Elapsed),
    /// The object is there and is somebody else's.
    #[error("it exists and is not this one's: remove it, or choose another name")]
    Foreign,
}

impl Cause {
    /// The API's own message where there is one: kube's `Display` prints the whole Status.
    pub fn describe(&self) -> String {
        match self {
            Self::Kube(e) => match &**e {
                kube::Error::Api(s) => s.message.clone(),
                e => e.to_string(),
            },
            Self::Elapsed(e) => e.to_string(),
            Self::Foreign => self.to_string(),
        }
    }
}

impl Error {
    fn status(&self) -> Option<&kube::core::Status> {
        match &self.source {
            Cause::Kube(e) => match &**e {
                kube::Error::Api(s) => Some(s),
                _ => None,
            },
            Cause::Elapsed(_) | Cause::Foreign => None,
        }
    }
    /// Somebody else wrote in between (409).
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_conflict)
    }
    /// The API said what it did or did not do. Otherwise nobody can say.
    pub fn is_answered(&self) -> bool {
        self.status().is_some_and(|s| (400..500).contains(&s.code)) || matches!(self.source, Cause::Foreign)
    }
    /// The object is not there (404).
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_not_found)
    }
    /// The object is there already (409 AlreadyExists).
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_already_exists)
    }
    /// The API refused the object for what it is or for whose it is: a quota, an admission policy, a missing permission, an invalid field.
    /// Trying again helps only after somebody changed something.
    pub fn is_refused(&self) -> bool {
        let passes = [401, 404, 408, 409, 410, 429];
        matches!(self.source, Cause::Foreign)
            || self
                .status()
                .is_some_and(|s| (400..500).contains(&s.code) && !passes.contains(&s.code))
                && !self.is_namespace_terminating()
    }
    /// The namespace is being deleted: nothing new can be made in it.
    pub fn is_namespace_terminating(&self) -> bool {
        self.status().is_some_and(|s| {
            s.is_forbidden()
                && s.details
                    .as_ref()
                    .is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"))
        })
    }
}

/// Awaits a call of the API with a deadline and says what it was when it fails.
///
/// # Errors
/// [`Error`] with the verb and the object.
pub async fn call<T>(
    verb: &'static str,
    object: impl Into<String>,
    future: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match deadline::within(deadline::API, future).await {
        Ok(Ok(t)) => Ok(t),
        Ok(Err(e)) => Err(Error {
            verb,
            object: object.into(),
            source: Cause::Kube(Box::new(e)),
        }),
        Err(e) => Err(Error {
            verb,
            object: object.into(),
            source: e.into(),
        }),
    }
}

/// What the API asks of a type that we apply.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}
impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// `Kind namespace/name`, for messages.
pub fn describe<K: Object>(obj: &K) -> String {
    format!(
        "{} {}/{}",
        K::kind(&()),
        obj.namespace().unwrap_or_default(),
        obj.name_any()
    )
}

/// Reads one object; `None` when it is not there.
///
/// # Errors
/// [`Error`].
pub async fn get<K: Object>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>, Error> {
    let api = Api::<K>::namespaced(client.clone(), namespace);
    call(
        "get",
        format!("{} {namespace}/{name}", K::kind(&())),
        api.get_opt(name),
    )
    .await
}

/// Server-side apply, unconditionally.
///
/// # Errors
/// [`Error`].
pub async fn apply<K: Object>(client: &Client, manager: &str, obj: &K) -> Result<K, Error> {
    let mut pp = PatchParams::apply(manager).force();
    pp.field_validation = Some(ValidationDirective::Strict);
    let api = Api::<K>::namespaced(client.clone(), &obj.namespace().unwrap_or_default());
    call(
        "apply",
        describe(obj),
        api.patch(&obj.name_any(), &pp, &Patch::Apply(obj)),
    )
    .await
}

/// Whether what is there may be overwritten by `wanted`: it carries the labels of the same cluster or pair, or has the same owner (of
/// whatever UID: one that was made again takes its children over).
///
/// # Errors
/// [`Cause::Foreign`].
pub fn check_ours<K: Object>(live: &K, wanted: &K) -> Result<(), Error> {
    const OURS: [&str; 3] = ["app.kubernetes.io/managed-by", CLUSTER_LABEL, PAIR_LABEL];
    let (has, wants) = (live.labels(), wanted.labels());
    let labelled = OURS.iter().all(|l| has.get(*l) == wants.get(*l));
    let owned = wanted.owner_references().iter().any(|w| {
        let same =
            |o: &OwnerReference| o.kind == w.kind && o.name == w.name && o.api_version == w.api_version;
        live.owner_references().iter().any(same)
    });
    if labelled || owned {
        return Ok(());
    }
    Err(Error {
        verb: "overwrite",
        object: describe(wanted),
        source: Cause::Foreign,
    })
}

/// Deletes exactly the object that was seen, by its UID; one that is gone already is no error.
///
/// # Errors
/// [`Error`].
pub async fn delete<K: Object>(client: &Client, obj: &K) -> Result<(), Error> {
    let dp = DeleteParams {
        preconditions: Some(Preconditions {
            uid: obj.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api = Api::<K>::namespaced(client.clone(), &obj.namespace().unwrap_or_default());
    match call("delete", describe(obj), api.delete(&obj.name_any(), &dp)).await {
        Ok(_) => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::labels;
    use k8s_openapi::api::core::v1::Secret;

    fn secret(pair: &str, uid: &str) -> Secret {
        let owner = labels::owner("MySQLPair", pair, uid);
        Secret {
            metadata: labels::metadata("n", "web-tls".into(), labels::of_pair("c", pair), Some(owner)),
            ..Secret::default()
        }
    }

    #[test]
    fn an_object_of_somebody_else_is_never_overwritten() {
        let wanted = secret("web", "1");
        let mut of_others = wanted.clone();
        of_others.metadata.labels = None;
        of_others.metadata.owner_references = None;
        let error = check_ours(&of_others, &wanted).unwrap_err();
        assert!(error.is_refused(), "{error}");
        assert_eq!(
            error.to_string(),
            "overwrite Secret n/web-tls: it exists and is not this one's: remove it, or choose another name"
        );
        assert!(check_ours(&secret("other", "1"), &wanted).is_err());
    }

    #[test]
    fn what_an_earlier_pair_of_the_name_left_is_taken_over() {
        let wanted = secret("web", "2");
        check_ours(&secret("web", "1"), &wanted).unwrap();
        let mut unlabelled = secret("web", "1");
        unlabelled.metadata.labels = None;
        check_ours(&unlabelled, &wanted).unwrap();
    }
}
