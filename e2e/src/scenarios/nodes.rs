//! Nodes die, are cut off and are drained; the operator is blind, late or killed meanwhile. These run alone.

use super::rolling::evict;
use super::switchover::budget_allows_one;
use crate::blueprint::{self as bp, PAIR};
use crate::fleet::Fleet;
use crate::pair::TAKEN_OVER;
use crate::scenario::Group;
use crate::wait::{self, BRING_UP, REPAIR, SOON, Seen};
use crate::writer::{Route, Writer};
use crate::{scenario, shared, shell};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shardwright::api::mysql_pair::ChangeKind;
use shardwright::api::{MySQLPair, names};
use std::time::{Duration, Instant};

/// The group.
pub fn group() -> Group {
    Group {
        name: "nodes",
        alone: true,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "active-cut-off",
                cut_off,
                "the active server's node is cut off from API and peer, with clients on it, then healed",
                TestBed
            ),
            scenario!(
                Short,
                "drain-active-node",
                drain,
                "the active server's node is drained with the budget in place: handed over, in bounded time"
            ),
            scenario!(
                Short,
                "active-unseen-by-operator",
                unseen,
                "the operator cannot reach the active server, which lives, is followed, and has clients on it",
                TestBed
            ),
            scenario!(
                Full,
                "node-lost",
                node_lost,
                "the node of each server loses its power and comes back: served meanwhile, nothing is lost",
                TestBed
            ),
            scenario!(
                Short,
                "nodes-die-passive-first",
                passive_first,
                "the nodes of both servers lose their power, the old passive one's comes back first",
                TestBed
            ),
            scenario!(
                Short,
                "operator-starts-last",
                started_last,
                "everything is down when the operator starts; the servers come back later",
                TestBed
            ),
            scenario!(
                Full,
                "all-nodes-off-and-on",
                all_off,
                "every node loses its power at once and comes back: the right server is active, nothing is lost",
                TestBed
            ),
        ],
    }
}

/// Clients that stay with one server, whatever the map says.
async fn loyal(f: &Fleet, ordinal: usize) -> Result<Vec<Writer>> {
    let secret = names::app_secret(&f.cluster);
    let (user, password, ca) = (
        f.secret(&secret, "username").await?,
        f.secret(&secret, "password").await?,
        f.secret(&secret, "ca.crt").await?,
    );
    let stamp = crate::dice::Dice::seed_now();
    let mut all = vec![];
    for shard in 0..3 {
        let login = f.login(PAIR, ordinal, &user, &password, &ca).await?;
        all.push(
            f.writer(&format!("loyal-{shard}-{stamp}"), shard, Route::fixed(login))
                .await?,
        );
    }
    wait::until("the clients to write", SOON, || async {
        let least = all.iter().map(|c| c.book.acknowledged()).min().unwrap_or(0);
        Ok(Seen::when(least >= 20, || format!("{least} rows")))
    })
    .await?;
    Ok(all)
}

/// Every row that they were told OK for is on both servers.
async fn all_held(f: &Fleet, clients: Vec<Writer>) -> Result<()> {
    for (shard, client) in clients.into_iter().enumerate() {
        let book = client.stop().await?;
        let table = f.table(i32::try_from(shard)?).await?;
        f.holds(PAIR, &table, std::slice::from_ref(&book)).await?;
    }
    Ok(())
}

/// The server takes over, and writes.
async fn serves(f: &Fleet, ordinal: usize, limit: Duration) -> Result<()> {
    f.served_by(PAIR, ordinal, limit).await?;
    f.write(&bp::shards()).await
}

async fn cut_off(f: &Fleet) -> Result<()> {
    away_from_operator(f, true).await?;
    let before = f.record(PAIR).await?;
    let node = f.node_of(PAIR, before.active).await?;
    let clients = loyal(f, before.active).await?;
    f.world.bed(&["node", "partition", &node, "both"]).await?;
    let served = serves(f, before.passive(), TAKEN_OVER).await;
    f.world.bed(&["node", "heal", &node]).await?;
    served?;
    f.recovered(PAIR).await?;
    all_held(f, clients).await?;
    ensure!(
        f.record(PAIR).await?.active == before.passive(),
        "the old active server serves again"
    );
    f.world.operator_ready().await
}

fn nodes(f: &Fleet) -> Api<Node> {
    Api::all(f.world.client.clone())
}

