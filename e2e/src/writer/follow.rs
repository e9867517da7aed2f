//! Following the published map by long poll, as an application does.

use crate::http;
use crate::published::Map;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// How long the operator may wait for a newer map, as the documents advise.
const WAIT: &str = "30s";
/// For one whole poll.
const POLL: Duration = Duration::from_secs(40);
/// A poll that is older than this is given up when a write fails: its replica may have died without a word.
const OLD: Duration = Duration::from_millis(500);
/// After a poll that failed.
const PAUSE: Duration = Duration::from_millis(10);

/// What the map says of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The map's version.
    pub version: i64,
    /// The active server's name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// When this was read.
    pub at: Instant,
}

/// Follows the map until it is dropped.
pub struct Follower {
    told: watch::Receiver<Vec<Told>>,
    anew: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Begins to follow `path` (`/maps/<namespace>/<cluster>`) at `address` (`host:port`) for the sake of one shard.
    pub fn start(address: String, path: String, shard: i32) -> Self {
        let (sender, told) = watch::channel(vec![]);
        let anew = Arc::new(Notify::new());
        let task = tokio::spawn(follow(address, path, shard, sender, anew.clone()));
        Self { told, anew, task }
    }

    /// What the newest map says.
    pub fn told(&self) -> Option<Told> {
        self.told.borrow().last().cloned()
    }

    /// When the first map that names `host` as active came in after `since`.
    pub fn named(&self, host: &str, since: Instant) -> Option<Instant> {
        let told = self.told.borrow();
        told.iter()
            .find(|t| t.at >= since && t.host == host)
            .map(|t| t.at)
    }

    /// Ends when the newest map names another server than `host`.
    pub async fn other_than(&self, host: &str) {
        let mut told = self.told.clone();
        let dead = told
            .wait_for(|t| t.last().is_some_and(|t| t.host != host))
            .await
            .is_err();
        if dead {
            // The follower has died; nothing will ever be told.
            std::future::pending::<()>().await;
        }
    }

    /// A write has failed: a poll that has been out for a while is begun anew.
    pub fn ask_anew(&self) {
        self.anew.notify_one();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    address: String,
    path: String,
    shard: i32,
    sender: watch::Sender<Vec<Told>>,
    anew: Arc<Notify>,
) {
    let mut version = 0;
    loop {
        let path = format!("{path}?version={version}&wait={WAIT}");
        let begun = Instant::now();
        let poll = http::get_soon(&address, &path, super::CONNECT, POLL);
        tokio::pin!(poll);
        let answer = loop {
            tokio::select! {
                answer = &mut poll => break Some(answer),
                () = anew.notified() => if begun.elapsed() > OLD { break None },
            }
        };
        match answer.map(|a| a.and_then(|a| read(&a, shard))) {
            // Given up, or nothing newer.
            None | Some(Ok(None)) => {}
            Some(Ok(Some(told))) => {
                version = told.version;
                sender.send_modify(|all| all.push(told));
            }
            Some(Err(_)) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn read(answer: &http::Answer, shard: i32) -> Result<Option<Told>> {
    match answer.status {
        200 => {
            let map = Map::parse(answer.body.clone(), String::new())?;
            let active = map.entry(shard)?.active.clone();
            Ok(Some(Told {
                version: map.version,
                host: active.host,
                port: active.port,
                at: Instant::now(),
            }))
        }
        304 => Ok(None),
        status => bail!("status {status}"),
    }
}
