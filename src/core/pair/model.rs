//! A small world of two servers that restart, lose their data and are looked after by an operator that may die after any step.
//! Whatever happens: never a server open that is not recorded, never a write lost, and in the end a healthy pair.

use super::{
    decide::{Action, decide},
    observed::{Channel, CloneRun, CloneStage, Observed, Receiver, Record, Server, ServerState},
    state::State,
    tests::{channel, fresh, gtids, now, server},
};
use crate::core::gtid::GtidSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct Mysqld {
    up: bool,
    uuid: String,
    read_only: bool,
    super_read_only: bool,
    executed: GtidSet,
    purged: GtidSet,
    /// Whom it follows, and whether both threads run.
    source: Option<(usize, bool)>,
    marked: bool,
    databases: usize,
    /// A copy that is not complete yet, from there.
    copying: Option<usize>,
    copied: Option<CloneStage>,
    /// Its Pod was made of an earlier specification.
    outdated: bool,
}

#[derive(Clone, Debug)]
struct World {
    now: Timestamp,
    servers: [Mysqld; 2],
    record: Option<Record>,
    finalizer: bool,
    adrift: Option<Timestamp>,
    written: u32,
    born: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// One pass of the operator, of which it lives to do this many steps.
    Pass(usize),
    /// mysqld goes and comes back.
    Restart(usize),
    Down(usize),
    Up(usize),
    /// The passive server's volume is emptied.
    EmptyPassive,
    /// An application writes, when it can.
    Write,
    /// The active server's old binary logs go.
    Purge,
    Seconds(i64),
    /// Somebody changes the specification.
    Change,
    /// Another operator takes over and knows nothing.
    NewOperator,
}

impl World {
    fn new() -> Self {
        let mysqld = |i: usize| Mysqld {
            up: true,
            uuid: server(i).uuid,
            read_only: true,
            super_read_only: true,
            executed: GtidSet::new(),
            purged: GtidSet::new(),
            source: None,
            marked: false,
            databases: 0,
            copying: None,
            copied: None,
            outdated: false,
        };
        Self {
            now: now(),
            servers: [mysqld(0), mysqld(1)],
            record: None,
            finalizer: false,
            adrift: None,
            written: 0,
            born: 0,
        }
    }

    fn observe(&self) -> Observed {
        let mut o = fresh();
        o.finalizer = self.finalizer;
        o.record.clone_from(&self.record);
        o.epoch = self.record.as_ref().map_or(0, |r| r.epoch);
        o.adrift_since = self.adrift;
        for (i, m) in self.servers.iter().enumerate() {
            if m.outdated {
                o.sides[i].pod.as_mut().unwrap().spec_hash = Some("old".into());
            }
            o.sides[i].server = if m.up {
                Server::Up(Box::new(self.state(i)))
            } else {
                Server::Unreachable("down".into())
            };
        }
        o
    }

