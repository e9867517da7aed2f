//! How a copy is closed for clients while it is made, when READ ONLY would refuse the rows as well: by privileges.
//!
//! Of the rows of `mysql.db` that match a database, MySQL takes the first, and an exact name comes before every pattern. So an account that may write there
//! by a pattern, as the application's may, is granted SELECT on the very name as well, and that is all it has there from then on. It holds at once
//! for connections that are open, but not for one whose default database this is: such a one keeps what it was told at its last USE, even of a
//! database that was dropped since. Those connections are ended, when it is withheld and when it is given back.
//!
//! Who was granted it is written down before, beside the mark, and nothing else is ever taken back: an account that has a grant on the very name
//! already keeps it. CLONE copies the grants and what is written of them at one moment, so that they stay true on the other server.

use super::target::OWN;
use crate::{
    deadline,
    mysql::{
        Error, Session,
        conn::{self, ident, literal},
        shard_fence::{ASIDE, put_back},
        state::get,
    },
};
use mysql_async::{Conn, Row};
use std::collections::{BTreeMap, BTreeSet};

/// An account: who, and from where.
pub(super) type Account = (String, String);

/// `ER_NO_SUCH_THREAD`.
const NO_SUCH_THREAD: u16 = 1094;

/// The columns of what is written down.
pub(super) const TABLE: &str = "(database_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, user VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, \
     host VARCHAR(255) CHARACTER SET ascii, PRIMARY KEY (database_name, user, host))";

/// The name as a pattern that nothing else matches.
fn exact(database: &str) -> String {
    database
        .replace('\\', r"\\")
        .replace('_', r"\_")
        .replace('%', r"\%")
}

fn account((user, host): &Account) -> String {
    format!("{}@{}", literal(user), literal(host))
}

fn list<'a>(all: impl IntoIterator<Item = &'a Account>, each: impl Fn(&Account) -> String) -> String {
    all.into_iter().map(each).collect::<Vec<_>>().join(", ")
}

/// Asks which accounts have a grant that matches, and whether it is one on the very name; then to whom it was granted here.
pub(super) fn question(database: &str) -> String {
    let name = literal(database);
    format!(
        "SELECT CAST(d.user AS CHAR), CAST(d.host AS CHAR), d.db = {} FROM mysql.db d \
         WHERE {name} LIKE d.db AND EXISTS (SELECT 1 FROM mysql.user u WHERE u.user = d.user AND u.host = d.host); \
         SELECT user, host FROM {OWN}.withheld WHERE database_name = {name}",
        literal(&exact(database))
    )
}

/// Of the answers to [`question`]: those that may write there by a pattern only.
pub(super) fn by_pattern(grants: &[Row], written: &[Row]) -> Result<BTreeSet<Account>, Error> {
    let account = |row: &Row| Ok::<Account, Error>((get(row, 0)?, get(row, 1)?));
    let (mut pattern, mut own) = (BTreeSet::new(), BTreeSet::new());
    for row in grants {
        let to = if get::<i64>(row, 2)? == 1 {
            &mut own
        } else {
            &mut pattern
        };
        to.insert(account(row)?);
    }
    for row in written {
        own.remove(&account(row)?);
    }
    Ok(pattern.difference(&own).cloned().collect())
}

/// Withholds it from these accounts; the answer is whose connections have to be ended. It goes behind the statement that writes the mark.
pub(super) fn withhold(database: &str, accounts: &BTreeSet<Account>) -> String {
    if accounts.is_empty() {
        return String::new();
    }
    let name = literal(database);
    format!(
        "; REPLACE INTO {OWN}.withheld VALUES {}; GRANT SELECT ON {}.* TO {}; {}",
        list(accounts, |(user, host)| format!(
            "({name}, {}, {})",
            literal(user),
            literal(host)
        )),
        ident(&exact(database)),
        list(accounts, account),
        inside(database, accounts)
    )
}