async fn cordon(f: &Fleet, node: &str, on: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes(f).patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn leader_node(f: &Fleet) -> Result<String> {
    wait::until("a leader on a node", SOON, || async {
        let pod = f.world.leader().await?;
        Ok(match pod.and_then(|p| p.spec).and_then(|s| s.node_name) {
            Some(node) => Seen::Yes(node),
            None => Seen::NotYet("nobody leads".into()),
        })
    })
    .await
}

/// Sees to it that the leading operator is not on the active server's node, or on neither server's; gives its node.
async fn away_from_operator(f: &Fleet, of_active_alone: bool) -> Result<String> {
    let record = f.record(PAIR).await?;
    let mut taken = vec![f.node_of(PAIR, record.active).await?];
    if !of_active_alone {
        taken.push(f.node_of(PAIR, record.passive()).await?);
    }
    if !of_active_alone {
        // One alone, on the node that is left.
        f.world.scale_operator(0).await?;
        for node in &taken {
            cordon(f, node, true).await?;
        }
        let started = f.world.scale_operator(1).await;
        for node in &taken {
            cordon(f, node, false).await?;
        }
        started?;
        return leader_node(f).await;
    }
    for _ in 0..5 {
        let node = leader_node(f).await?;
        if !taken.contains(&node) {
            return Ok(node);
        }
        // The other one is elsewhere.
        let pod = f.world.leader().await?.context("nobody leads")?;
        let ns = f.world.settings.operator_namespace.clone();
        shell::kubectl(&[
            "delete",
            "pod",
            "-n",
            &ns,
            &pod.name_any(),
            "--grace-period=0",
            "--force",
        ])
        .await?;
        let old = pod.uid();
        wait::until("another leader", SOON, || async {
            let now = f.world.leader().await?.and_then(|p| p.uid());
            Ok(Seen::when(now.is_some() && now != old, || format!("{now:?}")))
        })
        .await?;
        f.world.operator_ready().await?;
    }
    anyhow::bail!("the operator that leads stays on one of {taken:?}")
}

async fn unseen(f: &Fleet) -> Result<()> {
    let operator = away_from_operator(f, false).await?;
    let seen = unseen_by(f, &operator).await;
    let scaled = f.world.scale_operator(2).await;
    seen?;
    scaled
}

async fn unseen_by(f: &Fleet, operator: &str) -> Result<()> {
    f.all_ready(REPAIR).await?;
    let before = f.record(PAIR).await?;
    let node = f.node_of(PAIR, before.active).await?;
    ensure!(node != operator, "the operator is on the active server's node");
    let clients = loyal(f, before.active).await?;
    // Everybody but the operator sees the active server: the API does, and the passive one goes on to acknowledge.
    f.world.bed(&["node", "partition", &node, operator]).await?;
    let served = serves(f, before.passive(), TAKEN_OVER).await;
    f.world.bed(&["node", "heal", &node]).await?;
    served?;
    f.recovered(PAIR).await?;
    all_held(f, clients).await
}

async fn drain(f: &Fleet) -> Result<()> {
    f.all_ready(REPAIR).await?;
    let before = f.record(PAIR).await?;
    let node = f.node_of(PAIR, before.active).await?;
    let name = names::pod(PAIR, before.active);
    let old = f.server_pod(PAIR, before.active).await?.uid();
    f.write(&bp::shards()).await?;
    budget_allows_one(f).await?;
    let begun = Instant::now();
    // As kubectl does it: the node first, then each Pod by eviction.
    cordon(f, &node, true).await?;
    let drained = async {
        evict(f, before.active).await?;
        let after = f.served_by(PAIR, before.passive(), TAKEN_OVER).await?;
        f.write(&bp::shards()).await?;
        wait::until("the drained Pod to be gone", REPAIR, || async {
            let pod = f.get_opt::<Pod>(&name).await?;
            let there = pod.is_some_and(|p| p.uid() == old);
            Ok(Seen::when(!there, || "it is still there".into()))
        })
        .await?;
        anyhow::Ok(after)
    }
    .await;
    let took = begun.elapsed();
    // The budget protects the one that is left, for as long as the other one is away.
    let refused = evict(f, before.passive()).await;
    cordon(f, &node, false).await?;
    let after = drained?;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(s)) if s.code == 429),
        "the only server was evicted: {refused:?}"
    );
    println!("      drain-active-node: the node was empty after {took:?}");
    ensure!(took < Duration::from_secs(45), "a drain takes {took:?}");
    let change = f.last_change(PAIR, after.epoch).await?;
    ensure!(
        change.kind == ChangeKind::Switchover,
        "it was not handed over, it was lost: {change:?}"
    );
    f.recovered(PAIR).await
}

