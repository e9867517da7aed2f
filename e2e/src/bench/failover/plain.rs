//! What a user has without an operator: one mysqld in a StatefulSet of one Pod, behind a Service.
//!
//! It is made from the pair's own StatefulSet: the same image, my.cnf, certificates, probes and resources. What differs is that it boots
//! writable, that it follows nobody, and that Kubernetes finds its endpoint by the Pod's label and readiness.

use crate::fleet::Fleet;
use crate::server::{Login, Server};
use crate::wait::{self, Seen};
use crate::writer::{PAUSE, Route, Work, Writer, cluster_ip};
use anyhow::Result;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use serde_json::{Value, json};
use shardwright::api::names;

/// Name of the StatefulSet, its Service and its ConfigMap.
const NAME: &str = "plain";
/// Its one Pod.
pub const POD: &str = "plain-0";
const TABLE: &str = "`bench`.`pins`";

/// Makes it beside a pair that is there, and waits until it takes writes.
///
/// # Errors
/// When it does not.
pub async fn make(f: &Fleet, pair: &str) -> Result<Login> {
    let host = names::host(&f.ns, pair, 0);
    let login = f.app_login(&host).await?;
    let sql = format!(
        "SET sql_log_bin = 0;\nCREATE USER IF NOT EXISTS '{0}'@'%' IDENTIFIED BY '{1}';\nGRANT ALL ON `bench`.* TO '{0}'@'%';\n\
         CREATE DATABASE IF NOT EXISTS `bench`;\nCREATE TABLE IF NOT EXISTS {TABLE} (`local_id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, \
         `data` JSON NOT NULL, `ts` TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), PRIMARY KEY (`local_id`)) ENGINE=InnoDB;\n",
        login.user, login.password
    );
    let meta = json!({"name": NAME, "labels": {"app": NAME}});
    let config: ConfigMap = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"init.sql": sql}}))?;
    f.apply(&config).await?;
    let service: Service = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta,
        "spec": {"selector": {"app": NAME}, "ports": [{"name": "mysql", "port": names::MYSQL_PORT}]}}))?;
    let service = f.apply(&service).await?;
    let of_pair: StatefulSet = f.get(pair).await?;
    let set: StatefulSet = serde_json::from_value(derived(&serde_json::to_value(of_pair)?, pair))?;
    f.apply(&set).await?;
    let login = Login {
        address: cluster_ip(&service)?,
        ..login
    };
    wait::until("the plain server to take writes", wait::BRING_UP, || async {
        let mut server = login.connect().await?;
        let read_only: u8 = server.one("SELECT @@GLOBAL.read_only").await?;
        let pod: Pod = f.get(POD).await?;
        Ok(Seen::when(read_only == 0, || format!("{:?}", pod.status)))
    })
    .await?;
    Ok(login)
}

/// A client of it.
pub fn writer(login: &Login) -> Writer {
    let work = Work {
        client: NAME.into(),
        table: TABLE.into(),
        pause: PAUSE,
        patience: None,
    };
    Writer::start(work, Route::fixed(login.clone()))
}

/// All rows that it holds.
///
/// # Errors
/// What it answered.
pub async fn rows(login: &Login) -> Result<crate::writer::Rows> {
    let mut server: Server = login.connect().await?;
    crate::writer::rows(&mut server, TABLE).await
}

fn derived(of_pair: &Value, pair: &str) -> Value {
    let labels = json!({"app": NAME});
    let mut template = of_pair["spec"]["template"].clone();
    template["metadata"] = json!({"labels": labels});
    let pod = &mut template["spec"];
    drop_key(pod, "affinity");
    drop_key(pod, "readinessGates");
    if let Some(volumes) = pod["volumes"].as_array_mut() {
        volumes.push(json!({"name": "plain", "configMap": {"name": NAME}}));
    }
    let conf = format!("/etc/shardwright/{}.cnf", names::pod(pair, 0));
    for list in ["initContainers", "containers"] {
        for c in pod[list].as_array_mut().into_iter().flatten() {
            // The init script and the arguments find the file by the Pod's name.
            if let Some(env) = c["env"].as_array_mut() {
                env.retain(|e| e["name"] != "POD_NAME");
                env.push(json!({"name": "POD_NAME", "value": names::pod(pair, 0)}));
            }
            if c["name"] == "mysqld" {
                drop_key(c, "lifecycle");
                // Nobody cuts its clients off before it ends.
                c["command"] = json!(["mysqld"]);
                if let Some(env) = c["env"].as_array_mut() {
                    env.push(json!({"name": "MYSQLD_PARENT_PID", "value": "0"}));
                }
                c["args"] = json!([
                    format!("--defaults-file={conf}"),
                    "--super-read-only=OFF",
                    "--read-only=OFF",
                    "--init-file=/etc/plain/init.sql"
                ]);
                if let Some(mounts) = c["volumeMounts"].as_array_mut() {
                    mounts.push(json!({"name": "plain", "mountPath": "/etc/plain", "readOnly": true}));
                }
            }
        }
    }
    let mut claims = of_pair["spec"]["volumeClaimTemplates"].clone();
    for claim in claims.as_array_mut().into_iter().flatten() {
        let spec = claim["spec"].clone();
        *claim = json!({"metadata": {"name": claim["metadata"]["name"]}, "spec": spec});
    }
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "replicas": 1, "serviceName": NAME, "selector": {"matchLabels": labels},
            "template": template, "volumeClaimTemplates": claims
        }
    })
}

fn drop_key(object: &mut Value, key: &str) {
    if let Some(o) = object.as_object_mut() {
        o.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_pairs_server_without_the_operator() {
        let of_pair = json!({"spec": {
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {"a": 1}}],
            "template": {
                "metadata": {"labels": {"shardwright.dev/pair": "p0"}},
                "spec": {
                    "affinity": {}, "readinessGates": [], "volumes": [],
                    "initContainers": [{"name": "init", "env": [{"name": "POD_NAME", "valueFrom": {}}]}],
                    "containers": [{"name": "mysqld", "lifecycle": {}, "env": [], "command": ["sh"], "volumeMounts": []}]
                }
            }
        }});
        let set = derived(&of_pair, "p0");
        let pod = &set["spec"]["template"]["spec"];
        assert!(pod["affinity"].is_null() && pod["readinessGates"].is_null());
        assert_eq!(
            pod["initContainers"][0]["env"][0],
            json!({"name": "POD_NAME", "value": "p0-0"})
        );
        assert!(pod["containers"][0]["lifecycle"].is_null());
        assert_eq!(pod["containers"][0]["command"], json!(["mysqld"]));
        assert_eq!(pod["containers"][0]["args"][2], "--read-only=OFF");
        assert!(!set.to_string().contains("shardwright.dev/pair"));
        assert!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"].is_null());
    }
}
