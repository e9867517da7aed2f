//! A fair run: everything heals, nothing fails any more, one operator does its work. It has to end healthy wherever one good copy
//! is left.

use super::{
    explore::fingerprint,
    moves,
    observe::View,
    plans::Plans,
    safeguards::Without,
    world::{Budget, CLIENTS, GHOST, Mode, Mysqld, Run, World},
};
use std::collections::HashSet;

/// Passes that it may take.
const PASSES: usize = 60;

/// Worlds that are known to end healthy.
#[derive(Default)]
pub struct Fair {
    good: HashSet<u64>,
}

/// How a fair run went that did not end healthy.
#[derive(Debug)]
pub struct Stuck {
    /// What happened, and what the core says at the end.
    pub story: Vec<String>,
}

impl Fair {
    /// Whether a fair run from here ends healthy.
    pub fn run(&mut self, w: &World, plans: &mut Plans, without: Without) -> Result<(), Stuck> {
        let mut w = heal(w);
        if w.record.is_some() && w.member(0).is_none() && w.member(1).is_none() {
            return Ok(());
        }
        // The active server's volume is lost and the other one is no member: a person has to say that it may go on.
        if w.record.is_some_and(|r| {
            (0..GHOST).all(|i| w.member(i).is_none() || r.active != i && r.members[i].is_none())
        }) {
            return Ok(());
        }
        let mut visited = vec![];
        let mut story = vec![];
        for _ in 0..PASSES {
            flow(&mut w, without);
            let print = fingerprint(&w.canonical());
            if self.good.contains(&print) {
                self.good.extend(visited);
                return Ok(());
            }
            visited.push(print);
            if healthy(&w, plans, without) {
                self.good.extend(visited);
                return Ok(());
            }
            // A copy takes so long to be seen that a pass comes in between.
            let mut begun = [0, 1].map(|i| moves::begun_from(&w, i));
            pass(&mut w, plans, without, &mut begun, &mut story);
            for (i, donor) in begun.into_iter().enumerate() {
                if let Some(donor) = donor {
                    let _ = super::acts::begin_copy(&mut w, i, donor);
                }
            }
        }
        story.push(Plans::explain(&View::of(&w, 0, true)));
        story.push(format!("{w:#?}"));
        Err(Stuck { story })
    }
}

fn heal(w: &World) -> World {
    let mut w = *w;
    w.cut = false;
    w.left = Budget {
        operators: 1,
        moving: w.left.moving,
        blank: w.left.blank,
        ..Budget::default()
    };
    for op in &mut w.ops {
        *op = super::world::Op {
            cut: [false; 2],
            cut_api: false,
            ..op.idle()
        };
    }
    // A node that comes back ends what was deleted while it was away.
    w.servers[GHOST] = Mysqld::empty(0);
    for s in &mut w.servers[..GHOST] {
        s.node_gone = false;
        if s.run == Run::Paused {
            s.run = Run::Up;
        }
    }
    w
}

/// Everything that goes by itself.
fn flow(w: &mut World, without: Without) {
    loop {
        let before = *w;
        for i in 0..GHOST {
            if w.servers[i].run == Run::Down {
                moves::start(w, i, without);
            }
            if w.servers[i].leaving && w.servers[i].mode != Mode::Open {
                w.stop(i);
                moves::start(w, i, without);
            }
            if let Some(donor) = moves::copied_from(w, i) {
                super::acts::copied(w, i, donor);
            }
            moves::disconnect(w, i);
            for follower in 0..3 {
                moves::end_dump(w, i, follower);
            }
            moves::connect(w, i);
            moves::receive(w, i);
            moves::acknowledge(w, i);
            super::acts::finish_passing(w, i);
            if w.servers[i].applier {
                let _ = super::acts::apply(w, i);
            }
        }
        if *w == before {
            return;
        }
    }
}

/// One pass. `begun` are the copies that nobody has ended.
fn pass(
    w: &mut World,
    plans: &mut Plans,
    without: Without,
    begun: &mut [Option<usize>; 2],
    story: &mut Vec<String>,
) {
    let found = [false, true].into_iter().find_map(|long| {
        let n = moves::observe(w, 0, long, plans, without)?;
        Some((n, long))
    });
    let Some((n, long)) = found else {
        // Nobody takes over from one whose Pod is being deleted: it goes when its time is up.
        for i in 0..GHOST {
            if w.servers[i].leaving {
                w.stop(i);
            }
        }
        story.push("nothing to be done".into());
        return;
    };
    story.push(format!(
        "{} ({})",
        Plans::explain(&View::of(w, 0, long)),
        if long { "for long" } else { "just now" }
    ));
    *w = n;
    while w.ops[0].plan != 0 {
        let (_, n, _) = moves::step(w, 0, plans, without);
        *w = n;
        for (i, begun) in begun.iter_mut().enumerate() {
            *begun = begun.filter(|_| moves::begun_from(w, i).is_some());
        }
        flow(w, without);
    }
}

/// Two members with the same transactions, everything acknowledged among them, and nothing to be done.
fn healthy(w: &World, plans: &mut Plans, without: Without) -> bool {
    let d = plans.decide(without.blind(View::of(w, 0, false)));
    let [a, b, _] = &w.servers;
    let members = w.member(0).is_some() && w.member(1).is_some();
    d.healthy
        && d.plan == 0
        && members
        && w.active()
            .is_some_and(|s| s.takes_writes() && s.source_on && s.dumps != 0)
        && a.executed == b.executed
        && (!w.clone_wanted || !a.blank())
        && w.acked & CLIENTS & !a.executed == 0
}
