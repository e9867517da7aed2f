//! The one binary: `shardwright run | crds | id | locate | map | plan`.

use clap::Parser as _;
use shardwright::cli::{self, Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Two crates could bring a provider each; the choice is made here, once. It fails only if it was made before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Cli::parse().command {
        Command::Run(args) => shardwright::run::main(args),
        Command::Tool(tool) => cli::tool(tool),
    }
}
