//! Servers that come back with something wrong: stale settings, lost data, missing or too many transactions. Each is in sync again by itself.

use super::switchover::spoil_passive;
use crate::blueprint::{self as bp, PAIR};
use crate::fleet::Fleet;
use crate::pair::{TAKEN_OVER, container};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use shardwright::api::names;
use shardwright::core::gtid::GtidSet;
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "rejoin",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "stale-channel",
                stale_channel,
                "the old active server comes back with channel settings from long ago: nothing is taken by them",
                TestBed
            ),
            scenario!(
                Short,
                "passive-off-for-long",
                off_for_long,
                "the passive server was off while the binary logs that it needs were purged: it is copied anew",
                TestBed
            ),
            scenario!(
                Short,
                "volume-emptied-logs-purged",
                emptied,
                "binary logs are purged and the passive volume is emptied: copied anew, with what either server ever wrote"
            ),
            scenario!(
                Short,
                "duplicate-key-rebuilt",
                duplicate_key,
                "a duplicate key (1062) stops the passive server: it is out, and copied anew by itself"
            ),
            scenario!(
                Short,
                "errant-saved",
                errant,
                "a passive server with transactions of its own: they are kept as SQL in a Secret, and it is copied anew"
            ),
            scenario!(
                Short,
                "crash-recovery-in-peace",
                recovery,
                "a crash recovery that takes longer than any probe is left in peace, and ends",
                TestBed
            ),
        ],
    }
}

/// The passive server was copied from the active one: an event says so, and by its own word it has the active one's history as purged.
async fn was_copied(f: &Fleet, ordinal: usize) -> Result<()> {
    let mut server = f.server(PAIR, ordinal).await?;
    let completed: u64 = server
        .one("SELECT COUNT(*) FROM performance_schema.clone_status WHERE STATE = 'Completed'")
        .await?;
    ensure!(completed == 1, "{} was not copied", names::pod(PAIR, ordinal));
    f.event(PAIR, "RebuildStarted", &names::pod(PAIR, ordinal), SOON)
        .await
        .map(|_| ())
}

async fn stale_channel(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    f.write(&bp::shards()).await?;
    // As of a time when somebody else was its source, by positions, with another account, and not to be started by anyone.
    let mut server = f.server(PAIR, before.active).await?;
    let own_host = names::host(&f.ns, PAIR, before.active);
    for sql in [
        "STOP REPLICA".to_owned(),
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{own_host}', SOURCE_PORT = 3306, SOURCE_USER = 'nobody', \
             SOURCE_PASSWORD = 'nothing', GTID_ONLY = 0, SOURCE_AUTO_POSITION = 0, SOURCE_LOG_FILE = 'binlog.000001', SOURCE_LOG_POS = 4, \
             SOURCE_SSL = 0, SOURCE_CONNECT_RETRY = 60"
        ),
    ] {
        server.run(&sql).await?;
    }
    f.signal(PAIR, before.active, "KILL").await?;
    f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
    f.write(&bp::shards()).await?;
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == before.passive(),
        "the old active server serves again"
    );
    Ok(())
}

/// Throws away every binary log of the active server but the newest.
pub(super) async fn purge(f: &Fleet, ordinal: usize) -> Result<()> {
    let mut server = f.server(PAIR, ordinal).await?;
    let kept: u64 = server.one("SELECT @@GLOBAL.binlog_expire_logs_seconds").await?;
    // As time does it: the operator's account, which is used here, may not purge by name.
    server.run("SET GLOBAL binlog_expire_logs_seconds = 1").await?;
    let purged = wait::until("the binary logs to be purged", SOON, || async {
        let mut server = f.server(PAIR, ordinal).await?;
        server.run("FLUSH BINARY LOGS").await?;
        let (purged, executed): (String, String) = server
            .one("SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_executed")
            .await?;
        Ok(Seen::when(purged == executed, || {
            format!("purged {purged} of {executed}")
        }))
    })
    .await;
    server
        .run(&format!("SET GLOBAL binlog_expire_logs_seconds = {kept}"))
        .await?;
    purged
}

