//! What takes longer than a pass: copying and comparing. It runs beside the passes, throttled by them, and ends when it is let go of. What came of it
//! counts for as long as this process remembers it; nothing safe depends on that.

use super::{
    comparing::{self, CompareAsk, Compared, Verdicts},
    copying::{self, Copied, SeedAsk},
};
use crate::{
    core::{
        gtid::GtidSet,
        migration::observed::{End, SeedOutcome, SeedRun, VerifyOutcome, VerifyRun},
        pair::observed::Tries,
        spans::SpanSet,
    },
    deadline,
    mysql::seed::{self, Control},
};
use k8s_openapi::jiff::Timestamp;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinHandle};

/// Connections to each server.
pub(super) const READERS: usize = 4;
/// For the others to get where the source stands.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// What is refused is tried again after so long: somebody may have changed it.
const REFUSED: Duration = Duration::from_secs(60);
/// Transactions that the source may lack of its active server while it is read from: more, and it is read slower.
const LAG: u64 = 200;
/// The speed from which a run that is slowed down begins, bytes a second.
const SLOWER: u64 = 64 << 20;
/// No run is slower than this.
const SLOWEST: u64 = 1 << 20;
/// Databases that are named, at most.
pub(super) const NAMED: usize = 8;

/// A task that ends with this.
struct Task(JoinHandle<()>);

/// For a run that was told to end to put back what it changed.
const ENDS: Duration = Duration::from_secs(10);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A run of either kind.
struct Run<T> {
    shards: SpanSet,
    position: GtidSet,
    /// Of a comparison, the position since which it looks at what was changed, if not at everything.
    since: Option<GtidSet>,
    control: Arc<Control>,
    began: Instant,
    began_at: Timestamp,
    rate: u64,
    outcome: Arc<Mutex<Option<T>>>,
    finish: Arc<Notify>,
    task: Task,
}

impl<T: Clone> Run<T> {
    /// Ends it, and returns when it has ended.
    async fn end(mut self) {
        self.control.stop();
        self.finish.notify_one();
        if deadline::within(ENDS, &mut self.task.0).await.is_err() {
            tracing::debug!("a run in the background is cut off");
        }
    }

    fn outcome(&self) -> Option<T> {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Slower while the source lags, faster again when it does not.
    fn throttle(&mut self, lag: u64) {
        let rate = match self.rate {
            seed::UNLIMITED if lag > LAG => SLOWER,
            rate if lag > LAG => (rate / 2).max(SLOWEST),
            seed::UNLIMITED => return,
            rate if rate > SLOWER * 16 => seed::UNLIMITED,
            rate => rate.saturating_add(rate / 2),
        };
        self.rate = rate;
        self.control.set_rate(rate);
    }
}

/// How far the copying is, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are copied.
    pub bytes: u64,
    /// Bytes in all, as far as known.
    pub of: u64,
    /// Seconds that are left, as far as known.
    pub eta: Option<u64>,
}

/// All that runs for one move, one run of each kind for each end.
#[derive(Default)]
pub struct Works {
    seeding: [Option<Run<Copied>>; 2],
    verifying: [Option<Run<Compared>>; 2],
    /// Failures in a row, and whether the last one is counted.
    seed_tries: [Tries; 2],
    verify_tries: [Tries; 2],
    counted: BTreeSet<(bool, usize)>,
}

impl Works {
    /// The end that copies are made at. Their locks are held until what came of it is on record.
    pub fn copies(&self) -> Option<End> {
        End::BOTH
            .into_iter()
            .find(|end| matches!(&self.seeding[*end as usize], Some(run) if !matches!(run.outcome(), Some(Copied::Failed(_) | Copied::Refused(_)))))
    }

    /// Ends all of it, and forgets what came of it.
    pub async fn stop(&mut self) {
        for run in self.seeding.iter_mut().filter_map(Option::take) {
            run.end().await;
        }
        for run in self.verifying.iter_mut().filter_map(Option::take) {
            run.end().await;
        }
        self.counted.clear();
    }

    /// Slows down what runs while the servers that it reads from lag: `lag` is in transactions, by the end that they are of.
    pub fn throttle(&mut self, lag: [u64; 2]) {
        for (into, run) in self.seeding.iter_mut().enumerate() {
            if let Some(run) = run {
                run.throttle(lag[1 - into]);
            }
        }
        for run in self.verifying.iter_mut().flatten() {
            run.throttle(lag[0].max(lag[1]));
        }
    }

    /// How far the copying is.
    pub fn progress(&self) -> Option<Progress> {
        let run = self.seeding.iter().flatten().next()?;
        let p = run.control.progress();
        let of = p.bytes_expected.max(p.bytes);
        let eta = (p.bytes > 0).then(|| {
            let left = u128::from(of - p.bytes) * run.began.elapsed().as_millis();
            u64::try_from(left / u128::from(p.bytes) / 1000).unwrap_or(u64::MAX)
        });
        Some(Progress {
            bytes: p.bytes,
            of,
            eta,
        })
    }

