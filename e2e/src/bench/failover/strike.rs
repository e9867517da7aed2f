//! Striking, waiting until writes flow again, and waiting until the pair is healthy again.

use super::Options;
use super::faults::{Blow, Fault, leaders_node};
use super::gaps::{Run, Way, phases, wall};
use super::plain;
use crate::fleet::Fleet;
use crate::server::Login;
use crate::wait::{self, Seen};
use crate::writer::{Book, Ending, Route, Try, Writer};
use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use shardwright::api::{MySQLPair, Place, names};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Shard of the client by the map, and of the one by the Service: one table, two names of clients.
const SHARD: i32 = 0;
/// Every try was acknowledged for so long: the gap is over.
const STEADY: Duration = Duration::from_millis(800);
/// Until the pair has changed its active server.
const CHANGE: Duration = Duration::from_secs(60);
/// A wish that is refused is made again so often in all.
const WISHES: u8 = 3;
/// Until a client writes again.
const BACK: Duration = Duration::from_secs(60);
/// For a pair after its node came back, with a copy of all data.
const HEAL: Duration = Duration::from_secs(240);
/// A blow that a client never notices is over after this.
pub const UNNOTICED: Duration = Duration::from_secs(3);

/// The three clients, which write all the time.
pub struct Clients {
    pair: String,
    by_map: Writer,
    map: Route,
    by_service: Writer,
    plain: Writer,
}

impl Clients {
    /// Starts them.
    ///
    /// # Errors
    /// When a way is not there.
    pub async fn start(f: &Fleet, pair: &str, plain: &Login) -> Result<Self> {
        let map = f.route_by_map(SHARD).await?;
        Ok(Self {
            pair: pair.into(),
            by_map: f.writer("by-map", SHARD, map.clone()).await?,
            map,
            by_service: f
                .writer("by-service", SHARD, f.route_by_service(pair).await?)
                .await?,
            plain: plain::writer(plain),
        })
    }

    /// Waits until each has written for so long without a failure.
    ///
    /// # Errors
    /// When one does not.
    pub async fn write(&self, span: Duration) -> Result<()> {
        wait::until("the clients to write", HEAL, || async {
            let books = [&self.by_map.book, &self.by_service.book, &self.plain.book];
            let shortest = books.iter().map(|b| b.steady()).min().unwrap_or_default();
            Ok(Seen::when(shortest >= span, || format!("for {shortest:?}")))
        })
        .await
    }

    /// What the client by the map has tried so far.
    pub fn tries_by_map(&self) -> Vec<Try> {
        self.by_map.book.all()
    }

    /// Ends them; what became of their rows, the pair's and the plain server's.
    ///
    /// # Errors
    /// When one died.
    pub async fn stop(self) -> Result<(Vec<Arc<Book>>, Arc<Book>)> {
        Ok((
            vec![self.by_map.stop().await?, self.by_service.stop().await?],
            self.plain.stop().await?,
        ))
    }
}

/// Strikes every fault as often as was asked for, the pair and the plain server in turns; once `cut` is set, no further one.
///
/// # Errors
/// When a fault cannot be struck, or the pair does not heal.
pub async fn all(
    f: &Fleet,
    clients: &Clients,
    faults: &[Fault],
    options: &Options,
    cut: &AtomicBool,
    runs: &mut Vec<Run>,
) -> Result<()> {
    healthy(f, clients).await?;
    for fault in faults {
        for n in 1..=options.runs_of(*fault) {
            if cut.load(Ordering::Relaxed) {
                return Ok(());
            }
            let found = pair(f, clients, *fault, n).await?;
            for run in &found {
                println!("{}", line(run));
            }
            runs.extend(found);
            // A node's loss takes the plain server away for as long as it lasts: to see that once is enough.
            let plain_too = match fault {
                Fault::NodeKilled => n == 1,
                Fault::Partitioned => false,
                _ => true,
            };
            if plain_too && !options.no_plain {
                let run = plain_one(f, clients, *fault, n).await?;
                println!("{}", line(&run));
                runs.push(run);
            }
        }
    }
    Ok(())
}

