//! Which changes of an object are reason for a pass over a pair. What passes tell of it is none.

use crate::api::{MySQLPair, ShardCluster, SpanState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::hash::{DefaultHasher, Hash, Hasher as _};

/// What of a pair a pass goes by: what people say of it, and the record, which an administrator may take away.
pub fn of_pair(pair: &MySQLPair) -> u64 {
    let status = pair.status.as_ref();
    let record = status.map(|s| (&s.active, s.epoch, &s.in_sync));
    hash(&(meta(&pair.metadata), &pair.metadata.annotations, record))
}

/// What of a cluster the passes over its pairs go by: its spec, and where its shards are.
pub fn of_cluster(cluster: &ShardCluster) -> u64 {
    let placement = cluster.status.as_ref().and_then(|s| s.placement.as_ref());
    let pairs: Option<Vec<_>> = placement.map(|p| {
        p.spans
            .iter()
            .map(|s| (&s.pair, &s.range, s.state == SpanState::Serving))
            .collect()
    });
    hash(&(meta(&cluster.metadata), pairs))
}

/// Which object it is, and which wish of it.
fn meta(m: &ObjectMeta) -> impl Hash + '_ {
    (
        &m.uid,
        m.generation,
        m.deletion_timestamp.as_ref().map(|t| t.0),
        &m.finalizers,
    )
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pair(change: impl FnOnce(&mut serde_json::Value)) -> MySQLPair {
        let mut it = json!({
            "apiVersion": "shardwright.dev/v1alpha1",
            "kind": "MySQLPair",
            "metadata": { "name": "p", "uid": "u", "generation": 1 },
            "spec": { "clusterRef": { "name": "c" } },
            "status": { "active": "p-0", "epoch": 3 },
        });
        change(&mut it);
        serde_json::from_value(it).unwrap()
    }

    #[test]
    fn what_a_pass_tells_is_no_reason_for_another_one() {
        let base = of_pair(&pair(|_| {}));
        let told = |it: &mut serde_json::Value| it["status"]["inSyncServers"] = "1/2".into();
        assert_eq!(base, of_pair(&pair(told)));
        let reasons: [fn(&mut serde_json::Value); 5] = [
            |it| it["metadata"]["generation"] = 2.into(),
            |it| it["metadata"]["uid"] = "v".into(),
            |it| it["metadata"]["annotations"] = json!({ "a": "b" }),
            |it| it["status"]["epoch"] = 4.into(),
            |it| it["status"]["active"] = serde_json::Value::Null,
        ];
        for change in reasons {
            assert_ne!(base, of_pair(&pair(change)));
        }
    }
}
