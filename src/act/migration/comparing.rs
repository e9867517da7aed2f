//! Comparing, in the background: everything, or what was changed since a position. The active server of the pair that serves is not asked.

use super::work::{NAMED, PATIENCE, READERS};
use crate::{
    core::{databases::Naming, gtid::GtidSet, migration::observed::End, spans::SpanSet},
    mysql::{
        self, Access,
        seed::{self, Control, Pin},
        verify::{self, Verdict, What},
    },
};
use futures::future;
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// Binary logs that are not read within this are as good as purged: all rows are compared then.
const LOGS: Duration = Duration::from_secs(30 * 60);

/// What came of comparing, at which position, and when it ended.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) position: Option<GtidSet>,
    pub(super) outcome: Verdicts,
    pub(super) ended: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) enum Verdicts {
    Equal,
    Different(SpanSet, Vec<String>),
    Unknown(String),
    /// The binary logs do not tell what was changed.
    Untold(String),
}

/// What a comparison needs.
pub(super) struct CompareAsk {
    pub(super) at: End,
    pub(super) shards: SpanSet,
    /// Only what was changed since this position, at which they were equal.
    pub(super) since: Option<GtidSet>,
    /// The passive server of the pair that serves them.
    pub(super) source: Access,
    /// The passive server first.
    pub(super) copies: [Access; 2],
    pub(super) naming: Naming,
}

/// Compares, and says when that ended.
pub(super) async fn compare(ask: &CompareAsk, control: Arc<Control>) -> Compared {
    let (position, outcome) = found(ask, control).await;
    Compared {
        position,
        outcome,
        ended: Timestamp::now(),
    }
}

/// What is to be compared, and is known only once all servers stand at one position: nothing lies between that and what the logs are read to.
async fn what(ask: &CompareAsk, databases: &[String]) -> Result<What, Verdicts> {
    let Some(since) = &ask.since else {
        return Ok(What::Everything);
    };
    let databases: BTreeSet<String> = databases.iter().cloned().collect();
    let [_, active] = &ask.copies;
    let logs = future::try_join(
        verify::touched(&ask.source, &databases, since, LOGS),
        verify::touched(active, &databases, since, LOGS),
    );
    match logs.await {
        Ok((mut touched, behind)) => {
            touched.and(behind);
            Ok(What::Since(touched))
        }
        Err(mysql::Error::NotReached(why)) => Err(Verdicts::Untold(why)),
        Err(e) => Err(Verdicts::Unknown(e.to_string())),
    }
}

async fn found(ask: &CompareAsk, control: Arc<Control>) -> (Option<GtidSet>, Verdicts) {
    let databases: Vec<String> = ask.shards.shards().map(|n| ask.naming.name(n)).collect();
    let pin = Pin {
        source: &ask.source,
        databases: &databases,
        readers: READERS,
        beside: &ask.copies,
        channel: None,
        patience: PATIENCE,
    };
    let began = Instant::now();
    let position = match seed::pin(&pin).await {
        Ok(position) => position,
        Err(e) => return (None, Verdicts::Unknown(e.to_string())),
    };
    let pinned = began.elapsed();
    let what = match what(ask, &databases).await {
        Ok(what) => what,
        Err(verdicts) => return (None, verdicts),
    };
    let told = began.elapsed();
    let found = verify::compare(position, &what, control).await;
    tracing::info!(
        source = ask.source.tls_name,
        shards = databases.len(),
        all = ask.since.is_none(),
        pinned_milliseconds = pinned.as_millis(),
        logs_milliseconds = told.saturating_sub(pinned).as_millis(),
        rows_milliseconds = began.elapsed().saturating_sub(told).as_millis(),
        "compared"
    );
    let mut differ: Vec<i32> = vec![];
    let (mut tables, mut unknown) = (vec![], None);
    for ((database, table), verdict) in &found.tables {
        match verdict {
            Verdict::Equal => {}
            Verdict::Different(_) => {
                differ.extend(ask.naming.parse(database));
                tables.push(if table.is_empty() {
                    database.clone()
                } else {
                    format!("{database}.{table}")
                });
            }
            Verdict::Unknown(why) => unknown = Some(format!("{database}.{table}: {why}")),
        }
    }
    let lacking = databases.iter().find(|d| !found.is_equal(d));
    let outcome = match (tables.is_empty(), unknown, lacking) {
        (false, ..) => {
            let more = tables.len().saturating_sub(NAMED);
            tables.truncate(NAMED);
            if more > 0 {
                tables.push(format!("{more} more tables"));
            }
            Verdicts::Different(differ.into_iter().collect(), tables)
        }
        (true, Some(why), _) => Verdicts::Unknown(why),
        (true, None, Some(database)) => Verdicts::Unknown(format!("nothing was found of {database}")),
        (true, None, None) => Verdicts::Equal,
    };
    (Some(found.gtid), outcome)
}
