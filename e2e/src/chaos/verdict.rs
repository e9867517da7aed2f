//! What has to hold at the end of a run.

use super::clients::{Done, MAP};
use super::witness::Witness;
use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::writer::{Ending, Held, Try};
use anyhow::Result;
use std::time::{Duration, Instant};

/// Compares the rows and the transactions of both servers, and asks those who watched. What is wrong is added to `failures`. Gives what
/// is held, and how many answers of servers there were.
pub async fn all(
    fleet: &Fleet,
    pair: &str,
    clients: &[Done],
    witness: &Witness,
    patience: Duration,
    failures: &mut Vec<String>,
) -> (Held, u64) {
    // What a server has still to apply is not lost.
    if let Err(e) = same_transactions(fleet, pair, patience).await {
        failures.push(format!("{e:#}"));
    }
    let mut sum = Held::default();
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
    let samples = match fleet.sights.verdict() {
        Ok(samples) => samples,
        Err(e) => {
            failures.push(format!("{e:#}"));
            0
        }
    };
    (sum, samples)
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
