//! What each step does to the world, as MySQL and Kubernetes do it.

use super::{
    broken::Broken,
    plans::Step,
    safeguards::Without,
    world::{
        BROUGHT, Channel, Copy, GHOST, Kind, Me, Mode, Mysqld, OTHER_PAIR, Receiver, Record, Refusal, Run,
        Txs, World, all, tx,
    },
};

/// How a step ended.
pub type Done = Result<(), Failed>;

/// Why a pass ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The step has failed, or its answer did not come.
    Step,
    /// It has done what must never be done.
    Broken(Broken),
}

/// Takes a step; the server that it is for answers, its lock is held.
pub fn act(w: &mut World, op: usize, step: Step, without: Without) -> Done {
    match step {
        Step::Nothing | Step::Aside(_) => {}
        Step::Bar(i) => {
            let s = &mut w.servers[i];
            if s.outsider {
                s.heard = 0;
            }
            (s.admits_others, s.outsider) = (false, false);
        }
        Step::Admit(i) => w.servers[i].admits_others = true,
        Step::Record(record) => return record_it(w, op, record, without),
        Step::Fence(i) => {
            if !without.is(Without::OfflineMode) {
                kill_commits(&mut w.servers[i]);
            }
            answer_all(w, i);
            let s = &mut w.servers[i];
            (s.source_on, s.mode, s.offline) = (false, Mode::Closed, false);
        }
        Step::Open(i) => (w.servers[i].mode, w.servers[i].offline) = (Mode::Open, false),
        Step::Close(i) => {
            // It waits for commits that are under way, and gives up on those that wait for somebody else.
            if w.servers[i].waiting != 0 {
                return Err(Failed::Step);
            }
            finish_passing(w, i);
            let s = &mut w.servers[i];
            let served = s.mode == Mode::Open && s.source_on;
            s.mode = Mode::Closed;
            w.ops[op].closed = served.then_some(i);
        }
        Step::Reach { server, of } => {
            if !without.is(Without::Barrier) {
                finish_passing(w, of);
            }
            let s = &w.servers[server];
            let follows = s.receiver == Receiver::On || without.is(Without::ReachFollows);
            if !follows || w.servers[of].executed & !s.executed != 0 {
                return Err(Failed::Step);
            }
        }
        Step::StopReceiver(i) => {
            w.servers[i].receiver = Receiver::Off;
            w.ops[op].stopped = Some(i);
        }
        Step::Apply(i) => {
            w.servers[i].applier = true;
            apply(w, i)?;
        }
        Step::Discard(i) => {
            let s = &mut w.servers[i];
            (s.channel, s.receiver, s.applier, s.received) = (None, Receiver::Off, false, 0);
        }
        Step::SyncRelayLog { server, each } => w.servers[server].synced = each,
        Step::SourceOn(i) => w.servers[i].source_on = true,
        Step::SourceOff(i) => {
            answer_all(w, i);
            w.servers[i].source_on = false;
        }
        Step::Accounts { server, followers } => {
            let me = w.servers[server].me;
            let second = |place: usize| followers & 1 << (2 * place + 1) != 0;
            let mut wanted = tx(me, Kind::Base);
            for place in [0, 1] {
                if second(place) && !w.servers[server].has_account(2 * place as Me + 1) {
                    wanted |= tx(me, Kind::Admit(place));
                }
            }
            if w.servers[server].has_account(0) {
                wanted &= !tx(me, Kind::Base);
            }
            write(w, server, wanted)?;
        }
        Step::LockOut { server, users } => {
            let me = w.servers[server].me;
            let first =
                |place: usize| users & 1 << (2 * place) != 0 && !w.servers[server].locks(2 * place as Me);
            let wanted = (0..2)
                .filter(|p| first(*p))
                .fold(0, |set, p| set | tx(me, Kind::LockOut(p)));
            write(w, server, wanted)?;
            for j in 0..3 {
                let s = w.servers[j];
                if users & 1 << s.me != 0 {
                    w.servers[server].dumps &= !(1 << j);
                    w.servers[server].heard = 0;
                }
            }
        }
        Step::SaveErrant { set, .. } => {
            w.saved |= set;
            w.kept |= set;
        }
        Step::Replace(i) => replace(w, i)?,
        Step::Follow { server, source } => follow(w, server, source)?,
        Step::Start(i) => start(w, i),
        Step::Stop(i) => {
            let s = &mut w.servers[i];
            (s.receiver, s.applier) = (Receiver::Off, false);
        }
        Step::Rebuild { server, donor } => rebuild(w, op, server, donor)?,
        Step::CloneFrom { server, known } => {
            let s = &mut w.servers[server];
            (s.receiver, s.applier) = (Receiver::Off, false);
            if s.has() & !known != 0 && !without.is(Without::OverwritesBlank) {
                return Err(Failed::Step);
            }
            wanted(w, op, true)?;
            rebuild(w, op, server, OTHER_PAIR)?;
        }
        // Whoever took the lock has ended it.
        Step::EndClone(_) => wanted(w, op, false)?,
        Step::Adopt { server, of } => {
            let given_up = &w.servers[of];
            let blank = given_up.mode == Mode::Closed && given_up.blank();
            if !blank && !without.is(Without::GivesUpBlank) {
                return Err(Failed::Step);
            }
            wanted(w, op, true)?;
            let counted = w.servers[of].executed;
            let s = &mut w.servers[server];
            (s.channel, s.receiver, s.applier, s.received) = (None, Receiver::Off, false, 0);
            // Nothing of it is in its data, whatever counts as executed.
            let counted = counted & !super::world::CLIENTS;
            s.executed |= counted;
            s.purged |= counted;
        }
        Step::DeletePod(i) => w.servers[i].leaving = true,
    }
    Ok(())
}

