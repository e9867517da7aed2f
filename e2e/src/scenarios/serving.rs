//! A fleet is applied and serves; what applications may and may not do on it.

use crate::blueprint::{self as bp, OPEN, PAIR, RANGE, TABLES};
use crate::fleet::Fleet;
use crate::scenario::Group;
use crate::server;
use crate::shell;
use crate::wait::{self, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::ListParams;
use shardwright::api::names;
use shardwright::core::credentials;
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "serving",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "apply-serves",
                apply_serves,
                "objects applied; every shard is served, one server of the pair writable"
            ),
            scenario!(
                Short,
                "apply-again-no-diff",
                apply_again,
                "the same objects applied again change no resourceVersion anywhere"
            ),
            scenario!(
                Short,
                "columns",
                columns,
                "kubectl get shows the columns that people look at"
            ),
            scenario!(
                Short,
                "tool-locates",
                located,
                "the tool finds an ID by the map that the cluster publishes, and shows that map"
            ),
            scenario!(
                Short,
                "events-and-conditions",
                told,
                "kubectl wait works on every kind; events tell what a person wants to know"
            ),
            scenario!(
                Short,
                "idle-writes-nothing",
                idle,
                "nobody touches it: the operator writes nothing to the API",
                TestBed
            ),
            scenario!(
                Short,
                "app-account",
                app_account,
                "the application's account: rows yes, tables, system tables and the passive server no"
            ),
            scenario!(
                Short,
                "passwords-hidden",
                passwords_hidden,
                "no password outside Secrets: objects, events, lists of connections, command lines, logs"
            ),
            scenario!(
                Short,
                "tls-required",
                tls_required,
                "the accounts with rights do not get in without TLS; certificates carry the hosts' names"
            ),
        ],
    }
}

async fn apply_serves(f: &Fleet) -> Result<()> {
    let shards: Vec<i32> = (0..OPEN).collect();
    f.healthy(PAIR).await?;
    f.tables_on_both(PAIR, &shards, &TABLES).await?;
    let map = f.map().await?;
    ensure!(map.shards() == shards, "the map has shards {:?}", map.shards());
    let active = f.active(PAIR).await?;
    for e in &map.entries {
        ensure!(
            e.active.host == names::host(&f.ns, PAIR, active)
                && e.passive.host == names::host(&f.ns, PAIR, 1 - active),
            "the map says {e:?}, active is {active}"
        );
    }
    plain_form(f).await?;
    ensure!(
        map.json["routing"]["mode"] == "ID",
        "routing: {}",
        map.json["routing"]
    );
    // Nothing but what was asked for.
    let mut server = f.server(PAIR, active).await?;
    let databases = server.databases("db").await?;
    ensure!(databases.len() == shards.len(), "databases: {databases:?}");
    // The schema of an object table and of a mapping, as the domain has it.
    let columns: Vec<(String, String, String)> = server
        .rows(
            "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_KEY FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = 'db00000' AND TABLE_NAME = 'pins' ORDER BY ORDINAL_POSITION",
        )
        .await?;
    let has = |name: &str, type_: &str| columns.iter().any(|(n, t, _)| n == name && t == type_);
    ensure!(
        columns.len() == 3
            && has("local_id", "bigint")
            && has("data", "json")
            && columns.iter().any(|c| c.0 == "ts"),
        "columns of pins: {columns:?}"
    );
    let primary: Vec<String> = server
        .rows(
            "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = 'db00000' \
             AND TABLE_NAME = 'board_has_pins' AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX",
        )
        .await?;
    ensure!(
        primary == ["from_id", "to_id"],
        "primary key of a mapping: {primary:?}"
    );
    for n in names::ORDINALS {
        let claim: PersistentVolumeClaim = f.get(&format!("data-{}", names::pod(PAIR, n))).await?;
        let asks = claim
            .spec
            .and_then(|s| s.resources)
            .and_then(|r| r.requests)
            .unwrap_or_default();
        ensure!(
            asks.get("storage") == Some(&Quantity("1Gi".into())),
            "the claim asks for {asks:?}"
        );
    }
    f.intact().await
}