/// Connections of these accounts whose default database it is.
fn inside<'a>(database: &str, accounts: impl IntoIterator<Item = &'a Account>) -> String {
    format!(
        "SELECT id FROM performance_schema.processlist WHERE db = {} AND user IN ({})",
        literal(database),
        list(accounts, |(user, _)| literal(user))
    )
}

/// Whom it is withheld from, by database.
pub(super) fn written(databases: &[String]) -> String {
    let names: Vec<String> = databases.iter().map(|d| literal(d)).collect();
    format!(
        "SELECT database_name, user, host FROM {OWN}.withheld WHERE database_name IN ({})",
        names.join(", ")
    )
}

/// Gives it back; the answer is whose connections have to be ended. Nothing else that they have on the database goes, nor does it matter when it is gone.
fn give_back(database: &str, accounts: &[Account]) -> String {
    format!(
        "REVOKE IF EXISTS SELECT ON {}.* FROM {} IGNORE UNKNOWN USER; {}",
        ident(&exact(database)),
        list(accounts, account),
        inside(database, accounts)
    )
}

fn erase(database: &str) -> String {
    format!(
        "DELETE FROM {OWN}.withheld WHERE database_name = {}",
        literal(database)
    )
}

/// Ends the connections that are in the last of these answers.
pub(super) async fn end(conn: &mut Conn, answers: &[Vec<Row>]) -> Result<(), Error> {
    for row in answers.last().into_iter().flatten() {
        let id: u64 = get(row, 0)?;
        match conn::run(conn, deadline::QUERY, format!("KILL CONNECTION {id}")).await {
            Err(e) if e.code() == Some(NO_SUCH_THREAD) => {}
            other => other?,
        }
    }
    Ok(())
}

fn by_database(rows: impl IntoIterator<Item = (String, String, String)>) -> BTreeMap<String, Vec<Account>> {
    let mut all: BTreeMap<String, Vec<Account>> = BTreeMap::new();
    for (database, user, host) in rows {
        all.entry(database).or_default().push((user, host));
    }
    all
}

/// Gives back what the last of these answers, one to [`written`], says.
pub(super) async fn lift(conn: &mut Conn, check: &str, answers: &[Vec<Row>]) -> Result<(), Error> {
    let rows = answers.last().into_iter().flatten();
    let rows: Result<Vec<_>, Error> = rows
        .map(|row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?)))
        .collect();
    for (database, accounts) in by_database(rows?) {
        let sql = format!("{check}{}", give_back(&database, &accounts));
        let answers = conn::sets(conn, deadline::DDL, sql).await?;
        end(conn, &answers).await?;
        conn::run(conn, deadline::CHANGE, format!("{check}{}", erase(&database))).await?;
    }
    Ok(())
}

/// Gives back what is withheld of these databases, if anything is, on a connection that writes no binary log.
pub(super) async fn lift_all(conn: &mut Conn, databases: &[String]) -> Result<(), Error> {
    match conn::sets(conn, deadline::CHANGE, written(databases)).await {
        Err(e) if never(&e) => Ok(()),
        answers => lift(conn, "", &answers?).await,
    }
}

/// Nothing was ever withheld there: `ER_BAD_DB_ERROR`, `ER_NO_SUCH_TABLE`.
fn never(e: &Error) -> bool {
    matches!(e.code(), Some(1049 | 1146))
}

/// Gives back what is withheld of these databases, if anything is, on a server that may be closed and over a connection that has its lock. Then whoever may
/// write by a pattern may write there, as soon as it is not READ ONLY.
///
/// # Errors
/// As [`Error`]; it is still on record then, and can be repeated.
pub(crate) async fn lift_here(s: &mut Session, databases: &[String]) -> Result<(), Error> {
    if databases.is_empty() {
        return Ok(());
    }
    let rows = match s.rows(deadline::CHANGE, written(databases)).await {
        Err(e) if never(&e) => return Ok(()),
        other => other?,
    };
    for (database, accounts) in by_database(rows) {
        let done = lift_one(s, &database, &accounts).await;
        // As it was, after an error as well.
        put_back(s).await?;
        done?;
    }
    Ok(())
}

