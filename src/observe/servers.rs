//! The servers of pairs, each over a connection that is held open between passes: opening one takes far longer than asking.

use crate::{
    act::errant::{self, Written},
    core::{
        databases::Naming,
        gtid::GtidSet,
        pair::{
            moving::Moving,
            observed::{Channel, Server, ServerState},
        },
    },
    deadline,
    mysql::{Access, Error, Session, fence, links, state},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};

/// For all that is asked of one server in one pass, over a connection that is held: a healthy one answers in milliseconds.
const HELD: Duration = Duration::from_millis(2500);
/// The same for a member that acknowledges nothing while commits wait for it: each moment of it is one in which nobody can write (rule P5),
/// and nothing is lost by taking one for gone that is merely slow.
const SUSPECT: Duration = Duration::from_millis(600);
/// The same for a server whose sentinel has had no answer.
const SILENT: Duration = Duration::from_millis(300);
/// How often it is asked whether there is less patience by now.
const GLANCE: Duration = Duration::from_millis(50);
/// The same over a new connection, which takes far longer on a busy machine: it must not look silent for that.
const NEW: Duration = Duration::from_secs(5);
/// For closing a server whose Pod is gone.
const FORMER: Duration = Duration::from_secs(5);
/// For the second reading.
const LATER: Duration = Duration::from_secs(2);
/// How long a pass waits for a follower to have what its source had.
const REACH_SECONDS: f32 = 0.5;

/// How long a pass waits for errant transactions to be saved.
const SAVE_MOMENT: Duration = Duration::from_secs(2);

/// A copy that was started is seen to run within this time.
const COPY_BEGINS: Duration = Duration::from_secs(60);

/// How long a server is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As one that is well.
    Usual,
    /// Not for long: commits wait for it, and none gets through.
    Suspect,
    /// Hardly: it has been silent since it last answered.
    Silent,
}

impl Patience {
    /// How long, when it would be `usual` for one that is well.
    fn limit(self, usual: Duration) -> Duration {
        match self {
            Self::Usual => usual,
            Self::Suspect => SUSPECT,
            Self::Silent => SILENT,
        }
    }
}

/// A server to ask: where it is, and which incarnation of its Pod that is.
#[derive(Clone, Debug)]
pub struct Target {
    /// `namespace/pod`.
    pub key: String,
    /// UID of the Pod.
    pub uid: String,
    /// How it is reached.
    pub access: Access,
}

/// What is asked of a server beside what is asked of any.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// How databases are called, when that is known.
    pub naming: Option<&'a Naming>,
    /// What moves of shards ask of the pair.
    pub moving: Option<&'a Moving>,
}

impl Asked<'_> {
    async fn read(self, session: &mut Session) -> Result<ServerState, Error> {
        let mut state = state::read(session, self.naming).await?;
        if self.moving.is_some_and(|m| m.concerns(&state.shards)) {
            state.links = Some(links::read(session).await?);
        }
        Ok(state)
    }
}

/// What was seen of a server, and the connection that saw it: an action on it runs there (rule P7).
#[derive(Debug)]
pub struct Seen {
    /// What was seen.
    pub server: Server,
    /// The connection, when there is one.
    pub session: Option<Session>,
}

impl Seen {
    /// Nothing to ask at.
    pub fn absent() -> Self {
        Self {
            server: Server::Absent,
            session: None,
        }
    }
}

/// A copy that this process started.
struct Copy {
    since: Instant,
    task: JoinHandle<()>,
}

/// The connections that are held, and the copies that run. Nothing in it is needed for safety (rule O1).
#[derive(Default)]
pub struct Servers {
    held: Mutex<HashMap<String, (String, Session)>>,
    copies: Mutex<HashMap<String, Copy>>,
    saves: Mutex<HashMap<String, Save>>,
}

/// Errant transactions that are being saved.
type Save = JoinHandle<Result<Written, errant::Error>>;

