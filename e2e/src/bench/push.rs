//! How soon a client that waits for a newer map has it.

use super::Figure;
use crate::blueprint as bp;
use crate::fleet::Fleet;
use crate::http;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shardwright::api::names;
use std::time::Duration;

const CHANGES: i32 = 100;
const LIMIT: Duration = Duration::from_secs(60);
const TARGET: f64 = 50.0;

/// 100 changes of the map of a real fleet, each a shard that is opened: from the moment at which the API server receives the
/// write of the ConfigMap, by its own audit log, until the last replica's answer is read. `first` and what follows are closed.
///
/// # Errors
/// When an answer is not the next version.
pub async fn latency(f: &Fleet, first: i32) -> Result<Vec<Figure>> {
    let name = |p| format!("map change to long-poll answer, {p}");
    if !f.world.settings.local {
        let why = || "(needs the test bed's audit log)".to_owned();
        return Ok(["p50", "p99"]
            .into_iter()
            .map(|p| Figure::at_most(&name(p), None, "ms", TARGET, why()))
            .collect());
    }
    let operators = f.world.operator_addresses().await?;
    ensure!(!operators.is_empty(), "there is no operator");
    let pair = names::layout_pair(&f.cluster, 0);
    let path = format!("/maps/{}/{}", f.ns, f.cluster);
    let log = f.world.audit_log().await?;
    let begin = std::fs::metadata(&log)?.len();
    let mut answered = vec![];
    for n in 0..CHANGES {
        let version = f.map().await?.version;
        let waiting: Vec<_> = operators
            .iter()
            .map(|address| {
                let (address, path) = (address.clone(), format!("{path}?version={version}&wait=30s"));
                tokio::spawn(async move { (http::get(&address, &path, LIMIT).await, Timestamp::now()) })
            })
            .collect();
        let range = bp::range(f, &format!("push-{n}"), first + n, first + n, &pair);
        f.apply(&range).await?;
        let mut slowest = Timestamp::UNIX_EPOCH;
        for answer in waiting {
            let (answer, at) = answer.await?;
            let answer = answer?;
            let map: serde_json::Value = serde_json::from_str(&answer.body).context("the answer")?;
            ensure!(
                answer.status == 200 && map["version"] == version + 1,
                "{answer:?}"
            );
            slowest = slowest.max(at);
        }
        answered.push(slowest);
        f.map_when("the next version", LIMIT, |m| m.version > version)
            .await?;
    }
    f.all_ready(LIMIT).await?;
    let written = f
        .world
        .writes_of(&log, begin, "configmaps", &f.ns, &f.map_name())
        .await?;
    ensure!(
        written.len() == answered.len(),
        "{} writes of the map for {} versions",
        written.len(),
        answered.len()
    );
    let mut took: Vec<f64> = written
        .iter()
        .zip(&answered)
        .map(|(w, a)| a.duration_since(*w).max(SignedDuration::ZERO).as_secs_f64() * 1000.0)
        .collect();
    took.sort_by(f64::total_cmp);
    let at = |share: usize| took.get((took.len() * share / 100).min(took.len() - 1)).copied();
    let note = format!("({CHANGES} changes, the slower of {} replicas)", operators.len());
    Ok(vec![
        Figure::at_most(&name("p50"), at(50), "ms", TARGET, note.clone()),
        Figure::at_most(&name("p99"), at(99), "ms", TARGET, note)
            .floor("the API server's write and its watch, and the processors, when these are busy"),
    ])
}
