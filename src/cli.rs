//! The command line: what `shardwright` can be asked to do.
//!
//! Exit codes: 0 done, 1 it failed, 2 what was asked for makes no sense (bad flags, bad IDs).

mod crds;
mod cutover;
mod failure;
mod id;
mod locate;
mod map;
mod markdown;
mod plan;
mod source;

pub use crds::{CrdsArgs, yaml};
pub use failure::Failure;
pub use markdown::{Field, Scenarios, fields, markdown};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{
    collections::BTreeSet,
    io::{self, Write},
    process::ExitCode,
};

/// Runs a horizontally sharded MySQL fleet on Kubernetes, and answers questions about it.
#[derive(Parser, Debug)]
#[command(name = "shardwright", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the operator.
    Run(RunArgs),
    /// Answer a question and end.
    #[command(flatten)]
    Tool(Tool),
}

/// The commands that answer a question and end.
#[derive(Subcommand, Debug)]
pub enum Tool {
    /// Print the CustomResourceDefinitions, or the reference made from them.
    Crds(CrdsArgs),
    /// Approve the cutover of a ShardRange with `cutover: Manual`, as its specification is now.
    Cutover(cutover::CutoverArgs),
    /// Make IDs and take them apart.
    #[command(subcommand)]
    Id(id::IdCommand),
    /// Say where an object is: its shard, database, table, pair and servers.
    Locate(locate::LocateArgs),
    /// Look at a shard map.
    #[command(subcommand)]
    Map(map::MapCommand),
    /// Tell what manifests would move, before they are applied.
    ///
    /// The manifests are laid over what is in the cluster, as `kubectl apply` would; nothing is changed. A pair that only the manifests have
    /// counts as one that is Ready and empty.
    ///
    /// What would be copied is told in shards. Bytes are told where they are known without asking a server: 0 where no data moves, or where
    /// the copies are there already, and `-` elsewhere. How large a database is, only its server knows, and the objects that this command
    /// reads do not say it.
    Plan(plan::PlanArgs),
}

/// How `shardwright run` behaves.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RunArgs {
    /// Namespace to look after; may be given several times, or as a list with commas. All namespaces when absent or empty.
    #[arg(long, env = "WATCH_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE", value_parser = namespace)]
    pub watch_namespace: Vec<String>,
    /// Address of /livez, /readyz, /metrics and the shard maps.
    #[arg(
        long,
        env = "LISTEN",
        default_value = "0.0.0.0:8080",
        value_name = "ADDRESS:PORT"
    )]
    pub listen: std::net::SocketAddr,
    /// Whether to reconcile only while holding the Lease, so that several may run.
    #[arg(long, env = "LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Name of the Lease.
    #[arg(long, env = "LEASE_NAME", default_value = "shardwright", value_name = "NAME")]
    pub lease_name: String,
    /// Namespace of the Lease: the operator's own.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default", value_name = "NAMESPACE", value_parser = namespace)]
    pub lease_namespace: String,
    /// Name to hold the Lease by; the Pod's, so that no two are alike. Made from the host's name when absent.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// Form of the log.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Form of the log.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Form of an answer.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// The flag that chooses the form of an answer.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Human, env = "SHARDWRIGHT_OUTPUT")]
    output: Output,
}

/// Runs one of the commands that answer a question and end. Answers go to standard output, errors to standard error.
pub fn tool(tool: Tool) -> ExitCode {
    let done = match tool {
        Tool::Crds(args) => crds::run(&args),
        Tool::Cutover(args) => cutover::run(&args),
        Tool::Id(command) => id::run(command),
        Tool::Locate(args) => locate::run(&args),
        Tool::Map(command) => map::run(&command),
        Tool::Plan(args) => plan::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints rows in columns.
fn table<const N: usize>(out: &mut impl Write, rows: &[[String; N]]) -> io::Result<()> {
    let width = |i: usize| {
        rows.iter()
            .filter_map(|r| r.get(i))
            .map(|c| c.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..N).map(|i| width(i).unwrap_or(0)).collect();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

impl RunArgs {
    /// Namespaces to look after, ascending; none means all of them.
    pub fn namespaces(&self) -> Vec<String> {
        // An environment variable that is set to nothing comes as one empty name.
        let named: BTreeSet<_> = self
            .watch_namespace
            .iter()
            .filter(|n| !n.is_empty())
            .cloned()
            .collect();
        named.into_iter().collect()
    }
}

fn namespace(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.len() > 63 || !text.chars().all(good) {
        return Err("a namespace has at most 63 characters of a-z, 0-9 and -".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn run(args: &[&str]) -> Result<RunArgs, clap::Error> {
        let all = ["shardwright", "run"].iter().chain(args);
        Cli::try_parse_from(all).map(|cli| match cli.command {
            Command::Run(args) => args,
            Command::Tool(_) => panic!("not run"),
        })
    }

    #[test]
    fn the_flags_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn namespaces_are_repeated_or_listed() {
        let args = run(&[
            "--watch-namespace",
            "b,a,,b",
            "--watch-namespace",
            "c",
            "--leader-elect",
            "false",
        ])
        .unwrap();
        assert_eq!(
            (args.namespaces().join(" ").as_str(), args.leader_elect),
            ("a b c", false)
        );
        assert!(run(&["--watch-namespace="]).unwrap().namespaces().is_empty());
        assert!(run(&["--watch-namespace", "A"]).is_err());
    }

    #[test]
    fn without_flags_it_watches_all_namespaces_and_elects_a_leader() {
        let args = run(&[]).unwrap();
        assert!(args.namespaces().is_empty() && args.leader_elect);
        assert_eq!(args.listen.to_string(), "0.0.0.0:8080");
    }
}