/// `ranges.json` is readable by a script of ten lines and says the same as `shardmap.json`.
async fn plain_form(f: &Fleet) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Plain {
        range: [i32; 2],
        master: String,
        slave: String,
    }
    let map = f.map().await?;
    let plain: Vec<Plain> = serde_json::from_str(&map.plain).context("ranges.json")?;
    for p in &plain {
        for shard in p.range[0]..=p.range[1] {
            let e = map.entry(shard)?;
            ensure!(
                p.master.starts_with(&e.active.host) && p.slave.starts_with(&e.passive.host),
                "shard {shard}: {} is not {e:?}",
                map.plain
            );
        }
    }
    let shards: Vec<i32> = plain.iter().flat_map(|p| p.range[0]..=p.range[1]).collect();
    ensure!(shards == map.shards(), "ranges.json has {shards:?}");
    Ok(())
}

async fn apply_again(f: &Fleet) -> Result<()> {
    let yaml = [
        serde_saphyr::to_string(&bp::cluster(f))?,
        serde_saphyr::to_string(&bp::pair(f, PAIR))?,
        serde_saphyr::to_string(&bp::range(f, RANGE, 0, OPEN - 1, PAIR))?,
    ]
    .join("---\n");
    let args = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=e2e",
        "-n",
        &f.ns,
        "-f",
        "-",
    ];
    shell::kubectl_with(&yaml, &args).await?;
    f.all_ready(wait::SOON).await?;
    let before = f.versions_at_rest(Duration::from_secs(3)).await?;
    ensure!(
        before.len() >= 12,
        "too few objects to mean anything: {:?}",
        before.keys()
    );
    shell::kubectl_with(&yaml, &args).await?;
    let diff = shell::say(
        Duration::from_secs(60),
        Some(&yaml),
        "kubectl",
        &[
            "diff",
            "--server-side",
            "--force-conflicts",
            "--field-manager=e2e",
            "-n",
            &f.ns,
            "-f",
            "-",
        ],
    )
    .await?;
    ensure!(
        diff.ok,
        "kubectl diff finds a difference: {}{}",
        diff.out,
        diff.err
    );
    // Not a proof by sleeping: nothing may change for as long as it is looked at.
    wait::throughout("every resourceVersion", Duration::from_secs(5), || async {
        let now = f.versions().await?;
        let changed: Vec<_> = now
            .iter()
            .filter(|(k, v)| before.get(*k) != Some(v))
            .map(|(k, _)| k)
            .collect();
        Ok(Seen::when(
            changed.is_empty() && now.len() == before.len(),
            || format!("changed: {changed:?}"),
        ))
    })
    .await
}

async fn columns(f: &Fleet) -> Result<()> {
    let expected = [
        ("shardranges", "CLUSTER FIRST LAST PAIR ACTIVE PHASE READY AGE"),
        ("mysqlpairs", "CLUSTER ACTIVE IN-SYNC EPOCH READY REASON AGE"),
        ("shardclusters", "READY"),
    ];
    for (kind, columns) in expected {
        let text = shell::kubectl(&["get", kind, "-n", &f.ns]).await?;
        let head: Vec<_> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        ensure!(head.join(" ").contains(columns), "{kind}: {}", head.join(" "));
        ensure!(!text.contains("<none>"), "{kind} has empty columns: {text}");
    }
    let wide = shell::kubectl(&["get", "shr", "-n", &f.ns, "-o", "wide"]).await?;
    ensure!(
        wide.contains("SERVED-BY") && wide.contains("p0:0-7") && wide.contains("8/8"),
        "wide: {wide}"
    );
    let all = shell::kubectl(&["get", "shards", "-n", &f.ns, "-o", "name"]).await?;
    ensure!(all.lines().count() == 3, "category shards: {all}");
    Ok(())
}

