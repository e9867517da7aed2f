//! Sets of whole numbers kept as sorted runs: the algebra that spans of shards and intervals of GTIDs have in common.

/// A set of numbers as runs `(first, last)`, both included: sorted, apart from each other by at least one number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Runs(Vec<(i64, i64)>);

impl Runs {
    /// The runs in ascending order.
    pub(super) fn as_slice(&self) -> &[(i64, i64)] {
        &self.0
    }

    /// Whether there is no number in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many numbers are in it; the largest `u64` when there are more.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().fold(0, |n: u64, &(a, b)| {
            n.saturating_add(b.abs_diff(a).saturating_add(1))
        })
    }

    /// Whether `number` is in it.
    pub(super) fn contains(&self, number: i64) -> bool {
        // The first run that begins beyond the number; the one before is the only one that can have it.
        let at = self.0.partition_point(|&(first, _)| first <= number);
        at.checked_sub(1)
            .and_then(|i| self.0.get(i))
            .is_some_and(|&(_, last)| number <= last)
    }

    /// The numbers of either.
    pub(super) fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).copied().collect()
    }

    /// The numbers of both.
    pub(super) fn intersect(&self, other: &Self) -> Self {
        let (mut out, mut a, mut b) = (Vec::new(), self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(af, al)), Some(&&(bf, bl))) = (a.peek(), b.peek()) {
            let (first, last) = (af.max(bf), al.min(bl));
            if first <= last {
                out.push((first, last));
            }
            if al < bl {
                a.next();
            } else {
                b.next();
            }
        }
        Self(out)
    }

    /// The numbers of this one that are not in `other`.
    pub(super) fn minus(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        let mut cuts = other.0.iter().peekable();
        for &(mut first, last) in &self.0 {
            // Cuts that end before this run can touch no later one either.
            while cuts.next_if(|&&(_, cut_last)| cut_last < first).is_some() {}
            let mut left = true;
            while let Some(&&(cut_first, cut_last)) = cuts.peek() {
                if cut_first > last {
                    break;
                }
                if cut_first > first {
                    out.push((first, cut_first - 1));
                }
                if cut_last >= last {
                    left = false;
                    break;
                }
                first = cut_last + 1;
                cuts.next();
            }
            if left {
                out.push((first, last));
            }
        }
        Self(out)
    }

    /// Whether every number of this one is in `other`.
    pub(super) fn is_subset(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }
}

/// Any runs, in any order: those that overlap or touch are joined, those whose end lies before their beginning hold nothing.
impl FromIterator<(i64, i64)> for Runs {
    fn from_iter<I: IntoIterator<Item = (i64, i64)>>(runs: I) -> Self {
        let mut sorted: Vec<_> = runs.into_iter().filter(|(first, last)| first <= last).collect();
        sorted.sort_unstable();
        let mut out: Vec<(i64, i64)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match out.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
                _ => out.push((first, last)),
            }
        }
        Self(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn runs() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec((0i64..40, -2i64..8).prop_map(|(f, n)| (f, f + n)), 0..8)
    }
    /// The same set, one number at a time.
    fn plain(runs: &[(i64, i64)]) -> BTreeSet<i64> {
        runs.iter().flat_map(|&(f, l)| f..=l).collect()
    }
    fn normal(r: &Runs) -> bool {
        r.0.iter().all(|(f, l)| f <= l) && r.0.windows(2).all(|w| w[0].1 + 1 < w[1].0)
    }

    proptest! {
        #[test]
        fn the_algebra_is_that_of_sets(a in runs(), b in runs()) {
            let (ra, rb): (Runs, Runs) = (a.iter().copied().collect(), b.iter().copied().collect());
            let (pa, pb) = (plain(&a), plain(&b));
            for (got, want) in [
                (ra.clone(), pa.clone()),
                (ra.union(&rb), pa.union(&pb).copied().collect()),
                (ra.intersect(&rb), pa.intersection(&pb).copied().collect()),
                (ra.minus(&rb), pa.difference(&pb).copied().collect()),
            ] {
                prop_assert!(normal(&got), "{:?}", got);
                prop_assert_eq!(plain(&got.0), want.clone());
                prop_assert_eq!(got.count(), want.len() as u64);
                for n in -1..50 {
                    prop_assert_eq!(got.contains(n), want.contains(&n));
                }
            }
            prop_assert_eq!(ra.is_subset(&rb), pa.is_subset(&pb));
        }
    }

    #[test]
    fn the_ends_of_the_number_line_do_not_overflow() {
        let all: Runs = [(i64::MIN, i64::MAX), (i64::MAX, i64::MAX)].into_iter().collect();
        assert_eq!(all.count(), u64::MAX);
        assert!(all.minus(&all).is_empty() && all.contains(i64::MAX));
    }
}
