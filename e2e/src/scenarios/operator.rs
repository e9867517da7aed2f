//! The operator is late, is killed, changes hands, is upgraded. These run alone.

use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::dice::Dice;
use crate::fleet::Fleet;
use crate::scenario::{Fixture, Group};
use crate::testbed;
use crate::wait::{self, BRING_UP, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use shardwright::api::{ShardRange, names};
use std::time::{Duration, Instant};

/// The groups.
pub fn groups() -> Vec<Group> {
    vec![
        Group {
            name: "starting",
            alone: true,
            fixture: Fixture::Empty,
            scenarios: vec![
                scenario!(
                    Short,
                    "gitops-random-order",
                    gitops,
                    "all objects at once in a random order, the operator started last",
                    Operator
                ),
                scenario!(
                    Short,
                    "operator-killed-5-times",
                    killed_5,
                    "the leader is killed at 5 random moments of one bring-up",
                    Operator
                ),
                scenario!(
                    Full,
                    "operator-killed-20-times",
                    killed_20,
                    "the leader is killed at 20 random moments of one bring-up",
                    Operator
                ),
            ],
        },
        Group {
            name: "operator",
            alone: true,
            fixture: shared!(bp::small),
            scenarios: vec![
                scenario!(
                    Short,
                    "leader-lost",
                    leader_lost,
                    "the leader's Pod goes: the other one takes over and reconciles",
                    Operator
                ),
                scenario!(
                    Short,
                    "operator-upgrade",
                    upgrade,
                    "another tag of the operator restarts no mysqld",
                    SecondOperatorImage
                ),
                scenario!(
                    Short,
                    "operator-away",
                    away,
                    "without any operator the fleet serves; afterwards nothing is restarted",
                    Operator
                ),
            ],
        },
    ]
}

async fn gitops(f: &Fleet) -> Result<()> {
    let seed = Dice::seed_now();
    let mut dice = Dice::new(seed);
    f.world.scale_operator(0).await?;
    let mut order = vec!["cluster", "pair", "range 0", "range 1", "range 2"];
    dice.shuffle(&mut order);
    println!("      gitops-random-order: seed {seed}, order {order:?}");
    f.note(format!("seed {seed}, order {order:?}"));
    for what in &order {
        match *what {
            "cluster" => drop(f.apply(&bp::cluster(f)).await?),
            "pair" => drop(f.apply(&bp::pair(f, PAIR)).await?),
            "range 0" => drop(f.apply(&bp::range(f, RANGE, 0, 3, PAIR)).await?),
            "range 1" => drop(f.apply(&bp::range(f, "r1", 4, 5, PAIR)).await?),
            _ => drop(f.apply(&bp::range(f, "r2", 6, 7, PAIR)).await?),
        }
    }
    f.world.scale_operator(2).await?;
    f.all_ready(BRING_UP).await?;
    f.healthy(PAIR).await?;
    f.tables_on_both(PAIR, &(0..8).collect::<Vec<_>>(), &bp::TABLES)
        .await?;
    f.write(&(0..8).collect::<Vec<_>>()).await?;
    f.intact().await
}

/// Kills the leader as hard as this cluster allows: its process by -9 in the test bed, else its Pod without grace.
pub(super) async fn kill_leader(f: &Fleet) -> Result<()> {
    let Some(pod) = f.world.leader().await? else {
        return Ok(());
    };
    if f.world.settings.local {
        // Between two starts there is no process to kill; that is a moment as good as another.
        if testbed::kill_container(&pod, "operator").await.is_ok() {
            return Ok(());
        }
    }
    let api: Api<Pod> = Api::namespaced(f.world.client.clone(), &f.world.settings.operator_namespace);
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name_any(), &params).await {
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}

async fn killed(f: &Fleet, times: u64) -> Result<()> {
    let seed = Dice::seed_now();
    let mut dice = Dice::new(seed);
    println!("      operator-killed: seed {seed}");
    f.note(format!("seed {seed}"));
    f.apply(&bp::cluster(f)).await?;
    f.apply(&bp::pair(f, PAIR)).await?;
    f.apply(&bp::range(f, RANGE, 0, 31, PAIR)).await?;
    let begun = Instant::now();
    let mut done = 0;
    while done < times {
        // Random moments, the waiting is not a proof of anything.
        tokio::time::sleep(Duration::from_millis(300 + dice.below(4000))).await;
        kill_leader(f).await?;
        done += 1;
        f.note(format!("killed after {:.1}s", begun.elapsed().as_secs_f64()));
    }
    f.all_ready(BRING_UP).await?;
    f.healthy(PAIR).await?;
    let shards: Vec<i32> = (0..32).collect();
    f.tables_on_both(PAIR, &shards, &bp::TABLES).await?;
    f.write(&shards).await?;
    f.intact().await?;
    f.world.operator_ready().await
}

async fn killed_5(f: &Fleet) -> Result<()> {
    killed(f, 5).await
}
async fn killed_20(f: &Fleet) -> Result<()> {
    killed(f, 20).await
}

async fn leader_lost(f: &Fleet) -> Result<()> {
    f.world.operator_ready().await?;
    let old = wait::until("a leader", SOON, || async {
        Ok(f.world
            .leader()
            .await?
            .map_or_else(|| Seen::NotYet("nobody leads".into()), Seen::Yes))
    })
    .await?;
    ensure!(
        f.world.operator_pods().await?.len() == 2,
        "there are not two operators"
    );
    let api: Api<Pod> = Api::namespaced(f.world.client.clone(), &f.world.settings.operator_namespace);
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    api.delete(&old.name_any(), &params).await?;
    let begun = Instant::now();
    let new = wait::until("another leader", SOON, || async {
        Ok(match f.world.leader().await? {
            Some(p) if p.uid() != old.uid() => Seen::Yes(p),
            other => Seen::NotYet(format!("{:?}", other.map(|p| p.name_any()))),
        })
    })
    .await?;
    println!(
        "      leader-lost: {} took over after {:.1}s",
        new.name_any(),
        begun.elapsed().as_secs_f64()
    );
    // It reconciles: something deleted comes back, something applied is done.
    let name = names::active_service(PAIR);
    let service: Service = f.get(&name).await?;
    f.delete::<Service>(&name).await?;
    f.again::<Service>(&name, service.metadata.uid.as_deref(), SOON)
        .await?;
    f.apply(&bp::range(f, "r1", 8, 9, PAIR)).await?;
    f.ready::<ShardRange>("r1", REPAIR).await?;
    f.world.operator_ready().await?;
    f.healthy(PAIR).await?;
    f.intact().await
}

/// UID of each Pod and since when its mysqld runs, by the server's own word.
async fn servers(f: &Fleet) -> Result<Vec<(Option<String>, i64)>> {
    let mut all = vec![];
    for n in names::ORDINALS {
        let pod: Pod = f.get(&names::pod(PAIR, n)).await?;
        let (now, uptime): (i64, i64) = f
            .server(PAIR, n)
            .await?
            .one(
                "SELECT UNIX_TIMESTAMP(), CAST(VARIABLE_VALUE AS SIGNED) FROM performance_schema.global_status \
                 WHERE VARIABLE_NAME = 'Uptime'",
            )
            .await?;
        all.push((pod.uid(), now - uptime));
    }
    Ok(all)
}

async fn untouched(f: &Fleet, before: &[(Option<String>, i64)]) -> Result<()> {
    let now = servers(f).await?;
    let same = now
        .iter()
        .zip(before)
        .all(|(n, b)| n.0 == b.0 && (n.1 - b.1).abs() <= 2);
    ensure!(same, "a server was restarted: {before:?} → {now:?}");
    Ok(())
}

async fn upgrade(f: &Fleet) -> Result<()> {
    let before = servers(f).await?;
    f.world.install(&f.world.settings.operator_image_b, &[]).await?;
    let image = &f.world.settings.operator_image_b;
    wait::until("all operators to have the new image", SOON, || async {
        let pods = f.world.operator_pods().await?;
        let images: Vec<_> = pods
            .iter()
            .flat_map(|p| {
                p.spec
                    .iter()
                    .flat_map(|s| s.containers.iter().map(|c| c.image.clone()))
            })
            .collect();
        let good = images.len() == 2 && images.iter().all(|i| i.as_ref() == Some(image));
        Ok(Seen::when(good, || format!("{images:?}")))
    })
    .await?;
    // The new one has passed over everything: it acts on what is applied now.
    f.apply(&bp::range(f, "r2", 10, 11, PAIR)).await?;
    f.all_ready(REPAIR).await?;
    untouched(f, &before).await?;
    f.world.install(&f.world.settings.operator_image, &[]).await?;
    f.all_ready(REPAIR).await?;
    untouched(f, &before).await?;
    f.intact().await
}

async fn away(f: &Fleet) -> Result<()> {
    let before = servers(f).await?;
    f.world.scale_operator(0).await?;
    let shards = f.map().await?.shards();
    f.write(&shards).await?;
    // Noticed when it is back, although no event told of it.
    f.delete::<Service>(&names::passive_service(PAIR)).await?;
    f.apply(&bp::range(f, "r3", 12, 13, PAIR)).await?;
    f.world.scale_operator(2).await?;
    f.all_ready(REPAIR).await?;
    wait::until("the Service to be back", SOON, || async {
        let s = f.get_opt::<Service>(&names::passive_service(PAIR)).await?;
        Ok(Seen::when(s.is_some(), || "not yet".into()))
    })
    .await?;
    untouched(f, &before)
        .await
        .context("while the operator was away")?;
    f.intact().await
}