impl Servers {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<String, (String, Session)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn saves(&self) -> std::sync::MutexGuard<'_, HashMap<String, Save>> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn copies(&self) -> std::sync::MutexGuard<'_, HashMap<String, Copy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at both servers of a pair, side by side: a dead one delays the other by nothing but its own deadline. `patience` is asked
    /// again and again, by place: what is noticed meanwhile counts.
    pub async fn look(
        &self,
        targets: [Option<Target>; 2],
        patience: impl Fn(usize) -> Patience + Sync,
        asked: Asked<'_>,
    ) -> [Seen; 2] {
        let [a, b] = targets;
        let (for_a, for_b) = (|| patience(0), || patience(1));
        let (mut a, mut b) = futures::join!(self.one(a, &for_a, asked), self.one(b, &for_b, asked));
        // What one had at the first reading is compared with what the other one has now.
        let had = [&a, &b].map(|s| executed(&s.server));
        let [had_a, had_b] = had;
        futures::join!(later(&mut a, had_b, &for_a), later(&mut b, had_a, &for_b));
        [a, b]
    }

    async fn one(
        &self,
        target: Option<Target>,
        patience: &(dyn Fn() -> Patience + Sync),
        asked: Asked<'_>,
    ) -> Seen {
        let Some(target) = target else {
            return Seen::absent();
        };
        let answer = ask(self.take(&target), target.access, patience, asked);
        match answer.await {
            Ok((session, state)) => Seen {
                server: Server::Up(Box::new(state)),
                session: Some(session),
            },
            Err(e) => Seen {
                server: failed(&e),
                session: None,
            },
        }
    }

    /// The connection that is held to this incarnation, with these credentials.
    fn take(&self, target: &Target) -> Option<Session> {
        let (uid, session) = self.held().remove(&target.key)?;
        (uid == target.uid && *session.access() == target.access && !session.is_broken()).then_some(session)
    }

    /// Holds a connection for the next pass, unless it is broken.
    pub fn hold(&self, key: &str, uid: &str, session: Session) {
        if !session.is_broken() {
            self.held().insert(key.to_owned(), (uid.to_owned(), session));
        }
    }

    /// Closes a server whose Pod is gone from the API, or has become another one, over the connection that is still held: it may run for
    /// seconds yet, and its clients would wait all the while for acknowledgements that nobody gives (rule P6). `present` is the UID of the Pod
    /// that is there now.
    pub fn fence_former(&self, key: &str, present: Option<&str>) {
        let former = {
            let mut held = self.held();
            let gone = held
                .get(key)
                .is_some_and(|(uid, _)| Some(uid.as_str()) != present);
            gone.then(|| held.remove(key)).flatten()
        };
        let Some((uid, mut session)) = former else {
            return;
        };
        let server = key.to_owned();
        tokio::spawn(async move {
            let fenced = deadline::within(FORMER, async {
                session.lock().await?;
                fence::fence(&mut session).await
            });
            match fenced.await.map_err(Error::from).flatten() {
                Ok(()) => tracing::info!(server, uid, "a former self was closed"),
                // As a rule it has ended.
                Err(error) => tracing::debug!(server, uid, %error, "a former self was not closed"),
            }
        });
    }

    /// Lets go of everything of a pair's server.
    pub fn forget(&self, key: &str) {
        self.held().remove(key);
        self.copies().remove(key);
        self.saves().remove(key);
    }

    /// Saves errant transactions of a server, unless that is being done already, and waits a moment for it; `None` when it takes longer: it
    /// goes on, and is asked for again.
    pub async fn save<F>(
        &self,
        key: &str,
        start: impl FnOnce() -> F + Send,
    ) -> Option<Result<Written, errant::Error>>
    where
        F: Future<Output = Result<Written, errant::Error>> + Send + 'static,
    {
        let running = self.saves().remove(key);
        let mut save = running.unwrap_or_else(|| tokio::spawn(start()));
        match deadline::within(SAVE_MOMENT, &mut save).await {
            Ok(Ok(done)) => Some(done),
            // It panicked; it is begun anew.
            Ok(Err(_)) => None,
            Err(_) => {
                self.saves().insert(key.to_owned(), save);
                None
            }
        }
    }

    /// Whether this process has just started to copy over the server: it need not say so yet, and whoever took its lock would end that.
    pub fn copying(&self, key: &str) -> bool {
        let copies = self.copies();
        copies
            .get(key)
            .is_some_and(|c| !c.task.is_finished() && c.since.elapsed() < COPY_BEGINS)
    }

    /// Remembers a copy that was started. An earlier one does not run, as its server says: its connection hangs, and is given up.
    pub fn copy(&self, key: &str, task: JoinHandle<()>) {
        let since = Instant::now();
        let earlier = self.copies().insert(key.to_owned(), Copy { since, task });
        if let Some(earlier) = earlier {
            earlier.task.abort();
        }
    }
}

