//! Everything that can happen next. A paused operator and a late action need no move of their own: an operator that has decided
//! takes its next step at any later time, or never.

use super::{
    acts::{self, Failed},
    broken::Broken,
    faults,
    observe::{View, reaches},
    plans::{Plans, Step},
    safeguards::Without,
    world::{Copy, GHOST, Kind, Mode, OTHER_PAIR, Receiver, Refusal, Run, World, all, tx},
};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// An operator observes and decides. `long`: whatever is amiss has been so for long.
    Observe {
        op: usize,
        long: bool,
    },
    /// It takes the lock of a server and reads the record again.
    Lock {
        op: usize,
        server: usize,
    },
    /// It takes its next step.
    Step {
        op: usize,
        step: Step,
    },
    /// It is ended in the middle of it.
    HalfFenced {
        op: usize,
        server: usize,
    },
    /// Its pass ends: it died, or an answer did not come.
    Ends {
        op: usize,
    },
    /// A client commits there.
    Commit(usize),
    /// A commit that waits for nobody is done, and its client told.
    Committed(usize),
    /// An acknowledgement arrives there, and the client is told.
    Acknowledged(usize),
    /// Another pair begins to take from this one.
    Outsider(usize),
    /// It acknowledges what waits there.
    OutsiderHears(usize),
    /// A client kills its commit that waits.
    Killed(usize),
    /// This one's receiver reaches its source.
    Connected(usize),
    /// It notices that it lost its source.
    Disconnected(usize),
    /// A source notices that a follower is gone.
    DumpEnded {
        source: usize,
        follower: usize,
    },
    /// This one's relay log gets what its source's binary log has.
    Received(usize),
    /// Its applier executes that.
    Applied(usize),
    /// A CLONE into it begins to drop what is there.
    CopyBegins(usize),
    /// A CLONE into it is done.
    Copied(usize),
    Crash(usize),
    Start(usize),
    Pause(usize),
    Resume(usize),
    /// Its volume is lost: it comes back empty.
    DiskLost(usize),
    /// Its node is cut off from everything but the other server.
    NodeGone(usize),
    NodeBack(usize),
    CutServers,
    HealServers,
    CutFromServer {
        op: usize,
        server: usize,
    },
    HealToServer {
        op: usize,
        server: usize,
    },
    CutFromApi {
        op: usize,
    },
    HealToApi {
        op: usize,
    },
    /// Somebody deletes its Pod.
    DeletePod(usize),
    /// Its Pod has ended.
    PodEnds(usize),
    /// Somebody changes `spec.preferredActive`.
    Wish(usize),
    /// Its old binary logs are purged.
    Purged(usize),
    /// The move by which another pair is cloned over it is given up.
    CloneGivenUp,
}

/// A move, the world after it, and what it broke on its way.
pub type Next = (Move, World, Option<Broken>);

/// All that can happen in this world.
pub fn next(w: &World, plans: &mut Plans, without: Without) -> Vec<Next> {
    let mut out = Vec::with_capacity(32);
    for op in 0..usize::from(w.left.operators) {
        operator(w, op, plans, without, &mut out);
    }
    for i in 0..3 {
        if w.servers[i].up() {
            clients(w, i, &mut out);
            outsiders(w, i, &mut out);
        }
        replication(w, i, &mut out);
    }
    for i in 0..GHOST {
        kubernetes(w, i, without, &mut out);
    }
    faults::next(w, &mut out);
    out
}

fn operator(w: &World, op: usize, plans: &mut Plans, without: Without, out: &mut Vec<Next>) {
    if w.ops[op].plan == 0 {
        for long in [false, true] {
            if let Some(n) = observe(w, op, long, plans, without)
                && out.last().is_none_or(|(_, last, _)| *last != n)
            {
                out.push((Move::Observe { op, long }, n, None));
            }
        }
        return;
    }
    let ended = |mut w: World| {
        w.ops[op] = w.ops[op].idle();
        w
    };
    let (m, n, b) = step(w, op, plans, without);
    let stopped = ended(*w);
    if n != stopped {
        out.push((m, n, b));
    }
    if let Move::Step {
        step: Step::Fence(server),
        ..
    } = m
    {
        let mut n = stopped;
        let s = &mut n.servers[server];
        s.offline = true;
        s.executed |= s.waiting;
        s.waiting = 0;
        out.push((Move::HalfFenced { op, server }, n, None));
    }
    out.push((Move::Ends { op }, stopped, None));
}

