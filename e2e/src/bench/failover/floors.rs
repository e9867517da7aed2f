//! What no operator can be faster than, on this machine and in the same run: the parts that every gap is made of.

use super::gaps::quantile;
use crate::fleet::Fleet;
use crate::writer::{Ending, Try, connect};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use serde_json::json;
use shardwright::api::names;
use std::time::{Duration, Instant};

const TIMES: usize = 20;

/// One part, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Floor {
    /// What was timed.
    pub name: &'static str,
    /// Half of them took no longer.
    pub p50: f64,
    /// The longest.
    pub max: f64,
}

impl Floor {
    fn of(name: &'static str, values: &[f64]) -> Option<Self> {
        Some(Self {
            name,
            p50: quantile(values, 50)?,
            max: quantile(values, 100)?,
        })
    }
}

fn since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}

/// Times them on a pair that is well, while its clients write.
///
/// # Errors
/// When the API or a server refuses.
pub async fn measure(f: &Fleet, pair: &str, tries: &[Try]) -> Result<Vec<Floor>> {
    let commits: Vec<_> = tries
        .iter()
        .filter(|t| t.ending == Ending::Acknowledged && t.connected.is_none())
        .map(|t| t.ended.duration_since(t.begun).as_secs_f64() * 1000.0)
        .collect();
    let active = f.active(pair).await?;
    let login = f.app_login(&names::host(&f.ns, pair, active)).await?;
    let (mut connections, mut writes) = (vec![], vec![]);
    for n in 0..TIMES {
        let begun = Instant::now();
        drop(connect(&login).await?);
        connections.push(since(begun));
        let mark: ConfigMap = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "floor"}, "data": {"n": n.to_string()}}))?;
        let begun = Instant::now();
        f.apply(&mark).await?;
        writes.push(since(begun));
    }
    let (quiet, busy) = proxy(f).await?;
    Ok([
        Floor::of("a commit, acknowledged by both", &commits),
        Floor::of("a new connection: name, TCP, TLS, login", &connections),
        Floor::of("a write to the API", &writes),
        Floor::of(
            "kube-proxy: endpoint written to rule in force, quiet for 2 s",
            &quiet,
        ),
        Floor::of("kube-proxy: the same, right after another change", &busy),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// From the write of an endpoint until a Service leads there, by a Service of its own that leads to the operator's port: when kube-proxy has
/// been quiet, and right after it has written its rules for another change.
async fn proxy(f: &Fleet) -> Result<(Vec<f64>, Vec<f64>)> {
    let operator = f.world.operator_addresses().await?;
    let (ip, port) = operator
        .first()
        .and_then(|a| a.rsplit_once(':'))
        .context("no operator")?;
    let port: u16 = port.parse()?;
    let service: Service = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "floor"},
        "spec": {"ports": [{"name": "http", "port": port}]}}))?;
    let address = crate::writer::cluster_ip(&f.apply(&service).await?)?;
    let (mut quiet, mut busy) = (vec![], vec![]);
    for _ in 0..TIMES / 4 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        for found in [&mut quiet, &mut busy] {
            let begun = Instant::now();
            f.apply(&slice(Some(ip), port)?).await?;
            until_connected(&address, port).await?;
            found.push(since(begun));
            f.apply(&slice(None, port)?).await?;
        }
    }
    Ok((quiet, busy))
}

fn slice(ip: Option<&str>, port: u16) -> Result<EndpointSlice> {
    let endpoints: Vec<_> = ip
        .map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}}))
        .into_iter()
        .collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "floor", "labels": {"kubernetes.io/service-name": "floor"}},
        "endpoints": endpoints, "ports": [{"name": "http", "port": port}]}))?)
}

async fn until_connected(address: &str, port: u16) -> Result<()> {
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, async {
        let one = Duration::from_millis(100);
        loop {
            let tried = tokio::time::timeout(one, tokio::net::TcpStream::connect((address, port))).await;
            if matches!(tried, Ok(Ok(_))) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .context("the Service never led there")
}

/// For people.
pub fn table(floors: &[Floor]) -> String {
    use std::fmt::Write as _;
    let mut text = "floors, ms, p50 / max\n".to_owned();
    for f in floors {
        let _ = writeln!(text, "  {}: {:.1} / {:.1}", f.name, f.p50, f.max);
    }
    text
}
