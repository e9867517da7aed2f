//! Real servers for tests: mysqld in temporary folders, reached over TLS with the operator's own account and rights.
//!
//! Where mysqld comes from is told by [`install`]; without one a test fails.

#[path = "../mysqld/install.rs"]
mod install;

use k8s_openapi::jiff::Timestamp;
use mysql_async::{Conn, prelude::Queryable as _};
use shardwright::{
    act::tls,
    core::credentials::{Credentials, OPERATOR_USER},
    mysql::{Access, conn},
    resources::accounts_sql::accounts_sql,
};
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);
static NEXT: AtomicU32 = AtomicU32::new(1);

/// What all servers of a test binary have in common.
struct Common {
    root: PathBuf,
    /// An initialised data folder.
    template: PathBuf,
    credentials: Credentials,
}

fn temporary() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program of the tree, run with the tree's own loader and libraries.
fn program(root: &Path, name: &str) -> Command {
    let loader = root.join("lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        return Command::new(root.join(name));
    }
    let lib = root.join("usr/lib");
    let mut command = Command::new(loader);
    let path = format!(
        "{}:{}",
        lib.join("x86_64-linux-gnu").display(),
        lib.join("mysql/private").display()
    );
    command.arg("--library-path").arg(path).arg(root.join(name));
    command
}

fn mysqld(root: &Path, folder: &Path) -> Command {
    let mut command = program(root, "usr/sbin/mysqld");
    let share = root.join("usr/share/mysql");
    command
        .arg("--no-defaults")
        .args([
            "--user=root",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            "--tmpdir=/tmp",
        ])
        .arg(format!("--basedir={}", root.join("usr").display()))
        .arg(format!("--lc-messages-dir={}", share.display()))
        .arg(format!(
            "--plugin-dir={}",
            root.join("usr/lib/mysql/plugin").display()
        ))
        .arg(format!("--datadir={}", folder.join("data").display()));
    command
}

fn common() -> Option<&'static Common> {
    static COMMON: OnceLock<Option<Common>> = OnceLock::new();
    COMMON
        .get_or_init(|| {
            let root = install::root().unwrap_or_else(|| PathBuf::from("/"));
            let name = root
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let template = temporary().join(format!("{name}.data"));
            if !template.exists() {
                let new = temporary().join(format!("{name}.new"));
                let _ = fs::remove_dir_all(&new);
                fs::create_dir_all(&new).unwrap();
                run(mysqld(&root, &new).args(["--initialize-insecure", "--skip-log-bin"]));
                fs::remove_file(new.join("data/auto.cnf")).unwrap();
                fs::rename(&new, &template).unwrap();
            }
            let ca = tls::issue_authority("test", Timestamp::now()).unwrap();
            Some(Common {
                root,
                template,
                credentials: Credentials {
                    operator_password: "operator".into(),
                    replication_password: "replication".into(),
                    app_password: "app".into(),
                    root_password: "root".into(),
                    ca_crt: ca.crt,
                    ca_key: ca.key,
                },
            })
        })
        .as_ref()
}

/// One mysqld. It ends with its owner.
pub struct Server {
    pub access: Access,
    folder: PathBuf,
    number: u32,
    extra: Vec<String>,
    child: Option<Child>,
}

