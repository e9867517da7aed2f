//! A second connection to each server, on which little is done but to wait: a reset of it is seen in milliseconds, and silence within
//! two and a half seconds, without a pass that asks. Either wakes the pair, and so do commits that wait
//! for an acknowledgement while none gets through, and the server's return. It proves nothing: the look of the pass does, which is told
//! since when commits have stood still, and need not wait for long then for the one that does not acknowledge them.

use super::servers::Target;
use crate::{
    api::MySQLPair,
    mysql::{Error, Session, state::ACKNOWLEDGEMENTS},
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

/// What is asked, over and over, and answered after `pause`: which server it is, and how its commits stand.
fn statement(pause: Duration) -> String {
    format!(
        "SELECT SLEEP({}), @@server_uuid, {ACKNOWLEDGEMENTS}",
        pause.as_secs_f32()
    )
}
/// How long the server lets it wait, as a rule.
const AT_REST: Duration = Duration::from_millis(500);
/// The same after an answer by which commits waited.
const WHILE_COMMITS_WAIT: Duration = Duration::from_millis(200);
/// The answer is due after half a second at most; a healthy server is not later than this, and one on a busy machine is hardly ever.
const LIMIT: Duration = Duration::from_millis(2500);
/// While commits stand still the pair is woken at once, and then as often as this.
const WAKE_AGAIN: Duration = Duration::from_secs(1);
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
    /// Commits stand still, by the last two answers.
    still: Mutex<Option<Still>>,
}

/// Commits that wait for an acknowledgement while none gets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Still {
    /// `server_uuid` of the one that they wait on.
    pub uuid: String,
    /// How many have had theirs; as long as it is the same, it is so.
    pub acknowledged: u64,
    /// Since when at least.
    pub since: Instant,
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

    /// Commits that stand still on the server, by its last two answers.
    pub fn still(&self, key: &str) -> Option<Still> {
        let all = self.by_server();
        let still = &all.get(key)?.known.still;
        still.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
            let woken = Mutex::new(None::<Instant>);
            let error = until_lost(session, |still| {
                let mut woken = woken.lock().unwrap_or_else(PoisonError::into_inner);
                // A pass that is under way sees it for itself.
                let due = woken.is_none_or(|at| at.elapsed() >= WAKE_AGAIN);
                let stands = still.is_some() && due;
                *woken = if still.is_none() {
                    None
                } else if stands {
                    Some(Instant::now())
                } else {
                    *woken
                };
                *known.still.lock().unwrap_or_else(PoisonError::into_inner) = still;
                if stands {
                    let _ = wake.unbounded_send(pair.clone());
                }
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

/// What [`statement`] gives.
type Row = (i64, String, Option<String>, Option<String>);

/// What a server says of its commits, and when it said so at the latest.
#[derive(Clone)]
struct Answer {
    at: Instant,
    uuid: String,
    waiting: u64,
    acknowledged: u64,
}

impl Answer {
    fn read((_, uuid, waiting, acknowledged): Row) -> Self {
        let number = |text: Option<String>| text.and_then(|t| t.parse().ok()).unwrap_or(0);
        Self {
            at: Instant::now(),
            uuid,
            waiting: number(waiting),
            acknowledged: number(acknowledged),
        }
    }
    /// Whether commits wait, as they did before, and none has got through since.
    fn stands_still_since(&self, before: &Self) -> bool {
        let same = before.acknowledged == self.acknowledged && before.uuid == self.uuid;
        same && before.waiting > 0 && self.waiting > 0
    }
}

/// Since when commits stand still, by two answers in a row and what was so by the one before.
fn still(earlier: Option<Still>, before: Option<&Answer>, now: &Answer) -> Option<Still> {
    let before = before.filter(|b| now.stands_still_since(b))?;
    let same = |s: &Still| s.uuid == now.uuid && s.acknowledged == now.acknowledged;
    Some(earlier.filter(same).unwrap_or_else(|| Still {
        uuid: now.uuid.clone(),
        acknowledged: now.acknowledged,
        since: before.at,
    }))
}

/// Asks until the connection is lost, or the server does not answer in time. `heard` is told after each answer whether commits stand still,
/// and at the end that nobody knows.
async fn until_lost(mut session: Session, heard: impl Fn(Option<Still>)) -> Error {
    let mut stands = None;
    let mut before: Option<Answer> = None;
    loop {
        let began = Instant::now();
        let waited = before.as_ref().is_some_and(|b| b.waiting > 0);
        let pause = if waited { WHILE_COMMITS_WAIT } else { AT_REST };
        match session.rows::<Row>(LIMIT, &statement(pause)).await {
            Ok(rows) => {
                let now = rows.into_iter().next().map(Answer::read);
                stands = now.as_ref().and_then(|n| still(stands, before.as_ref(), n));
                heard(stands.clone());
                before = now;
            }
            // The server ends it, or somebody else does: both are a loss.
            Err(e) if !is_own_pause(&e, began.elapsed()) => {
                heard(None);
                return e;
            }
            Err(_) => match Session::open(session.access().clone()).await {
                Ok(new) => {
                    session = new;
                    (stands, before) = (None, None);
                    heard(None);
                }
                Err(e) => {
                    heard(None);
                    return e;
                }
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
        let start = Instant::now();
        let answer = |seconds, waiting, acknowledged| Answer {
            at: start + Duration::from_secs(seconds),
            uuid: "a".into(),
            waiting,
            acknowledged,
        };
        let since = |before, now| still(None, Some(&before), &now).map(|s| s.since);
        assert_eq!(
            since(answer(1, 2, 7), answer(2, 3, 7)),
            Some(start + Duration::from_secs(1))
        );
        assert_eq!(since(answer(1, 2, 7), answer(2, 3, 8)), None);
        assert_eq!(since(answer(1, 0, 7), answer(2, 3, 7)), None);
        assert_eq!(since(answer(1, 2, 7), answer(2, 0, 7)), None);
        let other = Answer {
            uuid: "b".into(),
            ..answer(2, 3, 7)
        };
        assert_eq!(since(answer(1, 2, 7), other), None);
        assert_eq!(still(None, None, &answer(2, 3, 7)), None);
        // It goes on.
        let first = still(None, Some(&answer(1, 2, 7)), &answer(2, 3, 7));
        assert_eq!(
            still(first.clone(), Some(&answer(2, 3, 7)), &answer(3, 3, 7)),
            first
        );
        // One got through in between, and then none.
        let again = still(first, Some(&answer(3, 3, 8)), &answer(4, 3, 8));
        assert_eq!(again.map(|s| s.since), Some(start + Duration::from_secs(3)));
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
