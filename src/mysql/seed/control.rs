//! What the caller of a copy or a comparison holds in its hand: how fast it may go, whether it shall end, and how far it is.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// No limit of speed.
pub const UNLIMITED: u64 = u64::MAX;
/// Between two looks at whether the speed was changed.
const LOOK: Duration = Duration::from_millis(50);
/// What may be taken ahead of the time it is due, in seconds of the speed: small enough that a new limit is soon felt.
const AHEAD: f64 = 0.1;

/// How far a copy or a comparison is. Bytes are those of the rows as text; the bytes to be done are the server's estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub bytes: u64,
    /// The server's estimate of how many there are.
    pub bytes_expected: u64,
    /// Rows read.
    pub rows: u64,
    /// Tables that are done.
    pub tables: u64,
    /// Tables that there are.
    pub tables_expected: u64,
    /// Databases that are done.
    pub databases: u64,
}

/// The reins of one run. The caller shares it with the run and sets it from the source's lag and load, at any time.
#[derive(Debug)]
pub struct Control {
    rate: AtomicU64,
    stop: AtomicBool,
    due: Mutex<Option<Instant>>,
    bytes: AtomicU64,
    bytes_expected: AtomicU64,
    rows: AtomicU64,
    tables: AtomicU64,
    tables_expected: AtomicU64,
    databases: AtomicU64,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            rate: AtomicU64::new(UNLIMITED),
            stop: AtomicBool::new(false),
            due: Mutex::new(None),
            bytes: AtomicU64::new(0),
            bytes_expected: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            tables: AtomicU64::new(0),
            tables_expected: AtomicU64::new(0),
            databases: AtomicU64::new(0),
        }
    }
}

impl Control {
    /// How many bytes a second may be read in all streams together from now on; 0 holds, [`UNLIMITED`] lets go.
    pub fn set_rate(&self, bytes_a_second: u64) {
        self.rate.store(bytes_a_second, Ordering::Relaxed);
        // What was waited for under the old limit is forgotten.
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Ends the run early; what is complete by then stays complete.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it shall end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_expected: self.bytes_expected.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            tables: self.tables.load(Ordering::Relaxed),
            tables_expected: self.tables_expected.load(Ordering::Relaxed),
            databases: self.databases.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn expect(&self, tables: u64, bytes: u64) {
        self.tables_expected.fetch_add(tables, Ordering::Relaxed);
        self.bytes_expected.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn table_done(&self) {
        self.tables.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn database_done(&self) {
        self.databases.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until `bytes` more may be read. Returns at once when the run shall end.
    pub(crate) async fn pace(&self, bytes: u64) {
        let mut asked = false;
        loop {
            let rate = self.rate.load(Ordering::Relaxed);
            if rate == UNLIMITED || self.is_stopped() {
                return;
            }
            let now = Instant::now();
            let wait = if rate == 0 {
                LOOK
            } else {
                let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                let at = due.unwrap_or(now).max(now);
                if !asked {
                    *due = Some(at + seconds(bytes, rate));
                    asked = true;
                }
                due.map_or(Duration::ZERO, |d| d.saturating_duration_since(now))
                    .saturating_sub(Duration::from_secs_f64(AHEAD))
            };
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }
}

fn seconds(bytes: u64, rate: u64) -> Duration {
    #[allow(clippy::cast_precision_loss, reason = "a speed need not be exact")]
    let seconds = bytes as f64 / rate as f64;
    Duration::try_from_secs_f64(seconds)
        .unwrap_or(Duration::MAX / 4)
        .min(Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_limit_is_kept_and_can_be_lifted_while_it_is_waited_for() {
        let c = Control::default();
        let began = Instant::now();
        c.pace(1 << 40).await;
        assert!(began.elapsed() < Duration::from_millis(20));
        c.set_rate(1 << 20);
        for _ in 0..4 {
            c.pace(1 << 18).await;
        }
        assert!(
            began.elapsed() >= Duration::from_millis(700),
            "{:?}",
            began.elapsed()
        );
        let c = Arc::new(c);
        c.set_rate(0);
        let held = tokio::spawn({
            let c = c.clone();
            async move { c.pace(1).await }
        });
        tokio::time::sleep(Duration::from_millis(120)).await;
        assert!(!held.is_finished());
        c.set_rate(UNLIMITED);
        held.await.unwrap();
        c.set_rate(0);
        c.stop();
        c.pace(1).await;
    }
}
