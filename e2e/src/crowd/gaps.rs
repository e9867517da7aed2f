//! Which shards changed their pair, as their clients saw it, and how long they could not be written meanwhile.

use super::OfShard;
use crate::writer::{Ending, Try};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One shard that was written at one pair, and then at another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub shard: i32,
    /// From the last acknowledged write at the old pair to the first one at the new pair.
    pub block: Duration,
    /// When the last one at the old pair was acknowledged.
    pub last: Instant,
    /// Pair that it left.
    pub from: String,
    /// Pair that it came to.
    pub to: String,
}

/// `p0-1.p0.ns.svc` is a server of `p0`.
fn pair_of(host: &str) -> &str {
    let pod = host.split('.').next().unwrap_or_default();
    pod.rsplit_once('-').map_or(pod, |(pair, _)| pair)
}

/// Every change of a shard's pair, in the order in which they came. The rows of all clients of a shard are looked at together. A row that
/// is acknowledged at the old pair is one change more when it was sent after the new pair had acknowledged one: then two pairs took the shard's
/// writes (rule R1).
pub fn blocks(all: &[OfShard]) -> Vec<Move> {
    let mut tries = BTreeMap::<i32, Vec<Try>>::new();
    for one in all {
        let acknowledged = one
            .book
            .all()
            .into_iter()
            .filter(|t| t.ending == Ending::Acknowledged);
        tries.entry(one.shard).or_default().extend(acknowledged);
    }
    let mut found: Vec<Move> = tries
        .into_iter()
        .flat_map(|(shard, tries)| of_shard(shard, tries))
        .collect();
    found.sort_by_key(|m| m.last);
    found
}

fn of_shard(shard: i32, mut tries: Vec<Try>) -> Vec<Move> {
    tries.sort_by_key(|t| t.ended);
    let mut found = vec![];
    // The last row of the present pair, and when that had acknowledged its first one.
    let mut present: Option<(&Try, Instant)> = None;
    for t in &tries {
        let since = match present {
            Some((before, since)) if pair_of(&before.host) != pair_of(&t.host) => {
                if t.begun <= since {
                    // Its answer was read late.
                    continue;
                }
                found.push(Move {
                    shard,
                    block: t.ended.duration_since(before.ended),
                    last: before.ended,
                    from: pair_of(&before.host).to_owned(),
                    to: pair_of(&t.host).to_owned(),
                });
                t.ended
            }
            Some((_, since)) => since,
            None => t.ended,
        };
        present = Some((t, since));
    }
    found
}

/// The value below which `share` of 100 lie: the nearest of those measured.
pub fn quantile(values: &[Duration], share: usize) -> Option<Duration> {
    let mut sorted = values.to_vec();
    sorted.sort();
    let rank = (sorted.len() * share).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows by host, begin and end in milliseconds: from where to where, and how long nothing was acknowledged.
    fn seen(rows: &[(&str, u64, u64)]) -> Vec<(String, String, u128)> {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let tries = rows.iter().map(|(host, from, to)| Try {
            number: 0,
            begun: at(*from),
            connected: None,
            ended: at(*to),
            host: (*host).into(),
            ending: Ending::Acknowledged,
        });
        of_shard(7, tries.collect())
            .into_iter()
            .map(|m| (m.from, m.to, m.block.as_millis()))
            .collect()
    }

    #[test]
    fn a_block_is_from_the_last_row_at_home_to_the_first_one_away() {
        let moved = seen(&[
            ("p0-0.p0", 0, 1),
            ("p0-0.p0", 5, 9),
            ("p1-1.p1", 10, 60),
            ("p1-1.p1", 61, 62),
        ]);
        assert_eq!(moved, [("p0".to_owned(), "p1".to_owned(), 51)]);
        // A failover within the pair is none.
        assert!(seen(&[("p0-0.p0", 0, 1), ("p0-1.p0", 5, 9)]).is_empty());
    }

    #[test]
    fn an_answer_that_is_read_late_is_no_way_back_and_a_new_row_is() {
        let late = seen(&[
            ("p0-0.p0", 0, 1),
            ("p0-0.p0", 5, 61),
            ("p1-1.p1", 10, 60),
            ("p1-1.p1", 62, 63),
        ]);
        assert_eq!(late.len(), 1);
        let fro = seen(&[
            ("p0-0.p0", 0, 1),
            ("p1-1.p1", 10, 60),
            ("p0-0.p0", 61, 63),
            ("p1-1.p1", 64, 65),
        ]);
        assert_eq!(fro.len(), 3);
    }

    #[test]
    fn a_quantile_is_one_of_those_measured() {
        let all: Vec<_> = (1..=10).map(Duration::from_millis).collect();
        assert_eq!(quantile(&all, 50), Some(Duration::from_millis(5)));
        assert_eq!(quantile(&all, 99), Some(Duration::from_millis(10)));
        assert_eq!(quantile(&[], 50), None);
    }
}
