//! How fast shards of one size were copied, as numbers, beside what does the same without an operator.

use crate::bench::Figure;
use serde::Serialize;
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// Bytes of a row, about: 960 of text that does not compress well, its JSON, and its key.
pub(super) const ROW: u64 = 1000;
/// As many can move as leave room for as many that stay, and for one of another pair.
const MOST: i32 = 32_000;
const UNITS: [(&str, u64); 3] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)];

/// Shards that move, and bytes of all their rows: `64x100M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Shards.
    pub shards: i32,
    /// Bytes of rows in all of them.
    pub bytes: u64,
}

impl Size {
    /// Rows in each shard.
    pub(super) fn rows(self) -> u64 {
        (self.bytes / ROW / u64::from(self.shards.unsigned_abs()).max(1)).max(1)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: shards and bytes are wanted, as 64x100M, at most {MOST} shards");
        let (shards, bytes) = text.trim().split_once('x').ok_or_else(wrong)?;
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| Some((bytes.strip_suffix(name)?, *unit)))
            .unwrap_or((bytes, 1));
        let shards: i32 = shards.parse().map_err(|_| wrong())?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(unit).ok_or_else(wrong)?;
        if !(1..=MOST).contains(&shards) || bytes == 0 {
            return Err(wrong());
        }
        Ok(Self { shards, bytes })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS
            .into_iter()
            .find(|(_, unit)| self.bytes.is_multiple_of(*unit))
            .unwrap_or(("", 1));
        write!(f, "{}x{}{name}", self.shards, self.bytes / unit)
    }
}

/// One CLONE, by the word of the server that was overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Cloned {
    /// Seconds of all of it (`clone_status`): mysqld's restart and recovery are in it.
    pub(super) whole: f64,
    /// Seconds from the first file to the last one on disk (`clone_progress`).
    pub(super) files: f64,
    /// Bytes of files.
    pub(super) bytes: u64,
}

/// A line of `clone_progress`: stage, begin and end in seconds, bytes.
pub(super) type Stage = (String, Option<f64>, Option<f64>, Option<u64>);

impl Cloned {
    /// From when it began and ended, and its stages; `None` when files were not copied to the end.
    pub(super) fn of((begun, ended): (f64, f64), stages: &[Stage]) -> Option<Self> {
        let stage = |name: &str| stages.iter().find(|s| s.0.replace('_', " ") == name);
        let (from, to) = (stage("FILE COPY")?.1?, stage("FILE SYNC")?.2?);
        Some(Self {
            whole: ended - begun,
            files: to - from,
            bytes: stages.iter().filter_map(|s| s.3).sum(),
        })
    }
}

/// `cp -a` of what a CLONE copies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Copied {
    /// Seconds.
    pub(super) plain: f64,
    /// Seconds, with `sync -f` after it.
    pub(super) synced: f64,
    /// Bytes of files.
    pub(super) bytes: u64,
}

/// All that was measured with one size. Times are seconds; `None`: not measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Speed {
    /// As it was asked for.
    pub(super) size: String,
    /// Shards that moved.
    pub(super) shards: i32,
    /// Rows in all of them.
    pub(super) rows: u64,
    /// Bytes of these, about.
    pub(super) bytes: u64,
    /// Copied by CLONE: from the move on record until the copies follow.
    pub(super) physical: Option<f64>,
    /// Each CLONE of it: from the source's passive server, then within the target.
    pub(super) clones: Vec<Cloned>,
    /// Beside the first of them.
    pub(super) cp: Option<Copied>,
    /// Copied database by database to both servers of a pair that serves others: from the move on record until the copies follow.
    pub(super) per_database: Option<f64>,
    /// Beside it: the same databases by mysqldump into mysql, to one server.
    pub(super) mysqldump: Option<f64>,
    /// From when the copies follow until all of them are on record as verified.
    pub(super) compared: Option<f64>,
    /// Beside it: all rows read to the end on the source's passive server and on the target's, at once.
    pub(super) selected: Option<f64>,
}

/// How many times as long something took: nothing unless both were measured.
fn ratio(took: Option<f64>, ours: Option<f64>) -> Option<f64> {
    Some(took? / ours?.max(0.001))
}

/// Bytes a second.
fn speed(bytes: u64, seconds: f64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a few gigabytes at most")]
    let bytes = bytes as f64;
    bytes / seconds.max(0.001)
}

impl Speed {
    pub(super) fn new(size: Size) -> Self {
        let rows = size.rows() * u64::from(size.shards.unsigned_abs());
        Self {
            size: size.to_string(),
            shards: size.shards,
            rows,
            bytes: rows * ROW,
            ..Self::default()
        }
    }

