//! Which rows differ, once it is known that some do.

use crate::{deadline::within, mysql::Error};
use mysql_async::{Conn, Row, prelude::Queryable as _};
use std::{collections::HashMap, time::Duration};

/// Rows that have found no equal yet; what is beyond is counted and not named.
const UNMATCHED: usize = 100_000;
/// Rows that are named.
const NAMED: usize = 5;
/// For the next row.
const NEXT: Duration = Duration::from_secs(120);

/// Rows of two servers, matched as they arrive: both come in the same order, so few wait for their equal.
#[derive(Default)]
struct Match {
    /// Name and hash: how often the first server has it more than the second.
    open: HashMap<(String, String), i64>,
    beyond: u64,
}

impl Match {
    fn take(&mut self, row: (String, String), one: i64) {
        if let Some(n) = self.open.get_mut(&row) {
            *n += one;
            if *n == 0 {
                self.open.remove(&row);
            }
        } else if self.open.len() < UNMATCHED {
            self.open.insert(row, one);
        } else {
            self.beyond += 1;
        }
    }

    fn tell(self, keyed: bool) -> Vec<String> {
        let mut all: Vec<((String, String), i64)> = self.open.into_iter().collect();
        all.sort();
        let mut said = vec![];
        if keyed {
            let mut by_key: std::collections::BTreeMap<String, (bool, bool)> =
                std::collections::BTreeMap::new();
            for ((key, _), n) in all {
                let e = by_key.entry(key).or_default();
                if n > 0 {
                    e.0 = true;
                } else {
                    e.1 = true;
                }
            }
            for (what, which) in [
                ("another row", (true, true)),
                ("no row", (true, false)),
                ("a row too many", (false, true)),
            ] {
                let keys: Vec<&String> = by_key
                    .iter()
                    .filter(|(_, e)| **e == which)
                    .map(|(k, _)| k)
                    .collect();
                if !keys.is_empty() {
                    let named: Vec<&str> = keys.iter().take(NAMED).map(|k| k.as_str()).collect();
                    let more = if keys.len() > NAMED {
                        format!(" and {} more", keys.len() - NAMED)
                    } else {
                        String::new()
                    };
                    said.push(format!("{what} with the key ({}){more}", named.join("), (")));
                }
            }
        } else {
            let (less, more): (i64, i64) =
                all.iter().fold(
                    (0, 0),
                    |(a, b), (_, n)| if *n > 0 { (a + n, b) } else { (a, b - n) },
                );
            said.push(format!(
                "{less} rows are missing and {more} are too many (the table has no primary key)"
            ));
        }
        if self.beyond > 0 {
            said.push(format!("{} rows beyond these were not matched", self.beyond));
        }
        said
    }
}

/// Reads the rows of a part on two servers and says how the second differs.
pub(super) async fn differences(
    ours: &mut Conn,
    theirs: &mut Conn,
    sql: &str,
    keyed: bool,
) -> Result<Vec<String>, Error> {
    let (mut a, mut b) = (
        within(NEXT, ours.query_iter(sql)).await??,
        within(NEXT, theirs.query_iter(sql)).await??,
    );
    let mut found = Match::default();
    let (mut more_a, mut more_b) = (true, true);
    while more_a || more_b {
        if more_a {
            match within(NEXT, a.next()).await?? {
                Some(row) => found.take(read(&row), 1),
                None => more_a = false,
            }
        }
        if more_b {
            match within(NEXT, b.next()).await?? {
                Some(row) => found.take(read(&row), -1),
                None => more_b = false,
            }
        }
    }
    Ok(found.tell(keyed))
}

fn read(row: &Row) -> (String, String) {
    let text = |i: usize| match row.as_ref(i) {
        Some(mysql_async::Value::Bytes(b)) => String::from_utf8_lossy(b).into_owned(),
        _ => String::new(),
    };
    (text(0), text(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_by_its_key() {
        let mut m = Match::default();
        let row = |k: &str, h: &str| (k.to_owned(), h.to_owned());
        for (r, one) in [
            (row("1", "a"), 1),
            (row("2", "b"), 1),
            (row("1", "a"), -1),
            (row("2", "c"), -1),
            (row("3", "d"), 1),
            (row("4", "e"), -1),
        ] {
            m.take(r, one);
        }
        assert_eq!(
            m.tell(true),
            [
                "another row with the key (2)",
                "no row with the key (3)",
                "a row too many with the key (4)"
            ]
        );
        let mut m = Match::default();
        m.take(row("h", ""), 1);
        m.take(row("h", ""), 1);
        m.take(row("i", ""), -1);
        m.take(row("h", ""), -1);
        assert_eq!(
            m.tell(false),
            ["1 rows are missing and 1 are too many (the table has no primary key)"]
        );
    }
}
