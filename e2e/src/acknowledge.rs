//! Who can acknowledge a write (rule P1), by what the two servers of a pair say of themselves.
//!
//! `read_only` alone does not tell: an old active server that nobody could reach keeps saying OFF, and cannot acknowledge, because it waits
//! for a server that no longer takes from it (rule P6). So a server can acknowledge when it is open and either waits for nobody, or the
//! other one takes from it and acknowledges what it takes.
//!
//! There may be more than two to ask: a Pod that was deleted by force, or replaced, while its node could not be reached, leaves a mysqld
//! behind, the **former self** of a server, and that is the very one that may still acknowledge.
//!
//! Two servers are never asked at the same instant. One that can, is asked, between two answers of the other that both say that *it*
//! can: then there were two at once. A planned switchover between two questions is so no false alarm.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Answers of one server that are kept.
const KEPT: usize = 32;
/// Two answers that are further apart say nothing of the time between them: active and passive may have changed twice.
pub const CLOSE: Duration = Duration::from_secs(1);

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

/// Answers of one self of a server: of one Pod object. A Pod that was replaced is another self, even with the same name.
type Answered = VecDeque<Sample>;

/// The last answers of every self of the two servers of a pair.
#[derive(Default)]
pub struct Answers(BTreeMap<String, Answered>);

impl Answers {
    /// Takes an answer of one self; gives what was seen when two of them could acknowledge at once.
    pub fn add(&mut self, key: &str, sample: Sample) -> Option<String> {
        let now = sample.asked;
        self.0
            .retain(|_, all| all.back().is_some_and(|s| near(s, now, CLOSE * 10)));
        let own = self.0.entry(key.to_owned()).or_default();
        own.push_back(sample);
        if own.len() > KEPT {
            own.pop_front();
        }
        self.two(key)
    }

    /// What one self said last.
    pub fn last(&self, key: &str) -> Option<&Stand> {
        self.0.get(key)?.back().map(|s| &s.stand)
    }

    /// Whether one self that says this at `now` could acknowledge, by what the others said last.
    pub fn can(&self, key: &str, stand: &Stand, now: Instant) -> bool {
        let others = self.0.iter().filter(|(k, _)| *k != key);
        let mut lately = others
            .filter_map(|(_, all)| all.back())
            .filter(|s| near(s, now, CLOSE));
        stand.open && (!stand.waits || lately.any(|s| s.stand.acknowledges_to(stand)))
    }

    /// With the newest answer of `new`: any two that could acknowledge at once.
    fn two(&self, new: &str) -> Option<String> {
        let newest = self.0.get(new)?.back()?;
        let mut found = self
            .0
            .iter()
            .filter(|(k, _)| *k != new)
            .flat_map(|(other, all)| all.iter().map(move |o| (new, other.as_str(), o)));
        // Between two answers of `new`; what a third one says has to hold around that as well.
        found.find_map(|(new, other, o)| {
            let (before, after) = self.around(new, o)?;
            (std::ptr::eq(after, newest) && self.both(new, (before, after), other, o)).then(|| {
                format!(
                    "{new} {:?}, then {other} {:?}, then {new} {:?}",
                    before.stand, o.stand, after.stand
                )
            })
        })
    }

    fn both(&self, new: &str, (before, after): (&Sample, &Sample), other: &str, o: &Sample) -> bool {
        let third = |source: &Stand| {
            let all = self.0.keys().filter(|k| *k != new && *k != other);
            all.filter_map(|k| self.around(k, o))
                .any(|(b, a)| b.stand.acknowledges_to(source) && a.stand.acknowledges_to(source))
        };
        before.stand.uuid == after.stand.uuid
            && [before, after].into_iter().all(|s| {
                let can = |one: &Stand, two: &Stand| {
                    one.open && (!one.waits || two.acknowledges_to(one) || third(one))
                };
                can(&s.stand, &o.stand) && can(&o.stand, &s.stand)
            })
    }

    /// The last answer of one self before another was asked, and the first after that had answered.
    fn around(&self, key: &str, o: &Sample) -> Option<(&Sample, &Sample)> {
        let own = self.0.get(key)?;
        let before = own.iter().rfind(|s| s.answered <= o.asked)?;
        let after = own.iter().find(|s| s.asked >= o.answered)?;
        (after.asked.duration_since(before.answered) <= CLOSE).then_some((before, after))
    }
}

impl Stand {
    fn acknowledges_to(&self, source: &Self) -> bool {
        self.acknowledges.as_deref() == Some(&source.uuid)
    }
}

fn near(sample: &Sample, now: Instant, span: Duration) -> bool {
    now.saturating_duration_since(sample.answered) <= span
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
            all.add(&ordinal.to_string(), sample).is_some()
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
    fn a_former_self_that_a_third_one_acknowledges_is_found() {
        // 0 was replaced by 2, which is recorded; 1 follows, and should take from 2.
        let former = stand("a", true, true, None);
        let recorded = stand("c", true, false, None);
        let follows = |u| stand("b", false, false, Some(u));
        let turn = |u| [(0, former.clone()), (1, follows(u)), (2, recorded.clone())];
        assert!(seen(&[turn("a"), turn("a"), turn("a")].concat()));
        assert!(!seen(&[turn("c"), turn("c"), turn("c")].concat()));
        // It left the one for the other meanwhile.
        assert!(!seen(&[turn("a"), turn("c"), turn("c")].concat()));
    }

    #[test]
    fn a_former_self_that_waits_for_nobody_is_found() {
        let (former, recorded) = (stand("a", true, false, None), stand("c", true, true, Some("x")));
        let follows = stand("b", false, false, Some("c"));
        let turn = || [(0, former.clone()), (1, follows.clone()), (2, recorded.clone())];
        assert!(seen(&[turn(), turn(), turn()].concat()));
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
            assert!(all.add(&ordinal.to_string(), sample).is_none());
        }
    }
}
