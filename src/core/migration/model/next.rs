//! Everything that can happen next. A paused operator and a late action need no move of their own: an operator that has decided takes its
//! next step at any later time, or never.

use super::{
    acts::{self, Failed},
    broken::Broken,
    events,
    observe::View,
    plans::{Plans, Step},
    safeguards::Without,
    world::{Run, World},
};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// An operator observes and decides. `long`: the old copies were kept for long enough.
    Observe {
        op: usize,
        long: bool,
    },
    /// It takes all locks that it needs, and reads the records again.
    Lock {
        op: usize,
    },
    /// It takes its next step.
    Step {
        op: usize,
        step: Step,
    },
    /// It fences only this shard of several.
    HalfFenced {
        op: usize,
        shard: u8,
    },
    /// Its write of the record is done, and its answer lost.
    LostWrite {
        op: usize,
        step: Step,
    },
    /// Its pass ends: it died, or an answer did not come.
    Ends {
        op: usize,
    },
    /// What it made in the background is complete.
    Copied {
        op: usize,
    },
    /// What it compared is read.
    Compared {
        op: usize,
        end: usize,
    },
    /// Time passes since it was.
    Aged {
        op: usize,
        end: usize,
    },
    Commit {
        pair: usize,
        shard: u8,
    },
    Applied(usize),
    Pulled(usize),
    /// The controller of a pair reads the placement.
    Read(usize),
    Opened(usize),
    Joined(usize),
    Left(usize),
    Failover(usize),
    /// The passive server is made anew.
    Rebuilt(usize),
    Crash(usize),
    /// An operator can no longer reach a server.
    Cut {
        op: usize,
        at: usize,
    },
    Start(usize),
    /// The wish for a shard changes.
    Wish(u8),
    /// A channel stops with an error.
    Breaks(usize),
    /// Somebody takes a shard out of a filter.
    Narrowed {
        at: usize,
        shard: u8,
    },
    /// Somebody writes into copies.
    StrangeRow {
        at: usize,
        shard: u8,
    },
}

/// A move, the world after it, and what it broke on its way.
pub type Next = (Move, World, Option<Broken>);

/// All that can happen in this world.
pub fn next(w: &World, plans: &mut Plans, without: Without) -> Vec<Next> {
    let mut out = Vec::with_capacity(32);
    for op in 0..usize::from(w.left.operators) {
        operator(w, op, plans, without, &mut out);
    }
    let mut with = |m: Move, f: &dyn Fn(&mut World) -> bool| {
        let mut n = *w;
        if f(&mut n) {
            out.push((m, n, None));
        }
    };
    for pair in 0..2 {
        for shard in 0..2 {
            with(Move::Commit { pair, shard }, &|n| {
                take(&mut n.left.commits) && events::commit(n, pair, shard)
            });
        }
        with(Move::Applied(pair), &|n| events::apply(n, pair));
        with(Move::Read(pair), &|n| events::read(n, pair, without));
        with(Move::Opened(pair), &|n| events::open(n, pair, without));
        with(Move::Joined(pair), &|n| events::join(n, pair, without));
        with(Move::Left(pair), &|n| events::leave(n, pair));
        with(Move::Failover(pair), &|n| {
            fault(n, |b| &mut b.failovers) && events::fail_over(n, pair, without)
        });
        with(Move::Rebuilt(pair), &|n| {
            take(&mut n.left.rebuilds) && events::rebuild(n, pair, without)
        });
    }
    for at in 0..4 {
        with(Move::Pulled(at), &|n| events::pull(n, at));
        with(Move::Start(at), &|n| events::start(n, at));
        with(Move::Crash(at), &|n| {
            let crashes = n.server(at).up && fault(n, |b| &mut b.crashes);
            if crashes {
                events::crash(n, at, without);
            }
            crashes
        });
        for op in 0..usize::from(w.left.operators) {
            with(Move::Cut { op, at }, &|n| {
                let cuts = n.ops[op].cut & 1 << at == 0 && fault(n, |b| &mut b.cuts);
                n.ops[op].cut |= 1 << at;
                cuts
            });
        }
        with(Move::Breaks(at), &|n| {
            let runs = n.server(at).channel.is_some_and(|c| c.run == Run::On);
            runs && fault(n, |b| &mut b.breaks) && set_run(n, at, Run::Broken)
        });
        for shard in 0..2 {
            with(Move::Narrowed { at, shard }, &|n| narrow(n, at, shard));
            with(Move::StrangeRow { at, shard }, &|n| strange(n, at, shard));
        }
    }
    for shard in 0..2 {
        with(Move::Wish(shard), &|n| {
            let may = n.record.stage.is_some() && fault(n, |b| &mut b.wishes);
            n.wish ^= 1 << shard;
            may
        });
    }
    out
}

fn take(left: &mut u8) -> bool {
    let may = *left > 0;
    *left = left.saturating_sub(1);
    may
}

fn fault(n: &mut World, kind: impl Fn(&mut super::world::Budget) -> &mut u8) -> bool {
    take(kind(&mut n.left)) && take(&mut n.left.faults)
}

fn set_run(n: &mut World, at: usize, run: Run) -> bool {
    if let Some(c) = &mut n.server_mut(at).channel {
        c.run = run;
    }
    true
}