    /// The speed at which the first CLONE copied files, of that of `cp`: plain, and with `sync`.
    fn clone_of_cp(&self) -> (Option<f64>, Option<f64>) {
        let of = |theirs: fn(&Copied) -> f64| {
            let (ours, cp) = (self.clones.first()?, self.cp.as_ref()?);
            Some(speed(ours.bytes, ours.files) / speed(cp.bytes, theirs(cp)))
        };
        (of(|c| c.plain), of(|c| c.synced))
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let size = &self.size;
        let (plain, synced) = self.clone_of_cp();
        let each: Vec<String> = self
            .clones
            .iter()
            .map(|c| {
                let mb = c.bytes / 1_000_000;
                format!("{mb} MB in {:.2} s, {:.2} s with restart", c.files, c.whole)
            })
            .collect();
        let cp = self.cp.as_ref().map_or_else(
            || "cp not measured: no way to the volumes".to_owned(),
            |c| {
                let mb = c.bytes / 1_000_000;
                format!("cp {mb} MB in {:.2} s, {:.2} s with sync", c.plain, c.synced)
            },
        );
        let cloned = format!("(CLONE {}; {cp})", each.join(", then "));
        let beside = |ours: Option<f64>, theirs: Option<f64>| {
            let seconds = |s: Option<f64>| s.map_or_else(|| "-".to_owned(), |s| format!("{s:.2} s"));
            (seconds(ours), seconds(theirs))
        };
        let (ours, theirs) = beside(self.per_database, self.mysqldump);
        let dumped = format!("({ours}, to two servers; mysqldump into mysql {theirs}, to one)");
        let (ours, theirs) = beside(self.compared, self.selected);
        let compared = format!("({ours}, three servers; SELECT * {theirs}, two of them)");
        vec![
            Figure::at_least(
                &format!("{size}: CLONE, of the speed of cp -a"),
                plain,
                "×",
                0.7,
                cloned.clone(),
            ),
            Figure::at_least(
                &format!("{size}: CLONE, of that with sync -f"),
                synced,
                "×",
                0.7,
                cloned,
            ),
            Figure::at_least(
                &format!("{size}: by database, of the speed of mysqldump"),
                ratio(self.mysqldump, self.per_database),
                "×",
                1.5,
                dumped,
            ),
            Figure::at_least(
                &format!("{size}: compared, of the speed of SELECT *"),
                ratio(self.selected, self.compared),
                "×",
                0.5,
                compared,
            ),
        ]
    }
}

/// One line a size, in seconds.
pub(super) fn table(all: &[Speed]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:<12} {:>9} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6}",
        "copied, s",
        "physical",
        "CLONE",
        "files",
        "cp",
        "+ sync",
        "×",
        "×",
        "by db",
        "mysqldump",
        "×",
        "compared",
        "SELECT *",
        "×"
    );
    let number =
        |n: Option<f64>, digits: usize| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.digits$}"));
    for s in all {
        let clone = s.clones.first();
        let (plain, synced) = s.clone_of_cp();
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6}",
            s.size,
            number(s.physical, 1),
            number(clone.map(|c| c.whole), 2),
            number(clone.map(|c| c.files), 2),
            number(s.cp.map(|c| c.plain), 2),
            number(s.cp.map(|c| c.synced), 2),
            number(plain, 2),
            number(synced, 2),
            number(s.per_database, 1),
            number(s.mysqldump, 1),
            number(ratio(s.mysqldump, s.per_database), 2),
            number(s.compared, 1),
            number(s.selected, 1),
            number(ratio(s.selected, s.compared), 2),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_shards_and_bytes() {
        let size: Size = "64x100M".parse().unwrap();
        assert_eq!((size.shards, size.bytes), (64, 100_000_000));
        assert_eq!(size.rows(), 1562);
        for text in ["64x100M", "2048x5G", "1x20k", "3x1001"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("1x1000M".parse::<Size>().unwrap().to_string(), "1x1G");
        assert_eq!("5x1".parse::<Size>().unwrap().rows(), 1);
        for wrong in [
            "",
            "64",
            "x",
            "0x1M",
            "64x0",
            "64x1T",
            "-1x1M",
            "99999x1M",
            "1x99999999999999G",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_clone_is_its_files_and_its_whole() {
        let stage = |name: &str, from, to, bytes| (name.to_owned(), Some(from), Some(to), Some(bytes));
        let mut stages = vec![
            stage("DROP DATA", 10.0, 11.0, 0),
            stage("FILE COPY", 11.0, 13.0, 900),
            stage("REDO COPY", 13.0, 13.5, 100),
            stage("FILE SYNC", 13.5, 14.0, 0),
            stage("RECOVERY", 16.0, 18.0, 0),
        ];
        let clone = Cloned::of((10.0, 18.0), &stages).unwrap();
        assert_eq!((clone.whole, clone.files, clone.bytes), (8.0, 3.0, 1000));
        stages[3].2 = None;
        assert_eq!(Cloned::of((10.0, 18.0), &stages), None);
    }

    #[test]
    fn speeds_are_compared_byte_by_byte_and_times_only_when_both_were_measured() {
        let mut s = Speed::new("4x1M".parse().unwrap());
        assert!(s.figures().iter().all(|f| f.value.is_none()));
        s.clones.push(Cloned {
            whole: 8.0,
            files: 4.0,
            bytes: 2000,
        });
        assert_eq!(s.clone_of_cp(), (None, None));
        s.cp = Some(Copied {
            plain: 1.0,
            synced: 4.0,
            bytes: 1000,
        });
        assert_eq!(s.clone_of_cp(), (Some(0.5), Some(2.0)));
        (s.mysqldump, s.per_database) = (Some(3.0), Some(2.0));
        (s.selected, s.compared) = (Some(1.0), Some(4.0));
        let met: Vec<_> = s.figures().iter().map(Figure::met).collect();
        assert_eq!(met, [Some(false), Some(true), Some(true), Some(false)]);
        assert!(table(&[s]).lines().count() == 2);
    }
}