/// Starts a server; `None` when there is no mysqld here.
pub async fn start(name: &str, extra: &[&str]) -> Option<Server> {
    let common = common()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = temporary().join(format!("server-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    run(Command::new("cp")
        .arg("-a")
        .arg(common.template.join("data"))
        .arg(folder.join("data")));
    let c = &common.credentials;
    let cert = tls::issue_server(&c.ca_crt, &c.ca_key, &[name.to_owned()], Timestamp::now()).unwrap();
    for (file, text) in [
        ("ca.crt", &c.ca_crt),
        ("tls.crt", &cert.crt),
        ("tls.key", &cert.key),
    ] {
        fs::write(folder.join(file), text).unwrap();
    }
    fs::write(folder.join("accounts.sql"), accounts_sql(c)).unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let access = Access {
        address: "127.0.0.1".into(),
        port,
        tls_name: name.into(),
        user: OPERATOR_USER.into(),
        password: c.operator_password.clone(),
        ca_pem: c.ca_crt.clone(),
    };
    let extra = extra.iter().map(|e| (*e).to_owned()).collect();
    let mut server = Server {
        access,
        folder,
        number,
        extra,
        child: None,
    };
    server.restart().await;
    Some(server)
}

impl Server {
    /// Starts it, again.
    pub async fn restart(&mut self) {
        self.kill();
        let common = common().unwrap();
        let log = fs::File::create(self.folder.join("log")).unwrap();
        let file = |name: &str| self.folder.join(name).display().to_string();
        let child = mysqld(&common.root, &self.folder)
            .args([
                "--bind-address=127.0.0.1",
                "--gtid-mode=ON",
                "--enforce-gtid-consistency=ON",
                "--log-bin=binlog",
            ])
            .args([
                "--skip-replica-start",
                "--binlog-row-metadata=FULL",
                "--relay-log=relay",
                "--super-read-only=ON",
            ])
            .args([
                "--innodb-buffer-pool-size=128M",
                "--innodb-redo-log-capacity=128M",
                "--max-connections=200",
            ])
            .arg(format!("--port={}", self.access.port))
            .arg(format!("--server-id={}", self.number))
            .arg(format!("--socket={}", file("sock")))
            .arg(format!("--pid-file={}", file("pid")))
            .arg(format!("--init-file={}", file("accounts.sql")))
            .arg(format!("--ssl-ca={}", file("ca.crt")))
            .arg(format!("--ssl-cert={}", file("tls.crt")))
            .arg(format!("--ssl-key={}", file("tls.key")))
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let began = Instant::now();
        while conn::connect(&self.access).await.is_err() {
            assert!(
                began.elapsed() < LIMIT,
                "mysqld does not start: {}",
                fs::read_to_string(self.folder.join("log")).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Opens it: `closed` leaves `read_only` on.
    pub async fn open(&self, closed: bool) {
        let sql = if closed {
            "SET GLOBAL super_read_only = OFF"
        } else {
            "SET GLOBAL read_only = OFF"
        };
        self.operator().await.query_drop(sql).await.unwrap();
    }

    /// A connection of the operator.
    pub async fn operator(&self) -> Conn {
        conn::connect_for_rows(&self.access).await.unwrap()
    }

    /// A connection of somebody who may do anything.
    pub async fn root(&self) -> Conn {
        let access = Access {
            user: "root".into(),
            password: "root".into(),
            ..self.access.clone()
        };
        conn::connect_for_rows(&access).await.unwrap()
    }

    /// Runs statements as root.
    pub async fn sql(&self, sql: &str) {
        let mut conn = self.root().await;
        conn.query_drop(sql)
            .await
            .unwrap_or_else(|e| panic!("{e}: {}", sql.chars().take(300).collect::<String>()));
    }

    /// The first column of the first row, as text.
    pub async fn ask(&self, sql: &str) -> String {
        let mut conn = self.root().await;
        let row: Option<Option<String>> = conn
            .query_first(sql)
            .await
            .unwrap_or_else(|e| panic!("{e}: {sql}"));
        row.flatten().unwrap_or_default()
    }

    /// Follows another one.
    pub async fn follow(&self, source: &Server, channel: &str) {
        self.point(source, channel).await;
        self.sql(&format!("START REPLICA FOR CHANNEL '{channel}'")).await;
    }

    /// Has a channel to another one, which does not run yet.
    pub async fn point(&self, source: &Server, channel: &str) {
        let sql = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {}, SOURCE_USER = 'root', SOURCE_PASSWORD = 'root', \
             SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1, SOURCE_HEARTBEAT_PERIOD = 1 FOR CHANNEL '{channel}'",
            source.access.port
        );
        self.sql(&sql).await;
    }

    /// Waits until it has what another one has.
    pub async fn reach(&self, other: &Server) {
        let set = other.ask("SELECT @@GLOBAL.gtid_executed").await;
        let reached = self
            .ask(&format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', 30)"))
            .await;
        let ails = "SELECT GROUP_CONCAT(m SEPARATOR '; ') FROM (SELECT last_error_message m FROM performance_schema.replication_applier_status_by_worker \
            UNION SELECT last_error_message FROM performance_schema.replication_applier_status_by_coordinator \
            UNION SELECT last_error_message FROM performance_schema.replication_connection_status) t";
        assert_eq!(reached, "0", "{}", self.ask(ails).await);
    }

    /// A client program of the same tree, as root.
    pub fn client(&self, name: &str) -> Command {
        let mut command = program(&common().unwrap().root, &format!("usr/bin/{name}"));
        command
            .arg("--no-defaults")
            .args([
                "-uroot",
                "-proot",
                "--protocol=TCP",
                "-h127.0.0.1",
                "--ssl-mode=REQUIRED",
            ])
            .arg(format!("-P{}", self.access.port));
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