async fn node_lost(f: &Fleet) -> Result<()> {
    for which in ["passive", "active"] {
        f.healthy(PAIR).await?;
        away_from_operator(f, true).await?;
        let before = f.record(PAIR).await?;
        f.write(&bp::shards()).await?;
        let (victim, by) = if which == "active" {
            (before.active, before.passive())
        } else {
            (before.passive(), before.active)
        };
        let node = f.node_of(PAIR, victim).await?;
        f.world.bed(&["node", "kill", &node]).await?;
        let seen = async {
            serves(f, by, TAKEN_OVER).await?;
            f.members(PAIR, 1, TAKEN_OVER).await?;
            f.condition::<MySQLPair>(PAIR, "Ready", "False", "", REPAIR).await
        }
        .await;
        // Whatever was seen, the next scenarios need the node.
        f.world.bed(&["node", "start", &node]).await?;
        seen.with_context(|| format!("while {node} of the {which} one was away"))?;
        f.recovered(PAIR).await?;
        ensure!(f.record(PAIR).await?.active == by, "another server is active");
    }
    f.world.operator_ready().await
}

async fn passive_first(f: &Fleet) -> Result<()> {
    // The operator has to live through it: on the node that is left.
    away_from_operator(f, false).await?;
    let done = async {
        f.all_ready(REPAIR).await?;
        let before = f.record(PAIR).await?;
        f.write(&bp::shards()).await?;
        let nodes = [
            f.node_of(PAIR, before.active).await?,
            f.node_of(PAIR, before.passive()).await?,
        ];
        for node in &nodes {
            f.world.bed(&["node", "kill", node]).await?;
        }
        f.world.bed(&["node", "start", &nodes[1]]).await?;
        let served = serves(f, before.passive(), BRING_UP).await;
        f.world.bed(&["node", "start", &nodes[0]]).await?;
        served?;
        f.recovered(PAIR).await
    }
    .await;
    let scaled = f.world.scale_operator(2).await;
    done?;
    scaled
}

async fn started_last(f: &Fleet) -> Result<()> {
    f.all_ready(REPAIR).await?;
    let before = f.record(PAIR).await?;
    f.write(&bp::shards()).await?;
    f.counted(PAIR).await?;
    let nodes = [
        f.node_of(PAIR, before.active).await?,
        f.node_of(PAIR, before.passive()).await?,
    ];
    f.world.scale_operator(0).await?;
    for node in &nodes {
        f.world.bed(&["node", "kill", node]).await?;
    }
    for node in &nodes {
        cordon(f, node, true).await?;
    }
    let started = f.world.scale_operator(1).await;
    let seen = match &started {
        Ok(()) => f
            .condition::<MySQLPair>(PAIR, "Ready", "False", "", SOON)
            .await
            .map(|_| ()),
        Err(_) => Ok(()),
    };
    for node in nodes.iter().rev() {
        cordon(f, node, false).await?;
        f.world.bed(&["node", "start", node]).await?;
    }
    started?;
    seen?;
    f.recovered(PAIR).await?;
    f.world.scale_operator(2).await
}

async fn all_off(f: &Fleet) -> Result<()> {
    f.all_ready(REPAIR).await?;
    let before = f.record(PAIR).await?;
    f.write(&bp::shards()).await?;
    let all: Vec<String> = nodes(f)
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .map(kube::ResourceExt::name_any)
        .filter(|n| n.starts_with("node-"))
        .collect();
    for node in &all {
        f.world.bed(&["node", "kill", node]).await?;
    }
    for node in &all {
        f.world.bed(&["node", "start", node]).await?;
    }
    f.world.operator_ready().await?;
    f.recovered(PAIR).await?;
    let after = f.record(PAIR).await?;
    ensure!(
        after.epoch >= before.epoch,
        "the epoch fell: {before:?} → {after:?}"
    );
    Ok(())
}
