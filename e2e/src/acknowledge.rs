//! Who can acknowledge a write (rule P1), by what the two servers of a pair say of themselves.
//!
//! `read_only` alone does not tell: an old active server that nobody could reach keeps saying OFF, and cannot acknowledge, because it waits
//! for a server that no longer takes from it (rule P6). So a server can acknowledge when it is open and either waits for nobody, or the
//! other one takes from it and acknowledges what it takes.
//!
//! Two servers are never asked at the same instant. One that can, is asked, between two answers of the other that both say that *it*
//! can: then there were two at once. A planned switchover between two questions is so no false alarm.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Answers of one server that are kept.
const KEPT: usize = 32;
/// Two answers that are further apart say nothing of the time between them: active and passive may have changed twice.
const CLOSE: Duration = Duration::from_secs(1);

/// What a server says of itself in one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// `@@server_uuid`.
    pub uuid: String,
    /// `@@read_only` is OFF, and `@@offline_mode` too: in that, applications are thrown out and told of no commit.
    pub open: bool,
    /// Commits wait for an acknowledgement: the source side of semi-sync is on, and has not gone on alone.
    pub waits: bool,
    /// `server_uuid` of the server that it takes from and acknowledges to.
    pub acknowledges: Option<String>,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was asked.
    pub asked: Instant,
    /// When it had answered.
    pub answered: Instant,
    /// Its words.
    pub stand: Stand,
}

/// Whether `server` could acknowledge while `other` stood so.
pub fn can(server: &Stand, other: &Stand) -> bool {
    server.open && (!server.waits || other.acknowledges.as_deref() == Some(&server.uuid))
}

/// The last answers of the two servers of a pair.
#[derive(Default)]
pub struct Answers([VecDeque<Sample>; 2]);

impl Answers {
    /// Takes an answer of server 0 or 1; gives what was seen when both could acknowledge at once.
    pub fn add(&mut self, ordinal: usize, sample: Sample) -> Option<String> {
        let (own, other) = match (&mut self.0, ordinal) {
            ([a, b], 0) => (a, b),
            ([a, b], _) => (b, a),
        };
        let found = own.back().and_then(|before| {
            other
                .iter()
                .find(|o| both(before, o, &sample))
                .map(|o| format!("{:?}, then {:?}, then {:?}", before.stand, o.stand, sample.stand))
        });
        own.push_back(sample);
        if own.len() > KEPT {
            own.pop_front();
        }
        found
    }

    /// What server 0 or 1 said last.
    pub fn last(&self, ordinal: usize) -> Option<&Stand> {
        self.0.get(ordinal)?.back().map(|s| &s.stand)
    }
}

fn both(before: &Sample, other: &Sample, after: &Sample) -> bool {
    before.answered <= other.asked
        && other.answered <= after.asked
        && after.asked.duration_since(before.answered) <= CLOSE
        && before.stand.uuid == after.stand.uuid
        && [before, after]
            .into_iter()
            .all(|s| can(&s.stand, &other.stand) && can(&other.stand, &s.stand))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand(uuid: &str, open: bool, waits: bool, acknowledges: Option<&str>) -> Stand {
        Stand {
            uuid: uuid.into(),
            open,
            waits,
            acknowledges: acknowledges.map(Into::into),
        }
    }

    /// Feeds answers 50 ms apart; says whether two were seen.
    fn seen(answers: &[(usize, Stand)]) -> bool {
        let mut all = Answers::default();
        let mut now = Instant::now();
        answers.iter().any(|(ordinal, stand)| {
            let asked = now;
            now += Duration::from_millis(50);
            let sample = Sample {
                asked,
                answered: now,
                stand: stand.clone(),
            };
            all.add(*ordinal, sample).is_some()
        })
    }

    #[test]
    fn two_that_wait_for_nobody_are_found() {
        let open = |u| stand(u, true, false, None);
        assert!(seen(&[(0, open("a")), (1, open("b")), (0, open("a"))]));
    }

    #[test]
    fn a_switchover_between_two_questions_is_fine() {
        let (a, b) = (stand("a", true, false, None), stand("b", true, false, None));
        let closed = stand("a", false, false, None);
        assert!(!seen(&[
            (0, a),
            (1, b.clone()),
            (0, closed.clone()),
            (1, b),
            (0, closed)
        ]));
    }

    #[test]
    fn an_unreachable_old_active_server_is_fine() {
        let old = stand("a", true, true, None);
        let new = stand("b", true, false, None);
        assert!(!seen(&[(0, old.clone()), (1, new.clone()), (0, old), (1, new)]));
    }

    #[test]
    fn one_that_is_still_acknowledged_is_found() {
        let old = stand("a", true, true, None);
        let new = stand("b", true, false, Some("a"));
        assert!(seen(&[(0, old.clone()), (1, new), (0, old)]));
    }

    #[test]
    fn a_circle_of_which_both_are_open_is_found() {
        let (a, b) = (
            stand("a", true, true, Some("b")),
            stand("b", true, true, Some("a")),
        );
        assert!(seen(&[(0, a.clone()), (1, b), (0, a)]));
    }

    #[test]
    fn answers_that_are_far_apart_say_nothing() {
        let mut all = Answers::default();
        let begun = Instant::now();
        let at = |s| begun + Duration::from_secs(s);
        for (n, (ordinal, uuid)) in [(0, "a"), (1, "b"), (0, "a")].into_iter().enumerate() {
            let when = at(n as u64 * 5);
            let sample = Sample {
                asked: when,
                answered: when,
                stand: stand(uuid, true, false, None),
            };
            assert!(all.add(ordinal, sample).is_none());
        }
    }
}
