//! One blow: struck, held, healed, and the pair healthy again.

use super::clients::Clients;
use super::fault::Blow;
use super::report::Round;
use super::strike::{DRAIN_NOT_DONE, Strike};
use super::witness::Witness;
use crate::fleet::{Fleet, conditions};
use crate::testbed;
use crate::wait::{self, Seen};
use anyhow::{Result, anyhow, bail};
use shardwright::api::MySQLPair;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Between two looks at the load average.
const LOAD: Duration = Duration::from_secs(1);

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
        faults: blow.faults.iter().map(ToString::to_string).collect(),
        before: at.witness.now(),
        ..Round::default()
    };
    let mut strike = match Strike::prepare(at.fleet, at.pair).await {
        Ok(strike) => strike,
        Err(e) => return (round, Err(e.context("prepare"))),
    };
    let load = Load::start();
    let struck = Instant::now();
    let mut result = strike.hit(blow).await;
    // This is how long the fault lasts.
    tokio::time::sleep(blow.hold).await;
    result = result.and(strike.heal(blow).await);
    let healed = Instant::now();
    if result.is_ok() {
        let lingers = blow.faults.iter().map(|f| f.lingers()).max().unwrap_or_default();
        result = healthy(at, at.patience + lingers).await;
        if result.is_ok() {
            round.healthy = Some(since(Instant::now()));
            result = settled(at).await;
        }
    }
    round.load = load.stop();
    round.did.append(&mut strike.did);
    round.struck = since(struck);
    round.healed = since(healed);
    round.after = at.witness.now();
    round.gaps = at.clients.gaps(at.begun, struck, healed);
    round.misses = at.clients.misses(at.begun, struck);
    // A bound may be exceeded by a machine that is too busy: whoever reads it has to know.
    result = result.map_err(|e| {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let (first, highest) = round.load;
        anyhow!("{e:#} (load average {first:.1}, {highest:.1} at most, on {cores} processors)")
    });
    // Beside another fault a drain may have had to wait.
    if result.is_ok() && blow.faults.len() == 1 {
        result = match round.did.iter().find(|d| d.contains(DRAIN_NOT_DONE)) {
            Some(did) => Err(anyhow!("{did} ({})", testbed::load_in_words())),
            None => Ok(()),
        };
    }
    (round, result)
}

/// The machine's load average while it is kept.
struct Load {
    first: f64,
    highest: Arc<Mutex<f64>>,
    task: JoinHandle<()>,
}

impl Load {
    fn start() -> Self {
        let first = testbed::load().unwrap_or_default();
        let highest = Arc::new(Mutex::new(first));
        let seen = highest.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOAD).await;
                if let (Some(now), Ok(mut seen)) = (testbed::load(), seen.lock()) {
                    *seen = seen.max(now);
                }
            }
        });
        Self { first, highest, task }
    }

    /// At the beginning, and the highest.
    fn stop(self) -> (f64, f64) {
        self.task.abort();
        let highest = self.highest.lock().map_or(self.first, |h| *h);
        (self.first, highest)
    }
}

/// Healthy by the servers' own word, and by the pair's.
async fn healthy(at: &Place<'_>, patience: Duration) -> Result<()> {
    let begun = Instant::now();
    at.fleet.healthy_within(at.pair, patience).await?;
    let left = patience.saturating_sub(begun.elapsed());
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
