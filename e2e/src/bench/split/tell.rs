//! What is made of the rows that were acknowledged.

use super::speed::Speed;
use super::{Options, TARGET, Times, half};
use crate::bench::Figure;
use crate::crowd::{OfShard, blocks, quantile};
use crate::writer::Ending;
use anyhow::{Result, ensure};
use serde::Serialize;
use shardwright::core::spans::SpanSet;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// One phase, from the commit on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    /// What came to its end.
    pub(super) name: &'static str,
    /// How long it took, in seconds.
    pub(super) seconds: f64,
    /// Rows that were acknowledged in each second of it.
    pub(super) rows_a_second: f64,
    /// How long 99 of 100 writes to shards that stay took, in milliseconds.
    pub(super) others_p99: Option<f64>,
}

/// Times without an acknowledged row, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Blocks {
    /// What was done.
    pub(super) of: String,
    /// Shards.
    pub(super) shards: usize,
    /// Half of them were blocked for no longer.
    pub(super) p50: f64,
    /// 99 of 100.
    pub(super) p99: f64,
    /// The longest.
    pub(super) max: f64,
}

impl Blocks {
    /// What the operator says: from the first fence of a batch to its opening.
    fn said(said: &serde_json::Value) -> Option<Self> {
        let block = said.get("writeBlock")?;
        let number = |name| block.get(name)?.as_f64();
        Some(Self {
            of: "in small batches, on servers".into(),
            shards: usize::try_from(block.get("shards")?.as_u64()?).ok()?,
            p50: number("p50Milliseconds")?,
            p99: number("p99Milliseconds")?,
            max: number("maxMilliseconds")?,
        })
    }

