//! Where MySQL is taken from.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may, and not each uses all of it"
)]

use k8s_openapi::jiff::Timestamp;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// Where MySQL is, and a data folder that every server begins with.
pub struct Installation {
    root: Option<PathBuf>,
    pub template: PathBuf,
}

fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// The root file system of MySQL; nothing when it is installed on this machine.
pub fn root() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("SHARDWRIGHT_MYSQL_ROOT") {
        return Some(given.into());
    }
    let installed = Command::new("mysqld")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if installed.is_ok_and(|s| s.success()) {
        return None;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache =
        std::env::var_os("SHARDWRIGHT_CACHE").map_or_else(|| home.join(".cache/shardwright"), PathBuf::from);
    let images = fs::read_dir(cache.join("parts")).into_iter().flatten().flatten();
    let newest = images
        .map(|e| e.path())
        .filter(|p| {
            p.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("mysql-"))
        })
        .filter_map(|p| Some((fs::metadata(p.join("mysql.tar")).ok()?.modified().ok()?, p)))
        .max();
    let Some((_, part)) = newest else {
        panic!(
            "there is no MySQL to test with: run `e2e/cluster/cluster build`, install mysqld, or set SHARDWRIGHT_MYSQL_ROOT to its root file system"
        );
    };
    Some(unpacked(&part))
}

/// The image's only layer, unpacked once.
fn unpacked(part: &Path) -> PathBuf {
    let to = scratch().join(part.file_name().unwrap());
    if to.exists() {
        return to;
    }
    let new = tempdir("unpack");
    run(Command::new("tar")
        .arg("-xf")
        .arg(part.join("mysql.tar"))
        .arg("-C")
        .arg(&new));
    let blob = |digest: &str| {
        new.join("blobs/sha256")
            .join(digest.strip_prefix("sha256:").unwrap())
    };
    let json = |path: &Path| serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).unwrap();
    let index = json(&new.join("index.json"));
    let manifest = json(&blob(index["manifests"][0]["digest"].as_str().unwrap()));
    let fs_root = new.join("fs");
    fs::create_dir(&fs_root).unwrap();
    for layer in manifest["layers"].as_array().unwrap() {
        run(Command::new("tar")
            .arg("-xf")
            .arg(blob(layer["digest"].as_str().unwrap()))
            .arg("-C")
            .arg(&fs_root));
    }
    // Another test may have been quicker.
    let _ = fs::rename(&fs_root, &to);
    fs::remove_dir_all(&new).unwrap();
    to
}

pub fn tempdir(name: &str) -> PathBuf {
    let nanos = Timestamp::now().as_nanosecond();
    let dir = scratch().join(format!("{name}-{}-{nanos}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

pub fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        done.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

impl Installation {
    /// Finds it, or fails.
    pub fn get() -> &'static Self {
        static IT: OnceLock<Installation> = OnceLock::new();
        IT.get_or_init(|| {
            let root = root();
            let name = root
                .as_ref()
                .map_or_else(|| "installed".into(), |r| r.file_name().unwrap().to_owned());
            let mut this = Self {
                root,
                template: scratch().join("mysql-data").join(name),
            };
            if !this.template.exists() {
                let template = std::mem::replace(&mut this.template, tempdir("template").join("data"));
                run(this.mysqld().args([
                    "--initialize-insecure",
                    "--skip-log-bin",
                    "--innodb-redo-log-capacity=33554432",
                ]));
                fs::create_dir_all(template.parent().unwrap()).unwrap();
                let _ = fs::remove_file(this.template.join("auto.cnf"));
                let _ = fs::rename(&this.template, &template);
                let _ = fs::remove_dir_all(this.template.parent().unwrap());
                this.template = template;
            }
            this
        })
    }

    /// A command that is mysqld, on the template's data folder unless it is told another one.
    pub fn mysqld(&self) -> Command {
        // It ends with the test, also when that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match &self.root {
            None => {
                command.args(["mysqld", "--no-defaults"]);
            }
            Some(root) => {
                let at = |path: &str| root.join(path);
                let loaders = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];
                let loader = loaders
                    .iter()
                    .map(|l| at(l))
                    .find(|l| l.exists())
                    .expect("a dynamic linker");
                let arch = std::env::consts::ARCH;
                let libraries = format!(
                    "{}:{}",
                    at(&format!("usr/lib/{arch}-linux-gnu")).display(),
                    at("usr/lib").display()
                );
                command
                    .arg(loader)
                    .arg("--library-path")
                    .arg(libraries)
                    .arg(at("usr/sbin/mysqld"));
                command.arg("--no-defaults");
                for (option, path) in [
                    ("lc-messages-dir", "usr/share/mysql"),
                    ("character-sets-dir", "usr/share/mysql/charsets"),
                    ("plugin-dir", "usr/lib/mysql/plugin"),
                ] {
                    command.arg(format!("--{option}={}", at(path).display()));
                }
            }
        }
        command
            .args(["--user=root"])
            .arg(format!("--datadir={}", self.template.display()));
        command
    }
}
