//! The active server dies, hangs, or lags behind nobody's fault: the other one takes over, with every acknowledged row, or waits.

use crate::blueprint::{self as bp, PAIR};
use crate::fleet::Fleet;
use crate::pair::{Record, TAKEN_OVER, container};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::writer::Route;
use crate::{scenario, shared, testbed};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use shardwright::api::mysql_pair::ChangeKind;
use shardwright::api::{MySQLPair, names};
use std::time::{Duration, Instant};

/// The group.
pub fn group() -> Group {
    Group {
        name: "failover",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "passive-active-passive-killed",
                three_kills,
                "mysqld is killed by -9: the passive one, the active one, the passive one again; rows are counted after each",
                TestBed
            ),
            scenario!(
                Short,
                "passive-restarts-unapplied",
                unapplied,
                "the active server dies and the passive one restarts before it has applied what it acknowledged",
                TestBed
            ),
            scenario!(
                Short,
                "passive-lags-active-dies",
                lagging,
                "the passive server lags and the active one dies: closed until all is applied, the gap is said",
                TestBed
            ),
            scenario!(
                Short,
                "both-die-passive-first",
                passive_first,
                "both servers die, the passive one comes back first: in sync, it serves, and the old active one follows it; out of sync, it waits for that one",
                TestBed
            ),
            scenario!(
                Short,
                "both-killed-at-once",
                both_at_once,
                "both mysqld are killed at once: the pair comes back by itself with every row, by the active one when that is back first",
                TestBed
            ),
            scenario!(
                Short,
                "active-hangs-and-wakes",
                hangs,
                "mysqld is stopped with clients on it and goes on later: no client is told OK for a row that is not there",
                TestBed
            ),
            scenario!(
                Short,
                "forced-while-commits-wait",
                super::forced::forced,
                "the active server's Pod is deleted by force while commits wait: no client is told OK"
            ),
            scenario!(
                Short,
                "waiting-commit-killed",
                killed_commit,
                "a client kills a commit that waits for its acknowledgement, then the active server dies: the row is on neither, and kept in a Secret",
                TestBed
            ),
        ],
    }
}

async fn three_kills(f: &Fleet) -> Result<()> {
    for which in ["passive", "active", "passive"] {
        let before = f.record(PAIR).await?;
        ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
        f.write(&bp::shards()).await?;
        let (victim, serves) = if which == "active" {
            (before.active, before.passive())
        } else {
            (before.passive(), before.active)
        };
        let begun = Instant::now();
        f.signal(PAIR, victim, "KILL").await?;
        if which == "passive" {
            // For people: how long a commit waits for a server that has just died is not what is asserted here.
            f.write(&[0]).await?;
            let (took, alone) = (begun.elapsed(), f.record(PAIR).await?.members.len() == 1);
            println!(
                "      passive-active-passive-killed: a row was acknowledged {took:?} after the passive server's death, out of the record: {alone}"
            );
        }
        let after = f.served_by(PAIR, serves, TAKEN_OVER).await?;
        // At once: whoever serves does not wait for the one that was killed to be back.
        f.write(&bp::shards())
            .await
            .with_context(|| format!("after the {which} one was killed"))?;
        if which == "active" {
            let change = f.last_change(PAIR, after.epoch).await?;
            ensure!(
                change.kind == ChangeKind::Failover
                    && change.from == Some(names::pod(PAIR, victim))
                    && change.to == names::pod(PAIR, serves)
                    && !change.cause.is_empty(),
                "lastChange is {change:?}"
            );
            f.event(PAIR, "Failover", &names::pod(PAIR, serves), SOON).await?;
        }
        f.recovered(PAIR)
            .await
            .with_context(|| format!("after the {which} one was killed"))?;
        let last = f.record(PAIR).await?;
        ensure!(last.active == serves, "another server is active: {last:?}");
        ensure!(
            last.epoch >= before.epoch,
            "the epoch fell: {before:?} → {last:?}"
        );
    }
    Ok(())
}

async fn unapplied(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let (active, passive) = (before.active, before.passive());
    let locks = f.hold_applier(PAIR, passive, 0).await?;
    f.write(&[0; 20]).await?;
    let unapplied = f.unapplied(PAIR, passive).await?;
    ensure!(
        unapplied.count() == 20,
        "acknowledged and not applied are {unapplied}"
    );
    f.signal(PAIR, active, "STOP").await?;
    // Its locks go with it: what it acknowledged is in its relay log, and nowhere else that can be reached.
    f.signal(PAIR, passive, "KILL").await?;
    drop(locks);
    let served = async {
        let after = f.served_by(PAIR, passive, REPAIR).await?;
        f.intact_at(true).await?;
        anyhow::Ok(after)
    }
    .await;
    f.signal(PAIR, active, "CONT").await?;
    let after = served?;
    ensure!(after.epoch > before.epoch, "{before:?} → {after:?}");
    f.recovered(PAIR).await
}

