//! How fast copying and comparing are, beside what everybody has: `mysqldump | mysql`, and reading all rows with `SELECT *`.
//!
//!     cargo test --release --test moving -- --ignored --nocapture how_fast

use super::{
    copy, make, names,
    servers::{Server, start},
};
use shardwright::mysql::{
    seed::{self, Pin},
    verify::{self, What},
};
use std::{
    fmt::Write as _,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const SMALL: usize = 64;
const READERS: usize = 8;

fn dump(source: &Server, target: &Server, databases: &[String]) -> Duration {
    let began = Instant::now();
    let mut from = source
        .client("mysqldump")
        .args([
            "--single-transaction",
            "--set-gtid-purged=OFF",
            "--hex-blob",
            "--no-tablespaces",
        ])
        .args(["--init-command=SET SESSION sql_log_bin = 0", "--databases"])
        .args(databases)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let into = target
        .client("mysql")
        .arg("--init-command=SET SESSION sql_log_bin = 0")
        .stdin(from.stdout.take().unwrap())
        .stderr(Stdio::null())
        .status();
    assert!(into.unwrap().success() && from.wait().unwrap().success());
    began.elapsed()
}

fn read(server: &Server, sql: &str) -> Child {
    let quiet = |c: &mut Command| c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    quiet(server.client("mysql").args(["--quick", "--execute", sql]))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark"]
async fn how_fast() {
    let (Some(a), Some(c)) = (start("a", &[]).await, start("c", &[]).await) else {
        return;
    };
    a.open(false).await;
    c.open(true).await;
    make(&a, "large", 300_000).await;
    let small: Vec<String> = (0..SMALL).map(|n| format!("small{n:03}")).collect();
    for d in &small {
        make(&a, d, 100).await;
    }
    let targets = [c.access.clone()];
    for (what, databases) in [("one large", names(&["large"])), ("many small", small)] {
        let dumped = dump(&a, &c, &databases);
        for d in &databases {
            c.sql(&format!("SET sql_log_bin = 0; DROP DATABASE {d}")).await;
        }
        let began = Instant::now();
        let done = copy(&a, &databases, &targets).await;
        let copied = began.elapsed();
        assert_eq!(done.complete, databases, "{done:?}");
        seed::count_as_executed(&targets, &done.gtid).await.unwrap();
        let began = Instant::now();
        let ask = Pin {
            source: &a.access,
            databases: &databases,
            readers: READERS,
            beside: &targets,
            channel: None,
            patience: Duration::from_secs(10),
        };
        let position = seed::pin(&ask).await.unwrap();
        let found = verify::compare(position, &What::Everything, Arc::default()).await;
        let compared = began.elapsed();
        assert!(databases.iter().all(|d| found.is_equal(d)));
        let mut sql = String::new();
        for d in &databases {
            let _ = write!(
                sql,
                "SELECT * FROM {d}.pins; SELECT * FROM {d}.marks; SELECT * FROM {d}.notes;"
            );
        }
        let began = Instant::now();
        for mut child in [read(&a, &sql), read(&c, &sql)] {
            assert!(child.wait().unwrap().success());
        }
        let selected = began.elapsed();
        println!(
            "{what}: copied in {copied:.2?}, mysqldump | mysql {dumped:.2?}: {:.2} x; compared in {compared:.2?}, SELECT * {selected:.2?}: {:.2} x",
            dumped.as_secs_f64() / copied.as_secs_f64(),
            selected.as_secs_f64() / compared.as_secs_f64(),
        );
    }
}
