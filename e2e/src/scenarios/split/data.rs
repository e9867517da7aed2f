//! What is in the shards that move: every kind of column, transactions that stay open, rows that somebody changed where nobody may, tables that are added on
//! the way.

use super::super::rejoin::purge;
use super::faults::Holder;
use super::stage::{
    BUSY, FRESH, HALF, LAST, MIDDLE, approve, begin, cluster, fixture, half, open, quick, retained, split,
};
use super::watch::Watch;
use super::zoo;
use crate::blueprint::{self as bp, PAIR, RANGE};
use crate::crowd::Pace;
use crate::fleet::Fleet;
use crate::ledger::TABLE;
use crate::moves::{self, MOVED, VERIFY_AGAIN, run};
use crate::scenario::Group;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use shardwright::api::{MoveStage, ShardRange};
use shardwright::core::placement::{self, moves as record};
use std::sync::Arc;
use std::time::Duration;

/// The group.
pub fn group() -> Group {
    Group {
        name: "split-data",
        alone: true,
        fixture: shared!(fixture),
        scenarios: vec![
            scenario!(
                Full,
                "split-open-transaction",
                open_transaction,
                "a shard with an open transaction moves after the others and loses nothing of it; past its deadline the transaction is ended, and nothing of it is anywhere",
                TestBed
            ),
            scenario!(
                Short,
                "split-copy-changed",
                copy_changed,
                "a row is changed on the copy behind everybody's back: nothing is switched, the table is named, and once it is mended the move goes on"
            ),
            scenario!(
                Full,
                "split-zoo",
                zoo::moves,
                "tables without a key, odd collations, JSON, generated columns, large numbers, zero dates, 4-byte text and BLOBs of 15 MB move both ways of copying, byte by byte",
                TestBed
            ),
            scenario!(
                Full,
                "split-refused-by-name",
                refused,
                "a database that cannot be copied as it is is named, and nothing moves; when it is mended, everything does"
            ),
            scenario!(
                Full,
                "split-new-table",
                new_table,
                "a table is rolled out while shards move: every shard has it, wherever it is by then"
            ),
            scenario!(
                Full,
                "split-long-query",
                long_query,
                "a backup reads from the source's passive server, and an application for long from another shard: the move waits for neither"
            ),
        ],
    }
}

/// What the API says of [`HALF`]: `Ready`'s reason and message.
async fn says(f: &Fleet, reason: &str) -> Result<String> {
    let said = f
        .condition::<ShardRange>(HALF, "Ready", "False", reason, MOVED)
        .await?;
    Ok(said.message)
}

/// Waits until a row with this text is there so often on both servers of a pair.
async fn there(f: &Fleet, pair: &str, shard: i32, text: &str, times: u64) -> Result<()> {
    let what = format!("{text:?} to be on both servers of {pair}, {times} times");
    wait::until(&what, SOON, || async {
        let found = f.times_there(pair, shard, text).await?;
        Ok(Seen::when(found == [times, times], || format!("{found:?}")))
    })
    .await
}

async fn open_transaction(f: &Arc<Fleet>) -> Result<()> {
    // Everything else has moved long before.
    const HELD: Duration = Duration::from_secs(10);
    begin(f).await?;
    let watch = Watch::begin(f, Pace::CALM).await?;
    let (table, entry) = (f.table(MIDDLE).await?, f.map().await?.entry(MIDDLE)?.clone());
    let mut client = f.app(&entry.pair, entry.active_ordinal()?).await?;
    let insert = |text: &str| format!("INSERT INTO {table} (data) VALUES (JSON_OBJECT('text', '{text}'))");
    client.run("BEGIN").await?;
    client.run(&insert("left open")).await?;
    split(f, FRESH, quick()).await?;
    let all_but_one = half().minus(&run(MIDDLE, MIDDLE));
    f.at_home(&all_but_one, FRESH, MOVED).await?;
    says(f, "OpenTransactions").await?;
    wait::throughout("the shard with the open transaction", HELD, || async {
        let record = f.placement().await?;
        let at_home = placement::shards(&record, |s| s.pair == PAIR).contains(MIDDLE);
        Ok(Seen::when(at_home, || "it was moved".into()))
    })
    .await?;
    // It is as good as any: it goes on, and commits.
    client.run(&insert("left open, second")).await?;
    client
        .run("COMMIT")
        .await
        .context("a transaction that only was open for long")?;
    f.at_home(&half(), FRESH, MOVED).await?;
    for text in ["left open", "left open, second"] {
        there(f, FRESH, MIDDLE, text, 1).await?;
    }
    watch.writes().await?;
    watch
        .end(f, "split-open-transaction")
        .await?
        .once(&half(), PAIR, FRESH)?;
    f.nothing_left().await?;
    ended_at_its_deadline(f).await?;
    f.intact().await
}

