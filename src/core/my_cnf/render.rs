//! The whole my.cnf of one server.

use super::UserConfig;
use super::owned::{DEFAULTS, OWNED};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

const MIB: u64 = 1024 * 1024;

/// The ids of a pair's servers.
///
/// They are made from the names, so that they are the same after anything was lost and made again: 30 bits of
/// `SHA-256(namespace/cluster/pair)`, and the server's place as the last bit. Within a fleet of 256 pairs two of them are
/// equal with a probability of 3 in 100,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerIds {
    base: u32,
}

impl ServerIds {
    /// The ids of the pair called `pair`.
    pub fn new(namespace: &str, cluster: &str, pair: &str) -> Self {
        let hash = Sha256::digest(format!("{namespace}/{cluster}/{pair}"));
        let head = hash
            .iter()
            .take(4)
            .fold(0u32, |acc, b| (acc << 8) | u32::from(*b));
        Self { base: head >> 2 }
    }

    /// `server_id` of one server: 1 to 2³¹.
    pub fn of(self, ordinal: usize) -> u32 {
        self.base * 2 + u32::from(ordinal != 0) + 1
    }
}

/// What differs from server to server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server<'a> {
    /// Place in the pair, 0 or 1.
    pub ordinal: usize,
    /// `server_id`, unique in the fleet.
    pub server_id: u32,
    /// The name under which the other server reaches it.
    pub host: &'a str,
    /// Memory of the container in bytes, when it has a limit or at least a request.
    pub memory: Option<u64>,
}

/// Half of the container's memory, in whole steps of 32 MiB, 64 MiB at least; 128 MiB when nothing is known.
fn buffer_pool_mib(memory: Option<u64>) -> u64 {
    memory.map_or(128, |bytes| (bytes / MIB / 2 / 32 * 32).max(64))
}

/// The whole file: defaults, the user's lines, what the operator owns.
pub fn render(server: &Server<'_>, user: &UserConfig) -> String {
    let mut out = String::from(
        "# Written by Shardwright; changes made here are undone. Keys of your own go into `mysql.config`.\n[mysqld]\n\n# Defaults, which `mysql.config` overrides.\n",
    );
    let pool = format!("{}M", buffer_pool_mib(server.memory));
    let defaults = [("innodb_buffer_pool_size", pool.as_str())];
    for (key, value) in defaults.iter().chain(DEFAULTS) {
        if !user.sets(key) {
            line(&mut out, key, value);
        }
    }
    if !user.lines().is_empty() {
        out.push_str("\n# mysql.config\n");
        for l in user.lines() {
            let _ = writeln!(out, "{l}");
        }
    }
    out.push_str("\n# Owned by the operator.\n");
    for (key, value) in OWNED.iter().flat_map(|o| o.writes) {
        let value = value
            .replace("{server_id}", &server.server_id.to_string())
            .replace("{host}", server.host)
            .replace("{offset}", if server.ordinal == 0 { "1" } else { "2" });
        line(&mut out, key, &value);
    }
    out
}

fn line(out: &mut String, key: &str, value: &str) {
    let _ = writeln!(out, "{key} = {value}");
}
