//! What an acknowledgement is worth: `durability`, and what a person may give up.

use crate::blueprint::{self as bp, PAIR};
use crate::fleet::Fleet;
use crate::pair::TAKEN_OVER;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Result, bail, ensure};
use serde_json::json;
use shardwright::api::mysql_pair::ChangeKind;
use shardwright::api::{MySQLPair, ShardCluster, names};
use std::time::{Duration, Instant};

/// The group.
pub fn group() -> Group {
    Group {
        name: "durability",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "durability-strict",
                strict,
                "Strict: a commit waits for the passive server; without it, it is acknowledged only once the record has the active one alone",
                TestBed
            ),
            scenario!(
                Short,
                "durability-available",
                available,
                "Available: the active server goes on alone after its seconds and says so, no server is restarted",
                TestBed
            ),
            scenario!(
                Short,
                "foreign-acknowledger",
                foreign,
                "a server that is none of the pair takes from the active one and may acknowledge for the other: said as long as it does",
                TestBed
            ),
            scenario!(
                Short,
                "accept-data-loss",
                accept_loss,
                "the only server in sync is lost: stalled by name, another epoch accepts nothing, this one is served by the other, once",
                TestBed
            ),
        ],
    }
}

/// What the active server says of its waiting.
async fn source(f: &Fleet, ordinal: usize) -> Result<(u8, u64, u64)> {
    f.server(PAIR, ordinal)
        .await?
        .one(
            "SELECT @@GLOBAL.rpl_semi_sync_source_enabled, @@GLOBAL.rpl_semi_sync_source_timeout, \
             CAST(VARIABLE_VALUE AS UNSIGNED) FROM performance_schema.global_status \
             WHERE VARIABLE_NAME = 'Rpl_semi_sync_source_clients'",
        )
        .await
}

async fn strict(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    f.condition::<MySQLPair>(PAIR, "Durable", "True", "", SOON)
        .await?;
    let said = source(f, before.active).await?;
    ensure!(said == (1, 4_294_967_295, 1), "the active server says {said:?}");
    let idle = source(f, before.passive()).await?;
    ensure!(
        idle.0 == 0,
        "the passive server waits for acknowledgements: {idle:?}"
    );
    // Without the passive server a commit waits, until it is recorded that the active one is alone; not for longer, and not less.
    f.signal(PAIR, before.passive(), "STOP").await?;
    let begun = Instant::now();
    let waited = async {
        let pending = f.write_pending(PAIR, before.active, 0).await?;
        let answer = pending.answer(SOON).await?;
        let took = begun.elapsed();
        match answer {
            Some(Ok(())) => {}
            Some(Err(e)) => return Err(e.context("the commit that waited was refused")),
            None => bail!("the commit was never answered"),
        }
        let alone = f.record(PAIR).await?;
        ensure!(
            alone.members.len() == 1 && alone.epoch > before.epoch,
            "a commit was acknowledged by one server, and the record says {alone:?}"
        );
        println!("      durability-strict: the commit went on after {took:?}");
        f.condition::<MySQLPair>(PAIR, "Durable", "False", "Alone", SOON)
            .await?;
        f.write(&bp::shards()).await
    }
    .await;
    f.signal(PAIR, before.passive(), "CONT").await?;
    waited?;
    f.condition::<MySQLPair>(PAIR, "Durable", "True", "", REPAIR)
        .await?;
    f.recovered(PAIR).await
}

async fn foreign(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    f.condition::<MySQLPair>(PAIR, "Durable", "True", "", SOON)
        .await?;
    let mut active = f.server(PAIR, before.active).await?;
    let mut login = f.operator_login(PAIR, before.active).await?;
    for sql in [
        "CREATE USER watcher@'%' IDENTIFIED BY 'a password of its own' REQUIRE SSL",
        "GRANT REPLICATION SLAVE ON *.* TO watcher@'%'",
    ] {
        active.run(sql).await?;
    }
    (login.user, login.password) = ("watcher".into(), "a password of its own".into());
    let said = async {
        let stream = login.connect().await?.take_binary_log(4242).await?;
        let said = f
            .condition::<MySQLPair>(PAIR, "Durable", "False", "ForeignAcknowledger", SOON)
            .await;
        f.write(&bp::shards()).await?;
        drop(stream);
        said
    }
    .await;
    active.run("DROP USER watcher@'%'").await?;
    said?;
    // Its dump thread ends when it next has something to send.
    f.write(&bp::shards()).await?;
    f.condition::<MySQLPair>(PAIR, "Durable", "True", "", SOON)
        .await?;
    let after = f.record(PAIR).await?;
    ensure!(
        after.epoch == before.epoch,
        "the record changed from {before:?} to {after:?}"
    );
    f.recovered(PAIR).await
}

