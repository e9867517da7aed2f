//! What is printed of a fleet whose scenario failed.

use crate::fleet::Fleet;
use crate::shell;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
/// Longest line that is printed.
const WIDTH: usize = 900;
/// Lines of the operator that are printed.
const OPERATOR_LINES: usize = 40;
/// Changes of the servers that are printed.
const CHANGES: usize = 30;

/// Prints the objects' status, the events, the Pods, the logs of Pods that do not run well and the operator's last lines.
pub async fn dump(fleet: &Fleet) {
    let ns = fleet.ns.as_str();
    println!("---- what there is in {ns}");
    for note in fleet.notes() {
        println!("note: {note}");
    }
    let columns = "custom-columns=KIND:.kind,NAME:.metadata.name,GEN:.metadata.generation,\
                   DELETED:.metadata.deletionTimestamp,STATUS:.status";
    kubectl(&[
        "get",
        "shardclusters,mysqlpairs,shardranges",
        "-n",
        ns,
        "-o",
        "wide",
    ])
    .await;
    kubectl(&[
        "get",
        "shardclusters,mysqlpairs,shardranges",
        "-n",
        ns,
        "-o",
        columns,
    ])
    .await;
    kubectl(&[
        "get",
        "pods,pvc,statefulsets,services,endpointslices,configmaps,secrets",
        "-n",
        ns,
        "-o",
        "wide",
    ])
    .await;
    kubectl(&[
        "get",
        "events.v1.events.k8s.io",
        "-n",
        ns,
        "--sort-by=.metadata.creationTimestamp",
        "-o",
        "custom-columns=AT:.metadata.creationTimestamp,TYPE:.type,ON:.regarding.name,REASON:.reason,NOTE:.note",
    ])
    .await;
    kubectl(&[
        "logs",
        "-n",
        ns,
        "-l",
        "shardwright.dev/pair",
        "-c",
        "mysqld",
        "--prefix",
        "--tail=10",
    ])
    .await;
    println!("---- how what the servers say of themselves changed last");
    let changes = fleet.sights.changes();
    for change in changes.iter().skip(changes.len().saturating_sub(CHANGES)) {
        println!("  {change}");
    }
    println!("---- the operator's last lines on it");
    operator_lines(fleet).await;
    println!("----");
}

/// The operator's last lines that name the fleet, cut down to what is said.
async fn operator_lines(fleet: &Fleet) {
    let args = [
        "logs",
        "-n",
        &fleet.world.settings.operator_namespace,
        "-l",
        "app.kubernetes.io/component=operator",
        "--prefix",
        "--tail=2000",
    ];
    let said = match shell::say(LIMIT, None, "kubectl", &args).await {
        Ok(said) => said.out,
        Err(e) => return println!("  {e:#}"),
    };
    let lines: Vec<_> = said.lines().filter(|l| l.contains(&fleet.ns)).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(OPERATOR_LINES)) {
        println!("  {}", readable(line).chars().take(WIDTH).collect::<String>());
    }
}

/// `[pod/x/operator] {"timestamp":…,"fields":{…},"span":…}` as time, level and fields.
fn readable(line: &str) -> String {
    let json = line.split_once("] ").map_or(line, |(_, json)| json);
    match serde_json::from_str::<serde_json::Value>(json) {
        Ok(v) => {
            let time = v["timestamp"]
                .as_str()
                .and_then(|t| t.get(11..23))
                .unwrap_or_default();
            format!(
                "{time} {} {}",
                v["level"].as_str().unwrap_or_default(),
                v["fields"]
            )
        }
        Err(_) => line.to_owned(),
    }
}

async fn kubectl(args: &[&str]) {
    match shell::say(LIMIT, None, "kubectl", args).await {
        Ok(said) => {
            for line in said.out.lines().chain(said.err.lines()) {
                println!("  {}", line.chars().take(WIDTH).collect::<String>());
            }
        }
        Err(e) => println!("  {e:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn lines_of_the_operator_are_cut_down() {
        let line = r#"[pod/a/operator] {"timestamp":"2026-11-30T03:14:38.377982Z","level":"INFO","fields":{"message":"x"},"span":{}}"#;
        assert_eq!(readable(line), r#"03:14:38.377 INFO {"message":"x"}"#);
        assert_eq!(readable("panicked"), "panicked");
    }
}