async fn located(f: &Fleet) -> Result<()> {
    let id = ((5u64 << 46) | (1 << 36) | 9).to_string();
    let at = ["--cluster", &f.cluster, "--namespace", &f.ns, "-o", "json"];
    let asked = [&["locate", "--id", id.as_str()], at.as_slice()].concat();
    let told: serde_json::Value = serde_json::from_str(&f.world.tool(&asked).await?)?;
    let map = f.map().await?;
    let entry = map.entry(5)?;
    let right = told["shard"] == 5
        && told["database"] == "db00005"
        && told["table"] == "pins"
        && told["local"] == 9
        && told["pair"] == PAIR
        && told["active"]["host"] == entry.active.host;
    ensure!(right, "locate says {told}");
    let shown = f.world.tool(&[&["map", "show"], at.as_slice()].concat()).await?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    ensure!(shown["version"] == map.version, "map show says {shown}");
    let closed = [&["locate", "--shard", "63"], at.as_slice()].concat();
    ensure!(
        f.world.tool(&closed).await.is_err(),
        "a shard that is not open was located"
    );
    Ok(())
}

async fn told(f: &Fleet) -> Result<()> {
    for (kind, name) in [
        ("shardcluster", f.cluster.as_str()),
        ("mysqlpair", PAIR),
        ("shardrange", RANGE),
    ] {
        for (condition, value) in [("Ready", "True"), ("Reconciling", "False"), ("Stalled", "False")] {
            let object = format!("{kind}/{name}");
            let wait = format!("--for=condition={condition}={value}");
            shell::kubectl(&["wait", "-n", &f.ns, &object, &wait, "--timeout=10s"]).await?;
        }
    }
    for (object, reason) in [
        (PAIR, "ActiveRecorded"),
        (PAIR, "PairReady"),
        (RANGE, "RangeReady"),
        (f.cluster.as_str(), "ShardMapPublished"),
    ] {
        let events = f.api::<Event>();
        wait::until(&format!("an event {reason} on {object}"), wait::SOON, || async {
            let all = events.list(&ListParams::default()).await?.items;
            let told = all.iter().any(|e| {
                e.reason.as_deref() == Some(reason)
                    && e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(object)
                    && e.note.as_ref().is_some_and(|n| !n.is_empty())
            });
            Ok(Seen::when(told, || format!("{} events", all.len())))
        })
        .await?;
    }
    Ok(())
}

async fn idle(f: &Fleet) -> Result<()> {
    f.all_ready(wait::SOON).await?;
    let found = f
        .world
        .operator_writes(Some(&f.ns), Duration::from_secs(15))
        .await?;
    ensure!(found.is_empty(), "the operator wrote {found:?}");
    Ok(())
}

async fn app_account(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let mut app = f.app(PAIR, active).await?;
    app.run("INSERT INTO db00000.board_has_pins (from_id, to_id, sequence) VALUES (1, 2, 3)")
        .await?;
    app.run("UPDATE db00000.board_has_pins SET sequence = 4 WHERE from_id = 1")
        .await?;
    let sequence: i64 = app
        .one("SELECT sequence FROM db00000.board_has_pins WHERE from_id = 1")
        .await?;
    ensure!(sequence == 4, "read {sequence}");
    app.run("DELETE FROM db00000.board_has_pins WHERE from_id = 1")
        .await?;
    for (sql, codes) in [
        ("CREATE TABLE db00000.mine (i INT)", [1142, 1044]),
        ("ALTER TABLE db00000.pins ADD COLUMN x INT", [1142, 1044]),
        ("DROP TABLE db00000.pins", [1142, 1044]),
        ("ALTER DATABASE db00000 READ ONLY = 1", [1044, 1227]),
        ("CREATE DATABASE db00063", [1044, 1044]),
        ("SELECT * FROM mysql.user", [1142, 1044]),
        ("SET GLOBAL read_only = OFF", [1227, 1227]),
        ("CREATE USER x@'%' IDENTIFIED BY 'abc'", [1227, 1044]),
    ] {
        expect_code(app.run(sql).await, &codes, sql)?;
    }
    let mut passive = f.app(PAIR, 1 - active).await?;
    let sql = "INSERT INTO db00000.board_has_pins (from_id, to_id, sequence) VALUES (1, 2, 3)";
    expect_code(passive.run(sql).await, &[1290], "a write on the passive server")
}

fn expect_code(result: Result<()>, codes: &[u16], what: &str) -> Result<()> {
    match result {
        Ok(()) => bail!("{what} was allowed"),
        Err(e) => match server::code(&e) {
            Some(c) if codes.contains(&c) => Ok(()),
            _ => Err(e.context(format!("{what}: expected one of {codes:?}"))),
        },
    }
}