    fn state(&self, i: usize) -> ServerState {
        let m = &self.servers[i];
        ServerState {
            uuid: m.uuid.clone(),
            read_only: m.read_only,
            super_read_only: m.super_read_only,
            executed: m.executed.clone(),
            executed_later: m.executed.clone(),
            purged: m.purged.clone(),
            channel: m.source.map(|(to, runs)| Channel {
                receiver: match (runs, self.servers[to].up) {
                    (false, _) => Receiver::Off,
                    (true, false) => Receiver::Connecting,
                    (true, true) => Receiver::On,
                },
                applier: runs,
                ..channel(to)
            }),
            account_marks: [(); 3].map(|()| m.marked.then(|| "mark".to_owned())),
            databases: m.databases,
            clone: m
                .copying
                .map(|_| CloneStage::Running)
                .or(m.copied)
                .map(|stage| CloneRun {
                    stage,
                    error: None,
                    ended_ago: Some(100),
                }),
            ..server(i)
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::AddFinalizer => self.finalizer = true,
            Action::RemoveFinalizer => self.finalizer = false,
            Action::Record(r) => {
                let epoch = self.record.as_ref().map_or(0, |r| r.epoch);
                assert_eq!(r.epoch, epoch + 1);
                self.record = Some(r.clone());
            }
            Action::Fence(i) => {
                self.servers[*i].read_only = true;
                self.servers[*i].super_read_only = true;
            }
            Action::Open(i) => {
                self.servers[*i].read_only = false;
                self.servers[*i].super_read_only = false;
            }
            Action::Accounts(i) => {
                assert!(!self.servers[*i].read_only, "accounts are made on an open server");
                self.servers[*i].marked = true;
                self.write(*i);
            }
            Action::Follow { server, source } => self.servers[*server].source = Some((*source, true)),
            Action::Start(i) => {
                if let Some((_, runs)) = &mut self.servers[*i].source {
                    *runs = true;
                }
            }
            Action::Stop(i) => {
                if let Some((_, runs)) = &mut self.servers[*i].source {
                    *runs = false;
                }
            }
            Action::Rebuild { server, donor } => {
                let member = self.record.as_ref().is_some_and(|r| r.member(*server).is_some());
                assert!(!member, "a member is never overwritten");
                let m = &mut self.servers[*server];
                (m.copying, m.source, m.super_read_only) = (Some(*donor), None, false);
            }
            Action::DeletePod { place, .. } => {
                // The active server is replaced only beside one that has everything.
                if let Some(r) = self.record.as_ref().filter(|r| r.active == *place) {
                    let beside = &self.servers[r.passive()];
                    assert!(beside.up && r.members() == 2 && !beside.outdated, "{self:#?}");
                }
                self.restart(*place);
                self.servers[*place].outdated = false;
            }
        }
        self.flow();
        self.check();
    }

    fn write(&mut self, i: usize) {
        self.written += 1;
        let letter = ["a:", "b:"][i];
        // Whoever has lost its first identity writes under another one; here only the first ones ever write.
        let new = gtids(&format!("{letter}{}", self.written));
        self.servers[i].executed = self.servers[i].executed.union(&new);
        self.servers[i].databases = 1;
    }

    /// What is committed on a source reaches its followers.
    fn flow(&mut self) {
        for _ in 0..2 {
            for i in [0, 1] {
                let m = &self.servers[i];
                let Some((to, true)) = m.source else { continue };
                let s = &self.servers[to];
                if !(m.up && s.up && s.purged.is_subset_of(&m.executed)) {
                    continue;
                }
                let (executed, databases, marked) = (s.executed.clone(), s.databases, s.marked);
                let m = &mut self.servers[i];
                m.executed = m.executed.union(&executed);
                m.databases = m.databases.max(databases);
                m.marked |= marked;
            }
        }
    }

    fn restart(&mut self, i: usize) {
        let m = &mut self.servers[i];
        m.up = true;
        m.read_only = true;
        m.super_read_only = true;
        if let Some((_, runs)) = &mut m.source {
            *runs = false;
        }
        // A copy that is cut short leaves nothing.
        if m.copying.take().is_some() {
            m.copied = Some(CloneStage::Failed);
            (m.executed, m.databases, m.marked) = (GtidSet::new(), 0, false);
        }
    }

    /// Copies that run come to their end.
    fn finish_copies(&mut self) {
        for i in [0, 1] {
            let Some(donor) = self.servers[i].copying else {
                continue;
            };
            if !self.servers[i].up || !self.servers[donor].up {
                continue;
            }
            let d = self.servers[donor].clone();
            self.servers[i].copying = None;
            self.restart(i);
            let m = &mut self.servers[i];
            m.copied = Some(CloneStage::Completed);
            m.executed = d.executed.clone();
            m.purged = d.executed;
            m.databases = d.databases;
            m.marked = d.marked;
            // It comes along, and leads to the server itself.
            m.source = d.source.map(|(to, _)| (to, false));
        }
    }