async fn available(f: &Fleet) -> Result<()> {
    let mut started = vec![];
    for n in names::ORDINALS {
        started.push(f.server(PAIR, n).await?.vitals().await?.uuid);
    }
    let pods = f.versions().await?;
    let template =
        json!({"spec": {"mysql": {"durability": "Available", "acknowledgementTimeoutSeconds": 4}}});
    f.edit::<ShardCluster>(&f.cluster, template).await?;
    timeout_is(f, 4000).await?;
    // A pair's own wins.
    let own = json!({"spec": {"mysql": {"durability": "Available", "acknowledgementTimeoutSeconds": 2}}});
    f.edit::<MySQLPair>(PAIR, own).await?;
    timeout_is(f, 2000).await?;
    f.all_ready(SOON).await?;
    let now = f.versions().await?;
    for n in names::ORDINALS {
        let uid = |v: &std::collections::BTreeMap<String, String>| {
            let pod = v.get(&format!("Pod {}", names::pod(PAIR, n)));
            pod.and_then(|p| p.split(' ').next().map(str::to_owned))
        };
        ensure!(
            uid(&pods).is_some() && uid(&pods) == uid(&now),
            "{n} was restarted"
        );
    }
    let before = f.record(PAIR).await?;
    // Nobody acknowledges, and nobody says so: the operator is shown a passive server that answers.
    let mut follower = f.server(PAIR, before.passive()).await?;
    f.edit::<MySQLPair>(PAIR, json!({"spec": {"reconciliation": "Paused"}}))
        .await?;
    let alone = async {
        wait::until("the pair to say that it is paused", SOON, || async {
            let said = crate::fleet::conditions(&f.get::<MySQLPair>(PAIR).await?);
            Ok(Seen::when(said.iter().any(|c| c.reason == "Paused"), || {
                format!("{said:?}")
            }))
        })
        .await?;
        follower.run("STOP REPLICA IO_THREAD").await?;
        let begun = Instant::now();
        f.write(&[0]).await?;
        let took = begun.elapsed();
        println!("      durability-available: the commit went on alone after {took:?}");
        ensure!(took >= Duration::from_millis(1900), "it did not wait: {took:?}");
        f.condition::<MySQLPair>(PAIR, "Durable", "False", "NotWaiting", SOON)
            .await?;
        f.write(&bp::shards()).await
    }
    .await;
    f.edit::<MySQLPair>(
        PAIR,
        json!({"spec": {"reconciliation": "Enabled", "mysql": null}}),
    )
    .await?;
    f.edit::<ShardCluster>(
        &f.cluster,
        json!({"spec": {"mysql": {"durability": "Strict", "acknowledgementTimeoutSeconds": null}}}),
    )
    .await?;
    alone?;
    timeout_is(f, 4_294_967_295).await?;
    f.condition::<MySQLPair>(PAIR, "Durable", "True", "", REPAIR)
        .await?;
    f.recovered(PAIR).await
}

async fn timeout_is(f: &Fleet, milliseconds: u64) -> Result<()> {
    wait::until(&format!("a timeout of {milliseconds} ms"), SOON, || async {
        let said = source(f, f.record(PAIR).await?.active).await?;
        Ok(Seen::when(said.0 == 1 && said.1 == milliseconds, || {
            format!("{said:?}")
        }))
    })
    .await
}

