//! Copying one server over another one by CLONE. The one that is overwritten must not be a member of anything any more.

use super::{
    Error,
    conn::literal,
    replication, seed,
    session::Session,
    shard_fence::{self, ASIDE, put_back},
    state,
};
use crate::{
    core::{
        credentials::{CHANNEL_USER_PREFIX, CLONE_USER, REPLICATION_USER_PREFIX},
        gtid::GtidSet,
    },
    deadline,
};
use std::{fmt::Write as _, time::Duration};

/// The longest copy: about 2 TB at the speed of a slow disk. It has no deadline of seconds because the statement is the copy.
pub const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Which server is copied.
pub struct Donor {
    /// DNS name.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Password of the clone account.
    pub password: String,
    /// File on the recipient with the authority that signed the donor's certificate.
    pub ca_file: String,
}

/// Makes the recipient ready: no channel, and open to the operator so that CLONE may drop what it has, which it cannot do to a fenced database
/// (error 3989). `read_only` stays ON. Fences are as the donor's afterwards, and so are channels with a name, stopped and without a filter.
///
/// # Errors
/// As [`Error`].
pub async fn prepare(s: &mut Session, donor: &Donor) -> Result<(), Error> {
    replication::forget(s).await?;
    s.run(
        deadline::CHANGE,
        format!(
            "SET GLOBAL clone_valid_donor_list = {}, GLOBAL clone_ssl_ca = {}",
            literal(&format!("{}:{}", donor.host, donor.port)),
            literal(&donor.ca_file)
        ),
    )
    .await?;
    s.run(deadline::CHANGE, "SET GLOBAL super_read_only = OFF")
        .await?;
    shard_fence::open_all(s).await
}

/// Copies. When it went well mysqld ends and is started anew by the kubelet, so a broken connection says nothing; what became of
/// it is in `clone_status`.
///
/// # Errors
/// As [`Error`]; the server's own number when it refused or failed.
pub async fn run(s: &mut Session, donor: &Donor) -> Result<(), Error> {
    let sql = format!(
        "CLONE INSTANCE FROM {}@{}:{} IDENTIFIED BY {} REQUIRE SSL",
        literal(CLONE_USER),
        literal(&donor.host),
        donor.port,
        literal(&donor.password)
    );
    s.run(LIMIT, sql).await
}

/// Ends a CLONE into this server, which takes some seconds more: the server is empty then, and has the accounts that it had.
///
/// # Errors
/// As [`Error`].
pub async fn end(s: &mut Session) -> Result<(), Error> {
    let running: Vec<u64> = s
        .rows(
            deadline::QUERY,
            "SELECT CAST(p.id AS UNSIGNED) FROM performance_schema.clone_status c \
             JOIN performance_schema.processlist p ON p.id = c.pid WHERE c.state = 'In Progress'",
        )
        .await?;
    for id in running {
        s.end_connection(id, deadline::STEP).await?;
    }
    Ok(())
}

/// Takes away what a CLONE of a server of another pair has brought along and is that pair's affair: channels, the accounts of those who take from
/// it, and the marks of copies that are made there. Then the server counts `executed` as executed: transactions of servers of its own pair,
/// whose numbers must not be given once more. Nothing of it reaches the binary log.
///
/// # Errors
/// As [`Error`].
pub async fn adopt(s: &mut Session, executed: &GtidSet) -> Result<(), Error> {
    replication::forget(s).await?;
    let users: Vec<String> = s.rows(deadline::QUERY, accounts()).await?;
    let mut sql = format!("{ASIDE}; DROP DATABASE IF EXISTS {}", seed::OWN);
    for user in users {
        // Writing to a String cannot fail.
        let _ = write!(sql, "; DROP USER {}@'%'", literal(&user));
    }
    let done = s.run(deadline::DDL, sql).await;
    put_back(s).await?;
    done?;
    let lacks = executed.minus(&state::executed(s).await?);
    if !lacks.is_empty() {
        s.run(deadline::CHANGE, format!("SET GLOBAL gtid_purged = '+{lacks}'"))
            .await?;
    }
    if executed.is_subset_of(&state::executed(s).await?) {
        Ok(())
    } else {
        Err(Error::NotReached(format!(
            "it does not count {executed} as executed"
        )))
    }
}

fn accounts() -> String {
    format!(
        "SELECT user FROM mysql.user WHERE host = '%' AND (LEFT(user, {}) = '{REPLICATION_USER_PREFIX}' OR LEFT(user, {}) = '{CHANNEL_USER_PREFIX}')",
        REPLICATION_USER_PREFIX.len(),
        CHANNEL_USER_PREFIX.len()
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_accounts_that_take_from_the_donor_are_dropped() {
        let sql = super::accounts();
        assert!(
            sql.contains("LEFT(user, 14) = 'shardwright_r_' OR LEFT(user, 14) = 'shardwright_m_'"),
            "{sql}"
        );
    }
}
