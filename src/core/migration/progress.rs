//! Since when a move has come no further, for whoever is called when that lasts. Nothing is decided by it.

use super::{
    batch,
    observed::{End, Observed, SeedOutcome, VerifyOutcome},
    state::State,
};
use crate::{
    api::{MoveStage, conditions::Overall},
    core::{placement::moves, spans::SpanSet},
};
use k8s_openapi::jiff::Timestamp;

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its stage, its shards, those that have copies, and those that were moved. What is verified may get lost and be found again, so it counts apart.
    record: (MoveStage, [SpanSet; 3]),
    verified: usize,
    bytes: u64,
    tables: u64,
    lag: Option<u64>,
    /// Databases that are not dropped yet, once that has begun; `None` also while a server does not answer.
    left: Option<usize>,
    /// It need not come further now: everything is where it is wished, it waits for an approval, a window, or the copies of another move, or a person is asked for already.
    excused: bool,
}

impl Mark {
    /// How far the move of `o` is, whose copies lack `lag` transactions; `None` when it is not on record.
    pub fn of(o: &Observed, state: &State, overall: &Overall, lag: Option<u64>) -> Option<Self> {
        let m = o.mv()?;
        let bytes = o.seeding.iter().flatten().map(|run| match run.outcome {
            SeedOutcome::Running { bytes, .. } => bytes,
            _ => 0,
        });
        let tables = o.verifying.iter().flatten().map(|run| match run.outcome {
            VerifyOutcome::Running { tables, .. } => tables,
            _ => 0,
        });
        Some(Self {
            record: (
                m.stage,
                [
                    moves::set(&m.shards),
                    moves::set(&m.seeded),
                    moves::moved(&o.record, m),
                ],
            ),
            verified: moves::set(&m.verified).len(),
            bytes: bytes.fold(0, u64::saturating_add),
            tables: tables.fold(0, u64::saturating_add),
            lag,
            left: left(o),
            excused: matches!(
                state,
                State::WaitingForApproval | State::WaitingForWindow | State::OthersCopy(_)
            ) || !matches!(overall, Overall::Working { .. }),
        })
    }

    /// Whether it is further in anything than `best`, of the same record.
    fn is_beyond(&self, best: &Self) -> bool {
        let (lag, left) = (self.lag.zip(best.lag), self.left.zip(best.left));
        lag.is_some_and(|(now, before)| now < before)
            || left.is_some_and(|(now, before)| now < before)
            || self.verified > best.verified
            || self.bytes > best.bytes
            || self.tables > best.tables
    }
}

/// The best that was seen of a move, and when.
#[derive(Debug, Default)]
pub struct Progress {
    best: Option<Mark>,
    at: Option<Timestamp>,
}

impl Progress {
    /// Since when it has come no further. What is begun anew counts when it gets beyond where it was: copies that fail again and again do not.
    pub fn since(&mut self, mark: Mark, now: Timestamp) -> Timestamp {
        let best = self.best.take().filter(|b| b.record == mark.record);
        let best = match best {
            Some(mut best) if !mark.excused => {
                if mark.is_beyond(&best) {
                    self.at = Some(now);
                }
                best.verified = best.verified.max(mark.verified);
                best.bytes = best.bytes.max(mark.bytes);
                best.tables = best.tables.max(mark.tables);
                best.lag = best.lag.into_iter().chain(mark.lag).min();
                best.left = best.left.into_iter().chain(mark.left).min();
                best
            }
            _ => {
                self.at = Some(now);
                mark
            }
        };
        self.best = Some(best);
        *self.at.get_or_insert(now)
    }
}

fn left(o: &Observed) -> Option<usize> {
    let m = o.mv().filter(|m| m.stage == MoveStage::CleaningUp)?;
    let all = moves::set(&m.shards);
    let each = o
        .there()
        .into_iter()
        .map(|at| Some(o.server(at)?.has.intersect(&all).len()));
    each.sum()
}

/// Shards that were found equal and wait for their batch.
pub fn waiting(o: &Observed) -> usize {
    o.mv().map_or(0, |m| {
        let waiting = End::BOTH.into_iter().map(|end| batch::verified(o, m, end).len());
        waiting.sum()
    })
}
