//! What has to hold at the end of a run.

use super::clients::{Done, MAP};
use super::witness::Witness;
use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::watched::{self, Watched};
use crate::writer::{Ending, Held, Losses, Try};
use anyhow::Result;
use shardwright::api::names;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What is found at the end.
pub struct Verdict {
    /// What the servers hold of what was written.
    pub held: Held,
    /// What they do not hold, or twice; absent when one could not be asked.
    pub losses: Option<Losses>,
    /// How well each server was watched.
    pub watched: Vec<Watched>,
}

/// Compares the rows and the transactions of both servers, and asks those who watched. What is wrong is added to `failures`.
/// `watched` is how well the servers had been watched when the run began.
pub async fn all(
    fleet: &Fleet,
    pair: &str,
    clients: &[Done],
    witness: &Witness,
    patience: Duration,
    watched: &BTreeMap<String, Watched>,
    failures: &mut Vec<String>,
) -> Verdict {
    // What a server has still to apply is not lost.
    if let Err(e) = same_transactions(fleet, pair, patience).await {
        failures.push(format!("{e:#}"));
    }
    let mut sum = Held::default();
    let mut losses = Some(Losses::default());
    let checks = clients.iter().map(|c| held(fleet, pair, c));
    for (client, result) in clients.iter().zip(futures::future::join_all(checks).await) {
        match result {
            Ok(held) => {
                sum.acknowledged += held.acknowledged;
                sum.unknown += held.unknown;
                sum.unknown_there += held.unknown_there;
            }
            Err(e) => failures.push(format!("rows of {}: {e:#}", client.book.client)),
        }
        match (&mut losses, lost(fleet, pair, client).await) {
            (Some(sum), Ok(more)) => {
                sum.lost += more.lost;
                sum.twice += more.twice;
            }
            _ => losses = None,
        }
    }
    failures.extend(witness.faults());
    let acknowledged = clients
        .iter()
        .filter(|c| c.route == MAP)
        .flat_map(|c| c.book.all());
    let (seen, recorded) = (hand_overs(acknowledged), witness.hand_overs());
    if seen > recorded {
        failures.push(format!(
            "P1 is broken: acknowledgements went from one server to the other {seen} times, the record did {recorded} times"
        ));
    }
    if let Err(e) = fleet.sights.verdict() {
        failures.push(format!("{e:#}"));
    }
    let watched = watched::since(watched, &fleet.sights.watched());
    failures.extend(blind(&watched, pair));
    Verdict {
        held: sum,
        losses,
        watched,
    }
}

/// Where the sampler saw too little to say that rule P1 held.
fn blind(all: &[Watched], pair: &str) -> Vec<String> {
    let mut said = watched::too_little(all, true);
    for ordinal in names::ORDINALS {
        let pod = names::pod(pair, ordinal);
        // Also as a former self, of which there may be more.
        if !all
            .iter()
            .any(|w| w.pod.starts_with(&pod) && w.samples > 0 && w.up > 0.0)
        {
            said.push(format!(
                "the sampler is blind: {pod} was never seen to be up and to answer"
            ));
        }
    }
    said
}

/// How often acknowledgements went over from one server to the other, at least: a row counts for that only when it was sent after a row of
/// the other server had been acknowledged.
fn hand_overs(tries: impl Iterator<Item = Try>) -> usize {
    let mut all: Vec<Try> = tries.filter(|t| t.ending == Ending::Acknowledged).collect();
    all.sort_by_key(|t| t.begun);
    let mut count = 0;
    // The server of the present stretch, and when its first row of it was acknowledged.
    let mut stretch: Option<(String, Instant)> = None;
    for t in all {
        match &mut stretch {
            Some((host, first)) if *host == t.host => *first = t.ended.min(*first),
            Some((_, first)) if t.begun <= *first => {}
            Some(_) => {
                count += 1;
                stretch = Some((t.host, t.ended));
            }
            None => stretch = Some((t.host, t.ended)),
        }
    }
    count
}

async fn lost(fleet: &Fleet, pair: &str, client: &Done) -> Result<Losses> {
    let table = fleet.table(client.shard).await?;
    fleet.losses(pair, &table, &client.book).await
}

async fn held(fleet: &Fleet, pair: &str, client: &Done) -> Result<Held> {
    let table = fleet.table(client.shard).await?;
    fleet
        .holds(pair, &table, std::slice::from_ref(&client.book))
        .await
}

/// Nobody writes any more: both servers come to have executed the very same transactions.
async fn same_transactions(fleet: &Fleet, pair: &str, limit: Duration) -> Result<()> {
    wait::until("the GTID sets of both servers to be equal", limit, || async {
        let (mut a, mut b) = (fleet.server(pair, 0).await?, fleet.server(pair, 1).await?);
        let (a, b) = (a.vitals().await?.gtid, b.vitals().await?.gtid);
        Ok(Seen::when(a == b, || {
            format!("{pair}-0 has {a}, {pair}-1 has {b}")
        }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows by server, begin and end in milliseconds.
    fn seen(rows: &[(&str, u64, u64)]) -> usize {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        hand_overs(rows.iter().map(|(host, from, to)| Try {
            number: 0,
            begun: at(*from),
            connected: None,
            ended: at(*to),
            host: (*host).into(),
            ending: Ending::Acknowledged,
        }))
    }

    #[test]
    fn a_server_that_was_never_seen_is_told() {
        let one = |pod: &str, samples| Watched {
            pod: pod.into(),
            up: 15.0,
            samples,
            ..Watched::default()
        };
        assert_eq!(blind(&[], "p0").len(), 2);
        assert_eq!(blind(&[one("p0-0", 9), one("p0-1", 0)], "p0").len(), 1);
        assert!(blind(&[one("p0-0", 9), one("p0-1", 9)], "p0").is_empty());
    }

    #[test]
    fn acknowledgements_that_go_to_and_fro_are_counted() {
        assert_eq!(seen(&[("a", 0, 1), ("a", 2, 3), ("b", 4, 5), ("b", 6, 7)]), 1);
        assert_eq!(seen(&[("a", 0, 1), ("b", 4, 5), ("a", 6, 7), ("b", 8, 9)]), 3);
    }

    #[test]
    fn answers_that_overlap_are_no_hand_over() {
        // The last answer of a is read late, while rows go to b already.
        assert_eq!(seen(&[("a", 0, 1), ("a", 2, 9), ("b", 4, 5), ("b", 6, 7)]), 1);
        assert_eq!(seen(&[("a", 0, 5), ("b", 4, 6)]), 0);
    }
}