/// Withholds a database from all that may write there by a pattern, on a connection that writes no binary log, of a server that takes what it writes:
/// before its fence goes off for a moment.
///
/// # Errors
/// As [`Error`].
pub(crate) async fn withhold_here(s: &mut Session, database: &str) -> Result<(), Error> {
    let room =
        format!("CREATE DATABASE IF NOT EXISTS {OWN}; CREATE TABLE IF NOT EXISTS {OWN}.withheld {TABLE}");
    s.run(deadline::DDL, room).await?;
    let answers = s.sets(deadline::CHANGE, question(database)).await?;
    let [grants, written] = answers.as_slice() else {
        return Err(Error::Protocol(format!(
            "{} answers to two questions",
            answers.len()
        )));
    };
    let accounts = by_pattern(grants, written)?;
    if accounts.is_empty() {
        return Ok(());
    }
    let answers = s
        .sets(deadline::DDL, format!("DO 0{}", withhold(database, &accounts)))
        .await?;
    end_here(s, &answers).await
}

/// As [`end`], over a connection that has the server's lock.
async fn end_here(s: &mut Session, answers: &[Vec<Row>]) -> Result<(), Error> {
    for row in answers.last().into_iter().flatten() {
        s.end_connection(get(row, 0)?, deadline::QUERY).await?;
    }
    Ok(())
}

async fn lift_one(s: &mut Session, database: &str, accounts: &[Account]) -> Result<(), Error> {
    let sql = format!("{ASIDE}; {}", give_back(database, accounts));
    let answers = s.sets(deadline::DDL, sql).await?;
    end_here(s, &answers).await?;
    s.run(deadline::CHANGE, erase(database)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> BTreeSet<Account> {
        [("app", "%"), ("o'd", "10.%")]
            .map(|(u, h)| (u.to_owned(), h.to_owned()))
            .into()
    }

    #[test]
    fn the_grant_is_on_the_very_name_and_written_down_before() {
        let sql = withhold("my_db00007", &app());
        let statements: Vec<&str> = sql.trim_start_matches("; ").split("; ").collect();
        assert_eq!(
            statements,
            [
                "REPLACE INTO shardwright_seed.withheld VALUES ('my_db00007', 'app', '%'), ('my_db00007', 'o''d', '10.%')",
                r"GRANT SELECT ON `my\_db00007`.* TO 'app'@'%', 'o''d'@'10.%'",
                "SELECT id FROM performance_schema.processlist WHERE db = 'my_db00007' AND user IN ('app', 'o''d')",
            ]
        );
        assert_eq!(withhold("my_db00007", &BTreeSet::new()), "");
    }

    #[test]
    fn nothing_but_what_was_granted_is_taken_back() {
        let accounts: Vec<Account> = app().into_iter().collect();
        let sql = give_back("my_db00007", &accounts);
        let (first, rest) = sql.split_once("; ").unwrap();
        assert_eq!(
            first,
            r"REVOKE IF EXISTS SELECT ON `my\_db00007`.* FROM 'app'@'%', 'o''d'@'10.%' IGNORE UNKNOWN USER"
        );
        assert!(rest.starts_with("SELECT id "), "{rest}");
    }

    #[test]
    fn patterns_are_told_from_the_very_name() {
        let sql = question("my_db00007");
        assert!(
            sql.contains(r"d.db = 'my\\_db00007' ") && sql.contains("WHERE 'my_db00007' LIKE d.db "),
            "{sql}"
        );
        assert_eq!(exact(r"a_b%c\d"), r"a\_b\%c\\d");
    }

    #[test]
    fn it_is_given_back_database_by_database() {
        let row = |d: &str, u: &str| (d.to_owned(), u.to_owned(), "%".to_owned());
        let all = by_database(vec![row("a", "x"), row("b", "x"), row("a", "y")]);
        assert_eq!((all.len(), all["a"].len(), all["b"].len()), (2, 2, 1), "{all:?}");
    }
}
