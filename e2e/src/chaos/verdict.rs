//! What has to hold at the end of a run.

use super::clients::Done;
use super::witness::Witness;
use crate::fleet::Fleet;
use crate::wait::{self, Seen};
use crate::writer::Held;
use anyhow::Result;
use std::time::Duration;

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
    let samples = match fleet.sights.verdict() {
        Ok(samples) => samples,
        Err(e) => {
            failures.push(format!("{e:#}"));
            0
        }
    };
    (sum, samples)
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
