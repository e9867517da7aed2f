//! The published map, as a service reads it.

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use shardwright::api::names;

/// A published map.
#[derive(Clone, Debug)]
pub struct Map {
    /// `shardmap.json`, as published.
    pub text: String,
    /// The same, read.
    pub json: Value,
    /// `ranges.json`, as published.
    pub plain: String,
    /// `version`.
    pub version: i64,
    /// The runs of shards.
    pub entries: Vec<Entry>,
}

/// One run of shards in a map.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Entry {
    /// First shard.
    pub first: i32,
    /// Last shard.
    pub last: i32,
    /// Pair that serves it.
    pub pair: String,
    /// Where it is written.
    pub active: Host,
    /// The other side.
    pub passive: Host,
}

/// An address in a map.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Host {
    /// DNS name.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Map {
    /// Reads both forms out of the ConfigMap.
    ///
    /// # Errors
    /// When a key is missing or is no JSON.
    pub fn of(cm: &ConfigMap) -> Result<Self> {
        let data = cm.data.clone().unwrap_or_default();
        let key = |k: &str| {
            data.get(k)
                .cloned()
                .ok_or_else(|| anyhow!("the map has no key {k}"))
        };
        Self::parse(key("shardmap.json")?, key("ranges.json")?)
    }

    /// Reads the two forms.
    ///
    /// # Errors
    /// When one is no JSON of the expected form.
    pub fn parse(text: String, plain: String) -> Result<Self> {
        let json: Value = serde_json::from_str(&text).context("shardmap.json")?;
        let entries = serde_json::from_value(json["entries"].clone()).context("entries of shardmap.json")?;
        let version = json["version"]
            .as_i64()
            .ok_or_else(|| anyhow!("shardmap.json has no version"))?;
        Ok(Self {
            text,
            json,
            plain,
            version,
            entries,
        })
    }

    /// The entry of a shard.
    pub fn find(&self, shard: i32) -> Option<&Entry> {
        self.entries.iter().find(|e| e.first <= shard && shard <= e.last)
    }

    /// Every shard in the map, in order.
    pub fn shards(&self) -> Vec<i32> {
        self.entries.iter().flat_map(|e| e.first..=e.last).collect()
    }

    /// The entry of a shard that has to be there.
    ///
    /// # Errors
    /// When it is not.
    pub fn entry(&self, shard: i32) -> Result<&Entry> {
        self.find(shard)
            .ok_or_else(|| anyhow!("shard {shard} is not in the map: {}", self.text))
    }
}

impl Entry {
    /// Ordinal of the active server, from its host's name.
    ///
    /// # Errors
    /// When the host is none of the pair's.
    pub fn active_ordinal(&self) -> Result<usize> {
        let pod = self.active.host.split('.').next().unwrap_or_default();
        names::ORDINALS
            .into_iter()
            .find(|n| names::pod(&self.pair, *n) == pod)
            .ok_or_else(|| anyhow!("{} is no server of {}", self.active.host, self.pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_finds_its_shards() {
        let text = r#"{"version":3,"entries":[{"first":0,"last":7,"pair":"p0","active":{"host":"p0-1.p0.ns.svc","port":3306},
            "passive":{"host":"p0-0.p0.ns.svc","port":3306},"state":"Serving"}]}"#;
        let map = Map::parse(text.into(), "[]".into()).unwrap();
        assert_eq!((map.version, map.shards().len()), (3, 8));
        assert_eq!(map.entry(7).unwrap().active_ordinal().unwrap(), 1);
        assert!(map.entry(8).is_err());
    }
}
