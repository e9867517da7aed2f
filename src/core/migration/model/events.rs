//! What happens by itself: clients, channels, the controllers of both pairs, and work in the background.

use super::{
    acts,
    broken::Broken,
    safeguards::Without,
    world::{COMMITS, Mysqld, Run, Seeding, Shards, Verifying, World, of},
};

/// A client with whatever map commits to this shard at this pair, and is told OK.
pub fn commit(w: &mut World, pair: usize, shard: u8) -> bool {
    let bit = |n: u8| 1u8 << (2 * shard + n);
    let made = (0..4).fold(0, |all, at| all | w.server(at).executed);
    let Some(new) = [bit(0), bit(1)].into_iter().find(|b| made & b == 0) else {
        return false;
    };
    let p = &mut w.pairs[pair];
    if p.writable() & 1 << shard == 0 {
        return false;
    }
    let s = &mut p.servers[usize::from(p.active)];
    s.executed |= new;
    s.rows |= new;
    w.acked |= new;
    true
}

/// What an operator has found equal it has found some time ago: as good as one that was started anew knows it.
pub fn age(w: &mut World, op: usize, end: usize) -> bool {
    let o = &mut w.ops[op];
    let old = o.plan == 0 && o.verifying[end].equal() != 0;
    if old {
        o.verifying[end] = Verifying::None;
    }
    old
}

/// The passive server applies what the active one has.
pub fn apply(w: &mut World, pair: usize) -> bool {
    let p = &mut w.pairs[pair];
    if !p.active().up || !p.passive().up {
        return false;
    }
    let active = *p.active();
    let s = &mut p.servers[1 - usize::from(p.active)];
    let before = *s;
    s.executed |= active.executed;
    s.rows |= active.rows & COMMITS & of(s.has);
    *s != before
}

/// A channel brings what its source has. What its filter leaves out counts as executed all the same.
pub fn pull(w: &mut World, at: usize) -> bool {
    let (me, pair) = (*w.server(at), &w.pairs[at / 2]);
    let Some(c) = me.channel.filter(|c| c.run == Run::On && me.up) else {
        return false;
    };
    let source = w.pairs[1 - at / 2].servers[usize::from(c.to)];
    let new = source.executed & !me.executed;
    // Its commits wait for an acknowledgement as any others.
    if !source.up || new == 0 || w.is_active(at) && !pair.acknowledges() {
        return false;
    }
    let s = w.server_mut(at);
    if source.purged & new != 0 || new & of(c.filter & !s.has) != 0 {
        s.channel = Some(super::world::Channel {
            run: Run::Broken,
            ..c
        });
        return c.run != Run::Broken;
    }
    s.executed |= new;
    s.rows |= new & of(c.filter) & source.rows;
    true
}

/// The controller of a pair reads what it has to keep READ ONLY, once the active server is on record.
pub fn read(w: &mut World, pair: usize, without: Without) -> bool {
    let shut = w.shut(pair);
    let p = &mut w.pairs[pair];
    let early = without.is(Without::ReadAfterRecord);
    let due = p.active().up && (!p.open || early) && p.read.is_none();
    if due {
        p.read = Some(shut);
    }
    due
}

/// It opens the active server.
pub fn open(w: &mut World, pair: usize, without: Without) -> bool {
    let p = &mut w.pairs[pair];
    let Some(shut) = p.read.filter(|_| p.active().up && !p.open) else {
        return false;
    };
    (p.open, p.read) = (true, None);
    let s = &mut p.servers[usize::from(p.active)];
    if !without.is(Without::DefaultClosed) {
        s.shut = shut & s.has;
    }
    true
}

/// It records the passive server as a member.
pub fn join(w: &mut World, pair: usize, without: Without) -> bool {
    let p = &mut w.pairs[pair];
    if p.two || !p.open || !p.active().up || !p.passive().up {
        return false;
    }
    p.two = true;
    apply(w, pair);
    changed(w);
    for at in 0..4 {
        acts::refuse(w, at, without);
    }
    true
}

/// It records that the passive server is none any more.
pub fn leave(w: &mut World, pair: usize) -> bool {
    let p = &mut w.pairs[pair];
    let due = p.two && p.active().up && !p.passive().up;
    if due {
        p.two = false;
        changed(w);
    }
    due
}

