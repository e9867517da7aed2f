//! The published shard map: which servers have which shards, and how a key finds its shard.

use super::{id, sha256, spans::SpanSet};
use crate::api::{
    Placement, ShardClusterSpec, ShardSpan, SpanState, names,
    shard_cluster::{HashAlgorithm, RoutingMode},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// What `schema` says in every map that this program writes.
pub const SCHEMA: &str = "shardwright.dev/shardmap/v1";
/// Key of the ConfigMap that has the whole map.
pub const SHARDMAP_KEY: &str = "shardmap.json";
/// Key of the ConfigMap that has the plain form.
pub const RANGES_KEY: &str = "ranges.json";

/// The map of one cluster, as it stands in `shardmap.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardMap {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whose map it is.
    pub cluster: ClusterId,
    /// Rises by one with each change, never falls.
    pub version: i64,
    /// How a key finds its shard.
    pub routing: Routing,
    /// How the databases are called.
    pub databases: Databases,
    /// Tables of objects by the type inside an ID, ascending.
    #[serde(default)]
    pub types: Vec<TypeTable>,
    /// Runs of shards in the map, ascending; they do not overlap.
    pub entries: Vec<Entry>,
}

/// Identity of a ShardCluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterId {
    /// Namespace of the ShardCluster.
    pub namespace: String,
    /// Name of the ShardCluster.
    pub name: String,
    /// UID of the ShardCluster; another one when it was deleted and made again.
    pub uid: String,
}

/// How a key finds its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode")]
pub enum Routing {
    /// A 64-bit ID carries its shard.
    #[serde(rename_all = "camelCase")]
    ID {
        /// Where in the ID.
        id_layout: IdLayout,
    },
    /// Hash of the bytes of the key, read as one big-endian number, modulo `modulus`.
    #[serde(rename_all = "camelCase")]
    KeyHash {
        /// The hash.
        algorithm: HashAlgorithm,
        /// The number of shards.
        modulus: i32,
    },
}

/// Positions and widths inside an ID, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdLayout {
    /// Lowest bit of the shard.
    pub shard_shift: u32,
    /// Width of the shard.
    pub shard_bits: u32,
    /// Lowest bit of the type.
    pub type_shift: u32,
    /// Width of the type.
    pub type_bits: u32,
    /// Width of the local id, which begins at bit 0.
    pub local_bits: u32,
}

/// How the databases are called: `<prefix><number, filled with zeros to digits>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Databases {
    /// What every name begins with.
    pub prefix: String,
    /// Digits of the number.
    pub digits: i32,
    /// Virtual shards in all, in the map or not.
    pub total: i32,
}

/// Table of one type of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeTable {
    /// Number of the type inside an ID.
    pub type_id: i32,
    /// The table in every shard.
    pub table: String,
}

/// A run of shards and the servers that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// First shard.
    pub first: i32,
    /// Last shard, inclusive.
    pub last: i32,
    /// Name of the MySQLPair.
    pub pair: String,
    /// Takes reads and writes.
    pub active: Host,
    /// Exists to take over; applications do not use it.
    pub passive: Host,
    /// What may be done with the shards.
    pub state: EntryState,
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// DNS name.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// What may be done with the shards of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryState {
    /// Reads and writes.
    Serving,
}

/// One entry of the plain form.
#[derive(Serialize)]
struct PlainEntry<'a> {
    range: [i32; 2],
    master: &'a str,
    slave: &'a str,
}

/// A text is no map.
#[derive(thiserror::Error, Debug)]
pub enum MapError {
    /// It is no JSON, or lacks a field.
    #[error("not a shard map: {0}")]
    Json(#[from] serde_json::Error),
    /// It is a map of another kind or a later version.
    #[error("the schema of the shard map is `{0}`, this program reads `{SCHEMA}`")]
    Schema(String),
    /// Its entries cannot be true.
    #[error(
        "the entry {first}-{last} of the shard map is not in order, overlaps the one before, or is beyond shard {beyond}"
    )]
    Entry {
        /// First shard of the entry.
        first: i32,
        /// Last shard of the entry.
        last: i32,
        /// Last shard that there can be.
        beyond: i32,
    },
}

