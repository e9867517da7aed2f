//! The SQL that mysqld runs at every boot (`init_file`): the operator's account and root's password.
//!
//! So credentials that were lost and made anew, and a volume that was copied from elsewhere, heal at the next start. Nothing
//! of it reaches the binary log: an account made on each server by itself is no transaction of the pair (a GTID of a
//! passive's own would be an errant one). One statement a line, as mysqld reads the file; passwords hold no quotes
//! ([`Credentials::from_data`] sees to it).

use crate::core::credentials::{Credentials, OPERATOR_USER};
use std::fmt::Write as _;

/// The file's name.
pub const FILE: &str = "accounts.sql";

/// What the operator's account may do, and no more: it sets variables, replication and fences, makes accounts and shard
/// databases, and grants the other accounts what it has itself (the four statements on rows, BACKUP_ADMIN, REPLICATION SLAVE). Without EVENT and
/// TRIGGER it would not see those of a shard, and move it without them.
///
/// A privilege that is added here reaches a server when it is next started, and an upgrade of the operator starts none (rule
/// O2): what needs it has to do without it until then. That is why some are granted ahead of their use: no statement of
/// this version needs REPLICATION CLIENT, REPLICATION_APPLIER and SHUTDOWN.
pub const OPERATOR_PRIVILEGES: &[&str] = &[
    "ALTER",
    "BACKUP_ADMIN",
    "CLONE_ADMIN",
    "CONNECTION_ADMIN",
    "CREATE",
    "CREATE USER",
    "DELETE",
    "DROP",
    "EVENT",
    "INDEX",
    "INSERT",
    "LOCK TABLES",
    "PROCESS",
    "RELOAD",
    "REPLICATION CLIENT",
    "REPLICATION SLAVE",
    "REPLICATION_APPLIER",
    "REPLICATION_SLAVE_ADMIN",
    "SELECT",
    "SESSION_VARIABLES_ADMIN",
    "SHUTDOWN",
    "SYSTEM_USER",
    "SYSTEM_VARIABLES_ADMIN",
    "TRIGGER",
    "UPDATE",
    "XA_RECOVER_ADMIN",
];

/// The text of the file.
pub fn accounts_sql(credentials: &Credentials) -> String {
    let mut sql = String::from("SET SESSION sql_log_bin = 0;\n");
    let operator = format!("'{OPERATOR_USER}'@'%'");
    let root = "'root'@'localhost'";
    account(
        &mut sql,
        &operator,
        &credentials.operator_password,
        "REQUIRE SSL",
        &OPERATOR_PRIVILEGES.join(", "),
    );
    account(&mut sql, root, &credentials.root_password, "REQUIRE NONE", "ALL");
    sql
}

/// The password's rules are the account's own: a general rule against old passwords would refuse the same one at the next boot.
fn account(sql: &mut String, name: &str, password: &str, require: &str, privileges: &str) {
    let with = format!(
        "IDENTIFIED WITH caching_sha2_password BY '{password}' {require} PASSWORD EXPIRE NEVER PASSWORD HISTORY 0 PASSWORD REUSE INTERVAL 0 DAY ACCOUNT UNLOCK"
    );
    let _ = writeln!(sql, "CREATE USER IF NOT EXISTS {name} {with};");
    let _ = writeln!(sql, "ALTER USER {name} {with};");
    let _ = writeln!(sql, "GRANT {privileges} ON *.* TO {name} WITH GRANT OPTION;");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_a_line_and_none_in_the_binary_log() {
        let c = Credentials {
            operator_password: "OperatorPassword".into(),
            replication_password: "ReplicationPassword".into(),
            app_password: "AppPassword".into(),
            root_password: "RootPassword".into(),
            ca_crt: String::new(),
            ca_key: String::new(),
        };
        let sql = accounts_sql(&c);
        assert!(sql.starts_with("SET SESSION sql_log_bin = 0;\n"));
        assert!(sql.lines().all(|l| l.ends_with(';')), "{sql}");
        assert!(!sql.contains("AppPassword") && !sql.contains("ReplicationPassword"));
        insta::assert_snapshot!(sql);
    }
}
