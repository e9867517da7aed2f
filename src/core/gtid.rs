//! GTID sets, compared here rather than by asking a server: the one to ask may be the one that is in doubt.

use super::runs::Runs;
use std::{collections::BTreeMap, fmt, str::FromStr};
use uuid::Uuid;

/// Highest number that MySQL gives a transaction.
pub const MAX_NUMBER: i64 = i64::MAX - 1;

/// Where transactions come from: the server that first committed them, and the tag that MySQL 8.4 and later allow besides.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// `server_uuid`.
    pub server: Uuid,
    /// Tag in lower case; empty for transactions without one, which sort first.
    pub tag: String,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gtid {
    /// Where it comes from.
    pub origin: Origin,
    /// Its number there, from 1.
    pub number: i64,
}

/// A set of transactions, such as `@@GLOBAL.gtid_executed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GtidSet(BTreeMap<Origin, Runs>);

/// Why a text is no GTID set.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// A part that should begin with a server's UUID does not.
    #[error("`{0}` does not begin with a UUID")]
    Uuid(String),
    /// Neither an interval nor a tag.
    #[error("`{0}` is neither an interval (`5`, `1-5`) nor a tag")]
    Interval(String),
    /// A number is 0 or too large.
    #[error("`{0}` is not between 1 and {MAX_NUMBER}")]
    Number(String),
    /// A UUID or tag without an interval.
    #[error("`{0}` names no transaction")]
    Nothing(String),
    /// More or less than one transaction where one is meant.
    #[error("`{0}` is not one transaction")]
    NotOne(String),
}

impl GtidSet {
    /// The set without a transaction.
    pub fn new() -> Self {
        Self::default()
    }
    /// Whether there is no transaction in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Number of transactions.
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |n, runs| n.saturating_add(runs.count()))
    }
    /// Whether `gtid` is in it.
    pub fn contains(&self, gtid: &Gtid) -> bool {
        self.0
            .get(&gtid.origin)
            .is_some_and(|runs| runs.contains(gtid.number))
    }
    /// The transactions of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        for (origin, runs) in &other.0 {
            let sum = all
                .get(origin)
                .map_or_else(|| runs.clone(), |mine| mine.union(runs));
            all.insert(origin.clone(), sum);
        }
        Self(all)
    }
    /// The transactions of this one that are not in `other`, as `GTID_SUBTRACT` has it.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let rest = self.0.iter().filter_map(|(origin, runs)| {
            let rest = other
                .0
                .get(origin)
                .map_or_else(|| runs.clone(), |cut| runs.minus(cut));
            (!rest.is_empty()).then(|| (origin.clone(), rest))
        });
        Self(rest.collect())
    }
    /// Whether every transaction of this one is in `other`, as `GTID_SUBSET` has it.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.0
            .iter()
            .all(|(origin, runs)| other.0.get(origin).is_some_and(|all| runs.is_subset(all)))
    }
    /// The transactions that `server` committed first, with whatever tag.
    #[must_use]
    pub fn of_server(&self, server: Uuid) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(o, _)| o.server == server)
                .map(|(o, r)| (o.clone(), r.clone()))
                .collect(),
        )
    }
    /// The set in parts of one origin each, ascending.
    pub fn by_origin(&self) -> impl Iterator<Item = Self> + '_ {
        self.0
            .iter()
            .map(|(o, r)| Self(BTreeMap::from([(o.clone(), r.clone())])))
    }
    /// Servers that committed a transaction of this set first, ascending.
    pub fn servers(&self) -> Vec<Uuid> {
        let mut servers: Vec<_> = self.0.keys().map(|o| o.server).collect();
        servers.dedup();
        servers
    }
}

impl From<Gtid> for GtidSet {
    fn from(gtid: Gtid) -> Self {
        let runs = std::iter::once((gtid.number, gtid.number)).collect();
        Self(BTreeMap::from([(gtid.origin, runs)]))
    }
}