fn line(run: &Run) -> String {
    let gap = run
        .gap
        .map_or_else(|| "did not end".to_owned(), |g| format!("{g:.0} ms"));
    let phases: Vec<_> = run.phases.iter().map(|(n, v)| format!("{n} {v:.0}")).collect();
    format!(
        "{} {}, {}: {gap} (unknown {}, refused {}, not sent {}, later {:.0}){} {}",
        run.fault,
        run.turn,
        run.way.name(),
        run.unknown,
        run.refused,
        run.not_sent,
        run.later.unwrap_or_default(),
        run.longest_try
            .map_or_else(String::new, |ms| format!(" {ms:.0} ms on: {};", run.longest_why)),
        phases.join(", ")
    )
}

/// Both servers in sync, by the record and by their own word, and all clients write.
async fn healthy(f: &Fleet, clients: &Clients) -> Result<()> {
    f.ready::<MySQLPair>(&clients.pair, HEAL).await?;
    wait::until("both servers to be in sync", HEAL, || async {
        let p: MySQLPair = f.get(&clients.pair).await?;
        let status = p.status.unwrap_or_default();
        Ok(Seen::when(status.in_sync.len() == 2, || format!("{status:?}")))
    })
    .await?;
    f.healthy(&clients.pair).await?;
    f.world.operator_ready().await?;
    // All at once: this is also the quiet time after which kube-proxy writes a change without delay.
    let since = Instant::now();
    for book in [
        &clients.by_map.book,
        &clients.by_service.book,
        &clients.plain.book,
    ] {
        flows(book, since, HEAL).await?;
    }
    Ok(())
}

/// Waits until a client writes again after a blow: something failed since, or enough time has passed for that, and then every try went well.
async fn flows(book: &Book, since: Instant, limit: Duration) -> Result<()> {
    wait::until(&format!("{} to write", book.client), limit, || async {
        let steady = book.steady();
        let failed = book.since(since).iter().any(|t| t.ending != Ending::Acknowledged);
        let over = steady >= STEADY && (failed || since.elapsed() >= UNNOTICED);
        Ok(Seen::when(over, || format!("steady for {steady:?}")))
    })
    .await
}

async fn pair(f: &Fleet, clients: &Clients, fault: Fault, n: usize) -> Result<Vec<Run>> {
    let pair = clients.pair.as_str();
    if fault.hits_node() {
        lead_elsewhere(f, clients).await?;
    }
    let active = f.active(pair).await?;
    if fault == Fault::Planned {
        f.forget_wish(pair, 1 - active).await?;
    }
    let log = f.world.audit_log().await?;
    let begin = std::fs::metadata(&log)?.len();
    let blow = fault
        .strike(f, &names::pod(pair, active), async || {
            f.prefer(pair, 1 - active).await
        })
        .await?;
    let changed = wait::until("another active server", CHANGE, || async {
        let now = f.active(pair).await?;
        Ok(Seen::when(now != active, || {
            format!("{} still is", names::pod(pair, now))
        }))
    })
    .await;
    let mut found = vec![];
    for (way, book) in [
        (Way::Map, &clients.by_map.book),
        (Way::Service, &clients.by_service.book),
    ] {
        let over = flows(book, blow.at, BACK).await;
        found.push((way, book, over.is_ok(), Instant::now()));
    }
    blow.undo(f).await?;
    if let Err(e) = changed {
        // It stands in the figures as it is: recovered in place, or not at all.
        println!("{}: {e:#}", fault.name());
    }
    let mut runs = vec![];
    for (way, book, over, end) in found {
        let gap = book.gap(blow.at, end).filter(|_| over);
        let mut run = match &gap {
            Some(gap) => Run::of(fault.name(), n, way, gap),
            None => endless(fault.name(), n, way),
        };
        if let Some(gap) = &gap {
            let told = told(f, clients, way, &blow, active, (&log, begin)).await?;
            let status = f.get::<MySQLPair>(pair).await?.status.unwrap_or_default();
            if let Some(change) = status
                .last_change
                .filter(|c| c.to == names::pod(pair, 1 - active))
            {
                run.phases = phases(&blow, &change, told, gap);
            }
        }
        runs.push((run, book, end));
    }
    healthy(f, clients).await?;
    Ok(runs
        .into_iter()
        .map(|(mut run, book, end)| {
            run.later = book
                .gap(end, Instant::now())
                .map(|g| g.length().as_secs_f64() * 1000.0);
            run
        })
        .collect())
}

