//! kubectl, helm and the test bed's script.

use anyhow::{Context as _, Result, bail};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// What a command said.
pub struct Said {
    /// Whether it ended with 0.
    pub ok: bool,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Runs a command and gives what it said, whether it succeeded or not.
///
/// # Errors
/// When it cannot be started, or did not end within `limit`.
pub async fn say(limit: Duration, input: Option<&str>, program: &str, args: &[&str]) -> Result<Said> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("start {program}"))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A command that ends before it read everything says why by itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), output) = tokio::time::timeout(limit, async { tokio::join!(feed, child.wait_with_output()) })
        .await
        .with_context(|| format!("{program} {} did not end within {limit:?}", args.join(" ")))?;
    let output = output?;
    Ok(Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a command that has to succeed; gives its standard output.
///
/// # Errors
/// When it fails, with what it said.
pub async fn run(limit: Duration, input: Option<&str>, program: &str, args: &[&str]) -> Result<String> {
    let said = say(limit, input, program, args).await?;
    if !said.ok {
        bail!("{program} {} failed: {}", args.join(" "), said.err.trim());
    }
    Ok(said.out)
}

/// kubectl, one minute at most.
///
/// # Errors
/// As [`run`].
pub async fn kubectl(args: &[&str]) -> Result<String> {
    run(Duration::from_secs(60), None, "kubectl", args).await
}

/// kubectl with standard input, one minute at most.
///
/// # Errors
/// As [`run`].
pub async fn kubectl_with(input: &str, args: &[&str]) -> Result<String> {
    run(Duration::from_secs(60), Some(input), "kubectl", args).await
}