/// Reads what MySQL prints and what it accepts: white space and line ends anywhere between the parts, UUIDs and tags in
/// any case, origins and intervals in any order and more than once. An interval that ends before it begins is empty.
impl FromStr for GtidSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut found: BTreeMap<Origin, Vec<(i64, i64)>> = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let mut words = part.split(':').map(str::trim);
            let first = words.next().unwrap_or_default();
            let server = Uuid::try_parse(first).map_err(|_| ParseError::Uuid(part.to_owned()))?;
            let mut tag = String::new();
            // Whether the UUID or tag last read has got an interval yet.
            let mut open = true;
            for word in words {
                if is_tag(word) {
                    if open && !tag.is_empty() {
                        return Err(ParseError::Nothing(tag));
                    }
                    tag = word.to_ascii_lowercase();
                    open = true;
                } else {
                    let run = interval(word)?;
                    found
                        .entry(Origin {
                            server,
                            tag: tag.clone(),
                        })
                        .or_default()
                        .push(run);
                    open = false;
                }
            }
            if open {
                return Err(ParseError::Nothing(part.to_owned()));
            }
        }
        let sets = found
            .into_iter()
            .map(|(o, r)| (o, r.into_iter().collect::<Runs>()));
        Ok(Self(sets.filter(|(_, r)| !r.is_empty()).collect()))
    }
}

impl FromStr for Gtid {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let set: GtidSet = text.parse()?;
        let mut all = set.0.into_iter();
        match (all.next(), all.next()) {
            (Some((origin, runs)), None) if runs.count() == 1 => {
                let number = runs.as_slice().first().map_or(0, |r| r.0);
                Ok(Self { origin, number })
            }
            _ => Err(ParseError::NotOne(text.to_owned())),
        }
    }
}

/// `[a-z_][a-z0-9_]{0,31}`, in any case.
fn is_tag(word: &str) -> bool {
    word.len() <= 32
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn interval(word: &str) -> Result<(i64, i64), ParseError> {
    let number = |digits: &str| {
        let digits = digits.trim();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseError::Interval(word.to_owned()));
        }
        let n = digits.parse().ok().filter(|n| (1..=MAX_NUMBER).contains(n));
        n.ok_or_else(|| ParseError::Number(digits.to_owned()))
    };
    match word.split_once('-') {
        Some((first, last)) => Ok((number(first)?, number(last)?)),
        None => number(word).map(|n| (n, n)),
    }
}