async fn passwords_hidden(f: &Fleet) -> Result<()> {
    let secrets = f.api::<Secret>().list(&ListParams::default()).await?;
    let mut hidden = vec![];
    for s in &secrets.items {
        for (key, value) in s.data.iter().flatten() {
            let text = String::from_utf8_lossy(&value.0).into_owned();
            if (key.contains("password") || key == "ca.key" || key == "tls.key") && text.len() >= 8 {
                hidden.push((format!("{:?} {key}", s.metadata.name), text.trim().to_owned()));
            }
        }
    }
    ensure!(
        hidden.len() >= 4,
        "too few passwords to mean anything: {}",
        hidden.len()
    );
    let kinds = "shardclusters,mysqlpairs,shardranges,statefulsets,services,endpointslices,configmaps,pods,events,\
                 poddisruptionbudgets,networkpolicies,persistentvolumeclaims,controllerrevisions";
    let mut text = shell::kubectl(&["get", kinds, "-n", &f.ns, "-o", "json"]).await?;
    for n in names::ORDINALS {
        let mut server = f.server(PAIR, n).await?;
        // What a list of connections shows.
        let shown: Vec<(Option<String>, Option<String>)> = server
            .rows("SELECT USER, INFO FROM performance_schema.processlist")
            .await?;
        for column in shown.into_iter().flat_map(|(user, info)| [user, info]).flatten() {
            text.push_str(&column);
        }
        let pod = names::pod(PAIR, n);
        // What everybody on the node can read, and what ends up where logs are collected.
        let all = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; done; true";
        text.push_str(
            &shell::kubectl(&["exec", "-n", &f.ns, &pod, "-c", "mysqld", "--", "sh", "-c", all]).await?,
        );
        text.push_str(&shell::kubectl(&["logs", "-n", &f.ns, &pod, "--all-containers"]).await?);
    }
    ensure!(text.contains("--defaults-file"), "no command line was seen");
    for pod in f.world.operator_pods().await? {
        let ns = f.world.settings.operator_namespace.as_str();
        text.push_str(&shell::kubectl(&["logs", "-n", ns, &pod.name_any()]).await?);
    }
    for (what, password) in hidden {
        ensure!(!text.contains(&password), "{what} is shown outside of Secrets");
        // A key of several lines would be escaped in JSON.
        if let Some(line) = password.lines().nth(1) {
            ensure!(!text.contains(line), "{what} is shown outside of Secrets");
        }
    }
    Ok(())
}

async fn tls_required(f: &Fleet) -> Result<()> {
    let secret = names::app_secret(&f.cluster);
    let (user, password, ca) = (
        f.secret(&secret, "username").await?,
        f.secret(&secret, "password").await?,
        f.secret(&secret, "ca.crt").await?,
    );
    for ordinal in names::ORDINALS {
        // Applications may do without TLS if they have to; the accounts with rights may not.
        let uuid = f.server(PAIR, ordinal).await?.vitals().await?.uuid;
        let replication = credentials::replication_user(&uuid);
        for (account, key) in [
            ("shardwright_operator", "operator-password"),
            (replication.as_str(), "replication-password"),
        ] {
            let secret = f.secret(&names::credentials_secret(&f.cluster), key).await?;
            let mut plain = f.login(PAIR, ordinal, account, &secret, &ca).await?;
            plain
                .connect()
                .await
                .with_context(|| format!("{account} over TLS"))?;
            plain.ca = None;
            ensure!(
                plain.connect().await.is_err(),
                "{account} got into {ordinal} without TLS"
            );
        }
        let mut wrong = f.login(PAIR, ordinal, &user, &password, &ca).await?;
        wrong.tls_name = "elsewhere.example".into();
        ensure!(wrong.connect().await.is_err(), "the certificate fits any name");
        for name in [
            names::host(&f.ns, PAIR, ordinal),
            format!("{}.cluster.local", names::host(&f.ns, PAIR, ordinal)),
            format!("{}.{}.svc", names::active_service(PAIR), f.ns),
        ] {
            let mut good = f.login(PAIR, ordinal, &user, &password, &ca).await?;
            good.tls_name.clone_from(&name);
            good.connect().await.with_context(|| format!("as {name}"))?;
        }
    }
    Ok(())
}