/// With a deadline, a transaction that is open for longer is ended, and its client gets an error.
async fn ended_at_its_deadline(f: &Arc<Fleet>) -> Result<()> {
    const DEADLINE: Duration = Duration::from_secs(5);
    begin(f).await?;
    let (table, entry) = (f.table(LAST).await?, f.map().await?.entry(LAST)?.clone());
    let mut client = f.app(&entry.pair, entry.active_ordinal()?).await?;
    client.run("BEGIN").await?;
    client
        .run(&format!(
            "INSERT INTO {table} (data) VALUES (JSON_OBJECT('text', 'never committed'))"
        ))
        .await?;
    let mut spec = quick();
    spec["transactionDeadlineSeconds"] = json!(DEADLINE.as_secs());
    spec["batchDeadlineSeconds"] = json!(2);
    split(f, FRESH, spec).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    match client.run("COMMIT").await {
        Ok(()) => bail!("a transaction was committed at the old pair after its shard had moved"),
        Err(e) => println!("      split-open-transaction: the client was told: {e:#}"),
    }
    for pair in [PAIR, FRESH] {
        let active = f.active(pair).await?;
        if f.copies(pair, active).await?.contains_key(&LAST) {
            there(f, pair, LAST, "never committed", 0).await?;
        }
    }
    f.write(&[LAST]).await?;
    f.nothing_left().await
}

async fn copy_changed(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    f.write(&open()).await?;
    let mut spec = retained();
    spec["cutover"] = json!("Manual");
    split(f, FRESH, spec).await?;
    f.between(PAIR, FRESH, "to be verified", MOVED, |_, m| {
        m.stage == MoveStage::Following && record::set(&m.verified) == half()
    })
    .await?;
    // A row of the copy is changed, and a row that is about to come is there already, so that the channel breaks and the copies are compared again.
    let table = f.table(MIDDLE).await?;
    let source = f.active(PAIR).await?;
    let next: u64 = f
        .server(PAIR, source)
        .await?
        .one(&format!("SELECT MAX(local_id) + 1 FROM {table}"))
        .await?;
    let in_the_way: Vec<String> = (next..next + 12)
        .map(|id| {
            format!("INSERT INTO {table} (local_id, data) VALUES ({id}, JSON_OBJECT('text', 'in the way'))")
        })
        .collect();
    let change =
        format!("UPDATE {table} SET data = JSON_SET(data, '$.text', 'changed') ORDER BY local_id LIMIT 1");
    let mut statements = in_the_way;
    statements.push(change);
    behind_their_backs(f, FRESH, f.active(FRESH).await?, MIDDLE, &statements).await?;
    f.write(&[MIDDLE]).await?;
    f.between(PAIR, FRESH, "not to be verified any more", SOON, |_, m| {
        !record::set(&m.verified).contains(MIDDLE)
    })
    .await?;
    let clear =
        format!("DELETE FROM {table} WHERE JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) = 'in the way'");
    behind_their_backs(f, FRESH, f.active(FRESH).await?, MIDDLE, &[clear]).await?;
    let message = says(f, "CopiesDiffer").await?;
    let database = f.database(MIDDLE).await?;
    ensure!(
        message.contains(&database) && message.contains(TABLE),
        "it does not name {database}.{TABLE}: {message}"
    );
    f.condition::<ShardRange>(HALF, "Stalled", "True", "CopiesDiffer", SOON)
        .await?;
    // An approval changes nothing about it.
    approve(f).await?;
    wait::throughout("what was found to differ", Duration::from_secs(5), || async {
        let record = f.placement().await?;
        let moved = placement::shards(&record, |s| s.pair == FRESH);
        Ok(Seen::when(moved.is_empty(), || format!("{moved:?} were moved")))
    })
    .await?;
    f.write(&open()).await?;
    f.intact_at(true).await?;
    let mend = format!(
        "UPDATE {table} SET data = JSON_SET(data, '$.text', '{}') WHERE JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) = 'changed'",
        first_text(f, source, &table).await?
    );
    behind_their_backs(f, FRESH, f.active(FRESH).await?, MIDDLE, &[mend]).await?;
    f.edit::<ShardRange>(
        HALF,
        json!({"metadata": {"annotations": {VERIFY_AGAIN: format!("{:x}", crate::dice::Dice::seed_now())}}}),
    )
    .await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.same_rows(&half(), &[FRESH, PAIR]).await?;
    f.intact().await
}

