//! The accounts that are made on the active server and reach the passive one through the binary log: replication, clone and
//! application. The operator's own account is not among them: mysqld makes it at every boot.

use super::{Error, conn::literal, session::Session};
use crate::{
    core::{
        credentials::{APP_USER, CLONE_USER, Credentials, REPLICATION_USER},
        databases::Naming,
    },
    deadline,
};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Version of what [`statements`] grants: a change of it sets the accounts up anew.
const GRANTS: &str = "2";
/// The password's rules are the account's own: a general one would let it expire, or refuse the same password when it is set again.
const OWN_RULES: &str =
    "PASSWORD EXPIRE NEVER PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY ACCOUNT UNLOCK";
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

/// Makes the three accounts, or brings them up to date, and marks them; the mark comes last, so that a try that was cut short is
/// repeated.
///
/// # Errors
/// As [`Error`].
pub async fn set_up(s: &mut Session, credentials: &Credentials, naming: &Naming) -> Result<(), Error> {
    for sql in statements(credentials, naming) {
        s.run(deadline::CHANGE, sql).await?;
    }
    Ok(())
}

fn statements(c: &Credentials, naming: &Naming) -> Vec<String> {
    let mark = mark(c, naming);
    let mut out = vec![];
    let accounts = [
        (
            REPLICATION_USER,
            &c.replication_password,
            "REPLICATION SLAVE ON *.*".to_owned(),
        ),
        (
            CLONE_USER,
            &c.replication_password,
            "BACKUP_ADMIN ON *.*".to_owned(),
        ),
        (
            APP_USER,
            &c.app_password,
            format!("SELECT, INSERT, UPDATE, DELETE ON `{}`.*", naming.grant_pattern()),
        ),
    ];
    for (user, password, grant) in accounts {
        let account = format!("{}@'%'", literal(user));
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
        let grants: Vec<_> = statements(&credentials("a"), &naming("my_db"))
            .into_iter()
            .filter(|s| s.starts_with("GRANT") && s.contains("'app'"))
            .collect();
        assert_eq!(
            grants,
            [r"GRANT SELECT, INSERT, UPDATE, DELETE ON `my\_db_____`.* TO 'app'@'%'"]
        );
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
