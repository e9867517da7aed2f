//! What only the test bed on this machine allows: its processes are this machine's.

use crate::shell;
use crate::world::World;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// Kills the first process of a Pod's container by -9. The process is found by the container's control group.
///
/// # Errors
/// When there is none.
pub async fn kill_container(pod: &Pod, container: &str) -> Result<()> {
    kill_id(&container_id(pod, container)?).await
}

/// Kills the first process of a container by -9, by its ID. It needs no API server.
///
/// # Errors
/// When there is none.
pub async fn kill_id(id: &str) -> Result<()> {
    kill(first_process(id)?).await
}

/// The first process of a container, by its ID: looking for it takes a while on a busy machine.
///
/// # Errors
/// When there is none.
pub fn first_process(id: &str) -> Result<u32> {
    let Some(pid) = processes_of(id)?.into_iter().min() else {
        bail!("no process of container {id} on this machine")
    };
    Ok(pid)
}

/// Whether somebody in the process' network takes connections at the port: a mysqld that ends does not for as long as that takes, with a full
/// volume a minute.
pub fn listens(pid: u32, port: u16) -> bool {
    // State 0A is LISTEN; the local address ends with the port.
    let local = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|kind| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{kind}")).is_ok_and(|table| {
            table.lines().skip(1).any(|line| {
                let mut words = line.split_whitespace().skip(1);
                words.next().is_some_and(|l| l.ends_with(&local)) && words.nth(1) == Some("0A")
            })
        })
    })
}

/// Whether a process is there, and neither stopped nor dead.
pub fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|text| text.rsplit_once(')')?.1.trim_start().chars().next())
        .is_some_and(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// The load average of the machine's last minute.
pub fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The load average and what it has to be compared with, for a message: a bound may be exceeded by a machine that is too busy.
pub fn load_in_words() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    load().map_or_else(
        || "load average unknown".to_owned(),
        |load| format!("load average {load:.1} on {cores} processors"),
    )
}

/// Kills a process by -9.
///
/// # Errors
/// When it is not there.
pub async fn kill(pid: u32) -> Result<()> {
    shell::run(Duration::from_secs(5), None, "kill", &["-9", &pid.to_string()]).await?;
    Ok(())
}

/// Sends a signal to every process of a container, by its ID; gives how many there were. It needs no API server.
///
/// # Errors
/// When `kill` cannot be run.
pub async fn signal_container(id: &str, signal: &str) -> Result<usize> {
    let pids = processes_of(id)?;
    let mut args = vec!["-s".to_owned(), signal.to_owned()];
    args.extend(pids.iter().map(u32::to_string));
    if !pids.is_empty() {
        // Some may end meanwhile.
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        shell::say(Duration::from_secs(5), None, "kill", &args).await?;
    }
    Ok(pids.len())
}

/// The processes of a Pod that run a program, whichever container they are in. The Pod need not have heard of them yet.
///
/// # Errors
/// When this machine's processes cannot be listed.
pub fn processes_called(pod: &Pod, program: &str) -> Result<Vec<u32>> {
    let group = format!("pod{}", pod.uid().context("the Pod has no UID")?);
    let mut found = processes_of(&group)?;
    found.retain(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim_end() == program
    });
    Ok(found)
}

/// Sends a signal to processes, by one call.
///
/// # Errors
/// When one of them is not there.
pub async fn signal(pids: &[u32], signal: &str) -> Result<()> {
    let mut args = vec!["-s".to_owned(), signal.to_owned()];
    args.extend(pids.iter().map(u32::to_string));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    shell::run(Duration::from_secs(5), None, "kill", &args)
        .await
        .map(|_| ())
}

/// ID of a Pod's running container.
///
/// # Errors
/// When there is none.
pub fn container_id(pod: &Pod, container: &str) -> Result<String> {
    pod.status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref())
        .and_then(|all| all.iter().find(|c| c.name == container))
        .and_then(|c| c.container_id.as_deref())
        .and_then(|id| id.rsplit('/').next())
        .map(str::to_owned)
        .with_context(|| format!("{} has no running container {container}", pod.name_any()))
}

fn processes_of(container: &str) -> Result<Vec<u32>> {
    let mut pids = vec![];
    for entry in std::fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // Processes end while this looks.
        let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if groups.contains(container) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// Resident memory of a Pod's first process, in bytes.
///
/// # Errors
/// When it is not found on this machine.
pub fn resident(pod: &Pod) -> Result<u64> {
    let id = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref())
        .and_then(|all| all.first())
        .and_then(|c| c.container_id.as_deref())
        .and_then(|id| id.rsplit('/').next())
        .context("no container")?;
    let pid = processes_of(id)?.into_iter().min().context("no process")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib: u64 = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.split_whitespace().next())
        .context("no VmRSS")?
        .parse()?;
    Ok(kib * 1024)
}

impl World {
    /// Runs the tool, with this run's KUBECONFIG; gives its standard output.
    ///
    /// # Errors
    /// When it fails, or cannot be found.
    pub async fn tool(&self, args: &[&str]) -> Result<String> {
        let beside = std::env::current_exe()?.with_file_name("shardwright");
        let tool = self.settings.tool.clone().unwrap_or(beside);
        shell::run(Duration::from_secs(30), None, &tool.to_string_lossy(), args).await
    }

    /// Runs the test bed's script.
    ///
    /// # Errors
    /// When it fails.
    pub async fn bed(&self, args: &[&str]) -> Result<String> {
        let script = self.settings.cluster_script.to_string_lossy().into_owned();
        shell::run(Duration::from_secs(120), None, &script, args).await
    }

    /// Path of the API server's audit log of writes.
    ///
    /// # Errors
    /// When the test bed is not up.
    pub async fn audit_log(&self) -> Result<PathBuf> {
        Ok(self.bed(&["audit"]).await?.trim().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_listened_at_until_it_is_not() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let me = std::process::id();
        assert!(listens(me, port));
        drop(socket);
        assert!(!listens(me, port));
    }
}