/// The server that a step needs, under its lock; `None` when it is only the API.
pub fn server_of(step: Step) -> Option<usize> {
    match step {
        Step::Nothing | Step::Record(_) | Step::Replace(_) | Step::DeletePod(_) | Step::SaveErrant { .. } => {
            None
        }
        Step::Aside(i)
        | Step::Bar(i)
        | Step::Admit(i)
        | Step::Fence(i)
        | Step::Open(i)
        | Step::Close(i)
        | Step::Reach { server: i, .. }
        | Step::StopReceiver(i)
        | Step::Apply(i)
        | Step::Discard(i)
        | Step::SyncRelayLog { server: i, .. }
        | Step::SourceOn(i)
        | Step::SourceOff(i)
        | Step::Accounts { server: i, .. }
        | Step::LockOut { server: i, .. }
        | Step::Follow { server: i, .. }
        | Step::Start(i)
        | Step::Stop(i)
        | Step::CloneFrom { server: i, .. }
        | Step::EndClone(i)
        | Step::Adopt { server: i, .. }
        | Step::Rebuild { server: i, .. } => Some(i),
    }
}

fn record_it(w: &mut World, op: usize, record: Record, without: Without) -> Done {
    let fresh = w.ops[op].fresh;
    if !fresh && !without.is(Without::Cas) {
        return Err(Failed::Step);
    }
    w.record = Some(record);
    w.kept = 0;
    for (k, o) in w.ops.iter_mut().enumerate() {
        o.fresh = k == op;
    }
    (w.ops[op].closed, w.ops[op].stopped) = (None, None);
    if fresh {
        Ok(())
    } else {
        Err(Failed::Broken(Broken::EpochFell))
    }
}

/// The record of the cluster is read under the locks that are held.
fn wanted(w: &World, op: usize, is: bool) -> Done {
    if !w.ops[op].cut_api && w.clone_wanted == is {
        Ok(())
    } else {
        Err(Failed::Step)
    }
}

/// `offline_mode = ON`: clients hear an error; what the binary log has is committed.
fn kill_commits(s: &mut Mysqld) {
    (s.offline, s.outsider) = (true, false);
    s.executed |= s.waiting;
    s.waiting = 0;
}

/// Whoever waits is told OK.
pub fn answer_all(w: &mut World, i: usize) {
    let s = &mut w.servers[i];
    w.acked |= (s.waiting | s.passing) & super::world::CLIENTS;
    s.executed |= s.waiting | s.passing;
    (s.waiting, s.passing) = (0, 0);
}

/// Commits that wait for nobody end.
pub fn finish_passing(w: &mut World, i: usize) {
    let s = &mut w.servers[i];
    w.acked |= s.passing & super::world::CLIENTS;
    s.executed |= s.passing;
    s.passing = 0;
}

/// Executes what the relay log has. Whoever is open and recorded must not take in what a client committed elsewhere: it was
/// not acknowledged, or it would have been there before.
pub fn apply(w: &mut World, i: usize) -> Done {
    let s = &mut w.servers[i];
    let new = s.unapplied();
    s.executed |= new;
    let s = &w.servers[i];
    let serves = i < GHOST && s.mode == Mode::Open && w.record.is_some_and(|r| r.active == i);
    if serves && new & super::world::CLIENTS != 0 {
        return Err(Failed::Broken(Broken::Swallowed));
    }
    Ok(())
}

/// The operator writes through the binary log: it waits like anybody, and gives up.
fn write(w: &mut World, i: usize, set: Txs) -> Done {
    let s = &mut w.servers[i];
    let new = set & !s.logged();
    if s.mode != Mode::Open {
        return Err(Failed::Step);
    }
    if s.source_on && (new | s.waiting & set) != 0 {
        s.waiting |= new;
        return Err(Failed::Step);
    }
    s.executed |= new;
    Ok(())
}

