//! `shardwright id`: makes IDs and takes them apart.

use super::{Failure, Output, OutputArgs};
use crate::core::id::{Id, MAX_LOCAL, MAX_TYPE};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::io::{self, Write as _};

/// Make IDs and take them apart.
#[derive(Subcommand, Debug)]
pub enum IdCommand {
    /// Make an ID from its parts.
    Encode(EncodeArgs),
    /// Take IDs apart.
    Decode(DecodeArgs),
}

/// The parts of an ID.
#[derive(Args, Debug)]
pub struct EncodeArgs {
    /// Virtual shard, 0 to 65535.
    #[arg(long)]
    shard: u16,
    /// Type of the object, 0 to 1023.
    #[arg(long = "type", value_name = "TYPE", value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_TYPE)))]
    type_id: u16,
    /// Local id of the object, 0 to 68719476735.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=MAX_LOCAL))]
    local: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// The IDs to take apart.
#[derive(Args, Debug)]
pub struct DecodeArgs {
    /// An ID in decimal.
    #[arg(required = true, value_name = "ID", allow_negative_numbers = true)]
    ids: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// An ID and its parts.
#[derive(Serialize)]
struct Parts {
    /// A string: beyond 2^53 many readers of JSON lose digits.
    id: String,
    shard: u16,
    #[serde(rename = "type")]
    type_id: u16,
    local: u64,
}

impl Parts {
    fn new(id: u64, parts: Id) -> Self {
        Self {
            id: id.to_string(),
            shard: parts.shard,
            type_id: parts.type_id,
            local: parts.local,
        }
    }
}

/// Reads an ID as people and programs write it.
pub(super) fn parse(text: &str) -> Result<(u64, Id), String> {
    let digits = text.trim();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "`{text}` is not a number: an ID is a whole number in decimal"
        ));
    }
    let id = digits
        .parse()
        .map_err(|_| format!("`{text}` is out of range: an ID has 64 bits"))?;
    Id::decode(id).map(|parts| (id, parts)).map_err(|e| e.to_string())
}

pub(super) fn run(command: IdCommand) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match command {
        IdCommand::Encode(args) => {
            let parts = Id {
                shard: args.shard,
                type_id: args.type_id,
                local: args.local,
            };
            let id = parts.encode().map_err(Failure::bad_input)?;
            match args.output.output {
                Output::Human => writeln!(out, "{id}")?,
                Output::Json => writeln!(out, "{}", serde_json::to_string(&Parts::new(id, parts))?)?,
            }
            Ok(())
        }
        IdCommand::Decode(args) => {
            let mut bad = Vec::new();
            for text in &args.ids {
                match parse(text) {
                    Ok((id, p)) if args.output.output == Output::Human => {
                        writeln!(
                            out,
                            "{id}  shard {}  type {}  local {}",
                            p.shard, p.type_id, p.local
                        )?;
                    }
                    Ok((id, parts)) => writeln!(out, "{}", serde_json::to_string(&Parts::new(id, parts))?)?,
                    Err(what) => bad.push(what),
                }
            }
            if bad.is_empty() {
                Ok(())
            } else {
                Err(Failure::BadInput(bad))
            }
        }
    }
}
