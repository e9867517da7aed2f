//! The clients of a run: some follow the map, some use the Service, each in a shard of its own.

use super::report::{Client, Gap, Miss};
use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::writer::{Book, Ending, Follower, Route, Writer};
use anyhow::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients of each route.
const EACH: i32 = 2;
/// Clients are well when every try of theirs was acknowledged for this long.
const STEADY: Duration = Duration::from_millis(500);

/// By the published map.
pub const MAP: &str = "map";
/// By the Service of the active server.
pub const SERVICE: &str = "Service";

/// One that has stopped.
pub struct Done {
    /// The shard it wrote to.
    pub shard: i32,
    /// [`MAP`] or [`SERVICE`].
    pub route: &'static str,
    /// What became of each row.
    pub book: Arc<Book>,
}

/// One that writes.
struct Busy {
    shard: i32,
    route: &'static str,
    writer: Writer,
    /// What it follows, if it goes by the map.
    follower: Option<Arc<Follower>>,
}

/// All of them, writing.
pub struct Clients(Vec<Busy>);

/// Tries of one client and blow that are reported singly.
const MISSES: usize = 12;

impl Clients {
    /// Starts them, and waits until all of them write.
    ///
    /// # Errors
    /// When the fleet cannot be reached, or does not take their rows.
    pub async fn start(fleet: &Fleet, pair: &str, seed: u64) -> Result<Self> {
        let mut all = vec![];
        for n in 0..EACH {
            for (shard, route) in [(n, MAP), (EACH + n, SERVICE)] {
                let way = if route == MAP {
                    fleet.route_by_map(shard).await?
                } else {
                    fleet.route_by_service(pair).await?
                };
                let follower = match &way {
                    Route::Map(follower, _) => Some(follower.clone()),
                    Route::Fixed(_) => None,
                };
                let name = format!("{route}-{n}-seed-{seed}");
                all.push(Busy {
                    shard,
                    route,
                    writer: fleet.writer(&name, shard, way).await?,
                    follower,
                });
            }
        }
        let clients = Self(all);
        clients.steady(wait::SOON).await?;
        Ok(clients)
    }

    /// Waits until every one's rows are acknowledged.
    ///
    /// # Errors
    /// When they are not after `limit`.
    pub async fn steady(&self, limit: Duration) -> Result<()> {
        wait::until("every client's rows to be acknowledged", limit, || async {
            let not: Vec<_> = self
                .0
                .iter()
                .map(|c| &c.writer.book)
                .filter(|book| book.steady() < STEADY)
                .map(|book| book.client.clone())
                .collect();
            Ok(Seen::when(not.is_empty(), || format!("not those of {not:?}")))
        })
        .await
    }

    /// The longest gap of a client of each route while a fault lasted, and the longest that began after it was healed.
    pub fn gaps(&self, begun: Instant, struck: Instant, healed: Instant) -> Vec<Gap> {
        let mut all = self.longest(begun, struck, healed, false);
        let after = healed.duration_since(begun).as_secs_f64();
        let healing = self.longest(begun, healed, Instant::now(), true);
        all.extend(healing.into_iter().filter(|g| g.from >= after));
        all
    }

    fn longest(&self, begun: Instant, from: Instant, to: Instant, healing: bool) -> Vec<Gap> {
        [MAP, SERVICE]
            .into_iter()
            .filter_map(|route| {
                let own = self.0.iter().filter(|c| c.route == route);
                let (client, longest) = own
                    .filter_map(|c| Some((c, c.writer.book.gap(from, to)?)))
                    .max_by_key(|(_, gap)| gap.length())?;
                let told = client
                    .follower
                    .as_ref()
                    .and_then(|f| f.named(&longest.first.host, longest.last));
                Some(Gap {
                    route,
                    healing,
                    from: longest.last.saturating_duration_since(begun).as_secs_f64(),
                    seconds: longest.length().as_secs_f64(),
                    unknown: longest.unknown,
                    refused: longest.refused,
                    not_sent: longest.not_sent,
                    told: told.map(|t| t.saturating_duration_since(longest.last).as_secs_f64()),
                })
            })
            .collect()
    }

    /// The first tries since `from` that were not acknowledged, of each client.
    pub fn misses(&self, begun: Instant, from: Instant) -> Vec<Miss> {
        let mut all = vec![];
        for client in &self.0 {
            let tries = client.writer.book.since(from).into_iter();
            let missed = tries.filter(|t| t.ending != Ending::Acknowledged).take(MISSES);
            all.extend(missed.map(|t| Miss {
                client: client.writer.book.client.clone(),
                number: t.number,
                at: t.begun.saturating_duration_since(begun).as_secs_f64(),
                seconds: t.ended.duration_since(t.begun).as_secs_f64(),
                host: t.host,
                connected: t.connected.is_some(),
                ending: format!("{:?}", t.ending),
            }));
        }
        all
    }

    /// Ends them.
    ///
    /// # Errors
    /// When one had died.
    pub async fn stop(self) -> Result<Vec<Done>> {
        let mut all = vec![];
        for client in self.0 {
            all.push(Done {
                shard: client.shard,
                route: client.route,
                book: client.writer.stop().await?,
            });
        }
        Ok(all)
    }
}

/// What is reported of each.
pub fn sums(all: &[Done], begun: Instant) -> Vec<Client> {
    all.iter()
        .map(|c| {
            let mut per_second: Vec<u32> = vec![];
            for one in c.book.since(begun) {
                if one.ending == Ending::Acknowledged {
                    let second = one.ended.saturating_duration_since(begun).as_secs();
                    let second = usize::try_from(second).unwrap_or_default();
                    if per_second.len() <= second {
                        per_second.resize(second + 1, 0);
                    }
                    if let Some(n) = per_second.get_mut(second) {
                        *n += 1;
                    }
                }
            }
            Client {
                name: c.book.client.clone(),
                route: c.route,
                acknowledged: c.book.acknowledged(),
                unknown: c.book.unknown(),
                per_second,
            }
        })
        .collect()
}
