//! The Secrets with a cluster's passwords and certificates: made once, healed from whichever copy is left.

use super::{
    apply::{self, Error as ApiError},
    credentials, tls,
};
use crate::{
    api::{MySQLPair, names},
    core::credentials::{CA_CRT, Copy, Credentials, CredentialsError, Healed, heal},
    observe::pair::credentials as read,
    resources::{
        PairContext, accounts_sql,
        secrets::{self, TLS_CRT, TLS_KEY},
    },
};
use k8s_openapi::{ByteString, api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use std::collections::BTreeMap;

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A Secret is there that cannot be used and is not overwritten.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Garbled(Vec<CredentialsError>),
    /// None could be made.
    #[error(transparent)]
    Credentials(#[from] credentials::Error),
    /// No certificate could be made.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

impl Error {
    /// What there is cannot be used and will not be overwritten: a person has to look.
    pub fn is_unusable(&self) -> bool {
        matches!(self, Self::Garbled(_) | Self::Tls(_))
    }
    /// The API does not take a Secret, or one of the name is somebody else's.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Api(e) if e.is_refused())
    }
}

/// The credentials of a cluster: its own copy; when that is lost, the copy of one of its pairs, which brings it back; when there
/// is none at all, new ones. Two who do this at once end with the same: the Secret is created, never overwritten by new ones.
///
/// # Errors
/// [`Error`].
pub async fn of_cluster(
    client: &Client,
    manager: &str,
    namespace: &str,
    cluster: &str,
    now: Timestamp,
) -> Result<Credentials, Error> {
    let own = read(client, namespace, &names::credentials_secret(cluster))
        .await?
        .copy;
    if let Ok(Some(credentials)) = own {
        return Ok(credentials);
    }
    let mut copies: Vec<(String, Copy)> = vec![];
    for pair in pairs_of(client, namespace, cluster).await? {
        let found = read(client, namespace, &names::pair_credentials_secret(&pair)).await?;
        copies.push((pair, found.copy));
    }
    match heal(&own, &copies) {
        Healed::Survives(credentials) => {
            let secret = secrets::cluster_credentials(namespace, cluster, &credentials);
            match own {
                // A garbled one is mended when it is the operator's.
                Err(_) => {
                    let live = apply::get::<Secret>(client, namespace, &secret.name_any()).await?;
                    if let Some(live) = &live {
                        apply::check_ours(live, &secret)?;
                    }
                    apply::apply(client, manager, &secret).await?;
                    Ok(*credentials)
                }
                Ok(_) => create(client, namespace, cluster, &secret, *credentials).await,
            }
        }
        Healed::NoneYet => {
            let new = credentials::generate(cluster, now)?;
            let secret = secrets::cluster_credentials(namespace, cluster, &new);
            create(client, namespace, cluster, &secret, new).await
        }
        Healed::Garbled(errors) => Err(Error::Garbled(errors)),
    }
}

/// Names of the cluster's pairs, ascending.
async fn pairs_of(client: &Client, namespace: &str, cluster: &str) -> Result<Vec<String>, ApiError> {
    let api = Api::<MySQLPair>::namespaced(client.clone(), namespace);
    let lp = ListParams::default().fields(&format!("spec.clusterRef.name={cluster}"));
    let list = apply::call("list", format!("MySQLPair {namespace}"), api.list(&lp)).await?;
    let mut pairs: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
    pairs.sort();
    Ok(pairs)
}

/// Creates the cluster's Secret; when somebody else was faster, theirs is taken.
async fn create(
    client: &Client,
    namespace: &str,
    cluster: &str,
    secret: &Secret,
    credentials: Credentials,
) -> Result<Credentials, Error> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    match apply::call(
        "create",
        apply::describe(secret),
        api.create(&PostParams::default(), secret),
    )
    .await
    {
        Ok(_) => Ok(credentials),
        Err(e) if e.is_already_exists() => {
            match read(client, namespace, &names::credentials_secret(cluster))
                .await?
                .copy
            {
                Ok(Some(theirs)) => Ok(theirs),
                Ok(None) => Err(e.into()),
                Err(garbled) => Err(Error::Garbled(vec![garbled])),
            }
        }
        Err(e) => Err(e.into()),
    }
}

