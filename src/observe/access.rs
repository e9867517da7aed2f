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
