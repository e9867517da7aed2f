//! The operator dies between any two steps of a change of the active server; the next one goes on from what is recorded.

use super::operator::kill_leader;
use crate::blueprint::{self as bp, OPEN, PAIR};
use crate::dice::Dice;
use crate::fleet::Fleet;
use crate::pair::TAKEN_OVER;
use crate::scenario::Group;
use crate::wait::{self, REPAIR, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant};

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
                in_failover_short,
                "the operator dies at three moments of a failover",
                TestBed
            ),
            scenario!(
                Full,
                "operator-killed-at-every-step",
                in_failover_long,
                "the operator dies at twelve moments of a failover, and at twelve of a switchover",
                TestBed
            ),
        ],
    }
}

fn shards() -> Vec<i32> {
    (0..OPEN).collect()
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

async fn in_failover_short(f: &Fleet) -> Result<()> {
    in_failover(f, 3).await
}

async fn in_failover_long(f: &Fleet) -> Result<()> {
    in_failover(f, 12).await?;
    in_switchover(f, 12).await
}

/// Evenly over the time that it takes, with some chance, so that over many runs every moment is tried.
fn moments(number: u64, span: Duration) -> Vec<Duration> {
    let seed = Dice::seed_now();
    let mut dice = Dice::new(seed);
    let each = u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / number;
    (0..number)
        .map(|n| Duration::from_millis(n * each + dice.below(each.max(1))))
        .collect()
}

async fn in_failover(f: &Fleet, number: u64) -> Result<()> {
    for moment in moments(number, Duration::from_millis(400)) {
        let before = f.record(PAIR).await?;
        f.write(&shards()).await?;
        let pod = f.server_pod(PAIR, before.active).await?;
        crate::testbed::kill_container(&pod, "mysqld").await?;
        let begun = Instant::now();
        // Moments of a failover, not a wait for anything.
        tokio::time::sleep(moment).await;
        kill_leader(f).await?;
        f.note(format!(
            "failover: operator killed {:?} after mysqld",
            begun.elapsed()
        ));
        ended_well(f, before.epoch)
            .await
            .with_context(|| format!("killed after {moment:?}"))?;
    }
    Ok(())
}

async fn in_switchover(f: &Fleet, number: u64) -> Result<()> {
    for moment in moments(number, Duration::from_millis(400)) {
        let before = f.record(PAIR).await?;
        f.write(&shards()).await?;
        f.prefer(PAIR, before.passive()).await?;
        tokio::time::sleep(moment).await;
        kill_leader(f).await?;
        f.note(format!("switchover: operator killed after {moment:?}"));
        ended_well(f, before.epoch)
            .await
            .with_context(|| format!("killed after {moment:?}"))?;
    }
    Ok(())
}

async fn ended_well(f: &Fleet, epoch: i64) -> Result<()> {
    f.world.operator_ready().await?;
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(after.epoch >= epoch, "the epoch fell from {epoch}: {after:?}");
    Ok(())
}
