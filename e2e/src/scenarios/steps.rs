//! The operator dies between any two steps of a change of the active server; the next one goes on from what is recorded.

use super::operator::kill_leader;
use crate::blueprint::{self as bp, PAIR};
use crate::fleet::{Fleet, conditions};
use crate::pair::{Record, TAKEN_OVER};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use shardwright::act::failpoint;
use shardwright::api::{MySQLPair, names};
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "steps",
        alone: true,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "operator-killed-while-applying",
                while_applying,
                "the operator dies after it recorded the new active server and before that was opened",
                TestBed
            ),
            scenario!(
                Short,
                "operator-killed-in-failover",
                in_failover,
                "the operator is killed before a failover's first step, between each two, and after the last: no step is lost or done twice",
                TestBed
            ),
            scenario!(
                Full,
                "operator-killed-at-every-step",
                in_switchover,
                "the operator is killed before a switchover's first step, between each two, and after the last: it is done",
                TestBed
            ),
        ],
    }
}

async fn while_applying(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let (active, passive) = (before.active, before.passive());
    let locks = f.hold_applier(PAIR, passive, 0).await?;
    f.write(&[0; 10]).await?;
    f.signal(PAIR, active, "STOP").await?;
    let killed = async {
        wait::until(
            "the passive server to be recorded as active",
            TAKEN_OVER,
            || async {
                let record = f.record(PAIR).await?;
                Ok(Seen::when(record.active == passive, || format!("{record:?}")))
            },
        )
        .await?;
        kill_leader(f).await
    }
    .await;
    let released = locks.release().await;
    let served = f.served_by(PAIR, passive, REPAIR).await;
    f.signal(PAIR, active, "CONT").await?;
    killed?;
    released?;
    served?;
    f.world.operator_ready().await?;
    f.recovered(PAIR).await
}

/// Longer than any step takes.
const HALTED: Duration = Duration::from_secs(2);

/// What can be seen of how far a change of the active server has come.
#[allow(clippy::struct_excessive_bools, reason = "they are answers, each on its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage {
    recorded: bool,
    /// The old active server is closed. Nobody can ask one that is dead.
    closed: Option<bool>,
    /// The new one's receiver is off.
    separated: bool,
    /// The new one has applied what it received.
    applied: bool,
    opened: bool,
    /// The Service leads to the new one.
    led: bool,
}

async fn stage(f: &Fleet, before: &Record, planned: bool) -> Result<Stage> {
    let record = f.record(PAIR).await?;
    let to = before.passive();
    let recorded = record.active == to && record.epoch == before.epoch + 1;
    ensure!(recorded || record == *before, "recorded is {record:?}");
    ensure!(
        !recorded || record.members.len() == 1,
        "a server that was changed away from is in sync: {record:?}"
    );
    let mut server = f.server(PAIR, to).await?;
    let receiver: String = server
        .one("SELECT SERVICE_STATE FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ''")
        .await?;
    let leads = f.endpoints(&names::active_service(PAIR)).await?;
    let closed = if planned {
        Some(
            f.server(PAIR, before.active)
                .await?
                .vitals()
                .await?
                .super_read_only,
        )
    } else {
        None
    };
    Ok(Stage {
        recorded,
        closed,
        separated: receiver == "OFF",
        applied: f.unapplied(PAIR, to).await?.is_empty(),
        opened: !server.vitals().await?.read_only,
        led: leads == [names::pod(PAIR, to)],
    })
}

/// Record, stop the receiver, apply, open.
async fn in_failover(f: &Fleet) -> Result<()> {
    armed(f, async {
        for steps in 0..=4 {
            Box::pin(failover_halted(f, steps))
                .await
                .with_context(|| format!("the operator was killed after {steps} steps"))?;
        }
        Ok(())
    })
    .await
}