async fn off_for_long(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    f.signal(PAIR, before.passive(), "STOP").await?;
    let written = async {
        // What is sent to it would wait in its socket: from now on nothing is.
        let mut source = f.server(PAIR, before.active).await?;
        let dumps: Vec<u64> = source
            .rows("SELECT ID FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'")
            .await?;
        for id in dumps {
            source.run(&format!("KILL {id}")).await?;
        }
        for _ in 0..3 {
            f.write(&bp::shards()).await?;
        }
        let out = f.members(PAIR, 1, TAKEN_OVER).await?;
        ensure!(out.epoch > before.epoch, "{before:?} → {out:?}");
        purge(f, before.active).await
    }
    .await;
    f.signal(PAIR, before.passive(), "CONT").await?;
    written?;
    f.recovered(PAIR).await?;
    was_copied(f, before.passive()).await?;
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "another server is active"
    );
    Ok(())
}

async fn emptied(f: &Fleet) -> Result<()> {
    let first = f.record(PAIR).await?;
    // Both have written, so that each has transactions of the other one's making.
    f.write(&bp::shards()).await?;
    f.wish(PAIR, first.passive()).await?;
    let before = f.served_by(PAIR, first.passive(), TAKEN_OVER).await?;
    f.write(&bp::shards()).await?;
    f.recovered(PAIR).await?;
    let passive = names::pod(PAIR, before.passive());
    let uuid = f.server(PAIR, before.passive()).await?.vitals().await?.uuid;
    purge(f, before.active).await?;
    let claim = format!("data-{passive}");
    let old: PersistentVolumeClaim = f.get(&claim).await?;
    let pod = f.server_pod(PAIR, before.passive()).await?;
    f.delete::<PersistentVolumeClaim>(&claim).await?;
    f.api::<Pod>().delete(&passive, &DeleteParams::default()).await?;
    // The active one goes on alone.
    f.write(&bp::shards()).await?;
    f.again::<PersistentVolumeClaim>(&claim, old.metadata.uid.as_deref(), REPAIR)
        .await?;
    f.again::<Pod>(&passive, pod.uid().as_deref(), REPAIR).await?;
    f.recovered(PAIR).await?;
    was_copied(f, before.passive()).await?;
    let now = f.server(PAIR, before.passive()).await?.vitals().await?.uuid;
    ensure!(now != uuid, "the passive server has its old data folder");
    let after = f.record(PAIR).await?;
    ensure!(
        after.members.contains(&now) && !after.members.contains(&uuid),
        "{after:?} should have {now}"
    );
    Ok(())
}

async fn duplicate_key(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    spoil_passive(f, 1).await?;
    // Acknowledged as ever: it is received, and cannot be applied.
    f.write(&[1, 1, 1]).await?;
    let out = f.members(PAIR, 1, REPAIR).await?;
    ensure!(
        out.active == before.active,
        "a server that lacks rows is active: {out:?}"
    );
    f.write(&bp::shards()).await?;
    f.recovered(PAIR).await?;
    was_copied(f, before.passive()).await?;
    ensure!(
        f.times_there(PAIR, 1, "in the way").await? == [0, 0],
        "rows of nobody are left"
    );
    Ok(())
}

async fn errant(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let saved = f.errant_secrets(PAIR).await?;
    let table = f.table(2).await?;
    let mut follower = f.server(PAIR, before.passive()).await?;
    let mut source = f.server(PAIR, before.active).await?;
    f.while_paused(PAIR, async {
        // In a running circle the active one would take it.
        source.run("STOP REPLICA IO_THREAD").await?;
        follower.run("SET GLOBAL super_read_only = OFF").await?;
        for sql in [
            format!("INSERT INTO {table} (data) VALUES (JSON_OBJECT('text', 'errant'))"),
            "CREATE DATABASE errant".to_owned(),
            "CREATE TABLE errant.notes (id INT PRIMARY KEY, what VARBINARY(8))".to_owned(),
            "INSERT INTO errant.notes VALUES (1, X'00FF'), (2, 'text')".to_owned(),
            "UPDATE errant.notes SET what = 'more' WHERE id = 2".to_owned(),
        ] {
            follower.run(&sql).await?;
        }
        follower.run("SET GLOBAL super_read_only = ON").await
    })
    .await?;
    f.event(PAIR, "ErrantSaved", &names::pod(PAIR, before.passive()), REPAIR)
        .await?;
    f.write(&bp::shards()).await?;
    f.recovered(PAIR).await?;
    was_copied(f, before.passive()).await?;
    ensure!(
        f.times_there(PAIR, 2, "errant").await? == [0, 0],
        "an errant row is left"
    );
    let now = f.errant_secrets(PAIR).await?;
    let new: Vec<_> = now.iter().filter(|n| !saved.contains(n)).collect();
    let [name] = *new else {
        bail!("Secrets with errant transactions: {saved:?} → {now:?}");
    };
    readable(f, name, &table).await
}

