//! Two pairs of real servers, an API server that is a map in memory, clients that write, and an operator that makes passes over a move.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::many_single_char_names,
    reason = "a test may, and not each uses all of it"
)]

use crate::mysqld::{Server, credentials, fleet, make, naming, pair, told};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client,
    client::Body,
    runtime::{reflector, watcher},
};
use serde_json::{Value, json};
use shardwright::{
    api::{MoveKey, MySQLPair, Placement, Seed, ShardCluster, ShardRange, ShardSpan},
    controllers::{
        Context,
        backoff::Backoff,
        migration::{
            Shared,
            pass::{Local, Next, pass},
        },
    },
    core::{
        placement::{self, moves},
        spans::SpanSet,
    },
    metrics::Metrics,
    observe::migration::{Site, Stores},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(120);
const PINS: &str = "/apis/shardwright.dev/v1alpha1/namespaces/shop";

/// Objects by their paths.
#[derive(Clone, Default)]
pub struct Api(Arc<Mutex<BTreeMap<String, Value>>>);

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (k, v) in patch {
        if v.is_null() {
            into.as_object_mut().unwrap().remove(k);
        } else {
            merge(&mut into[k], v);
        }
    }
}

impl Api {
    fn put(&self, path: &str, mut value: Value) {
        let mut all = self.0.lock().unwrap();
        let version = all
            .get(path)
            .and_then(|v| v["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok())
            .unwrap_or(0);
        value["metadata"]["resourceVersion"] = json!((version + 1).to_string());
        all.insert(path.to_owned(), value);
    }
    pub fn get(&self, path: &str) -> Value {
        self.0.lock().unwrap().get(path).cloned().unwrap_or_default()
    }
    pub fn placement(&self) -> Placement {
        serde_json::from_value(self.get(&format!("{PINS}/shardclusters/main"))["status"]["placement"].clone())
            .unwrap()
    }
    pub fn migration(&self, range: &str) -> Value {
        self.get(&format!("{PINS}/shardranges/{range}"))["status"]["migration"].clone()
    }
    /// As `kubectl apply` does.
    pub fn wish(&self, range: &str, pair: &str, retain: i32) {
        let path = format!("{PINS}/shardranges/{range}");
        let mut r = self.get(&path);
        let generation = r["metadata"]["generation"].as_i64().unwrap();
        r["metadata"]["generation"] = json!(generation + 1);
        r["spec"]["pairRef"]["name"] = json!(pair);
        r["spec"]["retainSourceSeconds"] = json!(retain);
        self.put(&path, r);
    }
    /// As `kubectl edit` does with what no generation counts.
    pub fn annotate(&self, range: &str, key: &str, value: &str) {
        let path = format!("{PINS}/shardranges/{range}");
        let mut r = self.get(&path);
        r["metadata"]["annotations"][key] = json!(value);
        self.put(&path, r);
    }
    /// Nothing of this range is cut over before it is approved.
    pub fn hold(&self, range: &str) {
        let path = format!("{PINS}/shardranges/{range}");
        let mut r = self.get(&path);
        r["spec"]["cutover"] = json!("Manual");
        self.put(&path, r);
    }
    pub fn approve(&self, range: &str) {
        let generation = self.get(&format!("{PINS}/shardranges/{range}"))["metadata"]["generation"].clone();
        self.annotate(range, "shardwright.dev/approve-cutover", &generation.to_string());
    }
    /// Shards of the only move that are verified.
    pub fn verified(&self) -> SpanSet {
        let p = self.placement();
        p.moves
            .first()
            .map_or_else(SpanSet::new, |m| moves::set(&m.verified))
    }
    fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let failed = |code: u16, reason: &str| {
            (
                code,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason}),
            )
        };
        if path.contains("/events") {
            return (201, body.clone());
        }
        let base = path.strip_suffix("/status").unwrap_or(path);
        let now = self.get(base);
        if now.is_null() {
            return failed(404, "NotFound");
        }
        match method {
            "GET" => (200, now),
            "PATCH" => {
                let upon = &body["metadata"]["resourceVersion"];
                if !upon.is_null() && *upon != now["metadata"]["resourceVersion"] {
                    return failed(409, "Conflict");
                }
                let mut next = now;
                merge(&mut next["status"], &body["status"]);
                self.put(base, next);
                (200, self.get(base))
            }
            _ => failed(405, "MethodNotAllowed"),
        }
    }
    fn client(&self) -> Client {
        let (service, mut handle) = tower_test::mock::pair::<http::Request<Body>, http::Response<Body>>();
        let api = self.clone();
        tokio::spawn(async move {
            while let Some((asked, answering)) = handle.next_request().await {
                let (method, path) = (asked.method().to_string(), asked.uri().path().to_owned());
                let body = asked.into_body().collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = api.answer(&method, &path, &body);
                let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                answering.send_response(http::Response::builder().status(status).body(answer).unwrap());
            }
        });
        Client::new(service, "default")
    }
}