/// Waits for `work` as long as there is patience for it, `usual` for a server that is well.
async fn patiently<T>(
    usual: Duration,
    patience: &(dyn Fn() -> Patience + Sync),
    work: impl Future<Output = T>,
) -> Result<T, deadline::Elapsed> {
    // While this process did not run it has waited for nobody: a turn counts for little more than it was to take.
    let (mut waited, mut since_less) = (Duration::ZERO, None);
    let mut work = std::pin::pin!(work);
    loop {
        let now = patience();
        let (limit, so_far) = if now == Patience::Usual {
            since_less = None;
            (usual, waited)
        } else {
            let since = *since_less.get_or_insert(waited);
            (now.limit(usual), waited.saturating_sub(since))
        };
        let left = limit.saturating_sub(so_far).min(usual.saturating_sub(waited));
        if left.is_zero() {
            return Err(deadline::Elapsed(limit));
        }
        let turn = Instant::now();
        if let Ok(done) = deadline::within(left.min(GLANCE), &mut work).await {
            return Ok(done);
        }
        waited += turn.elapsed().min(GLANCE * 2);
    }
}

/// Asks over the connection that is held, and over a new one when that turns out to be dead. One that is silent proves as much as
/// a new one would.
async fn ask(
    held: Option<Session>,
    access: Access,
    patience: &(dyn Fn() -> Patience + Sync),
    asked: Asked<'_>,
) -> Result<(Session, ServerState), Error> {
    if let Some(mut session) = held {
        match patiently(HELD, patience, asked.read(&mut session)).await? {
            Ok(state) => return Ok((session, state)),
            Err(e) if session.is_broken() && !matches!(e, Error::Timeout(_)) => {}
            Err(e) => return Err(e),
        }
    }
    patiently(NEW, patience, async {
        let mut session = Session::open(access).await?;
        let state = asked.read(&mut session).await?;
        Ok((session, state))
    })
    .await?
}

/// The second reading. One that fails leaves the server unreachable: half an answer is none.
async fn later(seen: &mut Seen, other_had: Option<GtidSet>, patience: &(dyn Fn() -> Patience + Sync)) {
    let (Server::Up(state), Some(session)) = (&mut seen.server, &mut seen.session) else {
        return;
    };
    let applies = state.channel.as_ref().is_some_and(Channel::runs);
    let reach = other_had
        .filter(|set| applies && !set.is_subset_of(&state.executed))
        .map(|set| set.minus(&state.executed));
    let reach = reach.as_ref().map(|set| (set, REACH_SECONDS));
    let read = patiently(LATER, patience, state::later(session, reach)).await;
    match read.map_err(Error::from).flatten() {
        Ok(later) => {
            state.executed_later = later.executed;
            // What waits now is what counts: the other one may have been waited for in between.
            (state.source.waiting, state.source.acknowledged) = (later.waiting, later.acknowledged);
        }
        Err(e) => {
            let server = failed(&e);
            seen.server = server;
            seen.session = None;
        }
    }
}

fn executed(server: &Server) -> Option<GtidSet> {
    match server {
        Server::Up(s) => Some(s.executed.clone()),
        _ => None,
    }
}

/// A login that is refused and a certificate that is not the cluster's mean the same: the server was started with other
/// credentials.
fn failed(e: &Error) -> Server {
    let text = e.to_string();
    if e.is_out_of_connections() {
        Server::Full(text)
    } else if e.is_access_denied() || text.contains("invalid peer certificate") {
        Server::AccessDenied(text)
    } else {
        Server::Unreachable(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test(start_paused = true)]
    async fn what_is_noticed_while_a_server_is_asked_shortens_the_wait() {
        let noticed = AtomicBool::new(false);
        let patience = || {
            if noticed.load(Ordering::Relaxed) {
                Patience::Suspect
            } else {
                Patience::Usual
            }
        };
        let hangs = async {
            tokio::time::sleep(SUSPECT * 2).await;
            noticed.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        let began = tokio::time::Instant::now();
        let Err(deadline::Elapsed(limit)) = patiently(HELD, &patience, hangs).await else {
            panic!("nothing was answered");
        };
        assert_eq!(limit, SUSPECT);
        let took = began.elapsed();
        assert!(took >= SUSPECT * 3 && took < SUSPECT * 3 + GLANCE * 2, "{took:?}");
        assert!(
            patiently(HELD, &patience, async { 7 })
                .await
                .is_ok_and(|n| n == 7)
        );
    }
}
