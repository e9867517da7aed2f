//! The map, as far as a client needs it.

use serde::Deserialize;

/// Where a shard is read and written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Name of the pair's active server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The shard's database.
    pub database: String,
    /// Version of the map that says so.
    pub version: i64,
}

/// A published map: `shardmap.json`, of which only this is read.
#[derive(Clone, Debug, Deserialize)]
pub struct Map {
    /// Rises by one with each change, never falls.
    pub version: i64,
    databases: Databases,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize)]
struct Databases {
    prefix: String,
    digits: usize,
}

#[derive(Clone, Debug, Deserialize)]
struct Entry {
    first: i32,
    last: i32,
    active: Host,
}

#[derive(Clone, Debug, Deserialize)]
struct Host {
    host: String,
    port: u16,
}

impl Map {
    /// Where a shard is; `None` when it is not in the map.
    pub fn place(&self, shard: i32) -> Option<Place> {
        // The entries are sorted, and do not overlap.
        let after = self.entries.partition_point(|e| e.first <= shard);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (shard <= entry.last).then(|| Place {
            host: entry.active.host.clone(),
            port: entry.active.port,
            database: format!(
                "{}{shard:0digits$}",
                self.databases.prefix,
                digits = self.databases.digits
            ),
            version: self.version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_found_in_its_entry_only() {
        let map: Map = serde_json::from_str(
            r#"{"version": 7, "databases": {"prefix": "db", "digits": 5, "total": 64}, "entries": [
                {"first": 0, "last": 3, "active": {"host": "a", "port": 3306}},
                {"first": 8, "last": 9, "active": {"host": "b", "port": 3307}}]}"#,
        )
        .unwrap();
        let host = |shard| map.place(shard).map(|p| (p.host, p.port, p.database));
        assert_eq!(host(0).unwrap(), ("a".into(), 3306, "db00000".into()));
        assert_eq!(host(3).unwrap().0, "a");
        assert_eq!(host(9).unwrap(), ("b".into(), 3307, "db00009".into()));
        assert_eq!((host(-1), host(4), host(10)), (None, None, None));
    }
}
