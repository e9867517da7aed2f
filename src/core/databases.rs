//! Names of the shards' databases.

use super::shard_map::Databases;
use crate::api::shard_cluster::Shards;

/// How the databases of one cluster are called: `<prefix><number, filled with zeros to digits>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    prefix: String,
    digits: usize,
    total: i32,
}

impl From<&Shards> for Naming {
    fn from(s: &Shards) -> Self {
        Self {
            prefix: s.database_prefix.clone(),
            digits: usize::try_from(s.digits).unwrap_or(0),
            total: s.total,
        }
    }
}

impl From<&Databases> for Naming {
    fn from(d: &Databases) -> Self {
        Self {
            prefix: d.prefix.clone(),
            digits: usize::try_from(d.digits).unwrap_or(0),
            total: d.total,
        }
    }
}

impl Naming {
    /// The database of `shard`.
    pub fn name(&self, shard: i32) -> String {
        format!("{}{shard:0width$}", self.prefix, width = self.digits)
    }

    /// The shard whose database this is; `None` for every name that [`Naming::name`] makes for no shard of the cluster.
    pub fn parse(&self, database: &str) -> Option<i32> {
        let number = database.strip_prefix(self.prefix.as_str())?;
        if number.len() != self.digits || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        number.parse().ok().filter(|shard| *shard < self.total)
    }

    /// Pattern for `LIKE` that every database of the cluster matches. Others may match as well, such as
    /// `dbxxxxx`: pass what it finds through [`Naming::parse`].
    pub fn like_pattern(&self) -> String {
        let mut pattern = self
            .prefix
            .replace('\\', r"\\")
            .replace('_', r"\_")
            .replace('%', r"\%");
        pattern.extend(std::iter::repeat_n('_', self.digits));
        pattern
    }

    /// Database pattern for `GRANT … ON` (between backticks): each digit is `_`, a `_` of the prefix is escaped and
    /// stands for itself. GRANT reads patterns as LIKE does.
    pub fn grant_pattern(&self) -> String {
        self.like_pattern()
    }

    /// Number of virtual shards of the cluster.
    pub fn total(&self) -> i32 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(prefix: &str, digits: i32, total: i32) -> Naming {
        Naming::from(&Shards {
            total,
            database_prefix: prefix.into(),
            digits,
        })
    }

    #[test]
    fn names_and_shards_are_each_others_inverse() {
        let n = naming("db", 5, 65536);
        for shard in [0, 1, 3429, 65535] {
            assert_eq!(n.parse(&n.name(shard)), Some(shard));
        }
        assert_eq!(
            (n.name(0).as_str(), n.name(3429).as_str()),
            ("db00000", "db03429")
        );
    }

    #[test]
    fn a_name_of_anything_else_is_no_shard() {
        let n = naming("db", 5, 1024);
        for other in [
            "db01024",
            "db1",
            "db000001",
            "db0000x",
            "db+0001",
            "DB00001",
            "xdb00001",
            "mysql",
            "",
            "db",
            "db٠٠٠٠",
        ] {
            assert_eq!(n.parse(other), None, "{other}");
        }
    }

    #[test]
    fn patterns_take_no_underscore_of_the_prefix_for_a_digit() {
        let n = naming("user_db", 3, 100);
        assert_eq!(
            (n.like_pattern().as_str(), n.grant_pattern().as_str()),
            (r"user\_db___", r"user\_db___")
        );
    }
}
