//! The active server dies, hangs, or lags behind nobody's fault: the other one takes over, with every acknowledged row, or waits.

use crate::blueprint::{self as bp, OPEN, PAIR};
use crate::fleet::Fleet;
use crate::pair::TAKEN_OVER;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::writer::Route;
use crate::{scenario, shared};
use anyhow::{Context as _, Result, bail, ensure};
use shardwright::api::mysql_pair::ChangeKind;
use shardwright::api::{MySQLPair, names};

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
                "both servers die, the passive one comes back first: it serves, the old active one follows it",
                TestBed
            ),
            scenario!(
                Short,
                "both-killed-at-once",
                both_at_once,
                "both mysqld are killed at once: the pair comes back by itself with every row",
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
                "waiting-commit-killed",
                killed_commit,
                "a client kills a commit that waits for its acknowledgement, then the active server dies: the row is on both or on neither",
                TestBed
            ),
        ],
    }
}

fn shards() -> Vec<i32> {
    (0..OPEN).collect()
}

async fn three_kills(f: &Fleet) -> Result<()> {
    for which in ["passive", "active", "passive"] {
        let before = f.record(PAIR).await?;
        ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
        f.write(&shards()).await?;
        let (victim, serves) = if which == "active" {
            (before.active, before.passive())
        } else {
            (before.passive(), before.active)
        };
        f.signal(PAIR, victim, "KILL").await?;
        let after = f.served_by(PAIR, serves, TAKEN_OVER).await?;
        // At once: whoever serves does not wait for the one that was killed to be back.
        f.write(&shards())
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
    f.signal(PAIR, active, "STOP").await?;
    // Its locks go with it: what it acknowledged is in its relay log, and nowhere else that can be reached.
    f.signal(PAIR, passive, "KILL").await?;
    drop(locks);
    let served = f.served_by(PAIR, passive, REPAIR).await;
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
    let before = f.record(PAIR).await?;
    let (active, passive) = (before.active, before.passive());
    f.write(&shards()).await?;
    // A dead server is started again within a second. So that it comes back last, it hangs first, and dies when the other one is back.
    f.signal(PAIR, active, "STOP").await?;
    f.signal(PAIR, passive, "KILL").await?;
    let served = f.served_by(PAIR, passive, REPAIR).await;
    f.signal(PAIR, active, "KILL").await?;
    served?;
    f.write(&shards()).await?;
    f.recovered(PAIR).await?;
    ensure!(
        f.record(PAIR).await?.active == passive,
        "the old active server serves again"
    );
    Ok(())
}

async fn both_at_once(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    f.write(&shards()).await?;
    for n in names::ORDINALS {
        f.signal(PAIR, n, "KILL").await?;
    }
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(
        after.epoch >= before.epoch,
        "the epoch fell: {before:?} → {after:?}"
    );
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
        Ok(_) => f.write(&shards()).await,
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
    let (active, passive) = (before.active, before.passive());
    let mut follower = f.server(PAIR, passive).await?;
    let mut source = f.server(PAIR, active).await?;
    // Nothing of this commit gets to the passive server.
    follower.run("STOP REPLICA IO_THREAD").await?;
    let pending = f.write_pending(PAIR, active, 0).await?;
    source.run(&format!("KILL {}", pending.connection)).await?;
    f.signal(PAIR, active, "KILL").await?;
    let text = pending.text.clone();
    match pending.answer(SOON).await? {
        Some(Err(_)) => {}
        Some(Ok(())) => bail!("a commit that was killed while it waited was acknowledged"),
        None => bail!("the client was told nothing"),
    }
    f.recovered(PAIR).await?;
    let there = f.times_there(PAIR, 0, &text).await?;
    println!("      waiting-commit-killed: the row is there {there:?} times");
    ensure!(
        there == [0, 0] || there == [1, 1],
        "the row is there {there:?} times"
    );
    if there == [0, 0] {
        // The old active server had it in its binary log: it is kept by name, not thrown away silently.
        let note = f.event(PAIR, "ErrantSaved", "", SOON).await?;
        let secrets = f.errant_secrets(PAIR).await?;
        ensure!(!secrets.is_empty(), "no Secret holds it, although: {note}");
    }
    ensure!(f.record(PAIR).await?.epoch > before.epoch, "nothing was recorded");
    Ok(())
}
