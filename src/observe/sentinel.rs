//! A second connection to each server, on which little is done but to wait: a reset of it is seen in milliseconds, and silence within
//! two and a half seconds, without a pass that asks. Either wakes the pair, and so do commits that wait
//! for an acknowledgement while none gets through, and the server's return. It proves nothing: the look of the pass does.

use super::servers::Target;
use crate::{
    api::MySQLPair,
    mysql::{Error, Session},
};
use futures::channel::mpsc::UnboundedSender;
use kube::runtime::reflector::ObjectRef;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// What is asked, over and over: how many commits wait for an acknowledgement, how many have had theirs, and who gives any. Without the
/// plugin there is none of it.
const STATEMENT: &str = "SELECT SLEEP(0.5), \
    (SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_wait_sessions'), \
    (SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_yes_tx')";
/// The answer is due after half a second; a healthy server is not later than this, and one on a busy machine is hardly ever.
const LIMIT: Duration = Duration::from_millis(2500);
/// An answer that was waited for this much longer than it was to be waited for: it was this process that did not run.
const OWN_PAUSE: Duration = Duration::from_millis(500);
/// Until the first new connection after one was lost, and the longest time between two tries.
const RECONNECT: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// What is known of a server, between looks.
#[derive(Debug, Default)]
struct Known {
    /// It has not answered in time, and not since.
    silent: AtomicBool,
    /// When the connection was lost, or silence noticed, and no pass has asked about it yet.
    noticed: Mutex<Option<Instant>>,
}

struct Sentinel {
    target: Target,
    known: Arc<Known>,
    task: JoinHandle<()>,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The sentinels of all servers; they end with it. Nothing in it is needed for safety (rule O1).
pub struct Sentinels {
    by_server: Mutex<HashMap<String, Sentinel>>,
    wake: UnboundedSender<ObjectRef<MySQLPair>>,
}

impl Sentinels {
    /// `wake` is told of pairs that have to be looked at.
    pub fn new(wake: UnboundedSender<ObjectRef<MySQLPair>>) -> Self {
        Self {
            by_server: Mutex::default(),
            wake,
        }
    }

    fn by_server(&self) -> std::sync::MutexGuard<'_, HashMap<String, Sentinel>> {
        self.by_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches over a pair's server from now on, unless it does already; a Pod that is another one, or is reached otherwise, gets another
    /// sentinel. Without a target there is nothing to watch.
    pub fn watch(&self, pair: &ObjectRef<MySQLPair>, key: &str, target: Option<&Target>) {
        let mut all = self.by_server();
        let Some(target) = target else {
            all.remove(key);
            return;
        };
        let same = |s: &Sentinel| s.target.uid == target.uid && s.target.access == target.access;
        if all.get(key).is_some_and(same) {
            return;
        }
        let known = Arc::<Known>::default();
        let task = tokio::spawn(stand(
            target.clone(),
            Arc::clone(&known),
            self.wake.clone(),
            pair.clone(),
        ));
        let target = target.clone();
        all.insert(key.to_owned(), Sentinel { target, known, task });
    }

    /// Ends the sentinel of a server.
    pub fn forget(&self, key: &str) {
        self.by_server().remove(key);
    }

    /// Whether the server has been silent since it last answered here: then a look need not wait for long.
    pub fn silent(&self, key: &str) -> bool {
        self.by_server()
            .get(key)
            .is_some_and(|s| s.known.silent.load(Ordering::Relaxed))
    }

    /// When something was noticed of the server that no pass has asked about before.
    pub fn noticed(&self, key: &str) -> Option<Instant> {
        let all = self.by_server();
        let mut noticed = all
            .get(key)?
            .known
            .noticed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        noticed.take()
    }
}

impl Known {
    fn notice(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
        *self.noticed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Watches over one server until it is aborted.
async fn stand(
    target: Target,
    known: Arc<Known>,
    wake: UnboundedSender<ObjectRef<MySQLPair>>,
    pair: ObjectRef<MySQLPair>,
) {
    let [first, longest] = RECONNECT;
    let (mut pause, mut lost) = (first, false);
    loop {
        let opened = Session::open(target.access.clone()).await;
        if matches!(opened, Err(Error::Timeout(_))) {
            known.silent.store(true, Ordering::Relaxed);
        }
        if let Ok(session) = opened {
            pause = first;
            known.silent.store(false, Ordering::Relaxed);
            if lost {
                // It is back.
                let _ = wake.unbounded_send(pair.clone());
            }
            let error = until_lost(session, || {
                let _ = wake.unbounded_send(pair.clone());
            })
            .await;
            let silent = matches!(error, Error::Timeout(_));
            tracing::debug!(server = target.key, %error, silent, "lost sight of a server");
            known.notice(silent);
            lost = true;
            // Nobody listens any more when the process ends.
            let _ = wake.unbounded_send(pair.clone());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// What [`STATEMENT`] gives.
type Answer = (i64, Option<String>, Option<String>);

/// Commits that wait for an acknowledgement, and how many have had theirs.
type Commits = (u64, u64);

/// Whether commits wait, as they did before, and none has got through since.
fn stands_still(before: Commits, now: Commits) -> bool {
    before.0 > 0 && now.0 > 0 && before.1 == now.1
}

/// Asks until the connection is lost, or the server does not answer in time. `wake` is called whenever commits stand still.
async fn until_lost(mut session: Session, wake: impl Fn()) -> Error {
    let mut before = (0, 0);
    loop {
        let began = Instant::now();
        match session.rows::<Answer>(LIMIT, STATEMENT).await {
            Ok(rows) => {
                let number = |text: &Option<String>| text.as_ref().and_then(|t| t.parse().ok()).unwrap_or(0);
                let now = rows.first().map_or((0, 0), |r| (number(&r.1), number(&r.2)));
                if stands_still(before, now) {
                    wake();
                }
                before = now;
            }
            // The server ends it, or somebody else does: both are a loss.
            Err(e) if !is_own_pause(&e, began.elapsed()) => return e,
            Err(_) => match Session::open(session.access().clone()).await {
                Ok(new) => session = new,
                Err(e) => return e,
            },
        }
    }
}

/// Whether it was this process that did not run, rather than the server that did not answer.
fn is_own_pause(error: &Error, waited: Duration) -> bool {
    matches!(error, Error::Timeout(_)) && waited > LIMIT + OWN_PAUSE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline;

    #[test]
    fn commits_stand_still_while_some_wait_and_none_gets_through() {
        assert!(stands_still((2, 7), (3, 7)));
        assert!(!stands_still((2, 7), (3, 8)));
        assert!(!stands_still((0, 7), (3, 7)));
        assert!(!stands_still((2, 7), (0, 7)));
    }

    #[test]
    fn a_pause_of_ones_own_is_no_silence() {
        let silence = Error::from(deadline::Elapsed(LIMIT));
        assert!(!is_own_pause(&silence, LIMIT + Duration::from_millis(20)));
        assert!(is_own_pause(&silence, LIMIT + Duration::from_secs(3)));
        let reset = Error::Protocol("reset".into());
        assert!(!is_own_pause(&reset, LIMIT + Duration::from_secs(3)));
    }
}
