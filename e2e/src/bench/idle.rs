//! What an idle fleet costs: writes to the API, and the operator's memory.

use super::Figure;
use crate::fleet::Fleet;
use crate::settings::Settings;
use crate::testbed;
use crate::world::World;
use anyhow::{Result, anyhow};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

const WATCHED: Duration = Duration::from_secs(60);

/// Resident memory of the largest of the operators.
pub async fn resident(world: &World) -> Figure {
    let figure = |value, note| Figure::at_most("operator, resident with 2 pairs", value, "MB", 60.0, note);
    if !world.settings.local {
        return figure(None, "(needs the test bed)".into());
    }
    let sizes = async {
        let pods = world.operator_pods().await?;
        let sizes: Result<Vec<u64>> = pods.iter().map(testbed::resident).collect();
        sizes.and_then(|s| s.into_iter().max().ok_or_else(|| anyhow!("there is no operator")))
    };
    #[allow(clippy::cast_precision_loss, reason = "bytes far below 2^52")]
    match sizes.await {
        Ok(bytes) => figure(Some(bytes as f64 / 1e6), "(the larger of the replicas)".into()),
        Err(e) => figure(None, format!("({e:#})")),
    }
}

/// Writes of the operator in a minute in which nothing happens, from the API server's audit log, but for Leases.
pub async fn writes(f: &Fleet) -> Figure {
    let figure = |value, note| {
        Figure::at_most(
            "idle fleet, writes to the API in 60 s",
            value,
            "writes",
            0.0,
            note,
        )
    };
    if !f.world.settings.local {
        return figure(None, "(needs the test bed's audit log)".into());
    }
    match count(f).await {
        Ok(found) => {
            let n: u32 = found.values().sum();
            let note = if found.is_empty() {
                String::new()
            } else {
                format!("({found:?})")
            };
            figure(Some(f64::from(n)), note)
        }
        Err(e) => figure(None, format!("({e:#})")),
    }
}

async fn count(f: &Fleet) -> Result<BTreeMap<String, u32>> {
    f.all_ready(crate::wait::SOON).await?;
    let path = f.world.audit_log().await?;
    let begin = std::fs::metadata(&path)?.len();
    // The time is what is measured here.
    tokio::time::sleep(WATCHED).await;
    let mut file = std::fs::File::open(&path)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let who = format!(
        "system:serviceaccount:{}:{}",
        f.world.settings.operator_namespace,
        Settings::RELEASE
    );
    Ok(of_operator(&text, &who))
}

fn of_operator(log: &str, who: &str) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for line in log.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
        if event["user"]["username"] == who && resource != "leases" && event["stage"] == "ResponseComplete" {
            let verb = event["verb"].as_str().unwrap_or_default();
            let name = event["objectRef"]["name"].as_str().unwrap_or_default();
            *found.entry(format!("{verb} {resource} {name}")).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::of_operator;

    #[test]
    fn leases_and_others_do_not_count() {
        let line = |user: &str, resource: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"patch","user":{{"username":"{user}"}},"objectRef":{{"resource":"{resource}","name":"x"}}}}"#
            )
        };
        let log = [
            line("me", "leases"),
            line("you", "pods"),
            line("me", "pods"),
            "cut off".into(),
        ]
        .join("\n");
        let found = of_operator(&log, "me");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("patch pods x".to_owned(), 1)]
        );
    }
}
