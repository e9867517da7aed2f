//! What is printed of a fleet whose scenario failed.

use crate::fleet::Fleet;
use crate::shell;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

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
        "--all-containers",
        "--prefix",
        "--tail=12",
    ])
    .await;
    let selector = "app.kubernetes.io/component=operator";
    println!("---- the operator's last lines");
    kubectl(&[
        "logs",
        "-n",
        &fleet.world.settings.operator_namespace,
        "-l",
        selector,
        "--prefix",
        "--tail=40",
    ])
    .await;
    println!("----");
}

async fn kubectl(args: &[&str]) {
    match shell::say(LIMIT, None, "kubectl", args).await {
        Ok(said) => {
            for line in said.out.lines().chain(said.err.lines()) {
                println!("  {}", line.chars().take(900).collect::<String>());
            }
        }
        Err(e) => println!("  {e:#}"),
    }
}