    pub(super) fn new(of: &str, all: &[Duration]) -> Self {
        let at = |share| ms(quantile(all, share).unwrap_or_default());
        Self {
            of: of.into(),
            shards: all.len(),
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// All that was measured.
#[derive(Default, Serialize)]
pub(super) struct Measured {
    pub(super) figures: Vec<Figure>,
    pub(super) blocks: Vec<Blocks>,
    pub(super) phases: Vec<Phase>,
    /// How fast shards were copied, by size.
    pub(super) copying: Vec<Speed>,
    /// What the operator says that its cutovers blocked.
    pub(super) said: serde_json::Value,
    /// What ended it early.
    pub(super) broken_off: Option<String>,
}

pub(super) fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1000.0
}

/// Rows a second.
pub(super) fn acknowledged(all: &[OfShard], from: Instant, to: Instant) -> f64 {
    let rows: usize = all
        .iter()
        .map(|one| {
            let tries = one.book.since(from);
            tries
                .iter()
                .filter(|t| t.ending == Ending::Acknowledged && t.ended <= to)
                .count()
        })
        .sum();
    #[allow(clippy::cast_precision_loss, reason = "a few million at most")]
    let rows = rows as f64;
    rows / to.duration_since(from).as_secs_f64().max(0.001)
}

/// How long the writes to shards that stay took that began in a span, and how many failed.
pub(super) fn kept(all: &[OfShard], moving: &SpanSet, from: Instant, to: Instant) -> (Vec<Duration>, usize) {
    let (mut took, mut failed) = (vec![], 0);
    for one in all.iter().filter(|o| !moving.contains(o.shard)) {
        for t in one.book.since(from).iter().filter(|t| t.begun <= to) {
            if t.ending == Ending::Acknowledged {
                took.push(t.took());
            } else {
                failed += 1;
            }
        }
    }
    (took, failed)
}

pub(super) fn figures(
    options: &Options,
    tried: &[OfShard],
    (begun, committed): (Instant, Instant),
    before: f64,
    times: &Times,
    measured: &mut Measured,
) -> Result<()> {
    let moving = half(options);
    let went: Vec<_> = blocks(tried).into_iter().filter(|m| m.to == TARGET).collect();
    let seen: BTreeSet<i32> = went.iter().map(|m| m.shard).collect();
    ensure!(
        seen.len() == moving.len() && went.len() == moving.len(),
        "of {} shards that moved, clients saw {}, {} times",
        moving.len(),
        seen.len(),
        went.len()
    );
    let all: Vec<Duration> = went.iter().map(|m| m.block).collect();
    let small = Blocks::new("in small batches, by clients", &all);
    let n = moving.len();
    let (took_before, _) = kept(tried, &moving, begun, committed);
    let (took_while, failed) = kept(tried, &moving, times.approved, times.all);
    let p99 = |took: &[Duration]| quantile(took, 99).map(ms);
    let slower = p99(&took_before)
        .zip(p99(&took_while))
        .map(|(b, w)| w / b.max(0.001));
    let seeding = acknowledged(tried, times.committed, times.following);
    let cut = times.all.duration_since(times.approved).as_secs_f64();
    let note = String::new;
    #[allow(clippy::cast_precision_loss, reason = "a few thousand at most")]
    let failed = failed as f64;
    measured.figures.extend([
        Figure::at_most(
            &format!("write block of each of {n} shards, p50"),
            Some(small.p50),
            "ms",
            100.0,
            note(),
        ),
        Figure::at_most(
            &format!("write block of each of {n} shards, p99"),
            Some(small.p99),
            "ms",
            300.0,
            note(),
        ),
        Figure::at_most(
            &format!("write block of each of {n} shards, max"),
            Some(small.max),
            "ms",
            1000.0,
            note(),
        ),
        Figure::at_most(&format!("cutover of {n} shards"), Some(cut), "s", 60.0, note()),
        Figure::at_most(
            "writes to other shards that failed",
            Some(failed),
            "",
            0.0,
            note(),
        ),
        Figure::at_most(
            "writes to other shards, p99, of before",
            slower,
            "×",
            1.5,
            format!("({:?} → {:?} ms)", p99(&took_before), p99(&took_while)),
        ),
        Figure::at_least(
            "rows a second while copies are made, of before",
            Some(seeding / before.max(0.001)),
            "×",
            0.8,
            format!(
                "({before:.0} → {seeding:.0}; compared in {:.1} s)",
                times.verified.duration_since(times.following).as_secs_f64()
            ),
        ),
    ]);
    let said = Blocks::said(&measured.said);
    measured
        .blocks
        .splice(0..0, [Some(small), said].into_iter().flatten());
    Ok(())
}

pub(super) fn tables(measured: &Measured) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{:<32} {:>7} {:>9} {:>9} {:>9}",
        "write block of a shard, ms", "shards", "p50", "p99", "max"
    );
    for b in &measured.blocks {
        let _ = writeln!(
            text,
            "{:<32} {:>7} {:>9.0} {:>9.0} {:>9.0}",
            b.of, b.shards, b.p50, b.p99, b.max
        );
    }
    let _ = writeln!(
        text,
        "\n{:<32} {:>9} {:>9} {:>20}",
        "phase", "seconds", "rows/s", "others, p99, ms"
    );
    for p in &measured.phases {
        let _ = writeln!(
            text,
            "{:<32} {:>9.1} {:>9.0} {:>20.0}",
            p.name,
            p.seconds,
            p.rows_a_second,
            p.others_p99.unwrap_or_default()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Shape;
    use crate::moves::run as run_of;
    use crate::writer::{Book, Try};
    use std::sync::Arc;

    #[test]
    fn rows_are_counted_and_those_of_shards_that_stay_are_told_apart() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let client = |rows: &[u64]| {
            let book = Book::new("c");
            for ended in rows {
                book.note(Try {
                    number: *ended,
                    begun: at(ended.saturating_sub(1)),
                    connected: None,
                    ended: at(*ended),
                    host: "p0-0.p0".into(),
                    ending: Ending::Acknowledged,
                });
            }
            OfShard {
                shard: 3,
                shape: Shape::Statement,
                book: Arc::new(book),
            }
        };
        let all = [client(&[10, 500, 900]), client(&[200, 510])];
        assert!((acknowledged(&all, at(0), at(1000)) - 5.0).abs() < 0.01);
        let (took, failed) = kept(&all, &run_of(4, 9), at(0), at(600));
        assert_eq!((took.len(), failed), (4, 0));
    }
}
