//! What a server has of other pairs, in the words of [`crate::core::pair`]: asked only where moves may have left something.

use super::{Error, channel, session::Session, state::get};
use crate::{
    core::{
        credentials::CHANNEL_USER_PREFIX,
        pair::moving::{Link, Links, Outsider},
    },
    deadline,
};
use mysql_async::Row;

fn accounts() -> String {
    format!(
        "SELECT u.user, u.account_locked = 'Y', (SELECT COUNT(*) FROM performance_schema.processlist p \
         WHERE p.user = u.user AND p.command LIKE 'Binlog Dump%') \
         FROM mysql.user u WHERE u.host = '%' AND LEFT(u.user, {}) = '{CHANNEL_USER_PREFIX}' ORDER BY u.user",
        CHANNEL_USER_PREFIX.len()
    )
}

/// Which channels from other pairs it has, and who of them may take from it. Which of its databases are READ ONLY is asked under its lock, when they
/// are to be ([`shard_fence::read`](super::shard_fence::read)).
///
/// # Errors
/// As [`Error`].
pub async fn read(s: &mut Session) -> Result<Links, Error> {
    let channels = channel::read(s).await?.into_iter().map(|c| Link {
        out_of_step: c.out_of_step(),
        name: c.name,
        received: c.received,
    });
    let channels = channels.collect();
    let rows: Vec<Row> = s.rows(deadline::QUERY, accounts()).await?;
    let outsider = |row: &Row| {
        Ok::<_, Error>(Outsider {
            user: get(row, 0)?,
            locked: get(row, 1)?,
            dumps: get(row, 2)?,
        })
    };
    Ok(Links {
        channels,
        accounts: rows.iter().map(outsider).collect::<Result<_, _>>()?,
    })
}

/// Stops all channels that take from other pairs.
///
/// # Errors
/// As [`Error`].
pub async fn quiet(s: &mut Session) -> Result<(), Error> {
    for c in channel::read(s).await? {
        channel::stop(s, &c.name).await?;
    }
    Ok(())
}

/// Takes them away.
///
/// # Errors
/// As [`Error`].
pub async fn unlink(s: &mut Session) -> Result<(), Error> {
    for c in channel::read(s).await? {
        channel::remove(s, &c.name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_accounts_of_channels_are_asked_for() {
        let sql = super::accounts();
        assert!(sql.contains("LEFT(u.user, 14) = 'shardwright_m_'"), "{sql}");
    }
}