fn narrow(n: &mut World, at: usize, shard: u8) -> bool {
    let lets_through = |c: super::world::Channel| c.run == Run::On && c.filter & 1 << shard != 0;
    if !n.server(at).channel.is_some_and(lets_through) || !fault(n, |b| &mut b.narrowed) {
        return false;
    }
    if let Some(c) = &mut n.server_mut(at).channel {
        c.filter &= !(1 << shard);
    }
    true
}

/// A row behind our back, in a copy that nobody has found equal a moment ago: nothing could find it later.
fn strange(n: &mut World, at: usize, shard: u8) -> bool {
    let bit = 1 << shard;
    let found = n.ops.iter().any(|o| o.verifying[at / 2].equal() & bit != 0);
    let copy = n.server(at).has & bit & !n.record.placed(at / 2) != 0;
    let may = copy && !found && fault(n, |b| &mut b.strange_rows);
    if may {
        n.server_mut(at).rows |= 1 << (4 + shard);
    }
    may
}

fn operator(w: &World, op: usize, plans: &mut Plans, without: Without, out: &mut Vec<Next>) {
    for end in 0..2 {
        let mut n = *w;
        if events::compared(&mut n, op, end, without) {
            out.push((Move::Compared { op, end }, n, None));
        }
        let mut n = *w;
        if fault(&mut n, |b| &mut b.moments) && events::age(&mut n, op, end) {
            out.push((Move::Aged { op, end }, n, None));
        }
    }
    let mut n = *w;
    if let Some(done) = events::copied(&mut n, op) {
        out.push((Move::Copied { op }, n, done.err()));
    }
    if w.ops[op].plan == 0 {
        for long in [false, true] {
            if !(long && w.left.keeps)
                && let Some(n) = observe(w, op, long, plans, without)
                && out.last().is_none_or(|(_, last, _)| *last != n)
            {
                out.push((Move::Observe { op, long }, n, None));
            }
        }
        return;
    }
    let mut ended = *w;
    ended.ops[op] = ended.ops[op].idle();
    let (m, n, b) = step(w, op, plans, without);
    if n != ended {
        out.push((m, n, b));
    }
    if let Move::Step { step: s, .. } = m {
        partly(&ended, &n, op, s, out);
    }
    out.push((Move::Ends { op }, ended, None));
}

/// A step is done in part, or done and not known to be.
fn partly(ended: &World, done: &World, op: usize, step: Step, out: &mut Vec<Next>) {
    match step {
        Step::Fence(at, 3) => {
            for shard in 0..2 {
                let mut n = *ended;
                let s = n.server_mut(at);
                s.shut |= 1 << shard & s.has;
                out.push((Move::HalfFenced { op, shard }, n, None));
            }
        }
        Step::Record(_) if done.record != ended.record => {
            let mut n = *done;
            if fault(&mut n, |b| &mut b.lost_writes) {
                n.ops[op] = n.ops[op].idle();
                out.push((Move::LostWrite { op, step }, n, None));
            }
        }
        _ => {}
    }
}

/// A pass begins; `None` when nothing comes of it.
pub fn observe(w: &World, op: usize, long: bool, plans: &mut Plans, without: Without) -> Option<World> {
    let d = plans.decide(without.blind(View::of(w, op, long)));
    if d.plan == 0 {
        return None;
    }
    let mut n = *w;
    n.ops[op] = super::world::Op {
        plan: d.plan,
        fresh: true,
        pairs: true,
        batch: w.record.batch != 0,
        connected: (0..4)
            .filter(|at| w.reaches(op, *at))
            .fold(0, |all, at| all | 1 << at),
        ..n.ops[op].idle()
    };
    Some(n)
}

/// The next thing that an operator in the middle of a pass does.
pub fn step(w: &World, op: usize, plans: &mut Plans, without: Without) -> Next {
    let mut n = *w;
    if !w.ops[op].started {
        if !lock(&mut n, op, plans.locks(w.ops[op].plan), without) {
            n.ops[op] = n.ops[op].idle();
        }
        return (Move::Lock { op }, n, None);
    }
    let (step, rest) = plans.next(w.ops[op].plan).expect("there is a step");
    let m = Move::Step { op, step };
    let needed = super::plans::locks(step);
    let answers = |at: u8| w.reaches(op, at.into()) && w.ops[op].connected & 1 << at != 0;
    if (0..4).any(|at| needed & 1 << at != 0 && !answers(at)) {
        n.ops[op] = n.ops[op].idle();
        return (m, n, None);
    }
    match acts::act(&mut n, op, step, plans, without) {
        Ok(()) => {}
        Err(Failed::Broken(b)) => return (m, n, Some(b)),
        Err(Failed::Step) => {
            n.ops[op] = n.ops[op].idle();
            return (m, n, None);
        }
    }
    n.ops[op].plan = rest;
    if rest == 0 {
        n.ops[op] = n.ops[op].idle();
    }
    (m, n, None)
}

/// Whoever holds a lock loses the connection; then the records are read once more (rule P7).
fn lock(w: &mut World, op: usize, needed: u8, without: Without) -> bool {
    let reaches = |at: usize| w.ops[op].connected & 1 << at != 0 && w.reaches(op, at);
    let all = (0..4).filter(|at| needed & 1 << at != 0);
    if !all.clone().all(reaches) {
        return false;
    }
    if !without.is(Without::Lock) {
        for at in all {
            w.disconnect(at, Some(op), without);
        }
    }
    w.ops[op].locked |= needed;
    w.ops[op].started = true;
    without.is(Without::Confirm) || without.is(Without::Lock) || w.ops[op].fresh && w.ops[op].pairs
}