/// The text of the first row of a table.
async fn first_text(f: &Fleet, ordinal: usize, table: &str) -> Result<String> {
    f.server(PAIR, ordinal)
        .await?
        .one(&format!(
            "SELECT JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) FROM {table} ORDER BY local_id LIMIT 1"
        ))
        .await
}

/// Writes on both servers of a pair, into a database that is READ ONLY there, outside the binary logs, as somebody with all rights might. The operator
/// shuts the database again as soon as it sees it open, so it may take more than one try.
async fn behind_their_backs(
    f: &Fleet,
    pair: &str,
    active: usize,
    shard: i32,
    statements: &[String],
) -> Result<()> {
    let database = f.database(shard).await?;
    for ordinal in [active, 1 - active] {
        wait::until("the copy to be changed", SOON, || async {
            let mut server = f.server(pair, ordinal).await?;
            let was: u8 = server.one("SELECT @@GLOBAL.super_read_only").await?;
            server.run("SET SESSION sql_log_bin = 0").await?;
            if was != 0 {
                server.run("SET GLOBAL super_read_only = OFF").await?;
            }
            let done = async {
                server
                    .run(&format!("ALTER DATABASE `{database}` READ ONLY = 0"))
                    .await?;
                server.run("BEGIN").await?;
                for sql in statements {
                    server.run(sql).await?;
                }
                server.run("COMMIT").await?;
                // Where this is not done the operator does it.
                let _ = server
                    .run(&format!("ALTER DATABASE `{database}` READ ONLY = 1"))
                    .await;
                anyhow::Ok(())
            }
            .await;
            if was != 0 {
                server
                    .run("SET GLOBAL super_read_only = @@GLOBAL.read_only")
                    .await?;
            }
            done.map(|()| Seen::Yes(()))
        })
        .await?;
    }
    Ok(())
}

pub(super) fn all_of_half() -> Vec<i32> {
    half().shards().collect()
}

async fn refused(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let before = f.map().await?.version;
    let (database, table) = (f.database(MIDDLE).await?, f.table(MIDDLE).await?);
    // A date is no value of JSON: text, by which rows are copied, does not bring it back.
    let mut server = f.server_of(MIDDLE).await?;
    let row = server
        .insert(&format!(
            "INSERT INTO {table} (data) VALUES (JSON_OBJECT('when', CURRENT_DATE))"
        ))
        .await?;
    // Only where databases are copied one by one.
    split(f, BUSY, quick()).await?;
    let message = says(f, "SeedingRefused").await?;
    ensure!(
        message.contains(&database),
        "it does not name {database}: {message}"
    );
    f.condition::<ShardRange>(HALF, "Stalled", "True", "SeedingRefused", SOON)
        .await?;
    f.write(&open()).await?;
    ensure!(f.map().await?.version == before, "the map has changed");
    f.one_home(false).await?;
    server
        .run(&format!("DELETE FROM {table} WHERE local_id = {row}"))
        .await?;
    f.at_home(&half(), BUSY, MOVED).await?;
    f.nothing_left().await?;
    f.intact().await
}

