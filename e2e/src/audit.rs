//! What the operator wrote to the API, by the test bed's audit log.

use crate::settings::Settings;
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

impl World {
    /// The operator's writes in the next `span`, but for Leases: what was written, and how often. In one namespace, or in all.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn operator_writes(
        &self,
        namespace: Option<&str>,
        span: Duration,
    ) -> Result<BTreeMap<String, u32>> {
        let path = self.audit_log().await?;
        let begin = self.mark(&path).await?;
        // The time is what is measured here.
        tokio::time::sleep(span).await;
        let end = self.mark(&path).await?;
        let who = format!(
            "system:serviceaccount:{}:{}",
            self.settings.operator_namespace,
            Settings::RELEASE
        );
        Ok(of_operator(&read(&path, begin, end)?, &who, namespace))
    }

    /// When the API server received each successful write of one object since the log had `begin` bytes.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn writes_of(
        &self,
        log: &Path,
        begin: u64,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Timestamp>> {
        let end = self.mark(log).await?;
        let text = read(log, begin, end)?;
        let mut times: Vec<Timestamp> = text
            .lines()
            .filter_map(|l| serde_json::from_str::<Value>(l).ok())
            .filter(|e| {
                let o = &e["objectRef"];
                o["resource"] == resource && o["namespace"] == namespace && o["name"] == name
            })
            .filter(|e| e["stage"] == "ResponseComplete" && e["responseStatus"]["code"] == 200)
            .filter_map(|e| e["requestReceivedTimestamp"].as_str()?.parse().ok())
            .collect();
        times.sort();
        Ok(times)
    }

    /// Writes something that the log has to show: all that was written before is then in the log as well. Gives its length.
    async fn mark(&self, log: &Path) -> Result<u64> {
        let from = std::fs::metadata(log)?.len();
        let name = format!("e2e-mark-{}", crate::dice::Dice::seed_now());
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let mark = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        api.create(&PostParams::default(), &mark).await?;
        wait::until("the audit log to show a mark", wait::SOON, || async {
            let mut file = std::fs::File::open(log)?;
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = vec![];
            file.read_to_end(&mut bytes)?;
            let shown = String::from_utf8_lossy(&bytes).contains(&name);
            Ok(Seen::when(shown, || format!("{} bytes", bytes.len())))
        })
        .await?;
        api.delete(&name, &DeleteParams::default()).await?;
        Ok(std::fs::metadata(log)?.len())
    }
}

fn read(log: &Path, begin: u64, end: u64) -> Result<String> {
    let mut file = std::fs::File::open(log)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = vec![];
    file.take(end.saturating_sub(begin)).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn of_operator(log: &str, who: &str, namespace: Option<&str>) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for line in log.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let object = |key: &str| event["objectRef"][key].as_str().unwrap_or_default().to_owned();
        let here = namespace.is_none_or(|n| object("namespace") == n);
        if event["user"]["username"] == who
            && here
            && object("resource") != "leases"
            && event["stage"] == "ResponseComplete"
        {
            let verb = event["verb"].as_str().unwrap_or_default();
            let what = format!(
                "{verb} {} {}/{}",
                object("resource"),
                object("namespace"),
                object("name")
            );
            *found.entry(what).or_default() += 1;
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
                r#"{{"stage":"ResponseComplete","verb":"patch","user":{{"username":"{user}"}},"objectRef":{{"resource":"{resource}","namespace":"n","name":"x"}}}}"#
            )
        };
        let log = [
            line("me", "leases"),
            line("you", "pods"),
            line("me", "pods"),
            "cut off".into(),
        ]
        .join("\n");
        let found: Vec<_> = of_operator(&log, "me", Some("n")).into_iter().collect();
        assert_eq!(found, [("patch pods n/x".to_owned(), 1)]);
        assert!(of_operator(&log, "me", Some("m")).is_empty());
    }
}
