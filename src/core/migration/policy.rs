//! What the ranges of a move specify, together: whoever asks for more care is heard.

use super::observed::Policy;
use crate::api::{
    ShardRangeSpec,
    shard_range::{Cutover, CutoverWindow, Weekday},
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A range that has shards in a move.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Its specification.
    pub spec: &'a ShardRangeSpec,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The annotation that approves.
    pub approval: Option<&'a str>,
    /// Some of its shards in the move are not where they are wished.
    pub moves: bool,
}

/// All of them together. Only ranges that have somewhere to go hold anything up.
pub fn together(ranges: &[Asked<'_>], verify_again: bool, now: Timestamp) -> Policy {
    let moving: Vec<&Asked<'_>> = ranges.iter().filter(|r| r.moves).collect();
    let seconds = |n: i32| SignedDuration::from_secs(n.into());
    let manual = moving.iter().any(|r| r.spec.cutover == Cutover::Manual);
    let approved = moving
        .iter()
        .filter(|r| r.spec.cutover == Cutover::Manual)
        .all(|r| is_approved(r));
    let deadlines = moving.iter().map(|r| r.spec.transaction_deadline_seconds);
    // A transaction is ended only when each range allows it.
    let end = deadlines.clone().all(|d| d.is_some());
    Policy {
        manual,
        approved,
        window: moving
            .iter()
            .filter_map(|r| r.spec.cutover_window.as_ref())
            .all(|w| is_open(w, now)),
        deadline: seconds(
            moving
                .iter()
                .map(|r| r.spec.batch_deadline_seconds)
                .min()
                .unwrap_or(5),
        ),
        end_transactions_after: deadlines.flatten().max().filter(|_| end).map(seconds),
        retain: seconds(
            ranges
                .iter()
                .map(|r| r.spec.retain_source_seconds)
                .max()
                .unwrap_or(0),
        ),
        retain_no_longer: ranges.iter().all(|r| r.spec.retain_source_seconds == 0),
        verify_again,
    }
}

/// The approval is for the specification as it is now.
fn is_approved(r: &Asked<'_>) -> bool {
    r.generation
        .is_some_and(|g| r.approval.and_then(|a| a.trim().parse().ok()) == Some(g))
}

const DAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

/// Whether the window is open. One that goes over midnight belongs to the day on which it opens.
pub fn is_open(w: &CutoverWindow, now: Timestamp) -> bool {
    let seconds = now.as_second();
    let (day, minute) = (
        seconds.div_euclid(86_400),
        seconds.rem_euclid(86_400).div_euclid(60),
    );
    // The first of January 1970 was a Thursday.
    let on = |day: i64| {
        let day = usize::try_from((day + 3).rem_euclid(7)).unwrap_or(0);
        w.days.is_empty() || DAYS.get(day).is_some_and(|d| w.days.contains(d))
    };
    let (Some(start), Some(end)) = (minutes(&w.start), minutes(&w.end)) else {
        return false;
    };
    if start < end {
        on(day) && (start..end).contains(&minute)
    } else {
        on(day) && minute >= start || on(day - 1) && minute < end
    }
}

fn minutes(time: &str) -> Option<i64> {
    let (hours, minutes) = time.split_once(':')?;
    Some(hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ShardSpan;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }
    fn window(start: &str, end: &str, days: &[Weekday]) -> CutoverWindow {
        CutoverWindow {
            start: start.into(),
            end: end.into(),
            days: days.to_vec(),
        }
    }

    #[test]
    fn a_window_opens_and_closes_and_may_go_over_midnight() {
        // A Monday.
        let day = window("09:30", "17:00", &[Weekday::Monday]);
        for (time, open) in [
            ("2026-11-30T09:29:59Z", false),
            ("2026-11-30T09:30:00Z", true),
            ("2026-11-30T16:59:59Z", true),
            ("2026-11-30T17:00:00Z", false),
            ("2026-12-01T10:00:00Z", false),
        ] {
            assert_eq!(is_open(&day, at(time)), open, "{time}");
        }
        let night = window("22:00", "04:00", &[Weekday::Monday]);
        for (time, open) in [
            ("2026-11-30T21:59:00Z", false),
            ("2026-11-30T22:00:00Z", true),
            ("2026-12-01T03:59:00Z", true),
            ("2026-12-01T04:00:00Z", false),
            ("2026-11-30T03:00:00Z", false),
        ] {
            assert_eq!(is_open(&night, at(time)), open, "{time}");
        }
        assert!(is_open(
            &window("22:00", "04:00", &[]),
            at("2026-12-03T03:00:00Z")
        ));
    }

    #[test]
    fn the_most_careful_of_several_ranges_decides() {
        let plain = ShardRangeSpec::new("c", ShardSpan::new(0, 1), "p1");
        let mut manual = plain.clone();
        manual.cutover = Cutover::Manual;
        manual.transaction_deadline_seconds = Some(30);
        manual.retain_source_seconds = 0;
        let asked = |spec, approval, moves| Asked {
            spec,
            generation: Some(3),
            approval,
            moves,
        };
        let now = at("2026-11-30T09:30:00Z");
        let both = together(
            &[asked(&plain, None, true), asked(&manual, Some("2"), true)],
            false,
            now,
        );
        assert!(both.manual && !both.approved && both.window && !both.retain_no_longer);
        assert_eq!(both.end_transactions_after, None);
        assert_eq!(both.retain, SignedDuration::from_secs(86_400));
        let one = together(&[asked(&manual, Some("3"), true)], false, now);
        assert!(one.approved && one.retain_no_longer);
        assert_eq!(one.end_transactions_after, Some(SignedDuration::from_secs(30)));
        let arrived = together(
            &[asked(&plain, None, true), asked(&manual, None, false)],
            false,
            now,
        );
        assert!(!arrived.manual);
    }
}
