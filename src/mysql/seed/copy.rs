//! Which part is copied next, and what becomes of a database whose copying fails.

use super::{
    control::Control,
    layout::{Database, Table},
    pin::{Pinned, Position},
    queue::{Item, State, Task},
    rows::{self, Range},
    stream::{self, Fault, Part},
    target::{self, Begin, Guard, Scope},
};
use crate::{
    core::gtid::GtidSet,
    mysql::{
        Access, Error,
        conn::{self, ident},
    },
};
use futures::future;
use mysql_async::Conn;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::Notify, task::JoinSet};

/// A table is cut into parts of about this size.
const PART: u64 = 32 << 20;
/// Most parts of a table.
const PARTS: u64 = 256;
/// How often a database is begun anew.
const TRIES: u32 = 3;
/// For a target that went away to come back.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at whether it has.
const BETWEEN: Duration = Duration::from_millis(500);
/// Another run has ended just now, and turned off what this one needs.
const NO_LOCAL_INFILE: u16 = 3948;
/// For a question that goes through a table.
const LONG: Duration = Duration::from_secs(3600);

/// Why a database was not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It changed meanwhile: it can be tried again.
    Again(String),
    /// It cannot be copied as it is.
    Refused(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Again(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

/// What came of it. What is neither complete nor failed was not come to, or was cut short with the run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The position of all copies.
    pub gtid: GtidSet,
    /// On every target, marked complete, and closed for writes.
    pub complete: Vec<String>,
    /// What cannot be copied as it is, and why.
    pub failed: BTreeMap<String, Failure>,
    /// Why the run ended before it had seen to everything.
    pub ended: Option<Error>,
}

/// Copies the databases of a position to `targets`, in as many streams as it has connections. A database that a target has already is left
/// alone and named, unless it is marked (see [`super::marks`]): then it is a copy that nobody relies on, and is begun anew.
/// `scope` names on whose behalf: a run ends an earlier one of the same scope on the same targets; runs of different scopes go side by side.
///
/// # Errors
/// As [`Error`], when it cannot begin.
pub async fn copy(
    position: Position,
    targets: Vec<Access>,
    scope: &str,
    control: Arc<Control>,
) -> Result<Outcome, Error> {
    let Position { gtid, source, .. } = position;
    let Pinned {
        access,
        databases,
        readers,
        missing,
    } = source;
    let scope = Scope::new(scope);
    let mut guards = future::try_join_all(targets.iter().map(|t| target::take_over(t, &scope))).await?;
    future::try_join_all(guards.iter_mut().map(Guard::accept_rows)).await?;
    let run = Arc::new(Run {
        access,
        gtid,
        targets,
        scope,
        control,
        state: Mutex::new(State::new(&databases, missing)),
        databases,
        guards: tokio::sync::Mutex::new(guards),
        wake: Notify::new(),
    });
    let tables = run.databases.iter().flat_map(|d| &d.tables);
    run.control
        .expect(tables.clone().count() as u64, tables.map(|t| t.bytes).sum());
    let mut workers = JoinSet::new();
    for reader in readers {
        let run = run.clone();
        workers.spawn(async move { run.work(reader).await });
    }
    while let Some(ended) = workers.join_next().await {
        if ended.is_err() {
            run.state()
                .ended
                .get_or_insert(Error::Protocol("a stream broke off".into()));
        }
        run.wake.notify_waiters();
    }
    for guard in run.guards.lock().await.iter_mut() {
        // A server that is gone comes back without anything to end, and whoever has taken over ends it.
        let _ = guard.end().await;
    }
    let mut state = run.state();
    let over = state.databases.iter().all(Item::is_settled);
    let names = run.databases.iter().zip(&state.databases);
    let complete = names
        .filter(|(_, i)| i.complete)
        .map(|(d, _)| d.name.clone())
        .collect();
    Ok(Outcome {
        gtid: run.gtid.clone(),
        complete,
        failed: std::mem::take(&mut state.failed),
        ended: if over {
            None
        } else {
            state
                .ended
                .take()
                .or_else(|| Some(Error::Protocol("it was stopped".into())))
        },
    })
}

/// 1242: the guard's subquery has two rows.
fn taken_over(e: &Error) -> bool {
    e.code() == Some(1242)
}

/// What says more of the server than of what was sent to it.
const PASSING: [u16; 12] = [
    1053,
    1080,
    1152,
    1158,
    1159,
    1160,
    1161,
    1205,
    1213,
    1290,
    1317,
    NO_LOCAL_INFILE,
];

fn passes(e: &Error) -> bool {
    e.code().is_none_or(|c| PASSING.contains(&c))
}

struct Run {
    access: Access,
    gtid: GtidSet,
    targets: Vec<Access>,
    scope: Scope,
    control: Arc<Control>,
    databases: Vec<Database>,
    state: Mutex<State>,
    guards: tokio::sync::Mutex<Vec<Guard>>,
    wake: Notify,
}

/// A stream's connections.
struct Lane {
    source: Option<Conn>,
    targets: Vec<Option<Conn>>,
    /// What goes before each statement, for each target.
    checks: Vec<String>,
}

impl Run {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(&self, reader: Conn) {
        let mut lane = Lane {
            source: Some(reader),
            targets: self.targets.iter().map(|_| None).collect(),
            checks: vec![],
        };
        while lane.source.is_some()
            && let Some(task) = self.next().await
        {
            let result = self.one(&mut lane, task).await;
            if matches!(&result, Err(Fault::Target(e)) if e.code() == Some(NO_LOCAL_INFILE)) {
                for guard in self.guards.lock().await.iter_mut() {
                    let _ = guard.accept_rows().await;
                }
            }
            self.note(task, result);
            self.wake.notify_waiters();
        }
    }

    /// The next task, as soon as there is one; parts of what was begun come first.
    async fn next(&self) -> Option<Task> {
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            {
                let mut s = self.state();
                if s.over || self.control.is_stopped() {
                    return None;
                }
                let task = s
                    .tasks
                    .pop_front()
                    .or_else(|| s.begin.pop_front().map(Task::Begin));
                if let Some(task) = task {
                    s.databases[task.database()].running += 1;
                    return Some(task);
                }
                if s.databases.iter().all(|d| d.running == 0) {
                    return None;
                }
            }
            woken.await;
        }
    }

    async fn one(&self, lane: &mut Lane, task: Task) -> Result<stream::Done, Fault> {
        self.connect(lane).await?;
        match task {
            Task::Begin(d) => self.begin(lane, d).await.map(|()| stream::Done::default()),
            Task::Part(d, t, range) => {
                let (d, t) = (&self.databases[d], &self.databases[d].tables[t]);
                let part = Part {
                    select: rows::select(&d.name, t, range),
                    load: rows::load(self.scope.file(), &d.name, t),
                    kinds: rows::kinds(t),
                };
                stream::copy(
                    &mut lane.source,
                    &self.access,
                    &mut lane.targets,
                    &lane.checks,
                    &part,
                    &self.control,
                )
                .await
            }
            Task::Finish(d) => self.finish(lane, d).await.map(|()| stream::Done::default()),
        }
    }

    /// Opens what is not open. A target that is away is waited for; one that came back has forgotten who copies to it.
    async fn connect(&self, lane: &mut Lane) -> Result<(), Fault> {
        if lane.targets.iter().all(Option::is_some) {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            match self.try_connect(lane).await {
                Ok(()) => return Ok(()),
                Err(e) if taken_over(&e) || began.elapsed() > PATIENCE || self.control.is_stopped() => {
                    let mut s = self.state();
                    s.over = true;
                    s.ended.get_or_insert(e);
                    return Err(Fault::Stopped);
                }
                Err(_) => tokio::time::sleep(BETWEEN).await,
            }
        }
    }

    async fn try_connect(&self, lane: &mut Lane) -> Result<(), Error> {
        for (place, access) in lane.targets.iter_mut().zip(&self.targets) {
            if place.is_none() {
                *place = Some(self.scope.open(access).await?);
            }
        }
        let mut guards = self.guards.lock().await;
        for (guard, access) in guards.iter_mut().zip(&self.targets) {
            if !guard.holds().await {
                guard.renew(access).await?;
                guard.accept_rows().await?;
            }
        }
        lane.checks = guards.iter().map(|g| g.check.clone()).collect();
        Ok(())
    }

    async fn begin(&self, lane: &mut Lane, d: usize) -> Result<(), Fault> {
        let database = &self.databases[d];
        let all = lane.targets.iter_mut().zip(&self.targets).zip(&lane.checks);
        let begun = all.map(|((place, access), check)| async move {
            let Some(mut conn) = place.take() else {
                return Err(gone().into());
            };
            let done = target::begin(&mut conn, access, check, database, &self.gtid).await;
            if !matches!(&done, Err(Begin::Mysql(e)) if e.code().is_none()) {
                *place = Some(conn);
            }
            done
        });
        for done in future::join_all(begun).await {
            match done {
                Ok(()) => {}
                Err(Begin::Mysql(e)) => return Err(Fault::Target(e)),
                Err(e) => return Err(Fault::Data(e.to_string())),
            }
        }
        let mut parts = vec![];
        for t in &database.tables {
            parts.push(self.cut(lane, database, t).await?);
        }
        let mut s = self.state();
        let item = &mut s.databases[d];
        item.left = parts.iter().map(Vec::len).collect();
        item.doubtful.clear();
        // The largest come first, so that the end is not one long part.
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|t| std::cmp::Reverse(database.tables[*t].bytes));
        for t in order {
            s.tasks
                .extend(parts[t].iter().map(|range| Task::Part(d, t, *range)));
        }
        if parts.is_empty() {
            s.tasks.push_front(Task::Finish(d));
        }
        Ok(())
    }

    /// The parts of a table.
    async fn cut(&self, lane: &mut Lane, d: &Database, t: &Table) -> Result<Vec<Range>, Fault> {
        let parts = (t.bytes / PART).min(PARTS);
        let (Some(key), Some(source), true) = (t.cut_by(), lane.source.as_mut(), parts > 1) else {
            return Ok(vec![Range::default()]);
        };
        let key = ident(key);
        // As text: no integer type of the client holds all of both BIGINTs.
        let sql = format!(
            "SELECT CAST(MIN({key}) AS CHAR), CAST(MAX({key}) AS CHAR) FROM {}.{}",
            ident(&d.name),
            ident(&t.name)
        );
        let ends: Vec<(Option<String>, Option<String>)> =
            conn::rows(source, LONG, sql).await.map_err(|e| lost(lane, e))?;
        let number = |text: Option<String>| text.and_then(|t| t.parse::<i128>().ok());
        match ends.into_iter().next().map(|(a, b)| (number(a), number(b))) {
            Some((Some(min), Some(max))) => Ok(Range::cut(min, max, parts)),
            _ => Ok(vec![Range::default()]),
        }
    }

    async fn finish(&self, lane: &mut Lane, d: usize) -> Result<(), Fault> {
        let database = &self.databases[d];
        let doubtful: Vec<usize> = self.state().databases[d].doubtful.iter().copied().collect();
        for t in doubtful {
            let table = &database.tables[t];
            if let (Some(sql), Some(source)) = (rows::doubt(&database.name, table), lane.source.as_mut()) {
                let found: Vec<i64> = conn::rows(source, LONG, sql).await.map_err(|e| lost(lane, e))?;
                if found.first() != Some(&0) {
                    return Err(Fault::Data(format!(
                        "table {} has JSON values of types that JSON text does not have (dates, times, bytes, DECIMAL): {} rows",
                        table.name,
                        found.first().copied().unwrap_or_default()
                    )));
                }
            }
        }
        let all = lane
            .targets
            .iter_mut()
            .zip(&lane.checks)
            .map(|(place, check)| async move {
                let Some(mut conn) = place.take() else {
                    return Err(gone());
                };
                let done = target::finish(&mut conn, check, &database.name).await;
                if !matches!(&done, Err(e) if e.code().is_none()) {
                    *place = Some(conn);
                }
                done
            });
        for done in future::join_all(all).await {
            done.map_err(Fault::Target)?;
        }
        Ok(())
    }

    /// Writes down what became of a task.
    fn note(&self, task: Task, result: Result<stream::Done, Fault>) {
        let mut s = self.state();
        let s = &mut *s;
        let (d, name) = (task.database(), &self.databases[task.database()].name);
        let item = &mut s.databases[d];
        item.running -= 1;
        match (task, result) {
            (Task::Begin(_), Ok(_)) => {}
            (Task::Part(_, t, _), Ok(done)) => {
                if done.doubtful {
                    item.doubtful.insert(t);
                }
                item.left[t] -= 1;
                if item.left[t] == 0 {
                    self.control.table_done();
                }
                if !item.broken && item.left.iter().all(|n| *n == 0) {
                    s.tasks.push_front(Task::Finish(d));
                }
            }
            (Task::Finish(_), Ok(_)) => {
                item.complete = true;
                self.control.database_done();
            }
            (_, Err(Fault::Stopped)) => item.broken = true,
            (_, Err(Fault::Target(e))) if taken_over(&e) => {
                item.broken = true;
                s.over = true;
                s.ended.get_or_insert(e);
            }
            (_, Err(Fault::Source(e) | Fault::Target(e))) if passes(&e) => {
                // Parts that are under way at the same time fail for the same reason.
                item.tries += u32::from(!item.broken);
                item.broken = true;
                if item.tries >= TRIES {
                    s.over = true;
                }
                s.ended = Some(e);
            }
            (_, Err(fault)) => {
                item.broken = true;
                item.given_up = true;
                let why = match fault {
                    Fault::Source(e) if matches!(e.code(), Some(1412 | 1146 | 1049)) => Failure::Again(
                        format!("a table was altered while it was copied; it can be tried again ({e})"),
                    ),
                    Fault::Source(e) => Failure::Refused(format!("the source: {e}")),
                    Fault::Target(e) => Failure::Refused(format!("the target: {e}")),
                    Fault::Data(why) => Failure::Refused(why),
                    Fault::Stopped => Failure::Refused(String::new()),
                };
                s.failed.entry(name.clone()).or_insert(why);
            }
        }
        if item.broken {
            // No part of this try is taken up any more; with the last one that is under way it is begun anew.
            s.tasks.retain(|t| t.database() != d);
            if item.running == 0 && !item.given_up {
                item.broken = false;
                s.begin.push_back(d);
            }
        }
    }
}

fn gone() -> Error {
    Error::Protocol("the connection is gone".into())
}

/// A connection to the source that broke is not used again.
fn lost(lane: &mut Lane, e: Error) -> Fault {
    if e.code().is_none() {
        lane.source = None;
    }
    Fault::Source(e)
}
