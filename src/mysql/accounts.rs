//! The accounts that are made on the active server and reach the passive one through the binary log: clone, application, and one
//! replication account for each incarnation of a server. The operator's own account is not among them: mysqld makes it at every boot.

use super::{
    Error,
    conn::literal,
    session::Session,
    shard_fence::{ASIDE, put_back},
};
use crate::{
    core::{
        credentials::{APP_USER, CLONE_USER, Credentials, channel_user, replication_user},
        databases::Naming,
    },
    deadline,
};
use sha2::{Digest, Sha256};
use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

/// Version of what [`statements`] grants: a change of it sets the accounts up anew.
const GRANTS: &str = "3";
/// The password's rules are the account's own: a general one would let it expire, or refuse the same password when it is set again.
const OWN_RULES: &str =
    "PASSWORD EXPIRE NEVER PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY ACCOUNT UNLOCK";
/// For dump threads that were told to end.
const THREADS_END: Duration = Duration::from_secs(2);
/// Between two looks at whether they have.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Key of the mark in a user's attributes.
pub(super) const MARK_KEY: &str = "shardwright";

/// What an account that was made of these credentials carries, so that one look tells whether it has to be made anew. A hash
/// of passwords that are random and long tells nobody what they are.
pub fn mark(credentials: &Credentials, naming: &Naming) -> String {
    let mut hash = Sha256::new();
    for part in [
        GRANTS,
        &credentials.replication_password,
        &credentials.app_password,
        &naming.grant_pattern(),
    ] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(12).fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// Makes the accounts, or brings them up to date, and marks them; the mark comes last, so that a try that was cut short is
/// repeated. `followers` are the `server_uuid`s of the servers that may follow; an account of theirs that was locked is unlocked.
///
/// # Errors
/// As [`Error`].
pub async fn set_up(
    s: &mut Session,
    credentials: &Credentials,
    naming: &Naming,
    followers: &[String],
) -> Result<(), Error> {
    let mut beside = s.beside().await?;
    for sql in statements(credentials, naming, followers) {
        beside.run(deadline::STEP, sql).await?;
    }
    Ok(())
}

/// Locks these accounts, and ends the dump threads that run with them; returns when those are gone. So no former self of a server can
/// acknowledge for its successor (rule P3).
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`] when a thread does not end.
pub async fn lock_out(s: &mut Session, users: &[String]) -> Result<(), Error> {
    let mut beside = s.beside().await?;
    for user in users {
        let sql = format!("ALTER USER IF EXISTS {}@'%' ACCOUNT LOCK", literal(user));
        beside.run(deadline::STEP, sql).await?;
    }
    end_dumps(s, users).await
}

/// Makes the account that `pair` takes from this one with, or brings it up to date. It may do nothing but replicate, and only over TLS. Through the
/// binary log it reaches both servers: where nobody is to take from, [`bar`] it.
///
/// # Errors
/// As [`Error`].
pub async fn make_channel_account(s: &mut Session, pair: &str, password: &str) -> Result<(), Error> {
    let mut beside = s.beside().await?;
    for sql in channel_account(pair, password) {
        beside.run(deadline::STEP, sql).await?;
    }
    Ok(())
}

fn channel_account(pair: &str, password: &str) -> [String; 3] {
    let account = format!("{}@'%'", literal(&channel_user(pair)));
    let with = format!(
        "IDENTIFIED WITH caching_sha2_password BY {} REQUIRE SSL {OWN_RULES}",
        literal(password)
    );
    [
        format!("CREATE USER IF NOT EXISTS {account} {with}"),
        format!("ALTER USER {account} {with}"),
        format!("GRANT REPLICATION SLAVE ON *.* TO {account}"),
    ]
}

/// Takes the account of [`make_channel_account`] away.
///
/// # Errors
/// As [`Error`].
pub async fn drop_channel_account(s: &mut Session, pair: &str) -> Result<(), Error> {
    let sql = format!("DROP USER IF EXISTS {}@'%'", literal(&channel_user(pair)));
    s.beside().await?.run(deadline::STEP, sql).await
}

/// Keeps these accounts out of this server, and ends the dump threads that run with them; the other server of the pair does not hear of
/// it. So nobody but the other one of its pair acknowledges for the active server (rules P3 and R7): channels of other pairs take from the
/// passive one.
///
/// # Errors
/// As [`Error`]; [`Error::NotReached`] when a thread does not end.
pub async fn bar(s: &mut Session, users: &[String]) -> Result<(), Error> {
    here(s, users, "LOCK").await?;
    end_dumps(s, users).await
}

/// Lets these accounts in again, on this server alone.
///
/// # Errors
/// As [`Error`].
pub async fn admit(s: &mut Session, users: &[String]) -> Result<(), Error> {
    here(s, users, "UNLOCK").await
}

async fn here(s: &mut Session, users: &[String], what: &str) -> Result<(), Error> {
    for user in users {
        let sql = format!(
            "{ASIDE}; ALTER USER IF EXISTS {}@'%' ACCOUNT {what}",
            literal(user)
        );
        let done = s.run(deadline::STEP, sql).await;
        put_back(s).await?;
        done?;
    }
    Ok(())
}

async fn end_dumps(s: &mut Session, users: &[String]) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let threads: Vec<u64> = s.rows(deadline::QUERY, dump_threads(users)).await?;
        if threads.is_empty() {
            return Ok(());
        }
        if began.elapsed() > THREADS_END {
            return Err(Error::NotReached(format!(
                "{} dump threads of servers that are out do not end",
                threads.len()
            )));
        }
        for id in threads {
            s.end_connection(id, deadline::STEP).await?;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn dump_threads(users: &[String]) -> String {
    // An empty list is none in SQL.
    let users: Vec<String> = users
        .iter()
        .map(|u| literal(u))
        .chain(["NULL".to_owned()])
        .collect();
    format!(
        "SELECT id FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%' AND user IN ({})",
        users.join(", ")
    )
}

fn statements(c: &Credentials, naming: &Naming, followers: &[String]) -> Vec<String> {
    let mark = mark(c, naming);
    let mut out = vec![];
    let replication = |uuid: &String| {
        (
            replication_user(uuid),
            &c.replication_password,
            "REPLICATION SLAVE ON *.*".to_owned(),
        )
    };
    let accounts = followers.iter().map(replication).chain([
        (
            CLONE_USER.to_owned(),
            &c.replication_password,
            "BACKUP_ADMIN ON *.*".to_owned(),
        ),
        (
            APP_USER.to_owned(),
            &c.app_password,
            format!("SELECT, INSERT, UPDATE, DELETE ON `{}`.*", naming.grant_pattern()),
        ),
    ]);
    for (user, password, grant) in accounts {
        let account = format!("{}@'%'", literal(&user));
        let tls = if user == APP_USER { "NONE" } else { "SSL" };
        let with = format!(
            "IDENTIFIED WITH caching_sha2_password BY {} REQUIRE {tls} {OWN_RULES}",
            literal(password)
        );
        out.push(format!("CREATE USER IF NOT EXISTS {account} {with}"));
        out.push(format!("ALTER USER {account} {with}"));
        out.push(format!("GRANT {grant} TO {account}"));
        let attribute = serde_json::json!({ MARK_KEY: mark }).to_string();
        out.push(format!("ALTER USER {account} ATTRIBUTE {}", literal(&attribute)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shard_cluster::Shards;

    fn credentials(tag: &str) -> Credentials {
        Credentials {
            operator_password: format!("operator-{tag}"),
            replication_password: format!("replication-{tag}"),
            app_password: format!("application-{tag}"),
            root_password: format!("root-root-{tag}"),
            ca_crt: String::new(),
            ca_key: String::new(),
        }
    }
    fn naming(prefix: &str) -> Naming {
        Naming::from(&Shards {
            total: 1024,
            database_prefix: prefix.into(),
            digits: 5,
        })
    }

    #[test]
    fn the_application_may_do_nothing_but_read_and_write_rows_of_shards() {
        let grants: Vec<_> = statements(&credentials("a"), &naming("my_db"), &[])
            .into_iter()
            .filter(|s| s.starts_with("GRANT") && s.contains("'app'"))
            .collect();
        assert_eq!(
            grants,
            [r"GRANT SELECT, INSERT, UPDATE, DELETE ON `my\_db_____`.* TO 'app'@'%'"]
        );
    }

    #[test]
    fn each_server_that_follows_has_an_account_of_its_own() {
        let uuids = ["a", "b"].map(str::to_owned);
        let made: Vec<_> = statements(&credentials("a"), &naming("db"), &uuids)
            .into_iter()
            .filter(|s| s.starts_with("GRANT REPLICATION SLAVE"))
            .collect();
        let expected =
            uuids.map(|u| format!("GRANT REPLICATION SLAVE ON *.* TO '{}'@'%'", replication_user(&u)));
        assert_eq!(made, expected);
    }

    #[test]
    fn the_threads_of_the_named_accounts_are_ended_and_no_others() {
        let sql = dump_threads(&["shardwright_r_x".to_owned()]);
        assert!(sql.ends_with("user IN ('shardwright_r_x', NULL)"), "{sql}");
        assert!(dump_threads(&[]).ends_with("user IN (NULL)"));
    }

    #[test]
    fn who_takes_from_another_pair_may_do_nothing_else_and_only_over_tls() {
        let sql = channel_account("p2", "secret").join("; ");
        let user = channel_user("p2");
        assert_eq!(sql.matches("GRANT").count(), 1);
        assert!(
            sql.contains(&format!("GRANT REPLICATION SLAVE ON *.* TO '{user}'@'%'")),
            "{sql}"
        );
        assert!(sql.contains("REQUIRE SSL") && user.len() <= 32, "{sql}");
    }

    #[test]
    fn the_mark_changes_with_each_thing_that_an_account_is_made_of() {
        let base = mark(&credentials("a"), &naming("db"));
        assert_eq!(base, mark(&credentials("a"), &naming("db")));
        assert_ne!(base, mark(&credentials("b"), &naming("db")));
        assert_ne!(base, mark(&credentials("a"), &naming("dc")));
        assert_eq!(base.len(), 24);
    }
}
