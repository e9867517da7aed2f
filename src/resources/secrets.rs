//! The Secrets. Their builders take what is secret from the caller and put it nowhere else.

use super::accounts_sql::{self, accounts_sql};
use super::labels;
use super::pair::PairContext;
use crate::api::names;
use crate::core::credentials::{APP_USER, CA_CRT, Credentials};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Key of a certificate in a Secret of type `kubernetes.io/tls`.
pub const TLS_CRT: &str = "tls.crt";
/// Key of its private key.
pub const TLS_KEY: &str = "tls.key";

fn secret(metadata: ObjectMeta, type_: &str, data: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata,
        type_: Some(type_.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

fn entry(key: &str, text: &str) -> (String, ByteString) {
    (key.to_owned(), ByteString(text.as_bytes().to_vec()))
}

/// `<cluster>-credentials`, which nothing owns: it outlives the cluster as the volumes do.
pub fn cluster_credentials(namespace: &str, cluster: &str, credentials: &Credentials) -> Secret {
    let metadata = labels::metadata(
        namespace,
        names::credentials_secret(cluster),
        labels::of_cluster(cluster),
        None,
    );
    secret(metadata, "Opaque", credentials.to_data())
}

/// `<pair>-credentials`, which nothing owns: the second copy, and the SQL that the servers run at each boot.
pub fn pair_credentials(ctx: &PairContext, credentials: &Credentials) -> Secret {
    let mut data = credentials.to_data();
    data.extend([entry(accounts_sql::FILE, &accounts_sql(credentials))]);
    let metadata = ctx.unowned(names::pair_credentials_secret(&ctx.pair));
    secret(metadata, "Opaque", data)
}

/// `<cluster>-app`, owned by the cluster: what an application needs to connect.
pub fn app(namespace: &str, cluster: &str, uid: &str, credentials: &Credentials) -> Secret {
    let metadata = labels::metadata(
        namespace,
        names::app_secret(cluster),
        labels::of_cluster(cluster),
        Some(labels::owner("ShardCluster", cluster, uid)),
    );
    let data = [
        entry("username", APP_USER),
        entry("password", &credentials.app_password),
        entry(CA_CRT, &credentials.ca_crt),
    ];
    secret(metadata, "Opaque", data.into())
}

/// `<pair>-tls`, owned by the pair: the servers' certificate and its key.
pub fn tls(ctx: &PairContext, ca_crt: &str, tls_crt: &str, tls_key: &str) -> Secret {
    let data = [
        entry(CA_CRT, ca_crt),
        entry(TLS_CRT, tls_crt),
        entry(TLS_KEY, tls_key),
    ];
    secret(
        ctx.owned(names::tls_secret(&ctx.pair)),
        "kubernetes.io/tls",
        data.into(),
    )
}

/// The names that the servers of a pair are called by, in a fixed order: both servers and both Services, each as short and as
/// long as a resolver may be asked for it.
pub fn server_names(namespace: &str, pair: &str) -> Vec<String> {
    let pods = names::ORDINALS
        .into_iter()
        .map(|o| format!("{}.{}", names::pod(pair, o), names::headless_service(pair)));
    let services = [names::active_service(pair), names::passive_service(pair)];
    let mut all: Vec<String> = pods
        .chain(services)
        .flat_map(|name| {
            [
                format!("{name}.{namespace}.svc"),
                format!("{name}.{namespace}.svc.cluster.local"),
                format!("{name}.{namespace}"),
                name,
            ]
        })
        .collect();
    all.push("localhost".to_owned());
    all
}