fn endless(fault: &'static str, run: usize, way: Way) -> Run {
    Run {
        fault,
        turn: run,
        way,
        gap: None,
        to: String::new(),
        unknown: 0,
        refused: 0,
        not_sent: 0,
        longest_try: None,
        longest_why: String::new(),
        later: None,
        phases: vec![],
    }
}

/// When the client could know: the new map came in, or the Service's endpoint was written.
async fn told(
    f: &Fleet,
    clients: &Clients,
    way: Way,
    blow: &Blow,
    before: usize,
    (log, begin): (&PathBuf, u64),
) -> Result<Option<Timestamp>> {
    match (way, &clients.map) {
        (Way::Map, Route::Map(follower, _)) => {
            let host = names::host(&f.ns, &clients.pair, 1 - before);
            Ok(follower.named(&host, blow.at).map(|at| wall(blow, at)))
        }
        (Way::Service, _) => {
            let name = names::active_service(&clients.pair);
            let written = f
                .world
                .writes_of(log, begin, "endpointslices", &f.ns, &name)
                .await?;
            Ok(written.into_iter().find(|t| *t >= blow.wall))
        }
        _ => Ok(None),
    }
}

/// The leading operator is not to be lost together with the active server: that would be two faults at once.
async fn lead_elsewhere(f: &Fleet, clients: &Clients) -> Result<()> {
    let pair = clients.pair.as_str();
    let active = f.active(pair).await?;
    let pod: Pod = f.get(&names::pod(pair, active)).await?;
    let node = pod
        .spec
        .and_then(|s| s.node_name)
        .ok_or_else(|| anyhow!("no node"))?;
    if leaders_node(f).await? != node {
        return Ok(());
    }
    for _ in 0..WISHES {
        if wished(f, pair, 1 - active).await? {
            return healthy(f, clients).await;
        }
    }
    bail!("the active server does not move to another node: see the events SwitchoverRefused")
}

/// Wishes for a server as the active one, and waits for what becomes of that: it is, or the wish was refused.
async fn wished(f: &Fleet, pair: &str, to: usize) -> Result<bool> {
    f.wish(pair, to).await?;
    wait::until("a wish to be acted upon", CHANGE, || async {
        let found: MySQLPair = f.get(pair).await?;
        let status = found.status.unwrap_or_default();
        Ok(if status.active.as_ref() == Some(&names::pod(pair, to)) {
            Seen::Yes(true)
        } else if status.observed_preferred_active == Some(Place::of(to)) {
            Seen::Yes(false)
        } else {
            Seen::NotYet(format!("{status:?}"))
        })
    })
    .await
}

async fn plain_one(f: &Fleet, clients: &Clients, fault: Fault, n: usize) -> Result<Run> {
    let book = &clients.plain.book;
    let blow = fault
        .strike(f, plain::POD, async || {
            f.api::<Pod>()
                .delete(plain::POD, &DeleteParams::default())
                .await?;
            Ok(())
        })
        .await?;
    let over = flows(book, blow.at, BACK).await.is_ok();
    let end = Instant::now();
    blow.undo(f).await?;
    healthy(f, clients).await?;
    Ok(match book.gap(blow.at, end).filter(|_| over) {
        Some(gap) => Run::of(fault.plain_name(), n, Way::Plain, &gap),
        None => endless(fault.plain_name(), n, Way::Plain),
    })
}
