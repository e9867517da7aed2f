//! Planned changes of the active server: no outcome of a statement is unknown, and what cannot be done is not begun.

use super::rolling::evict;
use crate::blueprint::{self as bp, PAIR};
use crate::fleet::Fleet;
use crate::pair::{Record, TAKEN_OVER};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::writer::{Ending, Writer};
use crate::{scenario, shared};
use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::json;
use shardwright::api::mysql_pair::ChangeKind;
use shardwright::api::{MySQLPair, names};
use std::time::{Duration, Instant};

/// The group.
pub fn group() -> Group {
    Group {
        name: "switchover",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "preferred-active",
                preferred,
                "a changed spec.preferredActive is one switchover, acted upon once; it undoes no failover",
                TestBed
            ),
            scenario!(
                Short,
                "switchover-under-writes",
                under_writes,
                "100 writes a second through a switchover while the pair is reconciled all the time: no outcome is unknown",
                TestBed
            ),
            scenario!(
                Short,
                "preferred-active-refused",
                refused,
                "a switchover to a broken passive server is refused at once; the active one never stops to serve"
            ),
            scenario!(
                Short,
                "switchover-aborts",
                aborts,
                "a passive server that does not catch up ends the switchover within a deadline; the active one is open again as soon as promised",
                TestBed
            ),
            scenario!(
                Short,
                "evict-active",
                evict_active,
                "the active server is evicted, within its budget: handed over before mysqld ends, in bounded time"
            ),
        ],
    }
}

async fn preferred(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    // The wish for what is so already changes nothing.
    f.prefer(PAIR, before.active).await?;
    acted_upon(f, before.active).await?;
    ensure!(f.record(PAIR).await? == before, "the record changed");
    f.write(&bp::shards()).await?;
    f.prefer(PAIR, before.passive()).await?;
    let after = f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
    f.write(&bp::shards()).await?;
    acted_upon(f, after.active).await?;
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(
        change.kind == ChangeKind::Switchover && change.cause == "PreferredActive",
        "lastChange is {change:?}"
    );
    f.event(PAIR, "Switchover", &names::pod(PAIR, after.active), SOON)
        .await?;
    f.recovered(PAIR).await?;
    // Neither Pod was touched for it.
    for n in names::ORDINALS {
        ensure!(restarts(&f.server_pod(PAIR, n).await?) == 0, "{n} was restarted");
    }
    // A failover goes against the wish, and the wish is not acted upon again.
    f.signal(PAIR, after.active, "KILL").await?;
    let failed_over = f.served_by(PAIR, before.active, TAKEN_OVER).await?;
    f.recovered(PAIR).await?;
    wait::throughout(
        "the active server after a failover",
        Duration::from_secs(12),
        || async {
            let record = f.record(PAIR).await?;
            Ok(Seen::when(record.active == failed_over.active, || {
                format!("{record:?}")
            }))
        },
    )
    .await?;
    // Said again, it is acted upon again.
    f.edit::<MySQLPair>(PAIR, json!({"spec": {"preferredActive": null}}))
        .await?;
    wait::until("the wish to be forgotten", SOON, || async {
        let seen = f.status(PAIR).await?.observed_preferred_active;
        Ok(Seen::when(seen.is_none(), || format!("{seen:?}")))
    })
    .await?;
    f.prefer(PAIR, after.active).await?;
    f.served_by(PAIR, after.active, TAKEN_OVER).await?;
    f.recovered(PAIR).await
}

async fn acted_upon(f: &Fleet, wish: usize) -> Result<()> {
    wait::until("the wish to be acted upon", SOON, || async {
        let seen = f.status(PAIR).await?.observed_preferred_active;
        Ok(Seen::when(seen.is_some_and(|p| p.ordinal() == wish), || {
            format!("{seen:?}")
        }))
    })
    .await
}

fn restarts(pod: &Pod) -> i32 {
    let all = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
    all.into_iter().flatten().map(|c| c.restart_count).sum()
}

