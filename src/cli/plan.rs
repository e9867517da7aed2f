//! `shardwright plan`: what manifests would move, told before they are applied.

mod read;

use super::{Failure, Output, OutputArgs};
use crate::{
    api::shard_range::DeletionPolicy,
    core::{
        cluster::observed,
        migration::{
            plan::{self, Action, Fleet, Line, When},
            wish::{PairState, Policy},
        },
        spans::SpanSet,
    },
};
use clap::Args;
use read::Objects;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::PathBuf,
};

/// Which manifests, and what they are laid over.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// File with manifests of ShardRanges, MySQLPairs and ShardClusters, one or more of them; `-` for standard input. May be given several times.
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Name of a ShardRange that is taken away along with it. May be given several times.
    #[arg(long, value_name = "SHARDRANGE")]
    delete: Vec<String>,
    /// Namespace; that of the manifests or of the current context when absent.
    #[arg(short, long)]
    namespace: Option<String>,
    /// File to take the live objects from, instead of the cluster: what `kubectl get shardclusters,shardranges,mysqlpairs -o json` prints.
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
    /// Moves at once at one pair, instead of `spec.migration.movesPerPair` of the ShardCluster.
    #[arg(long, value_name = "N")]
    per_pair: Option<usize>,
    /// Moves at once in the cluster, instead of `spec.migration.movesPerCluster` of the ShardCluster.
    #[arg(long, value_name = "N")]
    per_cluster: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &PlanArgs) -> Result<(), Failure> {
    if args.file.is_empty() && args.delete.is_empty() {
        return Err(Failure::bad_input("give --file, or --delete"));
    }
    let (manifests, namespace) = read::manifests(&args.file, args.namespace.as_deref())?;
    let (live, namespace) = match &args.live {
        Some(file) => read::from_file(file, namespace)?,
        None => read::from_cluster(namespace)?,
    };
    let plans = plans(&live, &manifests, args)?;
    let mut out = io::stdout().lock();
    for (cluster, lines) in &plans {
        match args.output.output {
            Output::Human => show(&mut out, &format!("{namespace}/{cluster}"), lines)?,
            Output::Json => {
                for what in lines {
                    let entry = Entry {
                        namespace: &namespace,
                        cluster,
                        what,
                    };
                    writeln!(out, "{}", serde_json::to_string(&entry)?)?;
                }
            }
        }
    }
    Ok(())
}

/// A line, and the cluster that it is of.
#[derive(Serialize)]
struct Entry<'a> {
    namespace: &'a str,
    cluster: &'a str,
    #[serde(flatten)]
    what: &'a Line,
}

/// The plan of each cluster that the manifests have to do with.
fn plans(live: &Objects, manifests: &Objects, args: &PlanArgs) -> Result<Vec<(String, Vec<Line>)>, Failure> {
    let then = live.with(manifests)?;
    let mut clusters: BTreeSet<String> = manifests.clusters.keys().cloned().collect();
    clusters.extend(manifests.ranges.values().map(|r| r.spec.cluster_ref.name.clone()));
    clusters.extend(manifests.pairs.values().map(|p| p.spec.cluster_ref.name.clone()));
    let mut wrong = vec![];
    for name in &args.delete {
        match live.ranges.get(name) {
            _ if manifests.ranges.contains_key(name) => {
                wrong.push(format!(
                    "ShardRange {name} is in the manifests, and to be deleted as well"
                ));
            }
            Some(r) => {
                clusters.insert(r.spec.cluster_ref.name.clone());
            }
            None => wrong.push(format!("--delete: there is no ShardRange {name}")),
        }
    }
    for name in clusters.iter().filter(|c| !then.clusters.contains_key(*c)) {
        wrong.push(format!(
            "there is no ShardCluster {name}, neither in the cluster nor in the manifests"
        ));
    }
    if !wrong.is_empty() {
        return Err(Failure::BadInput(wrong));
    }
    let mut plans = vec![];
    for name in clusters {
        let record = live
            .clusters
            .get(&name)
            .and_then(|c| c.status.as_ref()?.placement.clone())
            .unwrap_or_default();
        let lines = plan::compare(
            &name,
            &record,
            &fleet(live, live, &name, &[]),
            &fleet(&then, live, &name, &args.delete),
            policy(&then, &name, args),
        );
        let lines = lines.map_err(|e| anyhow::anyhow!("ShardCluster {name}: {e}"))?;
        plans.push((name, lines));
    }
    Ok(plans)
}