/// A pass begins; `None` when nothing comes of it.
pub fn observe(w: &World, op: usize, long: bool, plans: &mut Plans, without: Without) -> Option<World> {
    if w.ops[op].cut_api {
        return None;
    }
    let d = plans.decide(without.blind(View::of(w, op, long)));
    let mut n = *w;
    if d.wish_is_settled {
        n.wish = None;
    }
    n.ops[op] = super::world::Op {
        plan: d.plan,
        fresh: true,
        connected: [0, 1].map(|i| reaches(w, op, i)),
        ..n.ops[op].idle()
    };
    if d.plan == 0 {
        n.ops[op] = n.ops[op].idle();
    }
    (n != *w).then_some(n)
}

/// The next thing that an operator in the middle of a pass does.
pub fn step(w: &World, op: usize, plans: &mut Plans, without: Without) -> Next {
    let (step, rest) = plans.next(w.ops[op].plan).expect("there is a step");
    let mut n = *w;
    let server = acts::server_of(step);
    let needed = if w.ops[op].started {
        [false; 2]
    } else {
        plans.servers(w.ops[op].plan)
    };
    let first = (0..GHOST).find(|i| needed[*i] && !w.ops[op].locked[*i]);
    if let Some(i) = first.or_else(|| server.filter(|i| !w.ops[op].locked[*i])) {
        let m = Move::Lock { op, server: i };
        if !lock(&mut n, op, i, without) {
            give_up(&mut n, op, plans);
        }
        return (m, n, None);
    }
    n.ops[op].started = true;
    let asked = match step {
        Step::Reach { server, of } | Step::Adopt { server, of } => [Some(server), Some(of)],
        _ => [server, None],
    };
    let api = server.is_none() && step != Step::Nothing;
    let answers = |i: usize| w.ops[op].connected[i] && reaches(w, op, i);
    let m = Move::Step { op, step };
    if !asked.into_iter().flatten().all(answers) || api && w.ops[op].cut_api {
        give_up(&mut n, op, plans);
        return (m, n, None);
    }
    let broken = match acts::act(&mut n, op, step, without) {
        Ok(()) => None,
        Err(Failed::Broken(b)) => Some(b),
        Err(Failed::Step) => {
            if let Step::Record(_) = step {
                n.ops[op].closed = None;
            }
            give_up(&mut n, op, plans);
            return (m, n, None);
        }
    };
    n.ops[op].plan = rest;
    if rest == 0 {
        n.ops[op] = n.ops[op].idle();
    }
    (m, n, broken)
}

/// Whoever holds the lock loses the connection; then the record is read once more (rule P7).
fn lock(w: &mut World, op: usize, i: usize, without: Without) -> bool {
    if !w.ops[op].connected[i] || !reaches(w, op, i) {
        return false;
    }
    if !without.is(Without::Lock) {
        let other = &mut w.ops[1 - op];
        if other.locked[i] {
            other.connected[i] = false;
            other.locked[i] = false;
        }
        // The connection of a CLONE holds it for as long as that runs.
        let copy = &mut w.servers[i].copy;
        *copy = match *copy {
            Copy::Begun { .. } => Copy::None,
            Copy::Running { .. } => Copy::Failed,
            ended => ended,
        };
        if !without.is(Without::Confirm) && (w.ops[op].cut_api || !w.ops[op].fresh) {
            return false;
        }
    }
    w.ops[op].locked[i] = true;
    true
}

/// A step has failed, and the pass ends. A server that was closed for a switchover that is not recorded is opened again, by the same
/// hands, when the record is still what it was.
fn give_up(w: &mut World, op: usize, plans: &mut Plans) {
    let o = &mut w.ops[op];
    let holds = |i: &usize| o.locked[*i] && o.connected[*i];
    match o.closed.filter(holds).filter(|_| o.fresh && !o.cut_api) {
        Some(closed) => {
            let stopped = o.stopped.filter(holds).map(Step::Start);
            o.plan = plans.intern(stopped.into_iter().chain([Step::Open(closed)]).collect());
            (o.closed, o.stopped) = (None, None);
        }
        None => *o = o.idle(),
    }
}