/// The Secret has what [`errant`] wrote, as SQL; it is complete, belongs to nobody, and can't be changed.
async fn readable(f: &Fleet, name: &str, table: &str) -> Result<()> {
    let secret: Secret = f.get(name).await?;
    ensure!(
        secret.immutable == Some(true) && secret.owner_references().is_empty(),
        "{name}: {:?}",
        secret.metadata
    );
    let script = f.secret(name, "transactions.sql").await?;
    for part in [
        format!("INSERT INTO {table} (`local_id`, `data`, `ts`) VALUES ("),
        r#"'{"text": "errant"}'"#.to_owned(),
        "CREATE DATABASE errant;".to_owned(),
        "CREATE TABLE errant.notes (id INT PRIMARY KEY, what VARBINARY(8));".to_owned(),
        "INSERT INTO `errant`.`notes` (`id`, `what`) VALUES (1, X'00FF');".to_owned(),
        "UPDATE `errant`.`notes` SET `what` = 'more' WHERE `id` = 2; -- was `what` = 'text'".to_owned(),
    ] {
        ensure!(script.contains(&part), "{name} lacks {part}:\n{script}");
    }
    let set: GtidSet = f.secret(name, "gtids").await?.parse()?;
    let complete = f.secret(name, "complete").await?;
    ensure!(
        set.count() == 5 && complete == "true",
        "{name} has {set}, complete: {complete}"
    );
    Ok(())
}

/// How long a container may take to start before the kubelet ends it.
fn start_patience(pod: &Pod) -> Result<Duration> {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice());
    let mysqld = containers.and_then(|c| c.iter().find(|c| c.name == "mysqld"));
    let probe = mysqld.and_then(|c| c.startup_probe.as_ref());
    let probe = probe.context("mysqld has no startup probe")?;
    let seconds = |n: Option<i32>| u64::try_from(n.unwrap_or_default());
    let (period, failures) = (seconds(probe.period_seconds)?, seconds(probe.failure_threshold)?);
    Ok(Duration::from_secs(period * failures))
}

async fn recovery(f: &Fleet) -> Result<()> {
    // Longer than the readiness probe's patience; that no other probe has any before the port opens is seen by `started`.
    const RECOVERY: Duration = Duration::from_secs(75);
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let before = f.record(PAIR).await?;
    let passive = before.passive();
    f.write(&bp::shards()).await?;
    let pod = f.server_pod(PAIR, passive).await?;
    let patience = start_patience(&pod)?;
    ensure!(patience > WEEK, "a recovery is ended after {patience:?}");
    let count = container(&pod)?.restart_count;
    // As if its recovery took that long.
    let booting = f.kill_and_hold(PAIR, &[passive], passive).await?;
    let left_alone = async {
        wait::until("the restart to be counted", SOON, || async {
            let pod = f.server_pod(PAIR, passive).await?;
            let now = container(&pod)?.restart_count;
            Ok(Seen::when(now == count + 1, || format!("{now} restarts")))
        })
        .await?;
        wait::throughout("the server in recovery", RECOVERY, || async {
            let pod = f.server_pod(PAIR, passive).await?;
            let now = container(&pod)?;
            let listens = f.listens(PAIR, passive).await?;
            f.write(&[3]).await?;
            // The liveness probe begins when the kubelet takes the container for started.
            let good = now.restart_count == count + 1 && now.started == Some(false) && !listens;
            Ok(Seen::when(good, || format!("listens: {listens}, {now:?}")))
        })
        .await
    }
    .await;
    booting.go_on().await?;
    left_alone?;
    f.recovered(PAIR).await?;
    let after = container(&f.server_pod(PAIR, passive).await?)?.restart_count;
    ensure!(after == count + 1, "restarted {} times more", after - count - 1);
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "another server is active"
    );
    Ok(())
}