/// How many moves of a cluster may be under way at once: as its specification has it, unless it is asked how it would go otherwise.
fn policy(then: &Objects, cluster: &str, args: &PlanArgs) -> Policy {
    let specified = then
        .clusters
        .get(cluster)
        .map_or_else(Policy::default, |c| Policy::from(&c.spec.migration));
    Policy {
        per_pair: args.per_pair.unwrap_or(specified.per_pair),
        per_cluster: args.per_cluster.unwrap_or(specified.per_cluster),
    }
}

/// The ranges of a cluster and the pairs, without the ranges that are taken away.
fn fleet(all: &Objects, live: &Objects, cluster: &str, delete: &[String]) -> Fleet {
    let ours = all.ranges.values().filter(|r| r.spec.cluster_ref.name == cluster);
    let mut ranges = vec![];
    for r in ours {
        let mut claim = observed::claim(r);
        if !live.ranges.contains_key(&claim.name) {
            // It will be the youngest.
            claim.created = i64::MAX;
        }
        if delete.contains(&claim.name) {
            if r.spec.deletion_policy == DeletionPolicy::Retain {
                continue;
            }
            claim.deleting = true;
        }
        ranges.push(claim);
    }
    let pairs = all.pairs.iter().map(|(name, p)| {
        let mut state = PairState::of(p);
        if !live.pairs.contains_key(name) {
            state.trouble = None;
            state.facts.held = Some(SpanSet::new());
        }
        (name.clone(), state)
    });
    Fleet {
        total: all.clusters.get(cluster).map_or(0, |c| c.spec.shards.total),
        ranges,
        pairs: pairs.collect::<BTreeMap<_, _>>(),
    }
}

fn show(out: &mut impl Write, cluster: &str, lines: &[Line]) -> io::Result<()> {
    writeln!(out, "cluster   {cluster}")?;
    let total =
        |keep: &dyn Fn(&Line) -> bool| lines.iter().filter(|l| keep(l)).map(|l| l.count).sum::<usize>();
    let (moves, never) = (
        total(&|l| l.action == Action::Move && l.when != Some(When::Never)),
        total(&|l| l.action == Action::Refuse || l.when == Some(When::Never)),
    );
    writeln!(out, "move      {moves} shards")?;
    writeln!(
        out,
        "hand over {} shards, where they lie",
        total(&|l| l.action == Action::HandOver)
    )?;
    writeln!(out, "create    {} shards", total(&|l| l.action == Action::Create))?;
    writeln!(out, "refuse    {never} shards")?;
    if lines.is_empty() {
        return Ok(());
    }
    let mut rows = vec![
        [
            "ACTION", "SHARDS", "COUNT", "BYTES", "FROM", "TO", "RANGE", "WHEN", "HOW", "WHY",
        ]
        .map(str::to_owned),
    ];
    for l in lines {
        let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        rows.push([
            format!("{:?}", l.action),
            l.shards.iter().copied().collect::<SpanSet>().to_string(),
            l.count.to_string(),
            or(l.bytes.map(|b| b.to_string())),
            or(l.from.clone()),
            or(l.to.clone()),
            or(Some(l.ranges.join(",")).filter(|r| !r.is_empty())),
            or(l.when.map(|w| format!("{w:?}"))),
            or(l.seed.map(|s| format!("{s:?}"))),
            match l.reason {
                Some(reason) => format!("{reason}: {}", l.message),
                None => l.message.clone(),
            },
        ]);
    }
    writeln!(out)?;
    super::table(out, &rows)
}
