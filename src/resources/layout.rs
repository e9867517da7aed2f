//! The pairs and ranges that a layout makes, once.

use crate::api::mysql_pair::{MySQLPairSpec, Reconciliation};
use crate::api::names::{self, CLUSTER_LABEL, SEEDED_BY_LABEL};
use crate::api::shard_range::ShardRangeSpec;
use crate::api::{LocalRef, MySQLPair, ShardCluster, ShardRange, ShardSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// What a layout makes: ordinary objects that nothing owns, as many pairs as ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Seed {
    /// `<cluster>-p0`, ….
    pub pairs: Vec<MySQLPair>,
    /// `<cluster>-r0`, …, each on the pair of the same number.
    pub ranges: Vec<ShardRange>,
}

/// Shards 0 to `open` - 1 in `parts` runs that differ by one shard at most, the longer ones first.
pub fn spread(open: i32, parts: i32) -> Vec<ShardSpan> {
    let parts = parts.clamp(1, open.max(1));
    let (each, longer) = (open / parts, open % parts);
    let start = |i: i32| i * each + i.min(longer);
    (0..parts)
        .map(|i| ShardSpan::new(start(i), start(i + 1) - 1))
        .collect()
}

/// The objects of `cluster.spec.layout`; `None` when it has none.
pub fn seed(cluster: &ShardCluster) -> Option<Seed> {
    let layout = cluster.spec.layout.as_ref()?;
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let metadata = |child: String| ObjectMeta {
        namespace: cluster.metadata.namespace.clone(),
        name: Some(child),
        labels: Some(BTreeMap::from([
            (CLUSTER_LABEL.to_owned(), name.to_owned()),
            ("app.kubernetes.io/part-of".to_owned(), name.to_owned()),
            (
                SEEDED_BY_LABEL.to_owned(),
                cluster.metadata.uid.clone().unwrap_or_default(),
            ),
        ])),
        ..ObjectMeta::default()
    };
    let (pairs, ranges) = spread(layout.open, layout.pairs)
        .into_iter()
        .enumerate()
        .map(|(n, span)| {
            let pair = names::layout_pair(name, n);
            let range = ShardRange {
                metadata: metadata(names::layout_range(name, n)),
                spec: ShardRangeSpec::new(name, span, &pair),
                status: None,
            };
            let pair = MySQLPair {
                metadata: metadata(pair),
                spec: MySQLPairSpec {
                    cluster_ref: LocalRef::new(name),
                    mysql: None,
                    reconciliation: Reconciliation::default(),
                    preferred_active: None,
                },
                status: None,
            };
            (pair, range)
        })
        .unzip();
    Some(Seed { pairs, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shards_that_do_not_divide_go_to_the_first_pairs() {
        let spans: Vec<_> = spread(10, 4).iter().map(|s| (s.first, s.last)).collect();
        assert_eq!(spans, [(0, 2), (3, 5), (6, 7), (8, 9)]);
        let spans: Vec<_> = spread(1024, 2).iter().map(|s| (s.first, s.last)).collect();
        assert_eq!(spans, [(0, 511), (512, 1023)]);
        assert_eq!(spread(1, 1), [ShardSpan::new(0, 0)]);
    }

    #[test]
    fn the_objects_of_a_layout() {
        let mut cluster: ShardCluster = serde_json::from_value(serde_json::json!({
            "apiVersion": "shardwright.dev/v1alpha1",
            "kind": "ShardCluster",
            "metadata": {"name": "main", "namespace": "shop", "uid": "c-uid"},
            "spec": {
                "shards": {"total": 1024},
                "mysql": {"image": "mysql:9.7", "storage": {"size": "1Gi"}},
                "layout": {"pairs": 2, "open": 5},
            },
        }))
        .unwrap();
        let seed_of = seed(&cluster).unwrap();
        insta::assert_yaml_snapshot!("pairs", seed_of.pairs);
        insta::assert_yaml_snapshot!("ranges", seed_of.ranges);
        cluster.spec.layout = None;
        assert_eq!(seed(&cluster), None);
    }

    proptest! {
        #[test]
        fn every_shard_is_in_exactly_one_run(open in 1..=65536i32, parts in 1..=256i32) {
            let spans = spread(open, parts);
            prop_assert_eq!(spans.len(), usize::try_from(parts.min(open)).unwrap());
            let mut next = 0;
            for s in &spans {
                prop_assert_eq!(s.first, next);
                prop_assert!(s.first <= s.last);
                next = s.last + 1;
            }
            prop_assert_eq!(next, open);
            let size = |s: &ShardSpan| s.last - s.first;
            prop_assert!(spans.iter().map(size).max().unwrap() - spans.iter().map(size).min().unwrap() <= 1);
        }
    }
}
