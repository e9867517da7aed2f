//! What each step does to the world, as MySQL and Kubernetes do it.

use super::{
    broken::Broken,
    plans::{Edit, Plans, Step},
    safeguards::Without,
    world::{Channel, Run, Seeding, Shards, Verifying, World, of},
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

/// Takes a step; its servers answer, their locks are held.
pub fn act(w: &mut World, op: usize, step: Step, plans: &mut Plans, without: Without) -> Done {
    match step {
        Step::Record(edit) => return record(w, op, edit, plans, without),
        Step::Confirm => {
            if !w.ops[op].pairs {
                return Err(Failed::Step);
            }
        }
        Step::Fence(at, shards) => {
            let s = w.server_mut(at);
            s.shut |= shards & s.has;
        }
        Step::Unfence(at, shards) => w.server_mut(at).shut &= !shards,
        Step::Reach { server, of, filter } => {
            let s = w.server(server);
            let lacks = w.server(of).executed & !s.executed != 0;
            let filtered = s
                .channel
                .is_some_and(|c| c.filter != filter || c.run == Run::Broken);
            if lacks || filtered && !without.is(Without::FilterChecked) {
                return Err(Failed::Step);
            }
        }
        Step::Count(end, txs) => {
            for s in &mut w.pairs[end].servers {
                s.executed |= txs;
            }
        }
        Step::Point { at, to, filter } => {
            w.server_mut(at).channel = Some(Channel {
                to,
                filter,
                run: Run::On,
            });
            refuse(w, at, without);
        }
        Step::Start(at, filter) => {
            if let Some(c) = &mut w.server_mut(at).channel {
                (c.filter, c.run) = (filter, Run::On);
            }
            refuse(w, at, without);
        }
        Step::Stop(at) => {
            if let Some(c) = &mut w.server_mut(at).channel {
                c.run = Run::Off;
            }
        }
        Step::Remove(at) => w.server_mut(at).channel = None,
        Step::Seed(shards) => w.ops[op].seeding = Seeding::Running(shards),
        Step::Verify(end, shards) => w.ops[op].verifying[end] = Verifying::Running(shards),
        Step::Recheck(end, shards) => w.ops[op].verifying[end] = Verifying::Short(shards),
        Step::StopWork => {
            w.ops[op].seeding = Seeding::None;
            w.ops[op].verifying = [Verifying::None; 2];
        }
        Step::Unlinked(all) => {
            if (0..4).any(|at| all & 1 << at != 0 && w.server(at).channel.is_some()) {
                return Err(Failed::Step);
            }
        }
        Step::Drop(at, shards) => return drop(w, at, shards),
    }
    Ok(())
}

/// The account of moves is locked on an active server before commits wait for an acknowledgement there.
pub fn refuse(w: &mut World, at: usize, without: Without) {
    if !without.is(Without::LockedOut)
        && w.acknowledges_for_another(at)
        && let Some(c) = &mut w.server_mut(at).channel
    {
        c.run = Run::Off;
    }
}

fn record(w: &mut World, op: usize, edit: Edit, plans: &mut Plans, without: Without) -> Done {
    let me = w.ops[op];
    let by_number = matches!(edit, Edit::Undo | Edit::CutOver);
    let numbered = me.batch || without.is(Without::Number) && w.record.batch != 0;
    let may = me.fresh || by_number && numbered || without.is(Without::Cas);
    if !may || by_number && !numbered && !without.is(Without::Cas) {
        return Err(Failed::Step);
    }
    let before = w.record;
    let Some(new) = plans.edit(before, edit) else {
        // What was decided upon this very record has to be possible.
        return Err(if me.fresh {
            Failed::Broken(Broken::Refused)
        } else {
            Failed::Step
        });
    };
    w.record = new;
    for (k, o) in w.ops.iter_mut().enumerate() {
        o.fresh = k == op;
        if by_number || edit == Edit::End {
            o.batch = false;
        }
    }
    if let Edit::Begin(_) = edit {
        w.ops[op].batch = true;
    }
    let moved = new.at_to ^ before.at_to;
    let rows = |pair: usize| w.pairs[pair].active().rows & of(moved);
    if rows(0) != rows(1) {
        return Err(Failed::Broken(Broken::Unequal));
    }
    Ok(())
}

fn drop(w: &mut World, at: usize, shards: Shards) -> Done {
    let s = w.server_mut(at);
    let shards = shards & s.has;
    s.has &= !shards;
    s.shut &= !shards;
    s.rows &= !of(shards);
    if shards & w.record.placed(at / 2) != 0 {
        return Err(Failed::Broken(Broken::DroppedServed));
    }
    if (0..4).any(|i| w.server(i).channel.is_some()) {
        return Err(Failed::Broken(Broken::DroppedWithChannel));
    }
    Ok(())
}
