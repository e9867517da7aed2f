//! The active server's Pod is deleted by force while commits wait for acknowledgements that nobody can give: no client is told OK.

use crate::blueprint::{OPEN, PAIR};
use crate::fleet::Fleet;
use crate::wait::{self, REPAIR, SOON, Seen};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use shardwright::api::names;
use std::time::Duration;

/// Clients that wait, each with one row: enough for mysqld to be ending some of them while others are told something.
const CLIENTS: usize = 60;

/// mysqld that is told to end while no replica is connected says OK to whoever waits; so its clients are cut off before.
pub async fn forced(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let shards: Vec<i32> = (0..OPEN).collect();
    f.write(&shards).await?;
    let pod = names::pod(PAIR, before.active);
    let mut told = vec![];
    f.while_paused(PAIR, async {
        // Nobody is there to acknowledge, and nobody to take the passive server out of the record.
        f.server(PAIR, before.passive())
            .await?
            .run("STOP REPLICA IO_THREAD")
            .await?;
        let mut active = f.server(PAIR, before.active).await?;
        wait::until("the passive server to be gone from its source", SOON, || async {
            let mut active = f.server(PAIR, before.active).await?;
            let (_, clients): (String, u64) = active
                .one("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_clients'")
                .await?;
            Ok(Seen::when(clients == 0, || format!("{clients} semi-sync clients")))
        })
        .await?;
        // Until it ends.
        active.run("SET GLOBAL max_connections = 200").await?;
        let mut clients = vec![];
        for n in 0..CLIENTS {
            let shard = shards.get(n % shards.len()).copied().context("no shards")?;
            let table = f.table(shard).await?;
            let sql = format!("INSERT INTO {table} (data) VALUES (JSON_OBJECT('text', 'forced {n}'))");
            let mut app = f.app(PAIR, before.active).await?;
            clients.push(tokio::spawn(async move { app.within(Duration::from_secs(120), &sql).await }));
        }
        wait::until("all commits to wait", SOON, || async {
            let mut active = f.server(PAIR, before.active).await?;
            let waiting: u64 = active
                .one(
                    "SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'INSERT INTO%forced%' \
                     AND (STATE LIKE '%semi-sync%' OR STATE LIKE '%handler commit%')",
                )
                .await?;
            Ok(Seen::when(waiting == CLIENTS as u64, || {
                format!("{waiting} of {CLIENTS} commits wait")
            }))
        })
        .await?;
        let waited: u64 = active
            .one("SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE LIKE '%semi-sync%'")
            .await?;
        ensure!(waited > 0, "no commit waits for an acknowledgement");
        let uid = f.get::<Pod>(&pod).await?.uid();
        f.api::<Pod>()
            .delete(&pod, &DeleteParams::default().grace_period(0))
            .await?;
        for client in clients {
            told.push(client.await?);
        }
        f.again::<Pod>(&pod, uid.as_deref(), REPAIR).await?;
        Ok(())
    })
    .await?;
    let acknowledged = told.iter().filter(|t| t.is_ok()).count();
    ensure!(
        acknowledged == 0,
        "{acknowledged} of {CLIENTS} clients were told OK for rows that only {pod} has"
    );
    f.recovered(PAIR).await?;
    // Nothing ever opened the other one: what waited was committed when mysqld started again, and reached it then.
    for n in [0, CLIENTS - 1] {
        let shard = shards.get(n % shards.len()).copied().context("no shards")?;
        let there = f.times_there(PAIR, shard, &format!("forced {n}")).await?;
        ensure!(
            there[0] == there[1] && there[0] <= 1,
            "row {n} is there {there:?} times"
        );
    }
    Ok(())
}
