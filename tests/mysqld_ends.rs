//! The script that is the first process of a server's container, run with a mysqld and a client that do what a test says.
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
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

const SCRIPT: &str = include_str!("../src/resources/mysqld.sh");
const LIMIT: Duration = Duration::from_secs(30);

struct Container {
    dir: PathBuf,
    first: Child,
}

/// Starts it with a `mysqld` that does `server` once it has written its number to `$DIR/pid`, and a `mysql` that does `client`.
fn start(shell: &str, name: &str, server: &str, client: &str) -> Container {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{shell}"));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let program = |name: &str, body: &str| {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    program(
        "mysqld",
        &format!(
            "echo \"$MYSQLD_PARENT_PID $*\" >\"$DIR/told\"\necho $$ >\"$DIR/pid.new\"\nmv \"$DIR/pid.new\" \"$DIR/pid\"\n{server}"
        ),
    );
    program("mysql", &format!("echo \"$*\" >>\"$DIR/asked\"\n{client}"));
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let first = Command::new(shell)
        .args(["-c", SCRIPT, "sh", "mysqld", "--an-argument"])
        .env("PATH", path)
        .env("DIR", &dir)
        .spawn()
        .unwrap();
    let container = Container { dir, first };
    let began = Instant::now();
    while !container.dir.join("pid").exists() {
        assert!(began.elapsed() < LIMIT, "mysqld does not start");
        std::thread::yield_now();
    }
    container
}

impl Container {
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join(file)).unwrap_or_default()
    }
    fn terminate(&self) {
        let sent = Command::new("kill")
            .args(["-TERM", &self.first.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
    fn ended(&mut self) -> ExitStatus {
        self.first.wait().unwrap()
    }
}

/// It ends well when its file is there.
const RUNS: &str = "while [ ! -e \"$DIR/shutdown\" ]; do sleep 0.05; done";

/// What `sh` is in images of MySQL.
const SHELLS: [&str; 2] = ["sh", "bash"];

#[test]
fn it_ends_with_what_mysqld_ended_with() {
    for shell in SHELLS {
        let mut c = start(shell, "ends", "exit 17", "");
        assert_eq!(c.ended().code(), Some(17));
        assert_eq!(c.read("told"), format!("{} --an-argument\n", c.first.id()));
        assert_eq!(c.read("asked"), "");
    }
}

#[test]
fn one_that_wants_to_be_started_again_is() {
    for shell in SHELLS {
        let server = "[ -e \"$DIR/again\" ] && exit 5\ntouch \"$DIR/again\"\nexit 16";
        let mut c = start(shell, "restarts", server, "");
        assert_eq!(c.ended().code(), Some(5));
        // But for one that was told to end.
        let server = format!("{RUNS}\nexit 16");
        let mut c = start(shell, "restarts-no-more", &server, "touch \"$DIR/shutdown\"");
        c.terminate();
        assert_eq!(c.ended().code(), Some(16));
    }
}

#[test]
fn told_to_end_it_cuts_clients_off_and_shuts_mysqld_down_in_one_session() {
    for shell in SHELLS {
        let mut c = start(shell, "asked", RUNS, "touch \"$DIR/shutdown\"");
        c.terminate();
        assert_eq!(c.ended().code(), Some(0));
        let asked = c.read("asked");
        assert!(
            asked.contains("SET GLOBAL offline_mode = ON; SHUTDOWN") && asked.lines().count() == 1,
            "{asked}"
        );
    }
}

#[test]
fn a_server_that_cannot_be_asked_is_killed_and_never_told_to_end() {
    let server = format!("trap 'touch \"$DIR/told-to-end\"' TERM\n{RUNS}");
    for (shell, client) in [("sh", "exit 1"), ("bash", "exit 1"), ("sh", "exec sleep 60")] {
        let mut c = start(shell, "killed", &server, client);
        c.terminate();
        assert_eq!(c.ended().code(), Some(137), "{client}");
        assert_eq!(c.read("asked").lines().count(), 1);
        assert!(!c.dir.join("told-to-end").exists());
    }
}