async fn under_writes(f: &Fleet) -> Result<()> {
    let mut clients = vec![];
    // Four of them, with 40 ms between two rows of each: 100 rows a second.
    for shard in 0..4 {
        let route = f.route_by_map(shard).await?;
        clients.push(f.patient_writer(&format!("sw-{shard}"), shard, route).await?);
    }
    steady(&clients, Duration::from_secs(2)).await?;
    for round in 0..4 {
        let before = f.record(PAIR).await?;
        let begun = Instant::now();
        f.wish(PAIR, before.passive()).await?;
        // Each of these wakes a pass.
        let poke = async {
            for n in 0.. {
                let note = json!({"metadata": {"annotations": {"e2e.example/poke": format!("{round}-{n}")}}});
                f.edit::<MySQLPair>(PAIR, note).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        let served = async {
            f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
            steady(&clients, Duration::from_secs(1)).await
        };
        tokio::select! {
            ended = poke => ended?,
            done = served => done?,
        }
        let gaps = clients.iter().filter_map(|c| c.book.gap(begun, Instant::now()));
        let longest = gaps.fold(Duration::ZERO, |longest, g| longest.max(g.length()));
        println!("      switchover-under-writes: round {round}: the longest gap was {longest:?}");
        for client in &clients {
            let lost: Vec<_> = client
                .book
                .since(begun)
                .into_iter()
                .filter(|t| matches!(t.ending, Ending::Unknown(_)))
                .collect();
            ensure!(
                lost.is_empty(),
                "outcomes of a planned switchover are unknown: {lost:?}"
            );
        }
        f.all_ready(REPAIR).await?;
    }
    for (shard, client) in clients.into_iter().enumerate() {
        let book = client.stop().await?;
        let table = f.table(i32::try_from(shard)?).await?;
        let held = f.holds(PAIR, &table, std::slice::from_ref(&book)).await?;
        println!(
            "      switchover-under-writes: {} rows acknowledged by shard {shard}",
            held.acknowledged
        );
    }
    f.recovered(PAIR).await
}

/// A row that the active server is about to give as well: the passive one cannot apply it (1062).
pub(super) async fn spoil_passive(f: &Fleet, shard: i32) -> Result<()> {
    let record = f.record(PAIR).await?;
    let table = f.table(shard).await?;
    let mut source = f.server(PAIR, record.active).await?;
    let highest: Option<u64> = source.one(&format!("SELECT MAX(local_id) FROM {table}")).await?;
    let mut follower = f.server(PAIR, record.passive()).await?;
    f.while_paused(PAIR, async {
        follower.run("SET sql_log_bin = 0").await?;
        follower.run("SET GLOBAL super_read_only = OFF").await?;
        for next in 1..=12 {
            let id = highest.unwrap_or(0) + next;
            let sql = format!(
                "INSERT INTO {table} (local_id, data) VALUES ({id}, JSON_OBJECT('text', 'in the way'))"
            );
            follower.run(&sql).await?;
        }
        follower.run("SET GLOBAL super_read_only = ON").await
    })
    .await
}

/// The old rows out of the way again, as a person would mend it.
async fn mend_passive(f: &Fleet, ordinal: usize, shard: i32) -> Result<()> {
    let table = f.table(shard).await?;
    let mut server = f.server(PAIR, ordinal).await?;
    let sql = format!("DELETE FROM {table} WHERE JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) = 'in the way'");
    f.while_paused(PAIR, async {
        server.run("SET sql_log_bin = 0").await?;
        server.run("SET GLOBAL super_read_only = OFF").await?;
        server.run(&sql).await?;
        server.run("SET GLOBAL super_read_only = ON").await
    })
    .await
}

async fn refused(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    spoil_passive(f, 0).await?;
    f.write(&[0]).await?;
    f.condition::<MySQLPair>(PAIR, "Stalled", "True", "ReplicationBroken", SOON)
        .await?;
    f.wish(PAIR, before.passive()).await?;
    // Never ends but by a failure.
    let serving = async {
        let failed: Result<()> = loop {
            if let Err(e) = f.write(&bp::shards()).await {
                break Err(e);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        failed
    };
    let refusal = async {
        f.event(PAIR, "SwitchoverRefused", "1062", SOON).await?;
        acted_upon(f, before.passive()).await
    };
    tokio::select! {
        failed = serving => failed?,
        seen = refusal => seen?,
    }
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "another server is active"
    );
    mend_passive(f, before.passive(), 0).await?;
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "the refused switchover was done later"
    );
    Ok(())
}

async fn aborts(f: &Fleet) -> Result<()> {
    // The active server is closed within one second, then the other one has two; and it is opened again. With room for two busy cores.
    const PROMISED: Duration = Duration::from_secs(4);
    let before = f.record(PAIR).await?;
    let locks = f.hold_applier(PAIR, before.passive(), 0).await?;
    f.write(&[0; 5]).await?;
    // Writes that a passive server acknowledges which cannot apply.
    let mut clients = vec![];
    for shard in 1..4 {
        let route = f.route_by_map(shard).await?;
        clients.push(f.patient_writer(&format!("ab-{shard}"), shard, route).await?);
    }
    let seen = aborted(f, &before, &clients).await;
    let record = f.record(PAIR).await?;
    locks.release().await?;
    let begun = seen?;
    ensure!(
        record.active == before.active,
        "a server that lacks rows is active: {record:?}"
    );
    let gaps = clients.iter().filter_map(|c| c.book.gap(begun, Instant::now()));
    let longest = gaps.fold(Duration::ZERO, |longest, g| longest.max(g.length()));
    println!("      switchover-aborts: the longest gap was {longest:?}");
    ensure!(longest < PROMISED, "nothing was written for {longest:?}");
    for (shard, client) in (1..).zip(clients) {
        let book = client.stop().await?;
        ensure!(book.unknown() == 0, "{} outcomes are unknown", book.unknown());
        let table = f.table(shard).await?;
        f.holds(PAIR, &table, std::slice::from_ref(&book)).await?;
    }
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == before.active,
        "the aborted switchover was done later"
    );
    Ok(())
}

/// A switchover is begun, given up, and not tried again; meanwhile clients write. Gives when it was asked for.
async fn aborted(f: &Fleet, before: &Record, clients: &[Writer]) -> Result<Instant> {
    steady(clients, Duration::from_secs(1)).await?;
    let told_before = f.told(PAIR, "SwitchoverAborted").await?;
    let begun = Instant::now();
    f.wish(PAIR, before.passive()).await?;
    f.told_again(PAIR, "SwitchoverAborted", told_before).await?;
    println!("      switchover-aborts: given up after {:?}", begun.elapsed());
    acted_upon(f, before.passive()).await?;
    // By its own word it is open, and still behind is the other one.
    let active = f.server(PAIR, before.active).await?.vitals().await?;
    ensure!(!active.read_only, "the active server is closed: {active:?}");
    let behind = f.unapplied(PAIR, before.passive()).await?;
    ensure!(!behind.is_empty(), "the passive server has applied everything");
    steady(clients, Duration::from_secs(1)).await?;
    Ok(begun)
}

/// Waits until every try of every client has been acknowledged for `span`.
async fn steady(clients: &[Writer], span: Duration) -> Result<()> {
    wait::until("the clients to write steadily", SOON, || async {
        let least = clients.iter().map(|c| c.book.steady()).min().unwrap_or_default();
        Ok(Seen::when(least >= span, || format!("{least:?}")))
    })
    .await
}

/// Waits until the budget lets one Pod go.
pub(super) async fn budget_allows_one(f: &Fleet) -> Result<()> {
    wait::until("the budget to allow one", SOON, || async {
        let b: PodDisruptionBudget = f.get(PAIR).await?;
        let allowed = b.status.map(|s| s.disruptions_allowed);
        Ok(Seen::when(allowed == Some(1), || format!("{allowed:?}")))
    })
    .await
}

async fn evict_active(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    f.write(&bp::shards()).await?;
    budget_allows_one(f).await?;
    let old = f.server_pod(PAIR, before.active).await?.uid();
    let begun = Instant::now();
    evict(f, before.active).await?;
    match evict(f, before.passive()).await {
        Ok(()) => bail!("both servers were evicted"),
        Err(kube::Error::Api(s)) if s.code == 429 => {}
        Err(e) => return Err(e.into()),
    }
    let after = f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
    f.write(&bp::shards()).await?;
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(
        change.kind == ChangeKind::Switchover,
        "it was not handed over, it was lost: {change:?}"
    );
    f.again::<Pod>(&names::pod(PAIR, before.active), old.as_deref(), REPAIR)
        .await?;
    let gone = begun.elapsed();
    println!("      evict-active: the Pod was gone after {gone:?}");
    ensure!(gone < Duration::from_secs(60), "an eviction takes {gone:?}");
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == before.passive(),
        "the server that came back is active again"
    );
    Ok(())
}
