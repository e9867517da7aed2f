//! Sets of shards as inclusive runs.

use super::runs::Runs;
use crate::api::ShardSpan;
use std::fmt;

/// A set of shards: its spans are sorted, and neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanSet(Runs);

impl SpanSet {
    /// The set without a shard.
    pub fn new() -> Self {
        Self::default()
    }
    /// The shards of one span; none, when it ends before it begins.
    pub fn of(span: ShardSpan) -> Self {
        std::iter::once(span).collect()
    }
    /// The spans, ascending.
    pub fn spans(&self) -> impl DoubleEndedIterator<Item = ShardSpan> + ExactSizeIterator + '_ {
        // Every number in here came in as an i32.
        self.0
            .as_slice()
            .iter()
            .map(|&(f, l)| ShardSpan::new(narrow(f), narrow(l)))
    }
    /// Every shard, ascending.
    pub fn shards(&self) -> impl Iterator<Item = i32> + '_ {
        self.spans().flat_map(|s| s.first..=s.last)
    }
    /// The spans as the API has them.
    pub fn to_vec(&self) -> Vec<ShardSpan> {
        self.spans().collect()
    }
    /// Number of shards (not of spans).
    pub fn len(&self) -> usize {
        usize::try_from(self.0.count()).unwrap_or(usize::MAX)
    }
    /// Whether there is no shard in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether `shard` is in it.
    pub fn contains(&self, shard: i32) -> bool {
        self.0.contains(shard.into())
    }
    /// The shards of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }
    /// The shards of both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self(self.0.intersect(&other.0))
    }
    /// The shards of this one that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self(self.0.minus(&other.0))
    }
    /// Whether every shard of this one is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
    /// Whether the two have a shard in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        !self.intersect(other).is_empty()
    }
}

fn narrow(n: i64) -> i32 {
    i32::try_from(n).unwrap_or(if n < 0 { i32::MIN } else { i32::MAX })
}

impl FromIterator<ShardSpan> for SpanSet {
    fn from_iter<I: IntoIterator<Item = ShardSpan>>(spans: I) -> Self {
        Self(
            spans
                .into_iter()
                .map(|s| (s.first.into(), s.last.into()))
                .collect(),
        )
    }
}

/// Single shards.
impl FromIterator<i32> for SpanSet {
    fn from_iter<I: IntoIterator<Item = i32>>(shards: I) -> Self {
        Self(shards.into_iter().map(|s| (s.into(), s.into())).collect())
    }
}

impl Extend<ShardSpan> for SpanSet {
    fn extend<I: IntoIterator<Item = ShardSpan>>(&mut self, spans: I) {
        *self = self.union(&spans.into_iter().collect());
    }
}

impl From<ShardSpan> for SpanSet {
    fn from(span: ShardSpan) -> Self {
        Self::of(span)
    }
}

/// `0-255,300`; nothing at all for the empty set.
impl fmt::Display for SpanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, span) in self.spans().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", span.first)?;
            if span.last > span.first {
                write!(f, "-{}", span.last)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spans: &[(i32, i32)]) -> SpanSet {
        spans.iter().map(|&(f, l)| ShardSpan::new(f, l)).collect()
    }

    #[test]
    fn spans_that_touch_are_one() {
        let s = set(&[(128, 255), (0, 127), (300, 300), (9, 5)]);
        assert_eq!((s.to_string().as_str(), s.len()), ("0-255,300", 257));
        assert_eq!(s.to_vec(), [ShardSpan::new(0, 255), ShardSpan::new(300, 300)]);
        assert!(SpanSet::new().to_string().is_empty());
    }

    #[test]
    fn a_split_takes_and_leaves_half() {
        let (all, upper) = (set(&[(0, 511)]), set(&[(256, 511)]));
        assert_eq!(all.minus(&upper), set(&[(0, 255)]));
        assert!(upper.is_subset(&all) && !all.is_subset(&upper) && all.overlaps(&upper));
        assert_eq!(all.intersect(&upper), upper);
        assert!(!set(&[(0, 255)]).overlaps(&upper));
    }

    #[test]
    fn shards_one_by_one_make_the_same_set() {
        let s: SpanSet = [5, 3, 4, 9].into_iter().collect();
        assert_eq!(
            (s.to_string().as_str(), s.shards().collect::<Vec<_>>()),
            ("3-5,9", vec![3, 4, 5, 9])
        );
        assert!(s.contains(4) && !s.contains(6));
    }
}
