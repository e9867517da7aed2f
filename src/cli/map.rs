//! `shardwright map`: looks at a shard map.

use super::{
    Failure, Output, OutputArgs,
    source::{self, ClusterArgs},
};
use crate::core::shard_map::{EntryState, Routing, ShardMap};
use clap::{ArgGroup, Args, Subcommand};
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// Look at a shard map.
#[derive(Subcommand, Debug)]
pub enum MapCommand {
    /// Print a map.
    Show(ShowArgs),
}

/// Which map.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("where").required(true).args(["file", "cluster"])))]
pub struct ShowArgs {
    /// File with a map, as `shardmap.json` of the published ConfigMap; `-` for standard input.
    #[arg(long)]
    file: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(command: &MapCommand) -> Result<(), Failure> {
    let MapCommand::Show(args) = command;
    let map = match (&args.file, &args.cluster.cluster) {
        (Some(file), _) => source::from_file(file)?,
        (None, Some(cluster)) => source::from_cluster(args.cluster.namespace.as_deref(), cluster)?,
        (None, None) => return Err(Failure::bad_input("give --file or --cluster")),
    };
    let mut out = io::stdout().lock();
    match args.output.output {
        Output::Human => show(&mut out, &map)?,
        Output::Json => writeln!(out, "{}", map.shardmap_json())?,
    }
    Ok(())
}

fn show(out: &mut impl Write, map: &ShardMap) -> io::Result<()> {
    let routing = match map.routing {
        Routing::ID { .. } => "ID".to_owned(),
        Routing::KeyHash { algorithm, modulus } => format!("KeyHash ({algorithm:?} modulo {modulus})"),
    };
    let databases = &map.databases;
    writeln!(out, "cluster   {}/{}", map.cluster.namespace, map.cluster.name)?;
    writeln!(out, "version   {}", map.version)?;
    writeln!(out, "routing   {routing}")?;
    writeln!(
        out,
        "shards    {} open, of {}",
        map.shards().len(),
        databases.total
    )?;
    let types: Vec<_> = map
        .types
        .iter()
        .map(|t| format!("{} = {}", t.type_id, t.table))
        .collect();
    if !types.is_empty() {
        writeln!(out, "types     {}", types.join(", "))?;
    }
    let naming = crate::core::databases::Naming::from(databases);
    let mut rows = vec![["SHARDS", "DATABASES", "PAIR", "ACTIVE", "PASSIVE", "STATE"].map(str::to_owned)];
    for e in &map.entries {
        let state = match e.state {
            EntryState::Serving => "Serving",
        };
        rows.push([
            format!("{}-{}", e.first, e.last),
            format!("{}-{}", naming.name(e.first), naming.name(e.last)),
            e.pair.clone(),
            format!("{}:{}", e.active.host, e.active.port),
            format!("{}:{}", e.passive.host, e.passive.port),
            state.to_owned(),
        ]);
    }
    writeln!(out)?;
    super::table(out, &rows)
}
