//! The objects that scenarios begin with.

use crate::fleet::Fleet;
use anyhow::Result;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ObjectMeta;
use shardwright::api::mysql_pair::Reconciliation;
use shardwright::api::mysql_template::{Durability, MysqlTemplate, Replacement, Storage};
use shardwright::api::shard_cluster::{MappingTable, Migration, ObjectTable, Shards, Tables};
use shardwright::api::{
    LocalRef, MySQLPair, MySQLPairSpec, ShardCluster, ShardClusterSpec, ShardRange, ShardRangeSpec, ShardSpan,
};

/// The pair that most scenarios have.
pub const PAIR: &str = "p0";
/// The range that most scenarios have: shards 0 to 7.
pub const RANGE: &str = "r0";
/// Its shards.
pub const OPEN: i32 = 8;
/// Virtual shards in all, of which most stay closed.
pub const TOTAL: i32 = 64;
/// The shards of [`RANGE`].
pub fn shards() -> Vec<i32> {
    (0..OPEN).collect()
}

/// Tables of [`cluster`].
pub const TABLES: [&str; 3] = ["pins", "boards", "board_has_pins"];

/// my.cnf lines for small servers.
pub const SMALL: &str = "innodb_buffer_pool_size = 32M\ninnodb_redo_log_capacity = 32M\ninnodb_log_buffer_size = 2M\n\
                         max_connections = 60\nperformance_schema_max_table_instances = 500\ntable_open_cache = 400";

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        ..ObjectMeta::default()
    }
}

/// A cluster of 64 shards with two object tables and a mapping, without pairs or ranges.
pub fn cluster(fleet: &Fleet) -> ShardCluster {
    let settings = &fleet.world.settings;
    ShardCluster {
        metadata: named(&fleet.cluster),
        spec: ShardClusterSpec {
            shards: Shards {
                total: TOTAL,
                database_prefix: "db".into(),
                digits: 5,
            },
            routing: None,
            mysql: MysqlTemplate {
                image: settings.mysql_image.clone(),
                image_pull_policy: None,
                image_pull_secrets: vec![],
                config: Some(SMALL.into()),
                storage: Storage {
                    size: Quantity("1Gi".into()),
                    class_name: settings.storage_class.clone(),
                },
                durability: Durability::default(),
                acknowledgement_timeout_seconds: None,
                replacement: Replacement::default(),
                resources: None,
                scheduling: None,
                pod_labels: [].into(),
                pod_annotations: [].into(),
            },
            tables: Some(Tables {
                objects: vec![object("pins", 1), object("boards", 2)],
                mappings: vec![MappingTable {
                    name: "board_has_pins".into(),
                }],
                ddl_from: None,
            }),
            layout: None,
            shard_map: None,
            migration: Migration::default(),
        },
        status: None,
    }
}

/// An object table.
pub fn object(name: &str, type_id: i32) -> ObjectTable {
    ObjectTable {
        name: name.into(),
        type_id,
    }
}

/// A pair of the fleet's cluster, as the template says.
pub fn pair(fleet: &Fleet, name: &str) -> MySQLPair {
    MySQLPair {
        metadata: named(name),
        spec: MySQLPairSpec {
            cluster_ref: LocalRef::new(&fleet.cluster),
            mysql: None,
            reconciliation: Reconciliation::Enabled,
            preferred_active: None,
        },
        status: None,
    }
}

/// A pair that is only a name: the operator makes nothing for it.
pub fn paused_pair(fleet: &Fleet, name: &str) -> MySQLPair {
    let mut p = pair(fleet, name);
    p.spec.reconciliation = Reconciliation::Paused;
    p
}

/// A range of the fleet's cluster.
pub fn range(fleet: &Fleet, name: &str, first: i32, last: i32, pair: &str) -> ShardRange {
    ShardRange {
        metadata: named(name),
        spec: ShardRangeSpec::new(&fleet.cluster, ShardSpan::new(first, last), pair),
        status: None,
    }
}

/// The fixture that most groups share: one pair with shards 0 to 7 and a row in each.
///
/// # Errors
/// When it does not become ready.
pub async fn small(fleet: &Fleet) -> Result<()> {
    fleet.apply(&cluster(fleet)).await?;
    fleet.apply(&pair(fleet, PAIR)).await?;
    fleet.apply(&range(fleet, RANGE, 0, OPEN - 1, PAIR)).await?;
    fleet.all_ready(crate::wait::BRING_UP).await?;
    fleet.write(&shards()).await
}