async fn lagging(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let (active, passive) = (before.active, before.passive());
    let locks = f.hold_applier(PAIR, passive, 0).await?;
    f.write(&[0; 30]).await?;
    f.signal(PAIR, active, "STOP").await?;
    let seen = blocked(f, passive).await;
    let released = locks.release().await;
    let served = f.served_by(PAIR, passive, REPAIR).await;
    f.signal(PAIR, active, "CONT").await?;
    seen?;
    released?;
    served?;
    f.recovered(PAIR).await
}

/// It is recorded, and stays closed while it has not applied everything; how much that is, is said.
async fn blocked(f: &Fleet, recorded: usize) -> Result<()> {
    wait::until(
        "the passive server to be recorded as active",
        TAKEN_OVER,
        || async {
            let record = f.record(PAIR).await?;
            Ok(Seen::when(record.active == recorded, || format!("{record:?}")))
        },
    )
    .await?;
    let said = f
        .condition::<MySQLPair>(PAIR, "Ready", "False", "ApplyingRelayLog", SOON)
        .await?;
    let gap: Vec<u64> = said
        .message
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    ensure!(gap.contains(&30), "the gap of 30 is not said: {}", said.message);
    let mut server = f.server(PAIR, recorded).await?;
    for _ in 0..15 {
        let vitals = server.vitals().await?;
        ensure!(
            vitals.super_read_only,
            "it was opened before it had applied everything"
        );
        tokio::time::sleep(wait::POLL).await;
    }
    Ok(())
}

async fn passive_first(f: &Fleet) -> Result<()> {
    in_sync_comes_first(f).await?;
    out_of_sync_comes_first(f).await
}

fn restarts(pod: &Pod) -> Result<i32> {
    Ok(container(pod)?.restart_count)
}

/// A member has whatever was acknowledged (P3): it serves, whoever was active.
async fn in_sync_comes_first(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    let (active, passive) = (before.active, before.passive());
    let count = restarts(&f.server_pod(PAIR, passive).await?)?;
    f.write(&bp::shards()).await?;
    let booting = f.kill_and_hold(PAIR, &names::ORDINALS, active).await?;
    let served = async {
        let after = f.served_by(PAIR, passive, REPAIR).await?;
        ensure!(
            !f.listens(PAIR, active).await?,
            "the old active server is there too"
        );
        f.intact_at(true).await?;
        f.write(&bp::shards()).await?;
        anyhow::Ok(after)
    }
    .await;
    booting.go_on().await?;
    let after = served?;
    ensure!(after.epoch > before.epoch, "{before:?} → {after:?}");
    ensure!(
        restarts(&f.server_pod(PAIR, passive).await?)? == count + 1,
        "the passive server did not die"
    );
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(change.kind == ChangeKind::Failover, "lastChange is {change:?}");
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == passive,
        "the old active server serves again"
    );
    Ok(())
}

/// Rows are acknowledged once the record has the active server alone.
async fn written_alone(f: &Fleet) -> Result<Record> {
    wait::until("rows to be acknowledged by one server", TAKEN_OVER, || async {
        f.write(&bp::shards()).await?;
        let record = f.record(PAIR).await?;
        Ok(if record.members.len() == 1 {
            Seen::Yes(record)
        } else {
            Seen::NotYet(format!("{record:?}"))
        })
    })
    .await
}

/// One that was out of sync may lack something (P4): it stays closed until the other one is back.
async fn out_of_sync_comes_first(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let (active, passive) = (before.active, before.passive());
    f.signal(PAIR, passive, "STOP").await?;
    let alone = written_alone(f).await;
    if alone.is_err() {
        f.signal(PAIR, passive, "CONT").await?;
    }
    let alone = alone?;
    let booting = f.kill_and_hold(PAIR, &names::ORDINALS, active).await?;
    let waited = async {
        f.condition::<MySQLPair>(PAIR, "Stalled", "True", "NotInSync", REPAIR)
            .await?;
        wait::throughout(
            "the passive server, which is not in sync",
            Duration::from_secs(4),
            || async {
                let record = f.record(PAIR).await?;
                let closed = f.server(PAIR, passive).await?.vitals().await?.super_read_only;
                Ok(Seen::when(record == alone && closed, || {
                    format!("{record:?}, closed: {closed}")
                }))
            },
        )
        .await
    }
    .await;
    booting.go_on().await?;
    waited?;
    f.served_by(PAIR, active, REPAIR).await?;
    f.intact_at(true).await?;
    f.recovered(PAIR).await
}