fn follow(w: &mut World, server: usize, source: usize) -> Done {
    let member = w.member(server).is_some();
    let s = &mut w.servers[server];
    let loses = s.unapplied() != 0;
    s.channel = Some(Channel {
        to: source,
        user: s.me,
    });
    (s.received, s.receiver) = (0, Receiver::Off);
    start(w, server);
    if member && loses {
        Err(Failed::Broken(Broken::Reset))
    } else {
        Ok(())
    }
}

fn start(w: &mut World, i: usize) {
    let s = &mut w.servers[i];
    if s.channel.is_some() {
        if s.receiver == Receiver::Off {
            s.receiver = Receiver::Connecting;
        }
        s.refusal = Refusal::None;
        s.applier = true;
    }
}

/// Its channel goes, with what it received, and the statement is sent. The lock stays with the connection that copies.
fn rebuild(w: &mut World, op: usize, server: usize, donor: usize) -> Done {
    let overwritten = overwritten(w, server, donor);
    let s = &mut w.servers[server];
    (s.channel, s.receiver, s.applier, s.received) = (None, Receiver::Off, false, 0);
    (s.mode, s.copy) = (Mode::Copied, Copy::Begun { donor, op });
    w.ops[op].connected[server] = false;
    overwritten
}

/// A CLONE that was begun logs in at the donor, and drops what was there.
pub fn begin_copy(w: &mut World, server: usize, donor: usize) -> Done {
    let overwritten = overwritten(w, server, donor);
    if donor == OTHER_PAIR {
        let s = &mut w.servers[server];
        *s = Mysqld {
            run: Run::Up,
            mode: Mode::Copied,
            copy: Copy::Running { donor },
            leaving: s.leaving,
            node_gone: s.node_gone,
            ..Mysqld::empty(s.me)
        };
        return overwritten;
    }
    let d = w.servers[donor];
    let s = &mut w.servers[server];
    if !d.up() || d.offline || d.executed & all(Kind::Base) == 0 || w.cut {
        s.copy = Copy::Failed;
        return Ok(());
    }
    *s = Mysqld {
        run: Run::Up,
        mode: Mode::Copied,
        copy: Copy::Running { donor },
        leaving: s.leaving,
        node_gone: s.node_gone,
        ..Mysqld::empty(s.me)
    };
    overwritten
}

fn overwritten(w: &World, server: usize, donor: usize) -> Done {
    // What the other one has is not lost, whoever is copied.
    let kept = w.servers[if donor == OTHER_PAIR { 1 - server } else { donor }].has();
    let lost = w.servers[server].has() & super::world::CLIENTS & !kept & !w.saved;
    if w.member(server).is_some() {
        return Err(Failed::Broken(Broken::Overwritten));
    }
    if lost != 0 {
        return Err(Failed::Broken(Broken::NotSaved));
    }
    Ok(())
}

/// A CLONE ends: mysqld starts anew on what it was given, the donor's channel among it.
pub fn copied(w: &mut World, i: usize, donor: usize) {
    if donor == OTHER_PAIR {
        w.stop(i);
        let s = &mut w.servers[i];
        *s = Mysqld {
            run: Run::Up,
            executed: BROUGHT,
            purged: BROUGHT,
            copy: Copy::Cloned,
            leaving: s.leaving,
            ..Mysqld::empty(s.me)
        };
        return;
    }
    let d = w.servers[donor];
    w.stop(i);
    let s = &mut w.servers[i];
    *s = Mysqld {
        run: Run::Up,
        executed: d.executed,
        purged: d.executed,
        channel: d.channel,
        copy: Copy::Completed,
        admits_others: d.admits_others,
        leaving: s.leaving,
        ..Mysqld::empty(s.me)
    };
}

/// The Pod is deleted by force, its volume let go of. If mysqld ran on a node that nobody reaches, it still does.
fn replace(w: &mut World, i: usize) -> Done {
    // The Pod is deleted as it was seen: one whose node came back has another `resourceVersion`. The model has no third incarnation.
    if !w.servers[i].node_gone || w.servers[i].me % 2 == 1 || w.servers[GHOST].run != Run::Down {
        return Err(Failed::Step);
    }
    let member = w.member(i).is_some();
    ghost(w, i);
    if member {
        Err(Failed::Broken(Broken::Overwritten))
    } else {
        Ok(())
    }
}

/// A new incarnation takes the place of one that goes on where nobody but its peer reaches it.
fn ghost(w: &mut World, i: usize) {
    let old = w.servers[i];
    let bit = |j: usize| 1u8 << j;
    w.disconnect(i);
    w.servers[i] = Mysqld::empty(old.me + 1);
    if old.run == Run::Down {
        return;
    }
    w.servers[GHOST] = Mysqld {
        node_gone: true,
        ..old
    };
    let other = &mut w.servers[1 - i];
    if other.dumps & bit(i) != 0 {
        other.dumps = other.dumps & !bit(i) | bit(GHOST);
    }
    if other.receiver == Receiver::On && usize::from(other.peer) == i {
        other.peer = GHOST as u8;
    }
}