/// It records the passive server as the active one, for whatever reason. Everything that was acknowledged is there.
pub fn fail_over(w: &mut World, pair: usize, without: Without) -> bool {
    let p = &mut w.pairs[pair];
    if !p.two || !p.passive().up {
        return false;
    }
    let old = *p.active();
    p.active = 1 - p.active;
    (p.two, p.open) = (false, false);
    if !without.is(Without::ReadAfterRecord) {
        p.read = None;
    }
    let s = &mut p.servers[usize::from(p.active)];
    s.executed |= old.executed;
    s.rows |= old.rows & COMMITS & of(s.has);
    changed(w);
    true
}

/// The record of a pair is another one.
fn changed(w: &mut World) {
    for op in &mut w.ops {
        op.pairs = false;
    }
}

/// It makes the passive server anew from the active one, which it is no member for then; there are no channels on it, and no logs.
pub fn rebuild(w: &mut World, pair: usize, without: Without) -> bool {
    let p = &mut w.pairs[pair];
    if !p.active().up || !p.open || p.two {
        return false;
    }
    let active = *p.active();
    let s = &mut p.servers[1 - usize::from(p.active)];
    *s = Mysqld {
        up: true,
        channel: None,
        purged: active.executed,
        ..active
    };
    let at = 2 * pair + 1 - usize::from(p.active);
    w.disconnect(at, None, without);
    true
}

/// mysqld ends. Its channel does not start by itself, and has no filter then.
pub fn crash(w: &mut World, at: usize, without: Without) {
    let s = w.server_mut(at);
    s.up = false;
    if let Some(c) = &mut s.channel {
        (c.run, c.filter) = (Run::Off, 0);
    }
    if w.is_active(at) {
        (w.pairs[at / 2].open, w.pairs[at / 2].read) = (false, None);
    }
    w.disconnect(at, None, without);
}

pub fn start(w: &mut World, at: usize) -> bool {
    let down = !w.server(at).up;
    w.server_mut(at).up = true;
    down
}

/// Copies that an operator makes are complete: taken from the passive server, READ ONLY.
pub fn copied(w: &mut World, op: usize) -> Option<Result<(), Broken>> {
    let Seeding::Running(shards) = w.ops[op].seeding else {
        return None;
    };
    let source = *w.pairs[0].passive();
    let target = &mut w.pairs[1];
    if !source.up || !target.two || target.servers.iter().any(|s| !s.up) {
        return None;
    }
    for s in &mut target.servers {
        s.has |= shards;
        s.shut |= shards;
        s.rows = s.rows & !of(shards) | source.rows & of(shards) & COMMITS;
        s.executed |= source.executed;
    }
    w.ops[op].seeding = Seeding::Done(shards, source.executed);
    Some(if shards & w.record.at_to == 0 {
        Ok(())
    } else {
        Err(Broken::SeededServed)
    })
}

/// A comparison ends: both sides were read at one position. A short one finds what a whole one finds, but for what was there before.
pub fn compared(w: &mut World, op: usize, end: usize, without: Without) -> bool {
    let (shards, equal) = match w.ops[op].verifying[end] {
        Verifying::Running(shards) => (shards, Verifying::Equal(shards)),
        Verifying::Short(shards) => (shards, Verifying::Checked(shards)),
        _ => return false,
    };
    let source = *w.pairs[1 - end].passive();
    let copies = &w.pairs[end].servers;
    let at_one =
        |at: usize| copies[at].up && copies[at].executed & of(shards) == source.executed & of(shards);
    if !source.up || !at_one(0) || !at_one(1) {
        if without.is(Without::Unknown) {
            w.ops[op].verifying[end] = equal;
            return true;
        }
        return false;
    }
    let differ = |k: u8| {
        let rows = |s: &super::world::Mysqld| s.rows & of(1 << k);
        copies.iter().any(|s| rows(s) != rows(&source))
    };
    let different: Shards = (0..2)
        .filter(|k| shards & 1 << k != 0 && differ(*k))
        .fold(0, |all, k| all | 1 << k);
    w.ops[op].verifying[end] = if different == 0 {
        equal
    } else {
        Verifying::Different(different)
    };
    true
}
