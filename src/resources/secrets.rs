//! The Secrets. Their builders take what is secret from the caller and put it nowhere else.

use super::accounts_sql::{self, accounts_sql};
use super::client_cnf::{self, client_cnf};
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

/// `<pair>-mysql-credentials`, which nothing owns: the second copy, the SQL that the servers run at each boot, and the options of the
/// client in the Pods.
pub fn pair_credentials(ctx: &PairContext, credentials: &Credentials) -> Secret {
    let mut data = credentials.to_data();
    data.extend([
        entry(accounts_sql::FILE, &accounts_sql(credentials)),
        entry(client_cnf::FILE, &client_cnf(credentials)),
    ]);
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

/// `<pair>-mysql-tls`, owned by the pair: the servers' certificate and its key.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::pair::tests::context;

    fn credentials() -> Credentials {
        Credentials {
            operator_password: "OperatorPassword".into(),
            replication_password: "ReplicationPassword".into(),
            app_password: "AppPassword".into(),
            root_password: "RootPassword".into(),
            ca_crt: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".into(),
            ca_key: "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n".into(),
        }
    }
    /// With the values as text, so that a reader of the snapshot sees what is in it.
    fn readable(mut s: Secret) -> Secret {
        let data = s.data.take().unwrap_or_default();
        let text = |b: ByteString| String::from_utf8(b.0).unwrap();
        s.string_data = Some(data.into_iter().map(|(k, v)| (k, text(v))).collect());
        s
    }

    #[test]
    fn the_secrets() {
        let (ctx, c) = (context(), credentials());
        let cluster = cluster_credentials("shop", "main", &c);
        let pair = pair_credentials(&ctx, &c);
        for s in [&cluster, &pair] {
            assert_eq!(s.metadata.owner_references, None, "outlives everything");
            let data = s.data.as_ref().unwrap();
            assert_eq!(Credentials::from_data("s", data), Ok(c.clone()), "a full copy");
        }
        insta::assert_yaml_snapshot!("cluster_credentials", readable(cluster));
        insta::assert_yaml_snapshot!("pair_credentials", readable(pair));
        insta::assert_yaml_snapshot!("app", readable(app("shop", "main", "c-uid", &c)));
        insta::assert_yaml_snapshot!("tls", readable(tls(&ctx, "ca", "crt", "key")));
    }

    #[test]
    fn the_names_of_the_servers() {
        let names = server_names("shop", "main-p0");
        for host in names::ORDINALS.map(|o| names::host("shop", "main-p0", o)) {
            assert!(
                names.contains(&host) && names.contains(&format!("{host}.cluster.local")),
                "{host}"
            );
        }
        insta::assert_snapshot!(names.join("\n"));
    }
}