/// Makes a pair's two Secrets what they should be. Nothing is written when they are; and nothing when the authority is of no use,
/// since no server could be reached with it.
///
/// # Errors
/// [`Error`].
pub async fn of_pair(
    client: &Client,
    manager: &str,
    ctx: &PairContext,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<(), Error> {
    let certificate = certificate(client, ctx, credentials, now).await?;
    let wanted = secrets::pair_credentials(ctx, credentials);
    let found = apply::get::<Secret>(client, &ctx.namespace, &wanted.name_any()).await?;
    if let Some(found) = &found
        && !restored(found)
    {
        apply::check_ours(found, &wanted)?;
    }
    if !same(found.as_ref(), &wanted) {
        apply::apply(client, manager, &wanted).await?;
    }
    if let Some(wanted) = certificate {
        apply::apply(client, manager, &wanted).await?;
    }
    Ok(())
}

/// The Secret with the servers' certificate, when that has to be written.
async fn certificate(
    client: &Client,
    ctx: &PairContext,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<Option<Secret>, Error> {
    let found = apply::get::<Secret>(client, &ctx.namespace, &names::tls_secret(&ctx.pair)).await?;
    let server_names = secrets::server_names(&ctx.namespace, &ctx.pair);
    let there = found.as_ref().and_then(pair_in);
    let fits = found
        .as_ref()
        .is_some_and(|s| text(s, CA_CRT).as_deref() == Some(&credentials.ca_crt));
    if fits && tls::renewal(&credentials.ca_crt, there.as_ref(), &server_names, now).is_none() {
        return Ok(None);
    }
    let new = tls::issue_server(&credentials.ca_crt, &credentials.ca_key, &server_names, now)?;
    // With the key of another authority it would be made anew in every pass, and no server could be verified.
    if let Some(why) = tls::renewal(&credentials.ca_crt, Some(&new), &server_names, now) {
        return Err(tls::Error::Mismatch(why).into());
    }
    let wanted = secrets::tls(ctx, &credentials.ca_crt, &new.crt, &new.key);
    if let Some(found) = &found {
        apply::check_ours(found, &wanted)?;
    }
    Ok(Some(wanted))
}

/// Somebody brought back what was in it by hand, without labels.
fn restored(found: &Secret) -> bool {
    found.labels().is_empty() && Credentials::from_data("", &found.data.clone().unwrap_or_default()).is_ok()
}

/// Whether the Secret says what is wanted, and belongs to what it should.
fn same(found: Option<&Secret>, wanted: &Secret) -> bool {
    let Some(found) = found else { return false };
    let none = BTreeMap::new();
    let labels = |s: &Secret| -> BTreeMap<String, String> { s.labels().clone() };
    let (has, wants) = (labels(found), labels(wanted));
    let data =
        |s: &Secret| -> BTreeMap<String, ByteString> { s.data.clone().unwrap_or_else(|| none.clone()) };
    let (there, want) = (data(found), data(wanted));
    want.iter().all(|(k, v)| there.get(k) == Some(v))
        && there.contains_key(accounts_sql::FILE)
        && wants.iter().all(|(k, v)| has.get(k) == Some(v))
}

fn text(s: &Secret, key: &str) -> Option<String> {
    String::from_utf8(s.data.as_ref()?.get(key)?.0.clone()).ok()
}

fn pair_in(s: &Secret) -> Option<tls::Pair> {
    Some(tls::Pair {
        crt: text(s, TLS_CRT)?,
        key: text(s, TLS_KEY)?,
    })
}