/// The map that the record makes: its Serving spans, at the servers of their pairs.
///
/// `actives` has the ordinal (0 or 1) of the active server of each pair where it is known. Where it is not, the servers stand as
/// `previous` last had them; a pair that neither knows is left out, since nobody can say which of its servers may be written to.
pub fn build(
    namespace: &str,
    name: &str,
    uid: &str,
    spec: &ShardClusterSpec,
    placement: &Placement,
    actives: &BTreeMap<String, usize>,
    previous: Option<&ShardMap>,
) -> ShardMap {
    let before: HashMap<&str, (&Host, &Host)> = previous
        .iter()
        .flat_map(|map| &map.entries)
        .map(|e| (e.pair.as_str(), (&e.active, &e.passive)))
        .collect();
    let hosts = |pair: &str| match actives.get(pair) {
        Some(&ordinal) => {
            let active = ordinal.min(1);
            let host = |ordinal| Host {
                host: names::host(namespace, pair, ordinal),
                port: names::MYSQL_PORT,
            };
            Some((host(active), host(1 - active)))
        }
        None => before
            .get(pair)
            .map(|&(active, passive)| (active.clone(), passive.clone())),
    };
    let mut serving: Vec<_> = placement
        .spans
        .iter()
        .filter(|s| s.state == SpanState::Serving)
        .collect();
    serving.sort_by_key(|s| s.first);
    let mut entries: Vec<Entry> = Vec::new();
    for span in serving {
        if let Some(before) = entries.last_mut()
            && before.pair == span.pair
            && before.last + 1 == span.first
        {
            before.last = span.last;
        } else if let Some((active, passive)) = hosts(&span.pair) {
            let (first, last, pair) = (span.first, span.last, span.pair.clone());
            entries.push(Entry {
                first,
                last,
                pair,
                active,
                passive,
                state: EntryState::Serving,
            });
        }
    }
    let objects = spec.tables.iter().flat_map(|t| &t.objects);
    let mut types: Vec<_> = objects
        .map(|o| TypeTable {
            type_id: o.type_id,
            table: o.name.clone(),
        })
        .collect();
    types.sort_by_key(|t| t.type_id);
    ShardMap {
        schema: SCHEMA.to_owned(),
        cluster: ClusterId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        },
        version: placement.map_version,
        routing: routing(spec),
        databases: Databases {
            prefix: spec.shards.database_prefix.clone(),
            digits: spec.shards.digits,
            total: spec.shards.total,
        },
        types,
        entries,
    }
}

fn routing(spec: &ShardClusterSpec) -> Routing {
    match spec.routing_mode() {
        RoutingMode::ID => Routing::ID {
            id_layout: IdLayout::OURS,
        },
        RoutingMode::KeyHash => {
            let routing = spec.routing.as_ref();
            Routing::KeyHash {
                algorithm: routing.and_then(|r| r.algorithm).unwrap_or(HashAlgorithm::MD5),
                modulus: routing.and_then(|r| r.modulus).unwrap_or(spec.shards.total),
            }
        }
    }
}

impl IdLayout {
    /// The one layout that there is.
    pub const OURS: Self = Self {
        shard_shift: id::SHARD_SHIFT,
        shard_bits: id::SHARD_BITS,
        type_shift: id::TYPE_SHIFT,
        type_bits: id::TYPE_BITS,
        local_bits: id::LOCAL_BITS,
    };
}

impl ShardMap {
    /// Reads `shardmap.json`. Fields that are not known are passed over, so that an older program reads a newer map.
    pub fn parse(text: &str) -> Result<Self, MapError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        // Before the fields: a map of another schema may well lack some.
        let head: Head = serde_json::from_str(text)?;
        if head.schema != SCHEMA {
            return Err(MapError::Schema(head.schema));
        }
        let map: Self = serde_json::from_str(text)?;
        let mut next = 0;
        for e in &map.entries {
            if e.first < next || e.last < e.first || e.last >= map.databases.total {
                return Err(MapError::Entry {
                    first: e.first,
                    last: e.last,
                    beyond: map.databases.total - 1,
                });
            }
            next = e.last + 1;
        }
        Ok(map)
    }

    /// The whole map as JSON on one line, the same bytes for the same map.
    pub fn shardmap_json(&self) -> String {
        json(self)
    }

    /// The plain form on one line, the same bytes for the same map:
    /// `[{"range":[0,511],"master":"…","slave":"…"},…]`.
    pub fn ranges_json(&self) -> String {
        let entries = self.entries.iter().map(|e| PlainEntry {
            range: [e.first, e.last],
            master: &e.active.host,
            slave: &e.passive.host,
        });
        json(&entries.collect::<Vec<_>>())
    }

    /// SHA-256, in hexadecimal, of everything but the version: a new version is due when it changes.
    pub fn content_hash(&self) -> String {
        let content = Self {
            version: 0,
            ..self.clone()
        }
        .shardmap_json();
        sha256::hex([content.as_bytes()])
    }

    /// The entry that has `shard`; `None` when it is not in the map.
    pub fn locate(&self, shard: i32) -> Option<&Entry> {
        let at = self.entries.partition_point(|e| e.first <= shard);
        self.entries.get(at.checked_sub(1)?).filter(|e| shard <= e.last)
    }

    /// The shards in the map.
    pub fn shards(&self) -> SpanSet {
        self.entries
            .iter()
            .map(|e| ShardSpan::new(e.first, e.last))
            .collect()
    }

    /// The table of a type, when it has one.
    pub fn table(&self, type_id: i32) -> Option<&str> {
        self.types
            .iter()
            .find(|t| t.type_id == type_id)
            .map(|t| t.table.as_str())
    }
}

/// JSON of types whose serialization cannot fail: no maps with odd keys, no floats.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
