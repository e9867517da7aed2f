//! How well a server was watched: a sampler that is blind proves nothing.
//!
//! Two that can acknowledge at once are seen when one is asked between two answers of the other that are no further apart than
//! [`CLOSE`](crate::acknowledge::CLOSE), a second. So a server that is up has to answer more often than once a second: [`FLOOR`] asks for
//! two answers a second on average, a fifth of what the sampler aims at, which a machine of two cores keeps with much else to do. An
//! average hides holes; therefore the time is counted, too, in which the last answer was older than that second.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A time without an answer that is told one by one, in seconds.
const HOLE: f64 = 4.0;
/// Answers for each minute and server that was up.
pub const FLOOR: f64 = 120.0;
/// Of the time in which a server was up, the sampler may have been blind for this part.
pub const BLIND: f64 = 0.25;
/// A server that was up for less than this is not judged: its first connection may have taken as long.
const ENOUGH: Duration = Duration::from_secs(20);
/// From the start of the process until a server counts as up: before that it recovers, and refuses connections.
pub const RECOVERS: Duration = Duration::from_secs(10);

/// One self of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Watched {
    /// Its Pod, or that this is a former self of one.
    pub pod: String,
    /// Its Pod was gone.
    pub former: bool,
    /// For how long it was up, in seconds, by what does not come from the sampler.
    pub up: f64,
    /// For how long of that there was no answer younger than a second.
    pub blind: f64,
    /// Answers.
    pub samples: u64,
    /// Answers while it was up; there are more, since its first seconds do not count as that.
    pub while_up: u64,
    /// When it was blind for more than [`HOLE`] on end, and for how long, in seconds.
    pub holes: Vec<(Timestamp, f64)>,
    /// It is blind now, since then and for so long.
    #[serde(skip)]
    pub hole: Option<(Timestamp, f64)>,
    /// Answers since it was counted last.
    #[serde(skip)]
    pub lately: u64,
    /// When it answered last.
    #[serde(skip)]
    pub last: Option<Instant>,
}

impl Watched {
    /// It answered.
    pub fn answered(&mut self, at: Instant) {
        self.samples += 1;
        self.lately += 1;
        self.last = Some(at);
    }

    /// It was up for another `span`; an answer older than `old` does not count any more.
    pub fn was_up(&mut self, span: Duration, old: Duration) {
        self.up += span.as_secs_f64();
        self.while_up += std::mem::take(&mut self.lately);
        if self.last.is_none_or(|l| l.elapsed() > old) {
            self.blind += span.as_secs_f64();
            self.hole.get_or_insert_with(|| (Timestamp::now(), 0.0)).1 += span.as_secs_f64();
        } else {
            self.ends_hole();
        }
    }

    fn ends_hole(&mut self) {
        self.holes
            .extend(self.hole.take().filter(|(_, long)| *long > HOLE));
    }

    /// It was not up, or not for long.
    pub fn was_down(&mut self) {
        self.ends_hole();
        self.lately = 0;
    }

    /// Answers for each minute that it was up.
    #[allow(clippy::cast_precision_loss, reason = "an hour has some ten thousands")]
    pub fn a_minute(&self) -> f64 {
        if self.up > 0.0 {
            self.while_up as f64 / self.up * 60.0
        } else {
            0.0
        }
    }
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} answers in {:.0} s up, {:.0} a minute, blind for {:.0} s",
            self.pod,
            self.samples,
            self.up,
            self.a_minute(),
            self.blind
        )?;
        for (at, long) in &self.holes {
            write!(f, ", {long:.0} s of it from {at:.0}")?;
        }
        Ok(())
    }
}

/// What was watched since `before`, in the order of the names; without what was neither up nor answered.
pub fn since(before: &BTreeMap<String, Watched>, now: &BTreeMap<String, Watched>) -> Vec<Watched> {
    let none = Watched::default();
    let mut all: Vec<Watched> = now
        .iter()
        .map(|(key, w)| {
            let b = before.get(key).unwrap_or(&none);
            Watched {
                up: w.up - b.up,
                blind: w.blind - b.blind,
                samples: w.samples - b.samples,
                while_up: w.while_up - b.while_up,
                ..w.clone()
            }
        })
        .filter(|w| w.up > 0.0 || w.samples > 0)
        .collect();
    all.sort_by(|a, b| a.pod.cmp(&b.pod));
    all
}

/// What was watched too little: fewer answers than [`FLOOR`], or, when `holes` count, blind for more than [`BLIND`].
pub fn too_little(all: &[Watched], holes: bool) -> Vec<String> {
    all.iter()
        .filter(|w| w.up >= ENOUGH.as_secs_f64())
        .filter(|w| w.a_minute() < FLOOR || (holes && w.blind > w.up * BLIND))
        .map(|w| {
            format!(
                "the sampler is blind: {w}; at least {FLOOR} a minute and no more than {:.0} % blind are needed to see that rule P1 holds ({})",
                BLIND * 100.0,
                crate::testbed::load_in_words()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(up: f64, blind: f64, samples: u64) -> Watched {
        Watched {
            pod: "p0-0".into(),
            up,
            blind,
            samples,
            while_up: samples,
            ..Watched::default()
        }
    }

    #[test]
    fn too_few_answers_and_holes_are_told() {
        assert!(too_little(&[watched(60.0, 1.0, 500)], true).is_empty());
        assert_eq!(too_little(&[watched(60.0, 1.0, 119)], true).len(), 1);
        assert_eq!(too_little(&[watched(60.0, 60.0, 0)], false).len(), 1);
        assert_eq!(too_little(&[watched(60.0, 16.0, 500)], true).len(), 1);
        assert!(too_little(&[watched(60.0, 16.0, 500)], false).is_empty());
        // Too short to say anything.
        assert!(too_little(&[watched(5.0, 5.0, 0)], true).is_empty());
    }

    #[test]
    fn only_what_came_since_counts() {
        let all = |w: Watched| BTreeMap::from([("u".to_owned(), w)]);
        let before = all(watched(60.0, 1.0, 600));
        assert!(since(&before, &before).is_empty());
        let now = since(&before, &all(watched(120.0, 61.0, 600)));
        assert_eq!(now, [watched(60.0, 60.0, 0)]);
        assert_eq!(too_little(&now, false).len(), 1);
    }

    #[test]
    fn an_old_answer_leaves_it_blind() {
        let mut w = Watched::default();
        w.was_up(Duration::from_secs(1), Duration::from_secs(1));
        w.answered(Instant::now());
        w.was_up(Duration::from_secs(1), Duration::from_secs(1));
        w.answered(Instant::now());
        w.was_down();
        w.was_up(Duration::ZERO, Duration::from_secs(1));
        assert_eq!((w.samples, w.while_up), (2, 1));
        assert!(w.holes.is_empty());
        w.last = None;
        for _ in 0..5 {
            w.was_up(Duration::from_secs(1), Duration::from_secs(1));
        }
        w.was_down();
        assert_eq!(w.holes.len(), 1);
        assert!(w.to_string().contains(", 5 s of it from "), "{w}");
        w.blind -= 5.0;
        w.up -= 5.0;
        assert!((w.up - 2.0).abs() < 0.01 && (w.blind - 1.0).abs() < 0.01);
    }
}