    fn pass(&mut self, steps: usize) -> State {
        let o = self.observe();
        let d = decide(&o, self.now);
        if d.following {
            self.adrift = None;
        } else {
            self.adrift.get_or_insert(self.now);
        }
        for action in d.actions.iter().take(steps) {
            self.act(action);
        }
        d.state
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Pass(steps) => drop(self.pass(steps)),
            Event::Restart(i) => self.restart(i),
            Event::Down(i) => {
                self.restart(i);
                self.servers[i].up = false;
            }
            Event::Up(i) => self.servers[i].up = true,
            Event::EmptyPassive => {
                // Before the record both are the same, and empty enough.
                let Some(passive) = self.record.as_ref().map(Record::passive) else {
                    return;
                };
                self.restart(passive);
                self.born += 1;
                let m = &mut self.servers[passive];
                m.uuid = format!("00000000-0000-0000-0000-{:012}", self.born);
                (m.executed, m.purged, m.source) = (GtidSet::new(), GtidSet::new(), None);
                (m.marked, m.databases, m.copied) = (false, 0, None);
            }
            Event::Write => {
                for i in [0, 1] {
                    if self.servers[i].up && !self.servers[i].read_only {
                        self.write(i);
                    }
                }
            }
            Event::Purge => {
                if let Some(r) = &self.record {
                    let m = &mut self.servers[r.active];
                    m.purged = m.executed.clone();
                }
            }
            Event::Change => {
                for m in &mut self.servers {
                    m.outdated = true;
                }
            }
            Event::Seconds(s) => self.now += SignedDuration::from_secs(s),
            Event::NewOperator => self.adrift = None,
        }
        self.flow();
        self.check();
    }

    /// Rules P1 and P2.
    fn check(&self) {
        for (i, m) in self.servers.iter().enumerate() {
            if m.up && !m.read_only {
                let r = self.record.as_ref().expect("open without a record");
                assert_eq!((r.active, r.member(i)), (i, Some(m.uuid.as_str())), "{self:#?}");
            }
        }
    }

    /// Whether the last pass has just replaced a Pod.
    fn rolling(&self) -> bool {
        super::state::state(&self.observe(), self.now) != State::Healthy
    }

    /// Left alone with its operator, it becomes healthy.
    fn settle(&mut self) {
        for i in [0, 1] {
            self.servers[i].up = true;
        }
        for _ in 0..40 {
            self.finish_copies();
            let healthy = self.pass(usize::MAX) == State::Healthy;
            if healthy && self.servers.iter().all(|m| !m.outdated && m.up) && !self.rolling() {
                let [a, b] = &self.servers;
                assert_eq!(a.executed, b.executed, "{self:#?}");
                let n = u64::from(self.written);
                assert_eq!(a.executed.count(), n, "a write was lost: {self:#?}");
                assert!(self.observe().record.is_some_and(|r| r.members() == 2));
                return;
            }
            self.now += SignedDuration::from_secs(1);
            self.flow();
        }
        panic!(
            "not healthy after 40 passes: {:?}\n{self:#?}",
            decide(&self.observe(), self.now)
        );
    }
}

const EVENTS: [Event; 15] = [
    Event::Pass(usize::MAX),
    Event::Pass(0),
    Event::Pass(1),
    Event::Restart(0),
    Event::Restart(1),
    Event::Down(0),
    Event::Down(1),
    Event::Up(0),
    Event::Up(1),
    Event::EmptyPassive,
    Event::Write,
    Event::Purge,
    Event::Change,
    Event::Seconds(31),
    Event::NewOperator,
];

proptest! {
    #[test]
    fn whatever_happens_it_becomes_healthy(events in prop::collection::vec(prop::sample::select(EVENTS.to_vec()), 0..60)) {
        let mut w = World::new();
        for e in events {
            w.happen(e);
        }
        w.settle();
    }
}

/// From each stage of a bring-up, every sequence of three events.
#[test]
fn every_short_history_becomes_healthy() {
    let mut world = World::new();
    for _ in 0..5 {
        for a in EVENTS {
            for b in EVENTS {
                for c in EVENTS {
                    let mut w = world.clone();
                    for e in [a, b, c] {
                        w.happen(e);
                    }
                    w.settle();
                }
            }
        }
        world.happen(Event::Pass(usize::MAX));
        world.happen(Event::Pass(usize::MAX));
    }
}