/// As MySQL prints it, but on one line: each server once, in the order of the UUIDs, transactions without a tag first.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<Uuid> = None;
        for (origin, runs) in &self.0 {
            if before != Some(origin.server) {
                if before.is_some() {
                    f.write_str(",")?;
                }
                write!(f, "{}", origin.server)?;
                before = Some(origin.server);
            }
            if !origin.tag.is_empty() {
                write!(f, ":{}", origin.tag)?;
            }
            for (first, last) in runs.as_slice() {
                write!(f, ":{first}")?;
                if last > first {
                    write!(f, "-{last}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.origin.server)?;
        if !self.origin.tag.is_empty() {
            write!(f, "{}:", self.origin.tag)?;
        }
        write!(f, "{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn what_mysql_prints_is_read_and_printed_alike() {
        for text in [
            String::new(),
            format!("{A}:1-3"),
            format!("{A}:1-3:5:7-9223372036854775806,{B}:4"),
            format!("{A}:1-3:backup:1-5:9:x_1:2,{B}:only_tagged:7"),
        ] {
            assert_eq!(set(&text).to_string(), text);
        }
    }

    #[test]
    fn what_mysql_accepts_becomes_canonical() {
        let loose = format!(
            "\n {B} : 4 ,\n{}:5:1-2:3 : 9-8,,{A}:TAG:2,{A}:7:tag:1,\n",
            A.to_uppercase()
        );
        assert_eq!(set(&loose).to_string(), format!("{A}:1-3:5:7:tag:1-2,{B}:4"));
        assert!(set(&format!("{A}:9-8")).is_empty());
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for (text, why) in [
            ("x:1", "UUID"),
            ("1-5", "UUID"),
            (A, "no transaction"),
            (&format!("{A}:tag"), "no transaction"),
            (&format!("{A}:tag:other:1"), "no transaction"),
            (&format!("{A}:0"), "between"),
            (&format!("{A}:1-9223372036854775807"), "between"),
            (&format!("{A}:-5"), "interval"),
            (&format!("{A}:1-"), "interval"),
            (&format!("{A}:+1"), "interval"),
            (&format!("{A}::1"), "interval"),
            (&format!("{A}:{}:1", "t".repeat(33)), "interval"),
        ] {
            let error = text.parse::<GtidSet>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn errant_transactions_are_what_the_other_lacks() {
        let (old, new) = (
            set(&format!("{A}:1-10,{B}:1-3")),
            set(&format!("{A}:1-8,{B}:1-5")),
        );
        let errant = old.minus(&new);
        assert_eq!((errant.to_string(), errant.count()), (format!("{A}:9-10"), 2));
        assert!(!old.is_subset_of(&new) && old.is_subset_of(&old.union(&new)));
        assert!(errant.contains(&format!("{A}:9").parse().unwrap()));
        assert!(!errant.contains(&format!("{A}:t:9").parse().unwrap()));
        assert_eq!(
            old.of_server(Uuid::try_parse(B).unwrap()),
            set(&format!("{B}:1-3"))
        );
        assert_eq!(old.servers().len(), 2);
        let parts: Vec<_> = old.by_origin().map(|s| s.to_string()).collect();
        assert_eq!(parts, [format!("{A}:1-10"), format!("{B}:1-3")]);
    }

    #[test]
    fn one_transaction_is_read_alone() {
        for text in [format!("{A}:5"), format!("{A}:tag:5")] {
            let gtid: Gtid = text.parse().unwrap();
            assert_eq!(gtid.to_string(), text);
            assert_eq!(GtidSet::from(gtid), set(&text));
        }
        assert!(format!("{A}:5-6").parse::<Gtid>().is_err() && "".parse::<Gtid>().is_err());
    }

    type Plain = BTreeSet<(usize, usize, i64)>;
    const TAGS: [&str; 3] = ["", "a", "b_2"];

    fn sets() -> impl Strategy<Value = (GtidSet, Plain)> {
        let part = (0usize..2, 0usize..3, 1i64..20, 0i64..5);
        prop::collection::vec(part, 0..10).prop_map(|parts| {
            let text: Vec<String> = parts
                .iter()
                .map(|(s, t, f, n)| {
                    let tag = if TAGS[*t].is_empty() {
                        String::new()
                    } else {
                        format!("{}:", TAGS[*t])
                    };
                    format!("{}:{tag}{f}-{}", [A, B][*s], f + n)
                })
                .collect();
            let plain = parts
                .iter()
                .flat_map(|&(s, t, f, n)| (f..=f + n).map(move |i| (s, t, i)))
                .collect();
            (set(&text.join(",\n")), plain)
        })
    }
    fn plain(s: &GtidSet) -> Plain {
        let all = (0..2).flat_map(|u| (0..3).flat_map(move |t| (1..30).map(move |n| (u, t, n))));
        all.filter(|&(u, t, number)| {
            let origin = Origin {
                server: Uuid::try_parse([A, B][u]).unwrap(),
                tag: TAGS[t].into(),
            };
            s.contains(&Gtid { origin, number })
        })
        .collect()
    }

    proptest! {
        #[test]
        fn the_algebra_is_that_of_sets((a, pa) in sets(), (b, pb) in sets()) {
            for (got, want) in [
                (a.clone(), pa.clone()),
                (a.union(&b), pa.union(&pb).copied().collect()),
                (a.minus(&b), pa.difference(&pb).copied().collect()),
            ] {
                prop_assert_eq!(plain(&got), want.clone());
                prop_assert_eq!(got.count(), want.len() as u64);
                prop_assert_eq!(got.is_empty(), want.is_empty());
                prop_assert_eq!(&set(&got.to_string()), &got);
            }
            prop_assert_eq!(a.is_subset_of(&b), pa.is_subset(&pb));
            prop_assert_eq!(a.minus(&b).is_empty(), a.is_subset_of(&b));
        }
    }
}
