//! An application that goes on writing while its shards move.
//!
//! It follows the published map by long poll and writes a transaction of several statements to each shard in turn. When a shard is moved to another
//! pair, or its server is lost, the whole transaction is repeated where the shard is then; what that took is printed.
//!
//!     MAP=shardwright.shardwright-system.svc:8080 FLEET=default/main SHARDS=0-511 USERNAME=app PASSWORD=… CA=/etc/shard-app/ca.crt \
//!       cargo run --release --example follow_map
//!
//! It needs a table `pins` and a table `boards`, as the quick start makes them, and runs where the servers' names are known: in a Pod.
#![allow(clippy::print_stdout, reason = "a command for a terminal")]

mod client;

use anyhow::{Context as _, Result, anyhow, bail};
use client::{Account, Client, Error, Follower};
use mysql_async::prelude::Queryable as _;
use std::{
    env,
    sync::Arc,
    time::{Duration, Instant},
};

/// For one transaction, whatever happens to its shard meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before"))?;
    let fleet = variable("FLEET")?;
    let follower = Arc::new(Follower::start(variable("MAP")?, format!("/maps/{fleet}")));
    let account = Account {
        user: variable("USERNAME")?,
        password: variable("PASSWORD")?,
        ca: env::var_os("CA").map(std::fs::read).transpose().context("CA")?,
    };
    let (first, last) = shards(&variable("SHARDS")?)?;
    let mut client = Client::new(follower, account, PATIENCE);
    for n in 0_u64.. {
        for shard in first..=last {
            write(&mut client, shard, n).await?;
        }
        let done = client.statement(first, |conn, database| {
            Box::pin(conn.query_first(format!("SELECT COUNT(*) FROM `{database}`.pins")))
        });
        let rows: Option<u64> = done.await?.value;
        println!("round {n}: shard {first} has {} pins", rows.unwrap_or_default());
    }
    Ok(())
}

async fn write(client: &mut Client, shard: i32, n: u64) -> Result<()> {
    let begun = Instant::now();
    let done = client
        .transaction(shard, |conn, database| {
            Box::pin(async move {
                conn.query_drop(format!(
                    "INSERT INTO `{database}`.pins (data) VALUES (JSON_OBJECT('n', {n}))"
                ))
                .await?;
                conn.query_drop(format!(
                    "INSERT INTO `{database}`.boards (data) VALUES (JSON_OBJECT('n', {n}, 'pin', LAST_INSERT_ID()))"
                ))
                .await
            })
        })
        .await;
    match done {
        Ok(done) if done.repeated > 0 => println!(
            "shard {shard}: committed at {} (map {}) after {} further tries, {} ms",
            done.place.host,
            done.place.version,
            done.repeated,
            begun.elapsed().as_millis()
        ),
        Ok(_) => {}
        // Another statement, another table, not enough rights: the same again would fare no better.
        Err(Error::Refused { code, why, host }) => bail!("shard {shard}, {host}: error {code}: {why}"),
        // With a key of its own it would be repeated. These rows have none, so there might be two.
        Err(e @ Error::Unknown { .. }) => println!("shard {shard}: {e}"),
        Err(e) => return Err(e.into()),
    }
    Ok(())
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("the environment has no {name}"))
}

/// `0-511`.
fn shards(text: &str) -> Result<(i32, i32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok((first.parse()?, last.parse()?))
}
