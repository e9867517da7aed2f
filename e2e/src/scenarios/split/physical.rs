//! A pair that has nothing is cloned over: both its servers, from the passive server of the source; and what may go wrong meanwhile.

use super::stage::{FRESH, HALF, all, begin, fixture, half, open, quick, retained, seeded_by, split};
use super::watch::Watch;
use crate::blueprint::PAIR;
use crate::crowd::Pace;
use crate::fleet::Fleet;
use crate::moves::{Copy, MOVED};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Result, ensure};
use serde_json::json;
use shardwright::api::{MoveStage, Seed, ShardRange, names};
use std::sync::Arc;

/// The group.
pub fn group() -> Group {
    Group {
        name: "split-physical",
        alone: true,
        fixture: shared!(fixture),
        scenarios: vec![
            scenario!(
                Short,
                "split-physical",
                cloned,
                "half of a range goes to an empty pair: that one is cloned over, from the passive server, on both servers, and what did not move is dropped in the end",
                TestBed
            ),
            scenario!(
                Full,
                "split-physical-aborted",
                aborted,
                "the wish is taken back while the target is cloned over: it ends empty and healthy, and the next try succeeds",
                TestBed
            ),
            scenario!(
                Full,
                "split-physical-killed",
                killed,
                "servers of the target and of the source end while the target is cloned over: it is begun anew, and the shards arrive",
                TestBed
            ),
        ],
    }
}

/// Servers copy a megabyte a second, so that a clone can be caught.
async fn slow(f: &Fleet, is: bool) -> Result<()> {
    for pair in [PAIR, FRESH] {
        for ordinal in names::ORDINALS {
            let sql = format!("SET GLOBAL clone_max_data_bandwidth = {}", u8::from(is));
            f.server(pair, ordinal).await?.within(SOON, &sql).await?;
        }
    }
    Ok(())
}

/// Waits until the passive server of the target is being cloned over.
async fn is_cloned(f: &Fleet) -> Result<()> {
    wait::until("the target to be cloned over", SOON, || async {
        let passive = f.record(FRESH).await?.passive();
        let running: u64 = f
            .server(FRESH, passive)
            .await?
            .one("SELECT COUNT(*) FROM performance_schema.clone_status WHERE state = 'In Progress'")
            .await?;
        Ok(Seen::when(running == 1, || "no CLONE runs".into()))
    })
    .await
}

async fn cloned(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    let (source, before) = (f.record(PAIR).await?, f.record(FRESH).await?);
    split(f, FRESH, retained()).await?;
    seeded_by(f, PAIR, FRESH, Seed::Physical).await?;
    wait::until("the range to say how its copies are made", SOON, || async {
        let said = f.migration(HALF).await?;
        Ok(Seen::when(said["seed"] == "Physical", || said.to_string()))
    })
    .await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, SOON).await?;
    // The passive server was cloned, and took over; the other one is a copy of it.
    let after = f.record(FRESH).await?;
    ensure!(
        after.active == before.passive() && after.members.len() == 2,
        "before {before:?}, after {after:?}"
    );
    for (ordinal, donor) in [
        (after.active, names::host(&f.ns, PAIR, source.passive())),
        (after.passive(), names::host(&f.ns, FRESH, after.active)),
    ] {
        let from: String = f
            .server(FRESH, ordinal)
            .await?
            .one("SELECT SUBSTRING_INDEX(source, ':', 1) FROM performance_schema.clone_status")
            .await?;
        ensure!(
            from == donor,
            "{FRESH}-{ordinal} was copied from {from}, not {donor}"
        );
        let copies = f.copies(FRESH, ordinal).await?;
        for shard in all().shards() {
            let copy = copies.get(&shard);
            // On the passive server it is opened a moment later.
            let right = match copy {
                Some(Copy::Open) => half().contains(shard),
                Some(Copy::Shut) => !half().contains(shard) || ordinal != after.active,
                _ => false,
            };
            ensure!(right, "{FRESH}-{ordinal} has {shard} {copy:?}");
        }
    }
    ensure!(
        f.record(PAIR).await? == source,
        "the source noticed: {:?}",
        f.record(PAIR).await?
    );
    watch.writes().await?;
    f.one_home(false).await?;
    watch.end(f, "split-physical").await?.once(&half(), PAIR, FRESH)?;
    f.same_rows(&half(), &[FRESH, PAIR]).await?;
    // What came along and did not move is dropped with the rest, on both servers.
    f.edit::<ShardRange>(HALF, json!({"spec": {"retainSourceSeconds": 0}}))
        .await?;
    f.nothing_left().await?;
    f.healthy(FRESH).await?;
    f.write(&open()).await?;
    f.intact().await
}

async fn aborted(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    slow(f, true).await?;
    split(f, FRESH, retained()).await?;
    is_cloned(f).await?;
    f.send(HALF, PAIR).await?;
    wait::until("the clone to be ended", SOON, || async {
        for ordinal in names::ORDINALS {
            let running: u64 = f
                .server(FRESH, ordinal)
                .await?
                .one("SELECT COUNT(*) FROM performance_schema.clone_status WHERE state = 'In Progress'")
                .await?;
            if running > 0 {
                return Ok(Seen::NotYet(format!("{FRESH}-{ordinal} is being copied")));
            }
        }
        Ok(Seen::Yes(()))
    })
    .await?;
    slow(f, false).await?;
    f.nothing_left().await?;
    f.members(FRESH, 2, REPAIR).await?;
    watch.writes().await?;
    f.edit::<ShardRange>(HALF, json!({"spec": quick()})).await?;
    f.send(HALF, FRESH).await?;
    seeded_by(f, PAIR, FRESH, Seed::Physical).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    watch.writes().await?;
    watch
        .end(f, "split-physical-aborted")
        .await?
        .once(&half(), PAIR, FRESH)?;
    f.nothing_left().await?;
    f.healthy(FRESH).await?;
    f.intact().await
}

async fn killed(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    slow(f, true).await?;
    split(f, FRESH, retained()).await?;
    is_cloned(f).await?;
    // The one that is overwritten.
    f.signal(FRESH, f.record(FRESH).await?.passive(), "KILL").await?;
    slow_again(f).await?;
    // The one that is empty, and serves nothing.
    f.signal(FRESH, f.record(FRESH).await?.active, "KILL").await?;
    slow_again(f).await?;
    // The donor: it is copied from the passive server of then.
    let donor = f.record(PAIR).await?.passive();
    f.signal(PAIR, donor, "KILL").await?;
    f.members(PAIR, 2, REPAIR).await?;
    slow(f, false).await?;
    f.at_home(&half(), FRESH, MOVED * 2).await?;
    f.stage(PAIR, FRESH, MoveStage::Retaining, REPAIR).await?;
    watch.writes().await?;
    f.one_home(false).await?;
    watch.end(f, "split-physical-killed").await?;
    f.same_rows(&half(), &[FRESH, PAIR]).await?;
    f.recovered(FRESH).await?;
    f.intact().await
}

/// What was set on a server goes with its restart.
async fn slow_again(f: &Fleet) -> Result<()> {
    let begun = wait::until("the servers to answer", REPAIR, || async {
        Ok(match slow(f, true).await {
            Ok(()) => Seen::Yes(()),
            Err(e) => Seen::NotYet(e.to_string()),
        })
    });
    begun.await?;
    wait::until("the target to be cloned over once more", REPAIR, || async {
        Ok(match is_cloned(f).await {
            Ok(()) => Seen::Yes(()),
            Err(e) => Seen::NotYet(e.to_string()),
        })
    })
    .await
}