pub fn shards(first: i32, last: i32) -> SpanSet {
    SpanSet::of(ShardSpan::new(first, last))
}

fn pair_object(name: &str, servers: [&Server; 2], held: &[ShardSpan]) -> Value {
    let member = |i: usize| json!({"name": format!("{name}-{i}"), "serverUuid": servers[i].uuid});
    json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "MySQLPair",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "generation": 1},
        "spec": {"clusterRef": {"name": "main"}},
        "status": {
            "active": format!("{name}-0"), "epoch": 1, "inSync": [member(0), member(1)], "shards": held,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

fn range_object(name: &str, first: i32, last: i32, pair: &str, retain: i32, generation: i64) -> Value {
    json!({
        "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardRange",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"clusterRef": {"name": "main"}, "first": first, "last": last, "pairRef": {"name": pair},
            "retainSourceSeconds": retain},
    })
}

/// The watches, by hand.
struct Watches {
    api: Api,
    clusters: reflector::store::Writer<ShardCluster>,
    ranges: reflector::store::Writer<ShardRange>,
    pairs: reflector::store::Writer<MySQLPair>,
    pods: reflector::store::Writer<Pod>,
}

impl Watches {
    fn tell(&mut self) {
        let all = self.api.0.lock().unwrap().clone();
        for (path, value) in all {
            let kind = |k: &str| path.starts_with(&format!("{PINS}/{k}/"));
            if kind("shardclusters") {
                self.clusters
                    .apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(value).unwrap()));
            } else if kind("shardranges") {
                self.ranges
                    .apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(value).unwrap()));
            } else if kind("mysqlpairs") {
                self.pairs
                    .apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(value).unwrap()));
            } else if path.contains("/pods/") {
                self.pods
                    .apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(value).unwrap()));
            }
        }
    }
}

/// Clients that write by the map, each to one shard, until they are told to end. Gives how many rows each shard has had acknowledged.
fn writers(
    api: &Api,
    active: [(String, shardwright::mysql::Access); 2],
    stop: &Arc<AtomicBool>,
    shards: &SpanSet,
) -> Vec<tokio::task::JoinHandle<(i32, i64, Duration)>> {
    let active: BTreeMap<String, shardwright::mysql::Access> = active.into_iter().collect();
    shards
        .shards()
        .map(|shard| {
            let (api, active, stop) = (api.clone(), active.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut done, mut longest, mut last) = (0, Duration::ZERO, None::<Instant>);
                let mut home: Option<(String, mysql_async::Conn)> = None;
                while !stop.load(Ordering::Relaxed) {
                    let (at, mut client) = if let Some(home) = home.take() {
                        home
                    } else {
                        let p = api.placement();
                        let mut spans = p.spans.iter();
                        let span = spans.find(|s| s.first <= shard && shard <= s.last);
                        let at = span.unwrap().pair.clone();
                        let client = shardwright::mysql::connect(&active[&at]).await.unwrap();
                        (at, client)
                    };
                    let sql = format!("INSERT INTO {}.t (v) VALUES ({done})", naming().name(shard));
                    match told(&mut client, &sql).await {
                        Some(0) => {
                            done += 1;
                            longest = longest.max(last.map_or(Duration::ZERO, |t| t.elapsed()));
                            last = Some(Instant::now());
                            home = Some((at, client));
                            tokio::time::sleep(Duration::from_millis(40)).await;
                        }
                        Some(3989 | 1213 | 1290) | None => tokio::time::sleep(Duration::from_millis(2)).await,
                        Some(other) => panic!("shard {shard}: error {other}"),
                    }
                }
                (shard, done, longest)
            })
        })
        .collect()
}

