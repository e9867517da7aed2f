//! Copying, in the background: with the locks of both servers that get the copies.

use super::work::{NAMED, PATIENCE, READERS, Slot, set};
use crate::{
    act::{apply, placement as record_act},
    api::{Move, ShardCluster, names::MANAGER_MIGRATION},
    core::{
        databases::Naming,
        gtid::GtidSet,
        migration::{Pairs, observed::End},
        placement::{self, moves},
        spans::SpanSet,
    },
    deadline,
    mysql::{
        self, Access, Session,
        seed::{self, Control, Pin},
    },
    observe::migration::Site,
};
use kube::Client;
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// Between two looks at whether the locks are still held.
const LOOK: Duration = Duration::from_millis(500);

/// What came of copying.
#[derive(Clone, Debug)]
pub(super) enum Copied {
    Done(GtidSet),
    Failed(String),
    Refused(String),
}

/// What a copy needs.
pub(super) struct SeedAsk {
    pub(super) client: Client,
    pub(super) site: Site,
    pub(super) uid: String,
    pub(super) into: End,
    pub(super) shards: SpanSet,
    pub(super) source: Access,
    /// The passive server first.
    pub(super) targets: [Access; 2],
    pub(super) naming: Naming,
    pub(super) pairs: Pairs,
    pub(super) move_seen: Move,
}

/// Why a copy ended.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error(transparent)]
    Mysql(#[from] mysql::Error),
    #[error(transparent)]
    Api(#[from] apply::Error),
    #[error(transparent)]
    Record(#[from] record_act::Error<placement::Error>),
    #[error("the record, or one of the pairs, changed")]
    Superseded,
    #[error("{0}")]
    Ended(String),
    #[error("{0}")]
    Refused(String),
}

/// Copies with the locks of both targets, which are held until the run is told to end: what it has completed counts for as long, and as long the
/// passive server takes what is written about it. One that is cut off leaves that server to its pair, which closes it.
pub(super) async fn copy(ask: SeedAsk, control: Arc<Control>, outcome: Slot<Copied>, finish: Arc<Notify>) {
    let mut locks = match locked(&ask).await {
        Ok(locks) => locks,
        Err(why) => return set(&outcome, Copied::Failed(why.to_string())),
    };
    let done = {
        let mut work = Box::pin(run(&ask, &control));
        tokio::select! {
            done = &mut work => done,
            why = watch(&mut locks) => {
                control.stop();
                Err(why)
            }
        }
    };
    let done = match done {
        Ok(gtid) => {
            set(&outcome, Copied::Done(gtid));
            tokio::select! {
                () = finish.notified() => None,
                why = watch(&mut locks) => Some(Copied::Failed(why.to_string())),
            }
        }
        Err(Why::Refused(why)) => Some(Copied::Refused(why)),
        Err(why) => Some(Copied::Failed(why.to_string())),
    };
    for lock in &mut locks {
        if !lock.is_broken() {
            let closed = lock
                .run(
                    deadline::CHANGE,
                    "SET GLOBAL super_read_only = @@GLOBAL.read_only",
                )
                .await;
            if let Err(error) = closed {
                tracing::debug!(%error, "super_read_only stays off");
            }
        }
    }
    if let Some(done) = done {
        set(&outcome, done);
    }
}

/// Takes the locks of both targets, reads record and pairs once more, and lets the passive one take copies.
async fn locked(ask: &SeedAsk) -> Result<Vec<Session>, Why> {
    let mut locks = vec![];
    for target in &ask.targets {
        let mut session = Session::open(target.clone()).await?;
        session.lock().await?;
        locks.push(session);
    }
    confirm(ask).await?;
    for lock in &mut locks {
        lock.run(deadline::CHANGE, "SET GLOBAL super_read_only = OFF")
            .await?;
    }
    Ok(locks)
}

async fn confirm(ask: &SeedAsk) -> Result<(), Why> {
    let (client, site) = (&ask.client, &ask.site);
    let cluster = apply::get::<ShardCluster>(client, &site.namespace, &site.cluster).await?;
    let record = cluster
        .filter(|c| c.metadata.uid.as_deref() == Some(ask.uid.as_str()))
        .and_then(|c| c.status)
        .and_then(|s| s.placement)
        .unwrap_or_default();
    if moves::find(&record, &site.key) != Some(&ask.move_seen) {
        return Err(Why::Superseded);
    }
    for (end, seen) in End::BOTH.into_iter().zip(ask.pairs) {
        let pair = apply::get::<crate::api::MySQLPair>(client, &site.namespace, site.pair(end)).await?;
        let now = pair.as_ref().map(|p| {
            (
                crate::core::cluster::observed::active(p).unwrap_or_default(),
                p.status.as_ref().map_or(0, |s| s.epoch),
            )
        });
        if now != Some(seen) {
            return Err(Why::Superseded);
        }
    }
    Ok(())
}

/// Ends when a lock is not held any more.
async fn watch(locks: &mut [Session]) -> Why {
    loop {
        tokio::time::sleep(LOOK).await;
        for lock in locks.iter_mut() {
            match lock.holds_lock().await {
                Ok(true) => {}
                Ok(false) => return Why::Ended("somebody else has taken a server's lock".into()),
                Err(e) => return Why::Ended(format!("a server's lock was lost: {e}")),
            }
        }
    }
}

async fn run(ask: &SeedAsk, control: &Arc<Control>) -> Result<GtidSet, Why> {
    let databases: Vec<String> = ask.shards.shards().map(|n| ask.naming.name(n)).collect();
    let pin = Pin {
        source: &ask.source,
        databases: &databases,
        readers: READERS,
        beside: &[],
        channel: None,
        patience: PATIENCE,
    };
    let position = seed::pin(&pin).await?;
    let scope = format!("{}/{}", ask.site.key.from, ask.site.key.to);
    let copied = Box::pin(seed::copy(
        position,
        ask.targets.to_vec(),
        &scope,
        control.clone(),
    ))
    .await?;
    if !copied.failed.is_empty() {
        let refused = |why: &seed::Failure| matches!(why, seed::Failure::Refused(_));
        // A person is told of what no other try mends.
        let any = copied.failed.values().any(refused);
        let named = copied
            .failed
            .iter()
            .filter(|(_, why)| refused(why) == any)
            .take(NAMED);
        let text: Vec<String> = named.map(|(d, why)| format!("{d}: {why}")).collect();
        let text = text.join("; ");
        return Err(if any { Why::Refused(text) } else { Why::Ended(text) });
    }
    if let Some(ended) = copied.ended {
        return Err(ended.into());
    }
    if copied.complete.len() < databases.len() {
        return Err(Why::Ended("it ended before everything was copied".into()));
    }
    // On record before the servers, as in every place where transactions are counted.
    let (site, gtid) = (&ask.site, copied.gtid);
    let text = gtid.to_string();
    record_act::update(
        &ask.client,
        MANAGER_MIGRATION,
        &site.namespace,
        &site.cluster,
        &ask.uid,
        None,
        |c| {
            let now = c
                .status
                .as_ref()
                .and_then(|s| s.placement.clone())
                .unwrap_or_default();
            moves::counted(&now, &site.key, site.pair(ask.into), &text).map(Some)
        },
    )
    .await?;
    seed::count_as_executed(&ask.targets, &gtid).await?;
    Ok(gtid)
}
