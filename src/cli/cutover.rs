//! `shardwright cutover`: approves the cutover of a range that waits for it.

use super::{Failure, source};
use crate::api::{ShardRange, names, shard_range::Cutover};
use anyhow::{Context as _, anyhow};
use clap::Args;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use std::io::{self, Write as _};

/// Whose cutover.
#[derive(Args, Debug)]
pub struct CutoverArgs {
    /// Name of the ShardRange.
    range: String,
    /// Namespace; the one of the current context when absent.
    #[arg(short, long)]
    namespace: Option<String>,
}

pub(super) fn run(args: &CutoverArgs) -> Result<(), Failure> {
    let said = source::ask(approve(args))?;
    writeln!(io::stdout().lock(), "{said}")?;
    Ok(())
}

/// The approval holds for the specification as it is now: a later change of it needs another one.
async fn approve(args: &CutoverArgs) -> Result<String, Failure> {
    let client = Client::try_default()
        .await
        .context("no access to a Kubernetes cluster")?;
    let namespace = args
        .namespace
        .clone()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    let api = Api::<ShardRange>::namespaced(client, &namespace);
    let name = &args.range;
    let range = api
        .get_opt(name)
        .await
        .with_context(|| format!("cannot read ShardRange {namespace}/{name}"))?
        .ok_or_else(|| anyhow!("there is no ShardRange {namespace}/{name}"))?;
    if range.spec.cutover == Cutover::Automatic {
        return Err(Failure::bad_input(format!(
            "ShardRange {name} has `cutover: Automatic`: it waits for no approval"
        )));
    }
    let generation = range.metadata.generation.unwrap_or_default();
    let patch = serde_json::json!({ "metadata": {
        "resourceVersion": range.resource_version(),
        "annotations": { names::APPROVE_CUTOVER_ANNOTATION: generation.to_string() },
    }});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("cannot annotate ShardRange {namespace}/{name}"))?;
    Ok(format!(
        "approved: shards of {name} are cut over to {} as soon as their copies are equal and follow",
        range.spec.pair_ref.name
    ))
}
