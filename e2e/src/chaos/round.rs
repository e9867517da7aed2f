//! One blow: struck, held, healed, and the pair healthy again.

use super::clients::Clients;
use super::fault::Blow;
use super::report::Round;
use super::strike::{DRAIN_NOT_DONE, Strike};
use super::witness::Witness;
use crate::fleet::{Fleet, conditions};
use crate::wait::{self, Seen};
use anyhow::{Result, bail};
use shardwright::api::MySQLPair;
use std::time::{Duration, Instant};

/// Where a blow is struck.
pub struct Place<'a> {
    /// The fleet.
    pub fleet: &'a Fleet,
    /// The pair.
    pub pair: &'a str,
    /// Those who write meanwhile.
    pub clients: &'a Clients,
    /// Who watches the record.
    pub witness: &'a Witness,
    /// When the run began.
    pub begun: Instant,
    /// Within this the pair has to be healthy after everything is healed.
    pub patience: Duration,
}

/// Plays one round; what is known of it is given in any case.
pub async fn play(at: &Place<'_>, blow: &Blow) -> (Round, Result<()>) {
    let since = |t: Instant| t.duration_since(at.begun).as_secs_f64();
    let mut round = Round {
        blow: blow.to_string(),
        before: at.witness.now(),
        ..Round::default()
    };
    let mut strike = match Strike::prepare(at.fleet, at.pair).await {
        Ok(strike) => strike,
        Err(e) => return (round, Err(e.context("prepare"))),
    };
    let struck = Instant::now();
    let mut result = strike.hit(blow).await;
    // This is how long the fault lasts.
    tokio::time::sleep(blow.hold).await;
    result = result.and(strike.heal(blow).await);
    let healed = Instant::now();
    if result.is_ok() {
        result = healthy(at).await;
        if result.is_ok() {
            round.healthy = Some(since(Instant::now()));
            result = settled(at).await;
        }
    }
    round.did.append(&mut strike.did);
    round.struck = since(struck);
    round.healed = since(healed);
    round.after = at.witness.now();
    round.gaps = at.clients.gaps(at.begun, struck, healed);
    round.misses = at.clients.misses(at.begun, struck);
    // Beside another fault a drain may have had to wait.
    if result.is_ok() && blow.faults.len() == 1 {
        result = match round.did.iter().find(|d| d.contains(DRAIN_NOT_DONE)) {
            Some(did) => Err(anyhow::anyhow!("{did}")),
            None => Ok(()),
        };
    }
    (round, result)
}

/// Healthy by the servers' own word, and by the pair's.
async fn healthy(at: &Place<'_>) -> Result<()> {
    let begun = Instant::now();
    at.fleet.healthy_within(at.pair, at.patience).await?;
    let left = at.patience.saturating_sub(begun.elapsed());
    wait::until("the pair to be Ready with two members", left, || async {
        let p: MySQLPair = at.fleet.get(at.pair).await?;
        let members = p.status.as_ref().map_or(0, |s| s.in_sync.len());
        let all = conditions(&p);
        // A condition that is not there is none that is False.
        let good = |type_: &str, needed: bool| {
            all.iter().find(|c| c.type_ == type_).map_or(!needed, |c| {
                c.status == "True" && c.observed_generation == p.metadata.generation
            })
        };
        let well = members == 2 && good("Ready", true) && good("Durable", false);
        Ok(Seen::when(well, || format!("{members} members, {all:?}")))
    })
    .await
}

/// What else has to be as it was, so that the next blow finds all well.
async fn settled(at: &Place<'_>) -> Result<()> {
    at.clients.steady(wait::SOON).await?;
    at.fleet.world.operator_ready().await?;
    if at.fleet.world.leader().await?.is_none() {
        bail!("no operator leads");
    }
    Ok(())
}