fn clients(w: &World, i: usize, out: &mut Vec<Next>) {
    let s = &w.servers[i];
    if s.takes_writes() && w.left.commits > 0 {
        let mut n = *w;
        n.left.commits -= 1;
        let n_th = (0..3).find(|k| s.logged() & tx(s.me, Kind::Client(*k)) == 0);
        if let Some(k) = n_th {
            let set = tx(s.me, Kind::Client(k));
            let s = &mut n.servers[i];
            if s.source_on {
                s.waiting |= set;
            } else {
                s.passing |= set;
            }
            out.push((Move::Commit(i), n, None));
        }
    }
    if s.passing != 0 {
        let mut n = *w;
        acts::finish_passing(&mut n, i);
        out.push((Move::Committed(i), n, None));
    }
    let heard = s.waiting & s.heard;
    if heard != 0 {
        let mut n = *w;
        acknowledge(&mut n, i);
        out.push((Move::Acknowledged(i), n, None));
    }
    if s.waiting != 0 && w.left.kills > 0 {
        let mut n = *w;
        n.left.kills -= 1;
        let s = &mut n.servers[i];
        s.executed |= s.waiting;
        s.waiting = 0;
        out.push((Move::Killed(i), n, None));
    }
}

/// A channel of another pair, that an operator has pointed here at some time, as long as it is let in.
fn outsiders(w: &World, i: usize, out: &mut Vec<Next>) {
    let s = &w.servers[i];
    if s.admits_others && !s.outsider && !s.offline {
        let mut n = *w;
        n.servers[i].outsider = true;
        out.push((Move::Outsider(i), n, None));
    }
    if s.outsider && s.source_on && s.waiting & !s.heard != 0 {
        let mut n = *w;
        n.servers[i].heard |= s.waiting;
        out.push((Move::OutsiderHears(i), n, None));
    }
}

/// Acknowledgements that have arrived.
pub fn acknowledge(w: &mut World, i: usize) {
    let s = &mut w.servers[i];
    let heard = s.waiting & s.heard;
    s.executed |= heard;
    s.waiting &= !heard;
    w.acked |= heard & super::world::CLIENTS;
}

fn replication(w: &World, i: usize, out: &mut Vec<Next>) {
    for (m, f) in [
        (Move::Connected(i), connect as fn(&mut World, usize) -> bool),
        (Move::Disconnected(i), disconnect),
        (Move::Received(i), receive),
    ] {
        let mut n = *w;
        if f(&mut n, i) {
            out.push((m, n, None));
        }
    }
    for follower in 0..3 {
        let mut n = *w;
        if end_dump(&mut n, i, follower) {
            let source = i;
            out.push((Move::DumpEnded { source, follower }, n, None));
        }
    }
    let s = &w.servers[i];
    if s.up() && s.applier && s.unapplied() != 0 {
        let mut n = *w;
        let b = match acts::apply(&mut n, i) {
            Err(Failed::Broken(b)) => Some(b),
            _ => None,
        };
        out.push((Move::Applied(i), n, b));
    }
}

/// The receiver of `i` reaches its source, or is sent away.
pub fn connect(w: &mut World, i: usize) -> bool {
    let f = w.servers[i];
    let Some(c) = f.channel.filter(|_| f.up() && f.receiver == Receiver::Connecting) else {
        return false;
    };
    let source = c.to;
    let s = w.servers[source];
    if !s.up() || s.offline || source == i || !w.linked(i, source) {
        return false;
    }
    let (to, refusal) = if !s.admits(c.user) {
        (Receiver::Connecting, Refusal::Denied)
    } else if s.purged & !f.has() != 0 {
        (Receiver::Off, Refusal::Purged)
    } else {
        (Receiver::On, Refusal::None)
    };
    let f = &mut w.servers[i];
    let changed = (f.receiver, f.refusal) != (to, refusal);
    (f.receiver, f.refusal, f.peer) = (to, refusal, source as u8);
    if to == Receiver::On {
        let s = &mut w.servers[source];
        s.dumps |= 1 << i;
        // What the connection before had brought, and nobody has taken note of, goes with it.
        s.heard = 0;
    }
    changed
}