    /// What is known of the copying, in the core's words.
    pub fn seeding(&mut self, now: Timestamp) -> [Option<SeedRun>; 2] {
        [0, 1].map(|i| {
            let run = self.seeding[i].as_ref()?;
            let outcome = match run.outcome() {
                None => {
                    let p = run.control.progress();
                    SeedOutcome::Running {
                        bytes: p.bytes,
                        of: p.bytes_expected,
                    }
                }
                Some(Copied::Done(gtid)) => {
                    self.seed_tries[i] = Tries::default();
                    SeedOutcome::Done { gtid }
                }
                Some(Copied::Failed(error)) => {
                    if self.counted.insert((true, i)) {
                        self.seed_tries[i] = self.seed_tries[i].again(now);
                    }
                    SeedOutcome::Failed {
                        error,
                        tries: self.seed_tries[i],
                    }
                }
                Some(Copied::Refused(_)) if run.began.elapsed() > REFUSED => {
                    self.seeding[i] = None;
                    return None;
                }
                Some(Copied::Refused(why)) => SeedOutcome::Refused { why },
            };
            Some(SeedRun {
                shards: self.seeding[i].as_ref()?.shards.clone(),
                outcome,
            })
        })
    }

    /// What is known of the comparing.
    pub fn verifying(&mut self, now: Timestamp) -> [Option<VerifyRun>; 2] {
        [0, 1].map(|i| {
            let run = self.verifying[i].as_ref()?;
            let done = run.outcome();
            let position = done
                .as_ref()
                .and_then(|d| d.position.clone())
                .unwrap_or_else(|| run.position.clone());
            let ended = done.as_ref().map_or(run.began_at, |d| d.ended);
            let when = run.since.as_ref().map_or(run.began_at, |_| ended);
            let outcome = match done.map(|d| d.outcome) {
                None => {
                    let p = run.control.progress();
                    VerifyOutcome::Running {
                        tables: p.tables,
                        of: p.tables_expected,
                    }
                }
                Some(Verdicts::Equal) => {
                    self.verify_tries[i] = Tries::default();
                    VerifyOutcome::Equal
                }
                Some(Verdicts::Different(shards, tables)) => VerifyOutcome::Different { shards, tables },
                Some(Verdicts::Untold(why)) => VerifyOutcome::Untold { why },
                Some(Verdicts::Unknown(error)) => {
                    if self.counted.insert((false, i)) {
                        self.verify_tries[i] = self.verify_tries[i].again(now);
                    }
                    VerifyOutcome::Unknown {
                        error,
                        tries: self.verify_tries[i],
                    }
                }
            };
            Some(VerifyRun {
                shards: run.shards.clone(),
                since: run.since.clone(),
                position,
                when,
                outcome,
            })
        })
    }

    /// Begins to copy.
    pub(super) fn seed(&mut self, ask: SeedAsk, position: GtidSet) {
        let i = ask.into as usize;
        let shards = ask.shards.clone();
        self.counted.remove(&(true, i));
        let run = begin(shards, position, move |control, outcome, finish| async move {
            Box::pin(copying::copy(ask, control, outcome, finish)).await;
        });
        self.seeding[i] = Some(run);
    }

    /// Begins to compare.
    pub(super) fn verify(&mut self, ask: CompareAsk, position: GtidSet) {
        let i = ask.at as usize;
        let (shards, since) = (ask.shards.clone(), ask.since.clone());
        self.counted.remove(&(false, i));
        let run = begin(shards, position, move |control, outcome, _| async move {
            let compared = Box::pin(comparing::compare(&ask, control)).await;
            set(&outcome, compared);
        });
        self.verifying[i] = Some(Run { since, ..run });
    }
}

pub(super) type Slot<T> = Arc<Mutex<Option<T>>>;

pub(super) fn set<T>(slot: &Slot<T>, value: T) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}

fn begin<T, F>(
    shards: SpanSet,
    position: GtidSet,
    work: impl FnOnce(Arc<Control>, Slot<T>, Arc<Notify>) -> F,
) -> Run<T>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (control, outcome) = (Arc::<Control>::default(), Slot::<T>::default());
    let finish = Arc::new(Notify::new());
    let task = tokio::spawn(work(control.clone(), outcome.clone(), finish.clone()));
    Run {
        shards,
        position,
        since: None,
        control,
        began: Instant::now(),
        began_at: Timestamp::now(),
        rate: seed::UNLIMITED,
        outcome,
        finish,
        task: Task(task),
    }
}
