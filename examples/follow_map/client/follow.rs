//! Following the published map by long poll.

use super::map::{Map, Place};
use anyhow::{Context as _, Result, bail};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How long the operator may wait for a newer map before it answers that there is none.
const WAIT: &str = "30s";
/// For one whole poll.
const POLL: Duration = Duration::from_secs(40);
/// For a connection: a dead address says nothing.
const CONNECT: Duration = Duration::from_millis(250);
/// After a poll that failed: another replica may answer the next one.
const PAUSE: Duration = Duration::from_millis(20);
/// A poll that is older than this is given up when a write fails: its replica may have died without a word.
const OLD: Duration = Duration::from_millis(500);

/// The newest map, for as long as this lives.
pub struct Follower {
    newest: watch::Receiver<Option<Arc<Map>>>,
    anew: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Follows `path` (`/maps/<namespace>/<cluster>`) of the operator's Service at `address` (`host:port`).
    pub fn start(address: String, path: String) -> Self {
        let (sender, newest) = watch::channel(None);
        let anew = Arc::new(Notify::new());
        let task = tokio::spawn(follow(address, path, sender, anew.clone()));
        Self { newest, anew, task }
    }

    /// The newest map; `None` before the first one.
    pub fn map(&self) -> Option<Arc<Map>> {
        self.newest.borrow().clone()
    }

    /// Ends with a map that is newer than `version`, or after `patience`.
    pub async fn newer(&self, version: i64, patience: Duration) {
        let mut newest = self.newest.clone();
        let newer = newest.wait_for(|m| m.as_ref().is_some_and(|m| m.version > version));
        let died = matches!(timeout(patience, newer).await, Ok(Err(_)));
        if died {
            // Nothing newer will ever come.
            sleep(patience).await;
        }
    }

    /// Ends when the newest map has this shard at another server.
    pub async fn elsewhere(&self, shard: i32, place: &Place) {
        let mut newest = self.newest.clone();
        let gone = newest.wait_for(|m| {
            m.as_ref()
                .and_then(|m| m.place(shard))
                .is_some_and(|now| (&now.host, now.port) != (&place.host, place.port))
        });
        if gone.await.is_err() {
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

async fn follow(address: String, path: String, newest: watch::Sender<Option<Arc<Map>>>, anew: Arc<Notify>) {
    let mut version = 0;
    loop {
        let begun = Instant::now();
        let poll = poll(&address, &path, version);
        tokio::pin!(poll);
        let answer = loop {
            tokio::select! {
                answer = &mut poll => break answer,
                () = anew.notified() => if begun.elapsed() > OLD { break Ok(None) },
            }
        };
        match answer {
            Ok(None) => {}
            Ok(Some(map)) => {
                version = map.version;
                newest.send_replace(Some(Arc::new(map)));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// The map when there is a newer one; `None` when there is none in time. Any HTTP client will do; this is the smallest.
async fn poll(address: &str, path: &str, version: i64) -> Result<Option<Map>> {
    let mut stream = timeout(CONNECT, TcpStream::connect(address))
        .await
        .context("no connection in time")??;
    let request = format!(
        "GET {path}?version={version}&wait={WAIT} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    let mut answer = vec![];
    timeout(POLL, async {
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut answer).await
    })
    .await
    .context("no answer in time")??;
    read(std::str::from_utf8(&answer)?)
}

fn read(answer: &str) -> Result<Option<Map>> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(Some(serde_json::from_str(body)?)),
        Some("304") => Ok(None),
        // 503: this replica is cut off from the API server, another one answers. 404: no map is published yet.
        status => bail!("status {status:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_map_counts() {
        let map = r#"{"version": 3, "databases": {"prefix": "db", "digits": 5}, "entries": []}"#;
        let version = |answer: &str| read(answer).map(|m| m.map(|m| m.version)).ok();
        assert_eq!(
            version(&format!("HTTP/1.0 200 OK\r\nETag: \"3\"\r\n\r\n{map}")),
            Some(Some(3))
        );
        assert_eq!(version("HTTP/1.0 304 Not Modified\r\n\r\n"), Some(None));
        assert_eq!(version("HTTP/1.0 503 Service Unavailable\r\n\r\nask again"), None);
        assert_eq!(version("HTTP/1.0 200 OK\r\n\r\n{\"version\": 3, \"dat"), None);
    }

    #[tokio::test]
    async fn a_newer_map_ends_the_wait_and_an_old_one_does_not() {
        let (sender, newest) = watch::channel(None);
        let follower = Follower {
            newest,
            anew: Arc::default(),
            task: tokio::spawn(async {}),
        };
        let map = |version, host: &str| {
            let text = format!(
                r#"{{"version": {version}, "databases": {{"prefix": "db", "digits": 5}},
                    "entries": [{{"first": 0, "last": 1, "active": {{"host": "{host}", "port": 1}}}}]}}"#
            );
            Some(Arc::new(serde_json::from_str::<Map>(&text).unwrap()))
        };
        let at = |host: &str| Place {
            host: host.to_owned(),
            port: 1,
            database: String::new(),
            version: 0,
        };
        sender.send_replace(map(4, "a"));
        let long = Duration::from_secs(60);
        timeout(long, follower.newer(3, long * 2)).await.unwrap();
        timeout(Duration::from_millis(20), follower.newer(4, long))
            .await
            .unwrap_err();
        timeout(Duration::from_millis(20), follower.elsewhere(0, &at("a")))
            .await
            .unwrap_err();
        sender.send_replace(map(5, "b"));
        timeout(long, follower.newer(4, long * 2)).await.unwrap();
        timeout(long, follower.elsewhere(0, &at("a"))).await.unwrap();
        assert_eq!(follower.map().unwrap().version, 5);
    }
}
