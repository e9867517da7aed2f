//! How Pods are reached: by their addresses from inside the cluster's network, else by `kubectl port-forward`.

use crate::world::World;
use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Mutex;

/// Until `kubectl port-forward` listens.
const LIMIT: Duration = Duration::from_secs(15);

/// Where from the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Reach {
    /// Inside the cluster's network: Pods and Services are reached by their addresses.
    Direct,
    /// Anywhere: through the API server.
    Forward,
}

/// A running `kubectl port-forward`; it ends when this is dropped.
struct Forward {
    child: Child,
    port: u16,
    /// Kept open, or the command would die of what it prints.
    _out: BufReader<ChildStdout>,
}

/// Those that run, by UID of the Pod and port.
#[derive(Clone, Default)]
pub struct Forwards(Arc<Mutex<HashMap<(String, u16), Forward>>>);

impl World {
    /// Address and port at which a port of a Pod is reached from here.
    ///
    /// # Errors
    /// When the Pod has no address yet, or it cannot be forwarded to.
    pub async fn reach(&self, pod: &Pod, port: u16) -> Result<(String, u16)> {
        let ip = pod
            .status
            .as_ref()
            .and_then(|s| s.pod_ip.clone())
            .ok_or_else(|| anyhow!("Pod {} has no address", pod.name_any()))?;
        if self.settings.reach() == Reach::Direct {
            return Ok((ip, port));
        }
        let key = (pod.uid().unwrap_or_default(), port);
        let mut all = self.forwards.0.lock().await;
        if let Some(f) = all.get_mut(&key)
            && f.child.try_wait()?.is_none()
        {
            return Ok(("127.0.0.1".into(), f.port));
        }
        let forward = start(&pod.namespace().unwrap_or_default(), &pod.name_any(), port).await?;
        let local = forward.port;
        all.insert(key, forward);
        Ok(("127.0.0.1".into(), local))
    }
}

async fn start(namespace: &str, pod: &str, port: u16) -> Result<Forward> {
    let mut child = Command::new("kubectl")
        .args([
            "port-forward",
            "-n",
            namespace,
            &format!("pod/{pod}"),
            &format!(":{port}"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start kubectl port-forward")?;
    let mut out = BufReader::new(child.stdout.take().context("no output")?);
    let mut line = String::new();
    tokio::time::timeout(LIMIT, out.read_line(&mut line))
        .await
        .context("kubectl port-forward does not listen")??;
    let port = local_port(&line).with_context(|| format!("kubectl port-forward to {pod} said {line:?}"))?;
    Ok(Forward {
        child,
        port,
        _out: out,
    })
}

/// `Forwarding from 127.0.0.1:40001 -> 3306`.
fn local_port(line: &str) -> Option<u16> {
    line.strip_prefix("Forwarding from ")?
        .split(" -> ")
        .next()?
        .rsplit(':')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::local_port;

    #[test]
    fn the_port_is_read() {
        assert_eq!(
            local_port("Forwarding from 127.0.0.1:40001 -> 3306\n"),
            Some(40001)
        );
        assert_eq!(local_port("Forwarding from [::1]:40001 -> 3306\n"), Some(40001));
        assert_eq!(local_port("error: lost connection to pod"), None);
    }
}