async fn both_at_once(f: &Fleet) -> Result<()> {
    // The old active one comes back first: it goes on.
    let before = f.record(PAIR).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    f.write(&bp::shards()).await?;
    let booting = f.kill_and_hold(PAIR, &names::ORDINALS, before.passive()).await?;
    let served = async {
        f.served_by(PAIR, before.active, REPAIR).await?;
        f.intact_at(true).await?;
        written_alone(f).await
    }
    .await;
    booting.go_on().await?;
    served?;
    f.recovered(PAIR).await?;
    let last = f.record(PAIR).await?;
    ensure!(
        last.active == before.active && last.epoch >= before.epoch,
        "{before:?} → {last:?}"
    );
    // Whoever comes back first: it goes on, or has taken over and says so.
    let mut pids = vec![];
    for n in names::ORDINALS {
        let pod = f.server_pod(PAIR, n).await?;
        pids.extend(testbed::processes_called(&pod, "mysqld")?);
    }
    ensure!(pids.len() == 2, "mysqld are {pids:?}");
    testbed::signal(&pids, "KILL").await?;
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(after.epoch >= last.epoch, "the epoch fell: {last:?} → {after:?}");
    if after.active != last.active {
        let change = f.status(PAIR).await?.last_change;
        ensure!(
            change.as_ref().is_some_and(|c| c.kind == ChangeKind::Failover
                && c.epoch > last.epoch
                && c.to == names::pod(PAIR, after.active)),
            "{last:?} → {after:?}, and lastChange is {change:?}"
        );
    }
    Ok(())
}

async fn hangs(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let (active, passive) = (before.active, before.passive());
    let secret = names::app_secret(&f.cluster);
    let (user, password, ca) = (
        f.secret(&secret, "username").await?,
        f.secret(&secret, "password").await?,
        f.secret(&secret, "ca.crt").await?,
    );
    // Clients that know of no map, and stay with the server that they have.
    let mut clients = vec![];
    for n in 0..4 {
        let login = f.login(PAIR, active, &user, &password, &ca).await?;
        clients.push(f.writer(&format!("hang-{n}"), n, Route::fixed(login)).await?);
    }
    wait::until("the clients to write", SOON, || async {
        let slowest = clients.iter().map(|c| c.book.acknowledged()).min().unwrap_or(0);
        Ok(Seen::when(slowest >= 20, || format!("{slowest} rows")))
    })
    .await?;
    f.signal(PAIR, active, "STOP").await?;
    let served = f.served_by(PAIR, passive, TAKEN_OVER).await;
    let written = match &served {
        Ok(_) => f.write(&bp::shards()).await,
        Err(_) => Ok(()),
    };
    let acknowledged: Vec<_> = clients.iter().map(|c| c.book.acknowledged()).collect();
    f.signal(PAIR, active, "CONT").await?;
    served?;
    written?;
    f.recovered(PAIR).await?;
    let mut books = vec![];
    for client in clients {
        books.push(client.stop().await?);
    }
    for (n, book) in books.iter().enumerate() {
        ensure!(
            Some(&book.acknowledged()) == acknowledged.get(n),
            "{} was told OK by the old active server after another one had taken over",
            book.client
        );
        f.holds(
            PAIR,
            &f.table(i32::try_from(n)?).await?,
            std::slice::from_ref(book),
        )
        .await?;
    }
    ensure!(
        f.record(PAIR).await?.active == passive,
        "the old active server serves again"
    );
    Ok(())
}

async fn killed_commit(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    let (active, passive) = (before.active, before.passive());
    let saved = f.errant_secrets(PAIR).await?;
    let told_before = f.told(PAIR, "ErrantSaved").await?;
    let mut follower = f.server(PAIR, passive).await?;
    let mut source = f.server(PAIR, active).await?;
    let mut text = String::new();
    let told = f
        .while_paused(PAIR, async {
            // Nothing of this commit gets to the passive server, and nobody starts its receiver again.
            follower.run("STOP REPLICA IO_THREAD").await?;
            let pending = f.write_pending(PAIR, active, 0).await?;
            text.clone_from(&pending.text);
            source.run(&format!("KILL {}", pending.connection)).await?;
            match pending.answer(SOON).await? {
                Some(Err(_)) => {}
                Some(Ok(())) => bail!("a commit that was killed while it waited was acknowledged"),
                None => bail!("the client was told nothing"),
            }
            let receiving = f.unapplied(PAIR, passive).await?;
            ensure!(receiving.is_empty(), "the passive server has {receiving}");
            // From here on it sends nothing either.
            f.signal(PAIR, active, "STOP").await
        })
        .await;
    let served = match &told {
        Ok(()) => f.served_by(PAIR, passive, TAKEN_OVER).await.map(|_| ()),
        Err(_) => Ok(()),
    };
    f.signal(PAIR, active, "KILL").await?;
    told?;
    served?;
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(
        after.active == passive && after.epoch > before.epoch,
        "{before:?} → {after:?}"
    );
    let there = f.times_there(PAIR, 0, &text).await?;
    ensure!(there == [0, 0], "the row is there {there:?} times");
    // The old active server had it in its binary log: it is kept, not thrown away silently.
    f.told_again(PAIR, "ErrantSaved", told_before).await?;
    let now = f.errant_secrets(PAIR).await?;
    let new: Vec<_> = now.iter().filter(|n| !saved.contains(n)).collect();
    let [name] = *new else {
        bail!("Secrets with errant transactions: {saved:?} → {now:?}");
    };
    let script = f.secret(name, "transactions.sql").await?;
    ensure!(script.contains(&text), "{name} lacks {text}:\n{script}");
    Ok(())
}
