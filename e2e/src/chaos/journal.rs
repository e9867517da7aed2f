//! The operator's own words during a run, kept beside the report: of a container that was started anew twice the first log is gone.

use crate::world::World;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::task::JoinHandle;

const EVERY: Duration = Duration::from_millis(500);
const CONTAINER: &str = "operator";

/// Follows the logs of all operators until it is dropped.
pub struct Journal(JoinHandle<()>);

type File = Arc<Mutex<std::fs::File>>;

/// What follows one Pod; ends with it.
struct Task(JoinHandle<()>);
impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Journal {
    /// Begins to follow, and to write lines of `POD LINE` into a file. What was said before is written too.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn start(world: &World, path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = std::fs::File::create(path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(tokio::spawn(watch(
            world.clone(),
            Arc::new(Mutex::new(file)),
        ))))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(world: World, file: File) {
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    loop {
        if let Ok(pods) = world.operator_pods().await {
            tasks.retain(|name, _| pods.iter().any(|p| p.name_any() == *name));
            for pod in pods.iter().filter(|p| running(p)) {
                let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                let follow = || Task(tokio::spawn(follow(namespace, name, file.clone())));
                tasks.entry(pod.name_any()).or_insert_with(follow);
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    phase == Some("Running")
}

/// One container's log after the other; kubectl ends with the container, and when the API server goes.
async fn follow(namespace: String, pod: String, file: File) {
    let mut last = String::new();
    loop {
        let _ = copy(&namespace, &pod, &file, &mut last).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn copy(namespace: &str, pod: &str, file: &File, last: &mut String) -> Result<()> {
    let mut command = Command::new("kubectl");
    command.args([
        "logs",
        "--follow",
        "--timestamps",
        "-n",
        namespace,
        pod,
        "-c",
        CONTAINER,
    ]);
    if !last.is_empty() {
        command.arg(format!("--since-time={last}"));
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    while let Some(line) = lines.next_line().await? {
        let Some((time, said)) = line.split_once(' ') else {
            continue;
        };
        // The time to begin from is exact to the second only.
        if time > last.as_str() {
            time.clone_into(last);
            if let Ok(mut file) = file.lock() {
                writeln!(file, "{pod} {said}")?;
            }
        }
    }
    child.wait().await?;
    Ok(())
}
