//! Labels, annotations, finalizers, field managers and the names of children: one place, so that they cannot drift.

/// Label on every child: the ShardCluster it belongs to.
pub const CLUSTER_LABEL: &str = "shardwright.dev/cluster";
/// Label on every child of a pair: the MySQLPair it belongs to.
pub const PAIR_LABEL: &str = "shardwright.dev/pair";
/// Label on Secrets with errant transactions: the epoch of the pair in which they were saved.
pub const ERRANT_LABEL: &str = "shardwright.dev/errant-epoch";
/// Label on pairs and ranges that a `layout` seeded: the UID of the ShardCluster that did.
pub const SEEDED_BY_LABEL: &str = "shardwright.dev/seeded-by";
/// Label on a shard map's ConfigMap: the ShardCluster it is the map of. The map server watches by it.
pub const MAP_LABEL: &str = "shardwright.dev/shard-map";
/// Annotation on Pods: the hash of what the user specified for them. Only a change of it rolls a Pod (rule O2).
pub const SPEC_HASH_ANNOTATION: &str = "shardwright.dev/spec-hash";
/// Annotation on a MySQLPair: the epoch in which a person accepts that what only the lost server had is gone. It lets the operator go on
/// once: the next epoch is another number.
pub const ACCEPT_DATA_LOSS_ANNOTATION: &str = "shardwright.dev/accept-data-loss";
/// Annotation on a ShardRange: the `metadata.generation` whose cutover a person approves. The next change of the specification needs another one.
pub const APPROVE_CUTOVER_ANNOTATION: &str = "shardwright.dev/approve-cutover";
/// Annotation on a ShardRange: any value, set or changed after copies were found different, has them compared again.
pub const VERIFY_AGAIN_ANNOTATION: &str = "shardwright.dev/verify-again";
/// Readiness gate of the Pods: `True` for the recorded active server and for members of `inSync`.
pub const IN_SYNC_GATE: &str = "shardwright.dev/InSync";
/// Finalizer on ShardRanges and MySQLPairs; a ShardCluster has none, its deletion waits for nothing.
pub const FINALIZER: &str = "shardwright.dev/cleanup";
/// `app.kubernetes.io/managed-by` on every child.
pub const MANAGED_BY: &str = "shardwright";

/// Field manager of the ShardCluster controller.
pub const MANAGER_CLUSTER: &str = "shardwright.dev/cluster";
/// Field manager of the ShardRange controller.
pub const MANAGER_RANGE: &str = "shardwright.dev/range";
/// Field manager of the MySQLPair controller.
pub const MANAGER_PAIR: &str = "shardwright.dev/pair";

/// Field manager of the controller of moves.
pub const MANAGER_MIGRATION: &str = "shardwright.dev/migration";

/// The port that mysqld listens on.
pub const MYSQL_PORT: u16 = 3306;

/// Longest name of a MySQLPair: `<pair>-1-<hash>` has to fit the 63 characters of a label.
pub const MAX_PAIR_NAME: usize = 45;
/// Longest name of a ShardCluster: `<cluster>-p000` has to be a pair's name, and the Secret's name is made from it.
pub const MAX_CLUSTER_NAME: usize = 40;

/// The two places of a pair.
pub const ORDINALS: [usize; 2] = [0, 1];

/// The StatefulSet, the headless Service and the ConfigMap's prefix are called as the pair.
pub fn headless_service(pair: &str) -> String {
    pair.to_owned()
}
/// Pod of a pair: `<pair>-0` is A, `<pair>-1` is B.
pub fn pod(pair: &str, ordinal: usize) -> String {
    format!("{pair}-{ordinal}")
}
/// DNS name of one server, stable over restarts: `<pod>.<pair>.<namespace>.svc`.
pub fn host(namespace: &str, pair: &str, ordinal: usize) -> String {
    format!(
        "{}.{}.{namespace}.svc",
        pod(pair, ordinal),
        headless_service(pair)
    )
}
/// Service that leads to the active server.
pub fn active_service(pair: &str) -> String {
    format!("{pair}-active")
}
/// Service that leads to the passive server.
pub fn passive_service(pair: &str) -> String {
    format!("{pair}-passive")
}
/// ConfigMap with one my.cnf a server.
pub fn config_map(pair: &str) -> String {
    format!("{pair}-mysql-config")
}
/// Secret with the certificate of the pair's servers.
pub fn tls_secret(pair: &str) -> String {
    format!("{pair}-mysql-tls")
}
/// Secret with the accounts that the servers of the pair are given at boot; also the second copy of [`credentials_secret`].
pub fn pair_credentials_secret(pair: &str) -> String {
    format!("{pair}-mysql-credentials")
}
/// Secret with the passwords and the certificate authority of a cluster. Never owned: it outlives the cluster as the volumes do.
pub fn credentials_secret(cluster: &str) -> String {
    format!("{cluster}-credentials")
}
/// Secret with errant transactions that were saved in this epoch of a pair, the `part`-th of them, from 1. Never owned.
pub fn errant_secret(pair: &str, epoch: i64, part: usize) -> String {
    match part {
        0 | 1 => format!("{pair}-errant-{epoch}"),
        n => format!("{pair}-errant-{epoch}-{n}"),
    }
}
/// Secret for applications: user name, password and the certificate to trust.
pub fn app_secret(cluster: &str) -> String {
    format!("{cluster}-app")
}
/// Default name of the ConfigMap with the shard map.
pub fn shard_map(cluster: &str) -> String {
    format!("{cluster}-shard-map")
}
/// Name of the n-th pair that a layout seeds.
pub fn layout_pair(cluster: &str, n: usize) -> String {
    format!("{cluster}-p{n}")
}
/// Name of the n-th range that a layout seeds.
pub fn layout_range(cluster: &str, n: usize) -> String {
    format!("{cluster}-r{n}")
}
