//! The fleets that are measured on.

use super::LIMIT;
use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::Result;
use std::sync::Arc;

/// Measures on a fleet of its own, which is gone before anything else is measured.
pub(super) async fn on_fleet(
    world: &World,
    keep: bool,
    measure: impl AsyncFnOnce(&Arc<Fleet>) -> Result<()>,
) -> Result<()> {
    let tail = crate::dice::Dice::new(crate::dice::Dice::seed_now()).below(0xffff);
    let ns = format!("e2e-split-{tail:04x}");
    world.make_namespace(&ns).await?;
    let fleet = Arc::new(Fleet::new(world.clone(), ns.clone(), "bench"));
    let result = measure(&fleet).await;
    if let Err(e) = &result {
        println!("the benchmark broke off: {e:#}");
        crate::diagnose::dump(&fleet).await;
    }
    if keep {
        println!("namespace {ns} is left");
        return result;
    }
    // What was measured is printed all the same.
    result.and(deleted(world, &ns).await)
}

async fn deleted(world: &World, ns: &str) -> Result<()> {
    world.delete_namespace(ns).await?;
    wait::until(&format!("{ns} to be gone"), LIMIT, || async {
        let there = world.namespaces().get_opt(ns).await?;
        Ok(Seen::when(there.is_none(), || {
            format!("{:?}", there.and_then(|n| n.status))
        }))
    })
    .await
}