/// The receiver of `i` notices that its source is gone.
pub fn disconnect(w: &mut World, i: usize) -> bool {
    let f = &w.servers[i];
    let lost = f.up() && f.receiver == Receiver::On && !w.streams(i);
    if lost {
        w.servers[i].receiver = Receiver::Connecting;
    }
    lost
}

/// `source` notices that nobody is at the other end of a dump thread.
pub fn end_dump(w: &mut World, source: usize, follower: usize) -> bool {
    let s = &w.servers[source];
    let bit = 1u8 << follower;
    let f = &w.servers[follower];
    let lost = s.up() && s.dumps & bit != 0 && !(w.streams(follower) && usize::from(f.peer) == source);
    if lost {
        w.servers[source].dumps &= !bit;
        w.servers[source].heard = 0;
    }
    lost
}

/// The relay log of `i` gets everything that the binary log of its source has, and the source hears of it.
pub fn receive(w: &mut World, i: usize) -> bool {
    if !w.streams(i) {
        return false;
    }
    let f = w.servers[i];
    let s = &mut w.servers[usize::from(f.peer)];
    let new = s.logged() & !f.has();
    let heard = if s.source_on {
        s.waiting & (f.has() | new) & !s.heard
    } else {
        0
    };
    s.heard |= heard;
    w.servers[i].received |= new;
    new | heard != 0
}

/// Whom a CLONE into `i` was begun from, of which nothing can be seen yet.
pub fn begun_from(w: &World, i: usize) -> Option<usize> {
    match w.servers[i].copy {
        Copy::Begun { donor, .. } if w.servers[i].up() => Some(donor),
        _ => None,
    }
}

/// Whether the CLONE into `i` can be done.
pub fn copied_from(w: &World, i: usize) -> Option<usize> {
    let Copy::Running { donor } = w.servers[i].copy else {
        return None;
    };
    let reaches = donor == OTHER_PAIR || w.servers[donor].up() && w.linked(i, donor);
    (w.servers[i].up() && reaches).then_some(donor)
}

/// mysqld starts. Its channel stays stopped.
pub fn start(w: &mut World, i: usize, without: Without) {
    let s = &mut w.servers[i];
    s.run = Run::Up;
    if without.is(Without::RelayLogKept) {
        s.received &= s.executed;
    }
    if without.is(Without::BootsClosed) && s.executed & all(Kind::Base) != 0 {
        s.mode = Mode::Open;
    }
}

fn kubernetes(w: &World, i: usize, without: Without, out: &mut Vec<Next>) {
    let s = &w.servers[i];
    if let Some(donor) = begun_from(w, i) {
        let mut n = *w;
        let broken = match acts::begin_copy(&mut n, i, donor) {
            Err(Failed::Broken(b)) => Some(b),
            _ => None,
        };
        out.push((Move::CopyBegins(i), n, broken));
    }
    let mut with = |m: Move, f: &dyn Fn(&mut World)| {
        let mut n = *w;
        f(&mut n);
        out.push((m, n, None));
    };
    if let Some(donor) = copied_from(w, i) {
        with(Move::Copied(i), &|n| acts::copied(n, i, donor));
    }
    if s.run == Run::Down && !s.node_gone {
        with(Move::Start(i), &|n| start(n, i, without));
    }
    if s.run == Run::Paused {
        with(Move::Resume(i), &|n| n.servers[i].run = Run::Up);
    }
    if s.leaving && !s.node_gone {
        with(Move::PodEnds(i), &|n| {
            if without.is(Without::CutOffFirst) && n.servers[i].dumps == 0 {
                acts::answer_all(n, i);
            }
            n.stop(i);
        });
    }
    if s.node_gone {
        with(Move::NodeBack(i), &|n| n.servers[i].node_gone = false);
    }
}
