//! Which changes of an object are reason for a pass over a pair. What passes tell of it is none.

use crate::api::{Move, MoveStage, MySQLPair, Seed, ShardCluster, SpanState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher as _},
};

/// What of a pair a pass goes by: what people say of it, and the record, which an administrator may take away.
pub fn of_pair(pair: &MySQLPair) -> u64 {
    let status = pair.status.as_ref();
    let record = status.map(|s| (&s.active, s.epoch, &s.in_sync));
    hash(&(meta(&pair.metadata), &pair.metadata.annotations, record))
}

/// What of a cluster the passes over its pairs go by: its spec, which pairs have shards of which ranges, which are the ends of a move, and which is cloned over. Which
/// shards that are is none of it: batches change that all the time.
pub fn of_cluster(cluster: &ShardCluster) -> u64 {
    let placement = cluster.status.as_ref().and_then(|s| s.placement.as_ref());
    let pairs: Option<BTreeSet<_>> = placement.map(|p| {
        p.spans
            .iter()
            .map(|s| (&s.pair, &s.range, s.state == SpanState::Serving))
            .collect()
    });
    let link = |m: &Move| {
        (
            m.from.clone(),
            m.to.clone(),
            m.seed == Seed::Physical && m.stage == MoveStage::Seeding,
        )
    };
    let moves: Option<Vec<_>> = placement.map(|p| p.moves.iter().map(link).collect());
    hash(&(meta(&cluster.metadata), pairs, moves))
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

    #[test]
    fn which_pairs_have_shards_or_moves_is_a_reason_and_which_shards_is_none() {
        let cluster = |spans: serde_json::Value, moves: serde_json::Value| -> ShardCluster {
            serde_json::from_value(json!({
                "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardCluster",
                "metadata": { "name": "c", "uid": "u" },
                "spec": { "shards": { "total": 16 }, "mysql": { "image": "m", "storage": { "size": "1Gi" } } },
                "status": { "placement": { "mapVersion": 1, "spans": spans, "moves": moves } },
            }))
            .unwrap()
        };
        let span = |first: i32, last: i32, pair: &str| json!({ "first": first, "last": last, "pair": pair, "state": "Serving" });
        let link = |stage: &str| json!([{ "from": "p0", "to": "p1", "shards": [{ "first": 0, "last": 7 }], "seed": "Physical", "stage": stage }]);
        let hash =
            |spans: &[serde_json::Value], moves: serde_json::Value| of_cluster(&cluster(spans.into(), moves));
        let base = hash(&[span(0, 7, "p0")], json!([]));
        let begun = hash(&[span(0, 7, "p0")], link("Seeding"));
        assert_ne!(base, begun);
        // It is cloned over no more.
        let begun = {
            let following = hash(&[span(0, 7, "p0")], link("Following"));
            assert_ne!(begun, following);
            following
        };
        assert_eq!(begun, hash(&[span(0, 7, "p0")], link("Retaining")));
        let half = hash(&[span(0, 3, "p0"), span(4, 7, "p1")], link("Following"));
        assert_ne!(begun, half);
        assert_eq!(
            half,
            hash(&[span(0, 1, "p0"), span(2, 7, "p1")], link("Following"))
        );
        assert_ne!(half, hash(&[span(0, 7, "p1")], link("Following")));
    }
}