async fn new_table(f: &Arc<Fleet>) -> Result<()> {
    const NEW: &str = "comments";
    begin(f).await?;
    let mut spec = quick();
    spec["cutover"] = json!("Manual");
    split(f, FRESH, spec).await?;
    f.between(PAIR, FRESH, "to be verified", MOVED, |_, m| {
        m.stage == MoveStage::Following && record::set(&m.verified) == half()
    })
    .await?;
    let mut with_more = cluster(f);
    if let Some(tables) = with_more.spec.tables.as_mut() {
        tables.objects.push(bp::object(NEW, 9));
    }
    f.apply(&with_more).await?;
    let all: Vec<i32> = (0..=LAST).collect();
    f.tables_on_both(PAIR, &all, &[NEW]).await?;
    // The copies have it as well, by the channel.
    f.tables_on_both(FRESH, &all_of_half(), &[NEW]).await?;
    f.write(&open()).await?;
    approve(f).await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    f.nothing_left().await?;
    f.tables_on_both(FRESH, &all_of_half(), &[NEW]).await?;
    f.map_when("to name the new type", SOON, |m| m.text.contains(NEW))
        .await?;
    let mut server = f.server_of(LAST).await?;
    let database = f.database(LAST).await?;
    server
        .run(&format!(
            "INSERT INTO `{database}`.`{NEW}` (data) VALUES ('{{}}')"
        ))
        .await?;
    f.intact().await?;
    // Tables are only ever added.
    f.apply(&cluster(f)).await?;
    f.all_ready(REPAIR).await
}

async fn long_query(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let record_now = f.record(PAIR).await?;
    // As a logical backup does: one snapshot, and rows of a shard that moves under it.
    let mut backup = f.server(PAIR, record_now.passive()).await?;
    let table = f.table(MIDDLE).await?;
    backup
        .run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        .await?;
    backup.run("START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
    let before: u64 = backup.one(&format!("SELECT COUNT(*) FROM {table}")).await?;
    // And an application reads from a shard that stays.
    let reader = Holder::begin(f, 0).await?;
    split(f, FRESH, quick()).await?;
    f.stage(PAIR, FRESH, MoveStage::Following, MOVED).await?;
    f.write(&open()).await?;
    let same: u64 = backup.one(&format!("SELECT COUNT(*) FROM {table}")).await?;
    ensure!(
        same == before,
        "the backup's snapshot saw {before} rows, and then {same}"
    );
    // Its shard is fenced ahead on that server only when it is done.
    backup.run("COMMIT").await?;
    f.at_home(&half(), FRESH, MOVED).await?;
    reader
        .end()
        .await
        .context("the reader of a shard that stays was ended")?;
    f.nothing_left().await?;
    f.intact().await
}

/// The operator must be away while the logs are purged: it would start the channel again at once.
pub(super) async fn logs_purged(f: &Arc<Fleet>) -> Result<()> {
    begin(f).await?;
    let mut spec = retained();
    spec["cutover"] = json!("Manual");
    split(f, BUSY, spec).await?;
    f.between(PAIR, BUSY, "to be verified", MOVED, |_, m| {
        m.stage == MoveStage::Following && record::set(&m.verified) == half()
    })
    .await?;
    // Nothing comes through to the target, while the source goes on and forgets.
    let target = f.active(BUSY).await?;
    let channel = format!("from-{PAIR}");
    let passive = f.record(PAIR).await?.passive();
    f.world.scale_operator(0).await?;
    let purged = async {
        f.server(BUSY, target)
            .await?
            .run(&format!("STOP REPLICA FOR CHANNEL '{channel}'"))
            .await?;
        f.write(&open()).await?;
        for ordinal in [passive, 1 - passive] {
            purge(f, ordinal).await?;
        }
        anyhow::Ok(())
    }
    .await;
    f.world.scale_operator(2).await?;
    purged?;
    // They can't follow any more: given up, and made anew by another move, which is compared before it may go on.
    f.event(HALF, "LogsPurged", BUSY, MOVED).await?;
    f.between(PAIR, BUSY, "to be made anew and verified", MOVED, |_, m| {
        m.stage == MoveStage::Following && record::set(&m.verified) == half()
    })
    .await?;
    let here = placement::shards(&f.placement().await?, |s| s.pair == PAIR);
    ensure!(
        half().is_subset(&here),
        "shards were moved whose copies lacked rows"
    );
    approve(f).await?;
    f.at_home(&half(), BUSY, MOVED).await?;
    f.same_rows(&half(), &[BUSY, PAIR]).await?;
    f.edit::<ShardRange>(HALF, json!({"spec": quick()})).await?;
    f.nothing_left().await?;
    ensure!(
        moves::channels(&mut f.server(BUSY, target).await?)
            .await?
            .is_empty(),
        "a channel is left"
    );
    f.ready::<ShardRange>(RANGE, SOON).await?;
    f.intact().await
}
