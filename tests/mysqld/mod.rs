//! Real servers for tests of what only mysqld can answer, on this machine and without a cluster: each has a data folder of its own,
//! and ends with the test.
//!
//! MySQL is taken from `SHARDWRIGHT_MYSQL_ROOT` (a folder with its root file system), from `mysqld` on the path, or from the image that
//! `e2e/cluster/cluster build` has made. Without any of them the test fails, and says so.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may, and not each uses all of it"
)]

pub mod fences;
pub mod install;

use install::{Installation, run, tempdir};
use k8s_openapi::jiff::Timestamp;
use mysql_async::{Conn, prelude::Queryable};
use shardwright::{
    act::tls,
    api::shard_cluster::Shards,
    core::{
        credentials::{APP_USER, Credentials, OPERATOR_USER, replication_user},
        databases::Naming,
        gtid::GtidSet,
    },
    mysql::{Access, Session, accounts, clone, conn, fence, replication, semisync, state},
    resources::accounts_sql::accounts_sql,
};
use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// For a server to start, on a machine that has a lot to do.
const STARTS: Duration = Duration::from_secs(60);
/// For anything else that is waited for.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Lines of a server's log that a test shows which fails.
const LOG_LINES: usize = 15;
/// How its servers are called by their certificate.
const HOST: &str = "127.0.0.1";

/// Databases are called `my_db00000`: the underscore has to stand for itself everywhere.
pub fn naming() -> Naming {
    Naming::from(&Shards {
        total: 1024,
        database_prefix: "my_db".into(),
        digits: 5,
    })
}

/// What all servers have in common.
const OPTIONS: &str = "--bind-address=127.0.0.1 --mysqlx=OFF --skip-name-resolve --secure-file-priv=NULL \
    --log-bin=binlog --relay-log=relay --relay-log-recovery=OFF --sync-relay-log=1 --gtid-mode=ON --enforce-gtid-consistency=ON \
    --log-replica-updates=ON --binlog-row-metadata=FULL --skip-replica-start=ON --super-read-only=ON --event-scheduler=OFF \
    --plugin-load-add=mysql_clone.so --plugin-load-add=semisync_source.so --plugin-load-add=semisync_replica.so --loose-rpl-semi-sync-replica-enabled=ON \
    --innodb-buffer-pool-size=32M --innodb-redo-log-capacity=33554432 --innodb-buffer-pool-dump-at-shutdown=OFF \
    --innodb-buffer-pool-load-at-startup=OFF --replica-parallel-workers=4 --replica-net-timeout=8 --max-connections=200 \
    --auto-increment-increment=2 --key-buffer-size=8";

