//! How soon a client that waits for a newer map has it.

use super::Figure;
use crate::fleet::Fleet;
use crate::http;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams};
use shardwright::api::names;
use std::time::{Duration, Instant};

const CHANGES: i64 = 100;
const LIMIT: Duration = Duration::from_secs(30);
/// Nobody's cluster: the map of one that is gone is served on, and nobody restores it while this writes it.
const NAME: &str = "push";

/// 100 changes of a map; from just before the write is sent to the API until the last replica's answer is read.
///
/// # Errors
/// When an answer is not the map that was written.
pub async fn latency(f: &Fleet) -> Result<Vec<Figure>> {
    let operators = f.world.operator_addresses().await?;
    ensure!(!operators.is_empty(), "there is no operator");
    let template = f.map().await?.text;
    write(f, &template, 1).await?;
    let path = format!("/maps/{}/{NAME}", f.ns);
    for address in &operators {
        crate::wait::until("the first map", LIMIT, || async {
            let a = http::get(address, &path, LIMIT).await?;
            Ok(crate::wait::Seen::when(a.status == 200, || format!("{a:?}")))
        })
        .await?;
    }
    let mut answers = vec![];
    for version in 2..=CHANGES + 1 {
        let waiting: Vec<_> = operators
            .iter()
            .map(|address| {
                let (address, path) = (
                    address.clone(),
                    format!("{path}?version={}&wait=30s", version - 1),
                );
                tokio::spawn(async move { (http::get(&address, &path, LIMIT).await, Instant::now()) })
            })
            .collect();
        // So that both wait before the change: a client that comes later is answered at once and would flatter the figure.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let begun = Instant::now();
        write(f, &template, version).await?;
        let mut slowest = Duration::ZERO;
        for answer in waiting {
            let (answer, at) = answer.await?;
            let answer = answer?;
            let map: serde_json::Value = serde_json::from_str(&answer.body).context("the answer")?;
            ensure!(answer.status == 200 && map["version"] == version, "{answer:?}");
            slowest = slowest.max(at.duration_since(begun));
        }
        answers.push(slowest.as_secs_f64() * 1000.0);
    }
    answers.sort_by(f64::total_cmp);
    let at = |share: usize| {
        answers
            .get((answers.len() * share / 100).min(answers.len() - 1))
            .copied()
    };
    let note = format!("({CHANGES} changes, the slower of {} replicas)", operators.len());
    Ok(vec![
        Figure::at_most(
            "map change to long-poll answer, p50",
            at(50),
            "ms",
            50.0,
            note.clone(),
        ),
        Figure::at_most("map change to long-poll answer, p99", at(99), "ms", 50.0, note),
    ])
}

async fn write(f: &Fleet, template: &str, version: i64) -> Result<()> {
    let mut map: serde_json::Value = serde_json::from_str(template)?;
    map["version"] = version.into();
    map["cluster"]["name"] = NAME.into();
    let cm = ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{NAME}-shard-map")),
            labels: Some([(names::MAP_LABEL.to_owned(), NAME.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([("shardmap.json".to_owned(), map.to_string())].into()),
        ..ConfigMap::default()
    };
    f.api::<ConfigMap>()
        .patch(
            &format!("{NAME}-shard-map"),
            &PatchParams::apply("e2e-bench").force(),
            &Patch::Apply(&cm),
        )
        .await?;
    Ok(())
}