async fn failover_halted(f: &Fleet, steps: usize) -> Result<()> {
    let before = f.record(PAIR).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    f.write(&bp::shards()).await?;
    // So that it can be told whether it was applied.
    let held = if steps < 3 {
        let locks = f.hold_applier(PAIR, before.passive(), 0).await?;
        f.write(&[0; 5]).await?;
        Some(locks)
    } else {
        None
    };
    halt_and_be_seen(f, steps).await?;
    f.signal(PAIR, before.active, "KILL").await?;
    let expected = Stage {
        recorded: steps >= 1,
        closed: None,
        separated: steps >= 2,
        applied: steps >= 3,
        opened: steps >= 4,
        led: false,
    };
    halted(f, &before, false, expected).await?;
    halt_after(f, None).await?;
    kill_leader(f).await?;
    if let Some(locks) = held {
        locks.release().await?;
    }
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    // Before it was recorded, the old one may be back before there is another operator: then it goes on.
    ensure!(
        after.epoch > before.epoch || (steps == 0 && after.epoch == before.epoch),
        "{before:?} → {after:?}"
    );
    ensure!(
        steps == 0 || after.active == before.passive(),
        "another one is active than was recorded: {before:?} → {after:?}"
    );
    f.world.operator_ready().await
}

/// Close, let the other one reach it, stop that one's receiver, apply, record, open.
async fn in_switchover(f: &Fleet) -> Result<()> {
    armed(f, async {
        for steps in 0..=6 {
            Box::pin(switchover_halted(f, steps))
                .await
                .with_context(|| format!("the operator was killed after {steps} steps"))?;
        }
        Ok(())
    })
    .await
}

async fn switchover_halted(f: &Fleet, steps: usize) -> Result<()> {
    let before = f.record(PAIR).await?;
    ensure!(before.members.len() == 2, "in sync are {:?}", before.members);
    f.write(&bp::shards()).await?;
    halt_and_be_seen(f, steps).await?;
    f.wish(PAIR, before.passive()).await?;
    let expected = Stage {
        recorded: steps >= 5,
        closed: Some(steps >= 1),
        separated: steps >= 3,
        // The other one follows, and has nothing else to do.
        applied: true,
        opened: steps >= 6,
        led: false,
    };
    halted(f, &before, true, expected).await?;
    halt_after(f, None).await?;
    kill_leader(f).await?;
    f.served_by(PAIR, before.passive(), REPAIR).await?;
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(
        after.active == before.passive() && after.epoch > before.epoch,
        "{before:?} → {after:?}"
    );
    f.world.operator_ready().await
}

/// Operators that heed [`failpoint::HALT`], for as long as that takes.
async fn armed(f: &Fleet, what: impl Future<Output = Result<()>>) -> Result<()> {
    set_variable(f, "=armed").await?;
    let done = what.await;
    set_variable(f, "-").await?;
    done
}

async fn set_variable(f: &Fleet, to: &str) -> Result<()> {
    f.world.operator_failpoints(to).await?;
    // The one that leads now has seen the pair.
    f.while_paused(PAIR, async { Ok(()) }).await?;
    f.recovered(PAIR).await
}

async fn halt_after(f: &Fleet, steps: Option<usize>) -> Result<()> {
    let steps = steps.map(|n| n.to_string());
    f.edit::<MySQLPair>(
        PAIR,
        json!({"metadata": {"annotations": {failpoint::HALT: steps}}}),
    )
    .await
    .map(|_| ())
}

/// What follows at once has to find an operator that knows of it: a failover begins within milliseconds.
async fn halt_and_be_seen(f: &Fleet, steps: usize) -> Result<()> {
    f.while_paused(PAIR, halt_after(f, Some(steps))).await?;
    wait::until("the operator to have seen the pair", wait::SOON, || async {
        let pair: MySQLPair = f.get(PAIR).await?;
        let said = conditions(&pair);
        let seen = said
            .iter()
            .all(|c| c.reason != "Paused" && c.observed_generation == pair.metadata.generation);
        Ok(Seen::when(seen, || format!("{said:?}")))
    })
    .await
}

/// Waits until the change has come so far, and sees that it goes no further: an operator that still acts holds the lock of the server that
/// it makes the active one.
async fn halted(f: &Fleet, before: &Record, planned: bool, expected: Stage) -> Result<()> {
    let look = || async {
        let seen = stage(f, before, planned).await?;
        let lock = "SELECT IS_USED_LOCK('shardwright')";
        let holder: Option<u64> = f.server(PAIR, before.passive()).await?.one(lock).await?;
        Ok(Seen::when(seen == expected && holder.is_some(), || {
            format!("{seen:?} instead of {expected:?}, locked by {holder:?}")
        }))
    };
    wait::until("the operator to halt", TAKEN_OVER, look).await?;
    wait::throughout("a halted operator", HALTED, look).await
}