async fn accept_loss(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    f.write(&bp::shards()).await?;
    f.counted(PAIR).await?;
    f.signal(PAIR, before.passive(), "STOP").await?;
    let from = f.rows_written();
    let alone = async {
        // Waited for until the record has the active one alone; then acknowledged by that one, and only there.
        f.write(&bp::shards()).await?;
        let alone = f.members(PAIR, 1, TAKEN_OVER).await?;
        // The socket of a server that is stopped goes on taking what it is sent, much more than is written here: it is cut off.
        cut_followers_off(f, before.active).await?;
        let only_there = f.rows_written();
        // For longer than between two looks of the operator: what is lost is told as far as it was seen.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            f.write(&bp::shards()).await?;
        }
        anyhow::Ok((alone, only_there))
    }
    .await;
    f.signal(PAIR, before.active, "STOP").await?;
    f.signal(PAIR, before.passive(), "CONT").await?;
    // What was sent before the passive one was recorded out may lie in its socket: it is there then, or not.
    f.give_up_rows_since(from);
    let (alone, only_there) = match alone {
        Ok(alone) => alone,
        Err(e) => {
            f.signal(PAIR, before.active, "CONT").await?;
            return Err(e);
        }
    };
    let lost = f.give_up_rows_since(only_there);
    let accepted = accept(f, before.active, alone.epoch).await;
    // It was alone and waits for nobody: nothing but its own end keeps it from acknowledging beside the other one, as the documents say.
    f.signal(PAIR, before.active, "KILL").await?;
    let note = accepted?;
    ensure!(!lost.is_empty(), "nothing was lost");
    f.recovered(PAIR).await?;
    // What was given up is named, and kept where the server that came back had it.
    let uuid = before.members.iter().any(|m| note.contains(m.as_str()));
    ensure!(uuid, "no transaction is named: {note}");
    f.event(PAIR, "ErrantSaved", "", SOON).await?;
    for row in lost.iter().take(3) {
        let there = f.times_there(PAIR, row.shard, &row.text).await?;
        ensure!(
            there == [0, 0],
            "{row:?} was given up and is there {there:?} times"
        );
    }
    // It held for that once.
    let after = f.record(PAIR).await?;
    let annotations = f
        .get::<MySQLPair>(PAIR)
        .await?
        .metadata
        .annotations
        .unwrap_or_default();
    let still = annotations.get(names::ACCEPT_DATA_LOSS_ANNOTATION);
    ensure!(
        still.is_none_or(|e| *e != after.epoch.to_string()),
        "the annotation holds for epoch {} as well",
        after.epoch
    );
    Ok(())
}

/// Ends the connections over which a server sends its binary log.
async fn cut_followers_off(f: &Fleet, active: usize) -> Result<()> {
    let mut server = f.server(PAIR, active).await?;
    let dumps: Vec<u64> = server
        .rows("SELECT id FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%'")
        .await?;
    ensure!(!dumps.is_empty(), "nobody follows");
    for id in dumps {
        server.run(&format!("KILL CONNECTION {id}")).await?;
    }
    Ok(())
}

async fn accept(f: &Fleet, lost: usize, epoch: i64) -> Result<String> {
    let said = f
        .condition::<MySQLPair>(PAIR, "Stalled", "True", "NotInSync", REPAIR)
        .await?;
    ensure!(
        said.message.contains(names::ACCEPT_DATA_LOSS_ANNOTATION)
            && said.message.contains(&epoch.to_string()),
        "the way out is not said: {}",
        said.message
    );
    let annotate = |value: i64| json!({"metadata": {"annotations": {names::ACCEPT_DATA_LOSS_ANNOTATION: value.to_string()}}});
    f.edit::<MySQLPair>(PAIR, annotate(epoch - 1)).await?;
    wait::throughout(
        "a pair whose loss nobody has accepted",
        Duration::from_secs(6),
        || async {
            let record = f.record(PAIR).await?;
            let closed = f.server(PAIR, 1 - lost).await?.vitals().await?.super_read_only;
            Ok(Seen::when(record.active == lost && closed, || {
                format!("{record:?}, closed: {closed}")
            }))
        },
    )
    .await?;
    f.edit::<MySQLPair>(PAIR, annotate(epoch)).await?;
    let after = f.served_by(PAIR, 1 - lost, TAKEN_OVER).await?;
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(
        change.kind == ChangeKind::AcceptedLoss,
        "lastChange is {change:?}"
    );
    f.write(&bp::shards()).await?;
    f.event(PAIR, "DataLossAccepted", "", SOON).await
}