/// Two pairs, p0 with shards 0 to 7, p1 with 8 and 9; ranges r0 (0 to 3), r1 (4 to 7) and r2 (8 and 9); and an operator.
pub struct Stage {
    pub servers: [Server; 4],
    pub api: Api,
    watches: Watches,
    shared: Shared,
    site: Site,
    pub local: Local,
    began: Instant,
    said: String,
    /// Where the next death comes from, if the operator dies now and then.
    deaths: Option<u64>,
    stop: Arc<AtomicBool>,
    writing: Vec<tokio::task::JoinHandle<(i32, i64, Duration)>>,
}

impl Stage {
    pub async fn new(moving: &SpanSet, deaths: Option<u64>) -> Self {
        let c = credentials();
        let servers = fleet(["p0-0", "p0-1", "p1-0", "p1-1"], &c).await;
        let [a, b, x, y] = &servers;
        pair(a, b).await;
        pair(x, y).await;
        make(a, 0..8).await;
        make(x, 8..10).await;
        let api = Api::default();
        let p = placement::claim(&Placement::default(), &shards(0, 3), "p0", Some("r0")).unwrap();
        let p = placement::claim(&p, &shards(4, 7), "p0", Some("r1")).unwrap();
        let p = placement::claim(&p, &shards(8, 9), "p1", Some("r2")).unwrap();
        let p = placement::serve(&p, &shards(0, 7), "p0").unwrap();
        let p = placement::serve(&p, &shards(8, 9), "p1").unwrap();
        let p = moves::begin_move(&p, "p0", "p1", moving, Seed::PerDatabase).unwrap();
        api.put(
            &format!("{PINS}/shardclusters/main"),
            json!({
                "apiVersion": "shardwright.dev/v1alpha1", "kind": "ShardCluster",
                "metadata": {"name": "main", "namespace": "shop", "uid": "main", "generation": 1},
                "spec": {"shards": {"total": 1024, "databasePrefix": "my_db", "digits": 5},
                    "mysql": {"image": "m", "storage": {"size": "1Gi"}}},
                "status": {"placement": p},
            }),
        );
        for (name, pair, held) in [("p0", [a, b], shards(0, 7)), ("p1", [x, y], shards(8, 9))] {
            api.put(
                &format!("{PINS}/mysqlpairs/{name}"),
                pair_object(name, pair, &held.to_vec()),
            );
            let secret = format!("{name}-mysql-credentials");
            api.put(
                &format!("/api/v1/namespaces/shop/secrets/{secret}"),
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": "shop"}, "data": c.to_data()}),
            );
        }
        for (name, first, last, pair) in [("r0", 0, 3, "p0"), ("r1", 4, 7, "p0"), ("r2", 8, 9, "p1")] {
            api.put(
                &format!("{PINS}/shardranges/{name}"),
                range_object(name, first, last, pair, 3600, 1),
            );
        }
        for server in &servers {
            let name = server.name;
            api.put(
                &format!("/api/v1/namespaces/shop/pods/{name}"),
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", "uid": name},
                    "status": {"podIP": server.address()}}),
            );
        }
        let (clusters, clusters_in) = reflector::store();
        let (ranges, ranges_in) = reflector::store();
        let (pairs, pairs_in) = reflector::store();
        let (pods, pods_in) = reflector::store();
        let watches = Watches {
            api: api.clone(),
            clusters: clusters_in,
            ranges: ranges_in,
            pairs: pairs_in,
            pods: pods_in,
        };
        let shared = Shared {
            ctx: Arc::new(Context::new(
                api.client(),
                None,
                Arc::new(Metrics::default()),
                vec![],
            )),
            stores: Stores {
                clusters,
                ranges,
                pairs,
                pods,
            },
            backoff: Backoff::default(),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let active = [("p0".to_owned(), a.app()), ("p1".to_owned(), x.app())];
        let writing = writers(&api, active, &stop, &shards(0, 9));
        Self {
            servers,
            api,
            watches,
            shared,
            site: Site {
                namespace: "shop".into(),
                cluster: "main".into(),
                key: MoveKey::new("p0", "p1"),
            },
            local: Local::default(),
            began: Instant::now(),
            said: String::new(),
            deaths,
            stop,
            writing,
        }
    }

    fn chance(&mut self) -> Option<u64> {
        let n = self.deaths.as_mut()?;
        *n ^= *n << 13;
        *n ^= *n >> 7;
        *n ^= *n << 17;
        Some(*n)
    }

    /// Goes from pass to pass until that holds, or the move is off the record. Whether it is.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Api) -> bool) -> bool {
        while !holds(&self.api) {
            let m = self.api.migration("r1");
            assert!(self.began.elapsed() < LIMIT, "{what} does not come about: {m:#}");
            self.watches.tell();
            let works = m["phase"].is_null() || m["phase"] == "Seeding" || m["reason"] == "Verifying";
            let chance = self.chance().filter(|n| n % 3 == 0 && !works);
            let next = {
                let pass = Box::pin(pass(&self.shared, &self.site, &mut self.local));
                match chance {
                    // Wherever it is by then.
                    Some(n) => tokio::time::timeout(Duration::from_micros(n / 3 % 25_000), pass)
                        .await
                        .ok(),
                    None => Some(pass.await),
                }
            };
            let m = self.api.migration("r1");
            let now = format!("{} {} {}", m["progress"], m["reason"], m["waitsFor"]);
            let at = self.began.elapsed().as_millis();
            if now != self.said {
                eprintln!("{at:>6} ms  {now}");
                self.said = now;
            }
            match next {
                None => {
                    eprintln!("{at:>6} ms  the operator dies");
                    self.local = Local::default();
                }
                Some(Ok(Next::Gone)) => return true,
                Some(Ok(Next::After(wait))) => tokio::time::sleep(wait.min(Duration::from_millis(500))).await,
                Some(Err(error)) => {
                    eprintln!("{at:>6} ms  {error}");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
        false
    }

    pub async fn retained(&mut self) {
        let there = |api: &Api| {
            let m = api.migration("r1");
            m["phase"] == "Retaining" && m["reason"] == "Retaining"
        };
        assert!(!self.until("the time of grace", there).await);
        eprintln!("{:#}", self.api.migration("r1")["writeBlock"]);
    }

    /// The move is over: every row is where its shard is, and nothing is left at the other pair.
    pub async fn over(mut self, at_p0: &SpanSet) {
        let none = |api: &Api| api.placement().moves.is_empty();
        self.until("the end", none).await;
        self.stop.store(true, Ordering::Relaxed);
        let p = self.api.placement();
        assert_eq!(placement::shards(&p, |s| s.pair == "p0"), *at_p0);
        let [a, b, x, y] = &self.servers;
        for task in self.writing {
            let (shard, done, longest) = task.await.unwrap();
            eprintln!("shard {shard}: {done} rows, longest pause {longest:?}");
            let (home, other) = if at_p0.contains(shard) {
                ([a, b], [x, y])
            } else {
                ([x, y], [a, b])
            };
            let database = naming().name(shard);
            let rows = home[0]
                .number(&format!("SELECT COUNT(*) FROM {database}.t"))
                .await;
            assert_eq!(rows, done, "shard {shard}");
            let left =
                format!("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '{database}'");
            for server in home {
                assert_eq!(server.number(&left).await, 1, "{database} on {}", server.name);
            }
            for server in other {
                assert_eq!(server.number(&left).await, 0, "{database} on {}", server.name);
            }
        }
        for server in &self.servers {
            for what in [
                "performance_schema.replication_connection_configuration WHERE channel_name <> ''",
                "information_schema.schemata_extensions WHERE options LIKE '%READ ONLY=1%'",
                "mysql.user WHERE user LIKE 'shardwright\\_m\\_%'",
            ] {
                let left = server.number(&format!("SELECT COUNT(*) FROM {what}")).await;
                assert_eq!(left, 0, "{what} on {}", server.name);
            }
            let closed = server.number("SELECT @@GLOBAL.super_read_only").await;
            assert_eq!(closed, i64::from(server.name.ends_with('1')), "{}", server.name);
        }
    }
}
