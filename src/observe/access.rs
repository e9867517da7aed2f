//! How the recorded active server of a pair is reached.

use crate::{
    act::apply::{self, Error as ApiError},
    api::{MySQLPair, names},
    core::credentials::{Credentials, CredentialsError, OPERATOR_USER},
    mysql::Access,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Client, ResourceExt as _};

/// Why it cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the API failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The pair has no active server on record.
    #[error("MySQLPair {0} has no active server on record yet")]
    NoActive(String),
    /// Its Pod has no address.
    #[error("Pod {0} is not running")]
    NoAddress(String),
    /// The Secret is not there.
    #[error("Secret {0} is not there")]
    NoSecret(String),
    /// The Secret cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// A server that may be worked on, if it is what is on record.
#[derive(Clone, Debug)]
pub struct ActiveServer {
    /// How it is reached.
    pub access: Access,
    /// The `server_uuid` that it has to answer with.
    pub uuid: String,
}

/// Pod and `server_uuid` of the recorded active server.
pub fn recorded(pair: &MySQLPair) -> Option<(String, String)> {
    let status = pair.status.as_ref()?;
    let active = status.active.as_ref()?;
    let member = status.in_sync.iter().find(|m| m.name == *active)?;
    Some((active.clone(), member.server_uuid.clone()))
}

/// The pair as it is now, when its record is another one than `began`'s: what its active server said since then may be lost, for whoever
/// fences a server tells those who wait on it OK, and a record always comes before. `None` when it is the same.
///
/// # Errors
/// [`Error::Api`]; [`Error::NoActive`] when the pair is gone.
pub async fn superseded(client: &Client, began: &MySQLPair) -> Result<Option<MySQLPair>, Error> {
    let (namespace, name) = (began.namespace().unwrap_or_default(), began.name_any());
    let now = apply::get::<MySQLPair>(client, &namespace, &name).await?;
    let now = now.ok_or(Error::NoActive(name))?;
    let record = |p: &MySQLPair| (p.uid(), p.status.as_ref().map(|s| s.epoch), recorded(p));
    Ok((record(began) != record(&now)).then_some(now))
}

/// How the recorded active server of `pair` is reached.
///
/// # Errors
/// [`Error`].
pub async fn active(client: &Client, pair: &MySQLPair) -> Result<ActiveServer, Error> {
    let (namespace, name) = (pair.namespace().unwrap_or_default(), pair.name_any());
    let (pod_name, uuid) = recorded(pair).ok_or_else(|| Error::NoActive(name.clone()))?;
    let secret_name = names::pair_credentials_secret(&name);
    let (pod, secret) = futures::try_join!(
        apply::get::<Pod>(client, &namespace, &pod_name),
        apply::get::<Secret>(client, &namespace, &secret_name),
    )?;
    let address = pod
        .and_then(|p| p.status)
        .and_then(|s| s.pod_ip)
        .ok_or_else(|| Error::NoAddress(pod_name.clone()))?;
    let data = secret
        .and_then(|s| s.data)
        .ok_or_else(|| Error::NoSecret(secret_name.clone()))?;
    let credentials = Credentials::from_data(&secret_name, &data)?;
    Ok(ActiveServer {
        access: Access {
            address,
            port: names::MYSQL_PORT,
            tls_name: format!("{pod_name}.{}.{namespace}.svc", names::headless_service(&name)),
            user: OPERATOR_USER.to_owned(),
            password: credentials.operator_password,
            ca_pem: credentials.ca_crt,
        },
        uuid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::mock::Api;
    use serde_json::{Value, json};

    const GET: &str = "GET /apis/shardwright.dev/v1alpha1/namespaces/shop/mysqlpairs/p0";

    fn pair(active: &str, epoch: i64, uuid: &str) -> Value {
        json!({
            "apiVersion": "shardwright.dev/v1alpha1", "kind": "MySQLPair",
            "metadata": {"name": "p0", "namespace": "shop", "uid": "u"},
            "spec": {"clusterRef": {"name": "main"}},
            "status": {"active": active, "epoch": epoch, "inSync": [{"name": active, "serverUuid": uuid}]},
        })
    }

    #[tokio::test]
    async fn what_was_made_under_another_record_does_not_count() {
        let began: MySQLPair = serde_json::from_value(pair("p0-0", 4, "a")).unwrap();
        assert_eq!(recorded(&began), Some(("p0-0".into(), "a".into())));
        for (now, same) in [
            (pair("p0-0", 4, "a"), true),
            // It was handed over, and back again.
            (pair("p0-0", 6, "a"), false),
            (pair("p0-1", 5, "b"), false),
            (pair("p0-0", 4, "c"), false),
        ] {
            let api = Api::new([(GET, 200, now)]);
            let other = superseded(&api.client(), &began).await.unwrap();
            assert_eq!(other.is_none(), same);
            api.done();
        }
    }
}
