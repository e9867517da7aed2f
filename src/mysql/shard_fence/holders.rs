//! Who holds on to shard databases of a server, and ending them.

use crate::{
    core::{databases::Naming, spans::SpanSet},
    deadline,
    mysql::{Error, conn::literal, session::Session, state::get},
};
use mysql_async::Row;
use std::{collections::BTreeSet, fmt, time::Duration};

/// Accounts of the operator's own begin with this, as [`crate::core::credentials`] names them.
const OURS: &str = "shardwright_";
/// `ER_NO_SUCH_THREAD`.
const NO_SUCH_THREAD: u16 = 1094;
/// `ER_KILL_DENIED_ERROR`.
const KILL_DENIED: u16 = 1095;

/// A transaction that has touched a shard and is not over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The shard.
    pub shard: i32,
    /// Whose it is.
    pub who: Who,
    /// How long it has been open; of a prepared one nobody knows.
    pub open: Duration,
}

/// Whose transaction it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A client's.
    Client {
        /// `PROCESSLIST_ID`: what KILL takes.
        id: u64,
        /// Account.
        user: String,
        /// Where it comes from.
        host: String,
    },
    /// A thread of replication.
    Applier,
    /// A prepared XA transaction's: no session has it any more, and only XA COMMIT or XA ROLLBACK ends it.
    Prepared,
}

impl Holder {
    /// Whether it is a connection of an operator.
    pub fn is_the_operators(&self) -> bool {
        matches!(&self.who, Who::Client { user, .. } if user.starts_with(OURS))
    }
}

/// Connections of operators among them.
pub fn of_the_operator(holders: &[Holder]) -> BTreeSet<u64> {
    let ours = holders.iter().filter(|h| h.is_the_operators());
    ours.filter_map(|h| match h.who {
        Who::Client { id, .. } => Some(id),
        _ => None,
    })
    .collect()
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shard = self.shard;
        match &self.who {
            Who::Client { id, user, host } => write!(
                f,
                "a transaction of {user}@{host} (connection {id}) on shard {shard}, open for {} ms",
                self.open.as_millis()
            ),
            Who::Applier => write!(f, "replication's applier on shard {shard}"),
            Who::Prepared => write!(
                f,
                "a prepared XA transaction on shard {shard}: XA RECOVER names it, XA COMMIT or XA ROLLBACK ends it"
            ),
        }
    }
}

/// Who holds on to databases of these shards. Without `performance_schema` nobody is found; the barrier finds them all the same.
///
/// # Errors
/// As [`Error`].
pub async fn holders(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<Vec<Holder>, Error> {
    if shards.is_empty() {
        return Ok(vec![]);
    }
    let sets = s.sets(deadline::QUERY, who_holds(naming)).await?;
    let mut holders: Vec<Holder> = vec![];
    for row in sets.iter().flatten() {
        holders.extend(holder(naming, row)?.filter(|h| shards.contains(h.shard)));
    }
    holders.sort();
    holders.dedup_by(|a, b| (a.shard, &a.who) == (b.shard, &b.who));
    Ok(holders)
}

/// A lock without a session is a prepared transaction's: its thread is gone, or, after a restart, the server's first one. A database that is
/// waited for is not held.
fn who_holds(naming: &Naming) -> String {
    format!(
        "SELECT CAST(m.object_schema AS CHAR), t.processlist_id, COALESCE(t.processlist_user, ''), COALESCE(t.processlist_host, ''), \
         COALESCE(t.name, ''), CAST(COALESCE(MAX(e.timer_wait) DIV 1000000000, MAX(t.processlist_time) * 1000, 0) AS UNSIGNED) \
         FROM performance_schema.metadata_locks m \
         LEFT JOIN performance_schema.threads t ON t.thread_id = m.owner_thread_id \
         LEFT JOIN performance_schema.events_transactions_current e ON e.thread_id = m.owner_thread_id AND e.state = 'ACTIVE' \
         WHERE m.object_schema LIKE {} AND m.lock_status = 'GRANTED' AND NOT (t.processlist_id <=> CONNECTION_ID()) \
         GROUP BY m.object_schema, t.processlist_id, t.processlist_user, t.processlist_host, t.name",
        literal(&naming.like_pattern())
    )
}

fn holder(naming: &Naming, row: &Row) -> Result<Option<Holder>, Error> {
    let Some(shard) = naming.parse(&get::<String>(row, 0)?) else {
        return Ok(None);
    };
    let thread: String = get(row, 4)?;
    let who = match get::<Option<u64>>(row, 1)? {
        _ if thread.starts_with("thread/sql/replica") || thread.starts_with("thread/sql/slave") => {
            Who::Applier
        }
        None => Who::Prepared,
        Some(id) => Who::Client {
            id,
            user: get(row, 2)?,
            host: get(row, 3)?,
        },
    };
    Ok(Some(Holder {
        shard,
        open: Duration::from_millis(if who == Who::Prepared { 0 } else { get(row, 5)? }),
        who,
    }))
}

/// Ends the connections of clients whose transactions have held these shards for at least as long as that; they find it closed, and
/// nothing of the transaction is done. The operator's own are left alone. Gives those that were ended.
///
/// # Errors
/// As [`Error`].
pub async fn end_holders(
    s: &mut Session,
    naming: &Naming,
    shards: &SpanSet,
    after: Duration,
) -> Result<Vec<Holder>, Error> {
    let mut ended: Vec<Holder> = vec![];
    for holder in holders(s, naming, shards).await? {
        let Who::Client { id, .. } = &holder.who else {
            continue;
        };
        if holder.open < after || holder.is_the_operators() {
            continue;
        }
        match s.run(deadline::STEP, format!("KILL CONNECTION {id}")).await {
            Ok(()) => ended.push(holder),
            // It has ended by itself; or it is an account with SYSTEM_USER, and the operator has not got that yet.
            Err(e) if matches!(e.code(), Some(NO_SUCH_THREAD | KILL_DENIED)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(ended)
}

/// Prepared XA transactions of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// How many there are, whatever they touch.
    pub count: usize,
    /// Of the shards that were asked for, those that one of them touches; all of them, when the server does not tell.
    pub touch: SpanSet,
}

/// Asks for prepared XA transactions (`XA RECOVER`), and which of `shards` they touch. MySQL does not say which of them touches what.
///
/// # Errors
/// As [`Error`].
pub async fn prepared(s: &mut Session, naming: &Naming, shards: &SpanSet) -> Result<Prepared, Error> {
    let mut sets = s
        .sets(deadline::QUERY, format!("XA RECOVER; {}", who_holds(naming)))
        .await?
        .into_iter();
    let count = sets.next().map_or(0, |rows| rows.len());
    if count == 0 {
        return Ok(Prepared::default());
    }
    let mut touched: Vec<i32> = vec![];
    for row in sets.flatten() {
        touched.extend(
            holder(naming, &row)?
                .filter(|h| h.who == Who::Prepared)
                .map(|h| h.shard),
        );
    }
    let known = !touched.is_empty();
    let touched: SpanSet = touched.into_iter().collect();
    Ok(Prepared {
        count,
        touch: if known {
            touched.intersect(shards)
        } else {
            shards.clone()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_on_to_a_shard_is_said_with_what_ends_it() {
        let who = Who::Client {
            id: 7,
            user: "app".into(),
            host: "10.0.0.1".into(),
        };
        let text = Holder {
            shard: 3,
            who,
            open: Duration::from_millis(1500),
        }
        .to_string();
        assert_eq!(
            text,
            "a transaction of app@10.0.0.1 (connection 7) on shard 3, open for 1500 ms"
        );
    }
}
