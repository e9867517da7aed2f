//! The script that holds the end of an active server back, run with a client that answers what a test says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

const SCRIPT: &str = include_str!("../src/resources/pre_stop.sh");

/// Runs it with a `mysql` that does `body`, which may count its calls in `$CALLS`.
fn run(name: &str, body: &str) -> (Duration, usize) {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).unwrap();
    let (client, calls) = (dir.join("mysql"), dir.join("calls"));
    fs::write(&client, format!("#!/bin/sh\necho >>\"$CALLS\"\n{body}\n")).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&calls, "").unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let begun = Instant::now();
    let status = Command::new("sh")
        .args(["-c", SCRIPT])
        .env("PATH", path)
        .env("CALLS", &calls)
        .status()
        .unwrap();
    assert!(status.success());
    (
        begun.elapsed(),
        fs::read_to_string(&calls).unwrap().lines().count(),
    )
}

#[test]
fn a_closed_server_is_waited_for_until_its_clients_have_gone() {
    let (took, calls) = run("closed", "echo 1");
    assert_eq!(calls, 5);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn one_that_cannot_be_asked_is_not_waited_for() {
    assert_eq!(run("gone", "exit 1").1, 2);
}

#[test]
fn an_open_one_is_waited_for_until_it_stays_closed() {
    // Open twice, closed once by a hand-over that was called off, open again, then closed for good.
    let body = "n=$(wc -l <\"$CALLS\")\ncase \"$n\" in 3 | 5 | 6 | 7 | 8 | 9) echo 1 ;; *) echo 0 ;; esac";
    assert_eq!(run("handed-over", body).1, 9);
}

#[test]
fn the_wait_ends() {
    let (took, _) = run("open", "echo 0");
    assert!(
        (Duration::from_secs(24)..Duration::from_secs(60)).contains(&took),
        "{took:?}"
    );
}
