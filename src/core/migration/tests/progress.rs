//! Since when a move has come no further.

use super::*;
use crate::core::migration::progress::{Mark, Progress, waiting};

/// Passes over a move, a second apart.
#[derive(Default)]
struct Watch {
    progress: Progress,
    seconds: i64,
}

impl Watch {
    /// One more pass. Whether the move has come further with it.
    fn further(&mut self, o: &Observed, lag: Option<u64>) -> bool {
        self.seconds += 1;
        let now = now() + SignedDuration::from_secs(self.seconds);
        let decision = decide(o, now);
        let mark = Mark::of(o, &decision.state, &decision.overall, lag).unwrap();
        self.progress.since(mark, now) == now
    }
}

fn copying(o: &Observed, bytes: u64) -> Observed {
    let outcome = SeedOutcome::Running { bytes, of: 100 };
    let shards = moving();
    let mut o = o.clone();
    o.seeding = [None, Some(SeedRun { shards, outcome })];
    o
}
fn comparing(o: &Observed, outcome: VerifyOutcome) -> Observed {
    let run = VerifyRun {
        shards: moving(),
        since: None,
        position: gtids(9),
        when: now(),
        outcome,
    };
    let mut o = o.clone();
    o.verifying = [None, Some(run)];
    o
}

#[test]
fn copies_that_begin_anew_again_and_again_bring_a_move_no_further() {
    let (mut w, o) = (Watch::default(), begun());
    assert!(w.further(&o, None), "it begins");
    assert!(w.further(&copying(&o, 10), None) && w.further(&copying(&o, 40), None));
    for bytes in [40, 0, 20, 40] {
        assert!(!w.further(&copying(&o, bytes), None), "{bytes}");
    }
    assert!(w.further(&copying(&o, 41), None));
    assert!(w.further(&following(), None), "the record says more");
}

#[test]
fn tables_that_are_compared_and_transactions_that_are_caught_up_count() {
    let (mut w, o) = (Watch::default(), following());
    let running = |tables| comparing(&o, VerifyOutcome::Running { tables, of: 9 });
    assert!(w.further(&running(0), Some(9_000)));
    assert!(w.further(&running(1), Some(9_000)));
    assert!(!w.further(&running(1), Some(9_500)));
    assert!(w.further(&running(1), Some(8_999)));
    assert!(!w.further(&running(1), None), "what is not known is no progress");
    assert!(!w.further(&running(0), Some(8_999)));
    // It was compared, has to be compared again, and was again.
    let mut watch = Watch::default();
    assert!(watch.further(&verified(), None));
    let mut again = verified();
    again.ends = following().ends;
    turn(&mut again, &Change::Unverified(moving()));
    assert!(!watch.further(&again, None));
    assert!(!watch.further(&verified(), None));
}

#[test]
fn copies_that_are_dropped_count() {
    let (mut w, mut o) = (Watch::default(), cleaning());
    assert!(w.further(&o, None));
    assert!(!w.further(&o, None));
    at(&mut o, b(FROM)).has = set(&[(0, 5)]);
    assert!(w.further(&o, None));
    let mut away = o.clone();
    end(&mut away, TO).servers[1] = None;
    assert!(
        !w.further(&away, None),
        "a server that does not answer has dropped nothing"
    );
    assert!(!w.further(&o, None));
}

#[test]
fn who_waits_as_told_or_has_called_somebody_is_not_late() {
    let mut manual = verified();
    manual.policy.manual = true;
    let mut window = verified();
    window.policy.window = false;
    let (shards, tables) = (moving(), vec![]);
    let differs = comparing(&following(), VerifyOutcome::Different { shards, tables });
    for o in [manual, window, differs, retaining()] {
        let mut w = Watch::default();
        assert!((0..3).all(|_| w.further(&o, None)));
    }
    // From then on it counts.
    let mut w = Watch::default();
    let mut approved = verified();
    approved.policy.manual = true;
    assert!(w.further(&approved, None));
    approved.policy.approved = true;
    assert!(!w.further(&approved, None));
    assert!(w.further(&moved(&[(4, 4)]), None), "a batch");
    assert!(w.further(&verified(), None), "and back");
}

#[test]
fn shards_wait_for_their_batch_from_when_they_are_verified_until_they_are_moved() {
    for (o, shards) in [
        (begun(), 0),
        (following(), 0),
        (verified(), 4),
        (moved(&[(4, 4)]), 3),
        (retaining(), 0),
    ] {
        assert_eq!(waiting(&o), shards);
    }
}
