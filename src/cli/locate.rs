//! `shardwright locate`: where an object is.

use super::{
    Failure, Output, OutputArgs,
    source::{self, ClusterArgs},
};
use crate::core::{
    databases::Naming,
    id::Id,
    key_hash,
    shard_map::{Host, Routing, ShardMap},
};
use anyhow::anyhow;
use clap::{ArgGroup, Args};
use serde::Serialize;
use std::{
    io::{self, Write as _},
    path::PathBuf,
};

/// What to look for, and in which map.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["id", "key", "shard"])))]
#[command(group(ArgGroup::new("where").required(true).args(["map", "cluster"])))]
pub struct LocateArgs {
    /// An ID, which carries its shard; for clusters whose routing is ID.
    #[arg(long, allow_negative_numbers = true)]
    id: Option<String>,
    /// A key, whose bytes are hashed as they are given; for clusters whose routing is KeyHash.
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,
    /// The number of a shard.
    #[arg(long, allow_negative_numbers = true)]
    shard: Option<String>,
    /// File with a map, as `shardmap.json` of the published ConfigMap; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Where an object is.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Located<'a> {
    shard: i32,
    database: String,
    /// Only of IDs.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_id: Option<u16>,
    /// Only of IDs whose type has a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<&'a str>,
    /// Only of IDs.
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<u64>,
    pair: &'a str,
    active: &'a Host,
    passive: &'a Host,
    map_version: i64,
}

pub(super) fn run(args: &LocateArgs) -> Result<(), Failure> {
    let wanted = Wanted::of(args)?;
    let map = match (&args.map, &args.cluster.cluster) {
        (Some(file), _) => source::from_file(file)?,
        (None, Some(cluster)) => source::from_cluster(args.cluster.namespace.as_deref(), cluster)?,
        (None, None) => return Err(Failure::bad_input("give --map or --cluster")),
    };
    let located = locate(&map, &wanted)?;
    let mut out = io::stdout().lock();
    if args.output.output == Output::Json {
        writeln!(out, "{}", serde_json::to_string(&located)?)?;
        return Ok(());
    }
    writeln!(out, "shard     {}", located.shard)?;
    writeln!(out, "database  {}", located.database)?;
    if let (Some(type_id), Some(local)) = (located.type_id, located.local) {
        match located.table {
            Some(table) => writeln!(out, "table     {table} (type {type_id})")?,
            None => writeln!(out, "table     unknown: no table has type {type_id}")?,
        }
        writeln!(out, "local id  {local}")?;
    }
    writeln!(out, "pair      {}", located.pair)?;
    writeln!(out, "active    {}:{}", located.active.host, located.active.port)?;
    writeln!(out, "passive   {}:{}", located.passive.host, located.passive.port)?;
    Ok(())
}

/// What is looked for.
enum Wanted<'a> {
    Id(Id),
    Key(&'a str),
    Shard(i32),
}

impl<'a> Wanted<'a> {
    fn of(args: &'a LocateArgs) -> Result<Self, Failure> {
        if let Some(id) = &args.id {
            return super::id::parse(id)
                .map(|(_, id)| Self::Id(id))
                .map_err(Failure::bad_input);
        }
        if let Some(shard) = &args.shard {
            let number = shard.parse::<u16>().map(|s| Self::Shard(s.into()));
            return number
                .map_err(|_| Failure::bad_input(format!("`{shard}` is no shard: a shard is 0 to 65535")));
        }
        args.key
            .as_deref()
            .map(Self::Key)
            .ok_or_else(|| Failure::bad_input("give --id, --key or --shard"))
    }
}

fn locate<'a>(map: &'a ShardMap, wanted: &Wanted<'_>) -> Result<Located<'a>, Failure> {
    let (shard, id) = match (wanted, map.routing) {
        (Wanted::Shard(shard), _) => (*shard, None),
        (Wanted::Id(id), Routing::ID { .. }) => (i32::from(id.shard), Some(id)),
        (Wanted::Id(_), Routing::KeyHash { .. }) => {
            return Err(Failure::bad_input(
                "this cluster finds its shards by the hash of a key: give --key",
            ));
        }
        (Wanted::Key(key), Routing::KeyHash { modulus, .. }) => {
            let shard = key_hash::shard(key.as_bytes(), modulus);
            (
                shard.ok_or_else(|| Failure::bad_input(format!("the map has modulus {modulus}")))?,
                None,
            )
        }
        (Wanted::Key(_), Routing::ID { .. }) => {
            return Err(Failure::bad_input(
                "this cluster's IDs carry their shard: give --id",
            ));
        }
    };
    let naming = Naming::from(&map.databases);
    if shard >= naming.total() {
        let last = naming.total() - 1;
        return Err(Failure::bad_input(format!(
            "there is no shard {shard}: this cluster's last shard is {last}"
        )));
    }
    let database = naming.name(shard);
    let entry = map.locate(shard).ok_or_else(|| {
        anyhow!(
            "shard {shard} (database {database}) is not open: version {} of the map does not have it",
            map.version
        )
    })?;
    Ok(Located {
        shard,
        database,
        type_id: id.map(|i| i.type_id),
        table: id.and_then(|i| map.table(i.type_id.into())),
        local: id.map(|i| i.local),
        pair: &entry.pair,
        active: &entry.active,
        passive: &entry.passive,
        map_version: map.version,
    })
}