/// A server.
pub struct Server {
    pub name: &'static str,
    dir: PathBuf,
    port: u16,
    id: u32,
    process: Option<Child>,
    /// Where it listens, and how it is called there.
    address: String,
    host: String,
    tls_name: String,
    /// What it takes for `/etc`.
    etc: Option<PathBuf>,
    pub credentials: Credentials,
    pub uuid: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines
                .get(lines.len().saturating_sub(LOG_LINES)..)
                .unwrap_or_default();
            eprintln!("the end of the log of {}:\n{}", self.name, last.join("\n"));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Credentials of a cluster, with an authority.
pub fn credentials() -> Credentials {
    let authority = tls::issue_authority("test", Timestamp::now()).unwrap();
    Credentials {
        operator_password: "operator-password".into(),
        replication_password: "replication-password".into(),
        app_password: "app-password".into(),
        root_password: "root-password".into(),
        ca_crt: authority.crt,
        ca_key: authority.key,
    }
}

/// Servers of pairs as they are in a cluster: `p0-0` is `p0-0.p0.shop.svc` and listens on the port that all do, on an address of its own. Each has
/// an `/etc` in which the others have their names.
pub async fn fleet<const N: usize>(names: [&'static str; N], credentials: &Credentials) -> [Server; N] {
    let host = |name: &str| {
        let pair = name.rsplit_once('-').map_or(name, |(pair, _)| pair);
        format!("{name}.{pair}.shop.svc")
    };
    let address = |i: usize| format!("127.77.{}.{}", std::process::id() % 250, i + 1);
    let etc = tempdir("etc");
    let mut hosts = "127.0.0.1 localhost\n".to_owned();
    for (i, name) in names.iter().enumerate() {
        let _ = writeln!(hosts, "{} {}", address(i), host(name));
    }
    fs::write(etc.join("hosts"), hosts).unwrap();
    for file in ["passwd", "group", "nsswitch.conf", "ld.so.cache"] {
        let _ = fs::copy(PathBuf::from("/etc").join(file), etc.join(file));
    }
    fs::create_dir_all(etc.join("shardwright/tls")).unwrap();
    fs::write(etc.join("shardwright/tls/ca.crt"), &credentials.ca_crt).unwrap();
    let mut number = 0;
    let mut all = names.map(|name| {
        number += 1;
        let mut server = Server::called(name, number, credentials.clone(), &host(name));
        server.address = address(usize::try_from(number).unwrap() - 1);
        (server.host, server.tls_name) = (host(name), host(name));
        (server.port, server.etc) = (3306, Some(etc.clone()));
        server
    });
    for server in &mut all {
        server.launch();
    }
    for server in &mut all {
        let mut s = server.answers().await;
        server.uuid = state::read(&mut s, None).await.unwrap().uuid;
    }
    all
}

/// Starts one server for each name, side by side.
pub async fn servers<const N: usize>(names: [&'static str; N], credentials: &Credentials) -> [Server; N] {
    let mut number = 0;
    let mut all = names.map(|name| {
        number += 1;
        Server::new(name, number, credentials.clone())
    });
    for server in &mut all {
        server.launch();
    }
    for server in &mut all {
        let mut s = server.answers().await;
        server.uuid = state::read(&mut s, None).await.unwrap().uuid;
    }
    all
}

impl Server {
    fn new(name: &'static str, id: u32, credentials: Credentials) -> Self {
        Self::called(name, id, credentials, "localhost")
    }

    fn called(name: &'static str, id: u32, credentials: Credentials, host: &str) -> Self {
        let installation = Installation::get();
        let dir = tempdir(name);
        run(Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .arg(&installation.template)
            .arg(dir.join("data")));
        let names = [HOST.to_owned(), host.to_owned()];
        let own =
            tls::issue_server(&credentials.ca_crt, &credentials.ca_key, &names, Timestamp::now()).unwrap();
        for (file, text) in [
            ("ca.crt", credentials.ca_crt.as_str()),
            ("tls.crt", own.crt.as_str()),
            ("tls.key", own.key.as_str()),
            ("accounts.sql", accounts_sql(&credentials).as_str()),
        ] {
            fs::write(dir.join(file), text).unwrap();
        }
        let port = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port();
        Self {
            name,
            dir,
            port,
            id,
            process: None,
            address: HOST.into(),
            host: HOST.into(),
            tls_name: "localhost".into(),
            etc: None,
            credentials,
            uuid: String::new(),
        }
    }

    fn launch(&mut self) {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(file("log"))
            .unwrap();
        let mut command = Installation::get().mysqld();
        if let Some(etc) = &self.etc {
            let mut within = Command::new("unshare");
            within
                .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""])
                .arg(etc)
                .arg(command.get_program())
                .args(command.get_args());
            command = within;
        }
        let child = command
            .args(OPTIONS.split_whitespace())
            .args([
                format!("--datadir={}", file("data")),
                format!("--socket={}", file("s")),
                format!("--pid-file={}", file("pid")),
                format!("--bind-address={}", self.address),
                format!("--port={}", self.port),
                format!("--server-id={}", self.id),
                format!("--auto-increment-offset={}", (self.id + 1) % 2 + 1),
                format!("--init-file={}", file("accounts.sql")),
                format!("--ssl-ca={}", file("ca.crt")),
                format!("--ssl-cert={}", file("tls.crt")),
                format!("--ssl-key={}", file("tls.key")),
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(child);
    }

    /// As `kill -9`, until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Waits until it has ended by itself.
    pub fn ended(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.wait().unwrap();
        }
    }

    /// Starts it again on the same data; it is closed and follows nobody.
    pub async fn start(&mut self) {
        let _ = fs::remove_file(self.dir.join("s.lock"));
        self.launch();
        self.answers().await;
    }

    async fn answers(&self) -> Session {
        let began = Instant::now();
        loop {
            match Session::open(self.access(OPERATOR_USER)).await {
                Ok(s) => return s,
                Err(e) => assert!(
                    began.elapsed() < STARTS,
                    "{} does not start: {e}; its log: {}",
                    self.name,
                    fs::read_to_string(self.dir.join("log")).unwrap_or_default()
                ),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn access(&self, user: &str) -> Access {
        Access {
            address: self.address.clone(),
            port: self.port,
            tls_name: self.tls_name.clone(),
            user: user.into(),
            password: match user {
                APP_USER => self.credentials.app_password.clone(),
                _ => self.credentials.operator_password.clone(),
            },
            ca_pem: self.credentials.ca_crt.clone(),
        }
    }

    /// A session of the operator's.
    pub async fn operator(&self) -> Session {
        Session::open(self.access(OPERATOR_USER)).await.unwrap()
    }

    /// A connection of an application's.
    pub async fn client(&self) -> Conn {
        conn::connect(&self.access(APP_USER)).await.unwrap()
    }

    /// How an application reaches it.
    pub fn app(&self) -> Access {
        self.access(APP_USER)
    }

    /// How another one takes from it with this account.
    pub fn source<'a>(&'a self, user: &'a str, ca_file: &'a str) -> replication::Source<'a> {
        replication::Source {
            host: &self.host,
            port: self.port,
            user,
            password: &self.credentials.replication_password,
            ca_file,
        }
    }

    /// How another one is copied from it.
    pub fn donor(&self) -> clone::Donor {
        clone::Donor {
            host: HOST.into(),
            port: self.port,
            password: self.credentials.replication_password.clone(),
            ca_file: self.ca_file(),
        }
    }

    /// The authority's file, which is the same everywhere.
    pub fn ca_file(&self) -> String {
        if self.etc.is_some() {
            return "/etc/shardwright/tls/ca.crt".into();
        }
        self.dir.join("ca.crt").display().to_string()
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub async fn executed(&self) -> GtidSet {
        state::executed(&mut self.operator().await).await.unwrap()
    }

    /// Runs statements as the operator, outside the binary log, closed or not.
    pub async fn aside(&self, sql: &str) {
        let mut s = self.operator().await;
        let sql = format!(
            "SET SESSION sql_log_bin = 0, GLOBAL super_read_only = OFF; {sql}; SET GLOBAL super_read_only = @@GLOBAL.read_only"
        );
        s.run(LIMIT, sql).await.unwrap();
    }

    /// The only value of the only row.
    pub async fn number(&self, sql: &str) -> i64 {
        let rows: Vec<i64> = self.operator().await.rows(LIMIT, sql).await.unwrap();
        *rows.first().unwrap()
    }
}

/// Makes two servers a pair, by the statements that the operator uses: `a` takes writes, and `b` acknowledges them.
pub async fn pair(a: &Server, b: &Server) {
    let (mut active, mut passive) = (a.operator().await, b.operator().await);
    active.lock().await.unwrap();
    fence::open(&mut active).await.unwrap();
    let uuids = [a.uuid.clone(), b.uuid.clone()];
    accounts::set_up(&mut active, &a.credentials, &naming(), &uuids)
        .await
        .unwrap();
    follow(b, a, &mut passive).await;
    let all = state::executed(&mut active).await.unwrap();
    replication::reach(&mut passive, &all).await.unwrap();
    semisync::source_on(&mut active, 4_294_967_295).await.unwrap();
    follow(a, b, &mut active).await;
}

/// Has `from` follow `to` by the channel without a name.
pub async fn follow(server: &Server, source: &Server, s: &mut Session) {
    let (user, ca) = (replication_user(&server.uuid), server.ca_file());
    replication::follow(s, &source.source(&user, &ca)).await.unwrap();
}

/// Makes the databases of shards, each with the tables `t` and `u`, by the binary log.
pub async fn make(active: &Server, shards: impl IntoIterator<Item = i32>) {
    let mut s = active.operator().await;
    for n in shards {
        s.run(LIMIT, tables(n)).await.unwrap();
    }
}

/// The statements that make a shard.
pub fn tables(shard: i32) -> String {
    let db = naming().name(shard);
    ["t", "u"]
        .iter()
        .fold(format!("CREATE DATABASE {db}"), |sql, table| {
            format!(
                "{sql}; CREATE TABLE {db}.{table} (id BIGINT PRIMARY KEY AUTO_INCREMENT, v BIGINT NOT NULL)"
            )
        })
}

/// Waits until it holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < LIMIT, "{what} does not come about");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a server answered to a client: 0 when it did it, its number, or nothing when the connection is gone.
pub async fn told(client: &mut Conn, sql: &str) -> Option<u16> {
    match tokio::time::timeout(LIMIT, client.query_drop(sql))
        .await
        .expect("an answer")
    {
        Ok(()) => Some(0),
        Err(mysql_async::Error::Server(e)) => Some(e.code),
        Err(_) => None,
    }
}
