//! For `make demo`: waiting with progress, and an object written and read as an application does.

use crate::fleet::{Fleet, conditions};
use crate::wait::{self, Seen};
use crate::world::World;
use anyhow::{Context as _, Result, anyhow, bail};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use shardwright::api::{MySQLPair, ShardCluster, ShardRange};
use shardwright::core::databases::Naming;
use shardwright::core::id::Id;
use std::time::{Duration, Instant};

/// Which fleet.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Namespace of the fleet.
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Name of the ShardCluster.
    #[arg(long)]
    pub cluster: String,
}

/// What is waited for.
#[derive(clap::Args, Clone, Debug)]
pub struct WaitOptions {
    /// Namespace of the fleet.
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Give up after this many seconds.
    #[arg(long, default_value = "300")]
    pub timeout: u64,
}

/// Writes an object as an application would, and reads it back by nothing but its ID.
///
/// # Errors
/// When the map or a server refuses, or what is read is not what was written.
pub async fn write(world: &World, options: &Options) -> Result<()> {
    let fleet = Fleet::new(world.clone(), options.namespace.clone(), &options.cluster);
    let cluster: ShardCluster = fleet.get(&options.cluster).await?;
    let naming = Naming::from(&cluster.spec.shards);
    let map = fleet.map().await?;
    let object = cluster
        .spec
        .tables
        .as_ref()
        .and_then(|t| t.objects.first())
        .context("the cluster has no object table")?;
    println!("The shard map, version {}, as services read it:", map.version);
    println!("  {}", map.plain);

    // A new object goes to any open shard: the choice is made once and kept in the object's ID.
    let open = map.shards();
    let shard = *usize::try_from(crate::dice::Dice::seed_now())
        .ok()
        .and_then(|n| open.get(n % open.len().max(1)))
        .ok_or_else(|| anyhow!("the map has no shard yet"))?;
    let entry = map.entry(shard)?;
    let (database, table) = (naming.name(shard), object.name.as_str());
    println!(
        "A new object of type {} ({table}) is to go to shard {shard}, chosen at random.",
        object.type_id
    );
    println!(
        "  The map says: pair {}, written at {}",
        entry.pair, entry.active.host
    );

    let mut server = fleet.app(&entry.pair, entry.active_ordinal()?).await?;
    let text = format!("hello from shard {shard}");
    let local_id = server
        .insert(&format!(
            "INSERT INTO `{database}`.`{table}` (data) VALUES (JSON_OBJECT('text', '{text}'))"
        ))
        .await?;
    println!(
        "  Inserted into {database}.{table} over TLS as the application's account; the server calls it {local_id}."
    );

    let id = Id {
        shard: u16::try_from(shard)?,
        type_id: u16::try_from(object.type_id)?,
        local: local_id,
    };
    let id = id.encode()?;
    println!("Its ID for the rest of the world: {id}");

    // Reading back: nothing is known but the number.
    let Id {
        shard,
        type_id,
        local,
    } = Id::decode(id)?;
    println!("Read back from the ID alone: shard {shard}, type {type_id}, local id {local}.");
    let shard = i32::from(shard);
    let entry = map.entry(shard)?;
    let mut server = fleet.app(&entry.pair, entry.active_ordinal()?).await?;
    let database = naming.name(shard);
    let found: String = server
        .one(&format!(
            "SELECT JSON_UNQUOTE(JSON_EXTRACT(data, '$.text')) FROM `{database}`.`{table}` WHERE local_id = {local}"
        ))
        .await?;
    if found != text {
        bail!("read {found:?}, written was {text:?}");
    }
    println!("  {} answers: {found:?}", entry.active.host);
    Ok(())
}

/// Waits until everything of ours in a namespace is Ready, and prints what changes.
///
/// # Errors
/// When it is not in time.
pub async fn wait_ready(world: &World, options: &WaitOptions) -> Result<()> {
    let fleet = Fleet::new(world.clone(), options.namespace.clone(), "");
    let begun = Instant::now();
    let last = std::sync::Mutex::new(String::new());
    wait::until(
        "everything to be Ready",
        Duration::from_secs(options.timeout),
        || async {
            let clusters = progress(&fleet.api::<ShardCluster>(), |c| {
                c.status.as_ref().map_or(0, |s| s.open_shards).to_string() + " shards open"
            })
            .await?;
            let pairs = progress(&fleet.api::<MySQLPair>(), |_| String::new()).await?;
            let ranges = progress(&fleet.api::<ShardRange>(), |r| {
                r.status.as_ref().map_or_else(String::new, |s| s.progress.clone())
            })
            .await?;
            let all = [clusters, pairs, ranges].concat();
            let line = all.iter().map(|(_, s)| s.as_str()).collect::<Vec<_>>().join(", ");
            if let Ok(mut last) = last.lock()
                && *last != line
            {
                println!("{:6.1}s  {line}", begun.elapsed().as_secs_f64());
                last.clone_from(&line);
            }
            Ok(Seen::when(
                !all.is_empty() && all.iter().all(|(ready, _)| *ready),
                || line,
            ))
        },
    )
    .await
}

async fn progress<K: crate::fleet::Object>(
    api: &Api<K>,
    more: impl Fn(&K) -> String,
) -> Result<Vec<(bool, String)>> {
    let list = api.list(&ListParams::default()).await?;
    Ok(list
        .items
        .iter()
        .map(|o| {
            let all = conditions(o);
            let ready = all.iter().find(|c| c.type_ == "Ready");
            let good =
                ready.is_some_and(|c| c.status == "True" && c.observed_generation == o.meta().generation);
            let reason = ready.map_or("Waiting", |c| c.reason.as_str());
            (
                good,
                format!("{} {reason} {}", o.name_any(), more(o))
                    .trim_end()
                    .to_owned(),
            )
        })
        .collect())
}
