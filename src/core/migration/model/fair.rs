//! A fair run: everything heals, nothing fails any more, one operator does its work. Each shard has to be writable exactly where it is wished,
//! and in the end nothing may be left of the move.

use super::{
    events,
    explore::fingerprint,
    next,
    observe::View,
    plans::Plans,
    safeguards::Without,
    world::{BOTH, Budget, Op, World},
};
use crate::api::MoveStage;
use std::collections::HashSet;

/// Passes that it may take.
const PASSES: usize = 80;

/// Worlds that are known to end well.
#[derive(Default)]
pub struct Fair {
    good: HashSet<u64>,
}

/// How a fair run went that did not.
#[derive(Debug)]
pub struct Stuck {
    /// What happened, and what the core says at the end.
    pub story: Vec<String>,
}

impl Fair {
    /// Whether a fair run from here ends as it is wished.
    pub fn run(&mut self, w: &World, plans: &mut Plans, without: Without) -> Result<(), Stuck> {
        let mut w = heal(w);
        let mut visited = vec![];
        let mut story = vec![];
        // Once it is cleaned up, another move has to be planned for what is wished then.
        let mut given_up = matches!(w.record.stage, None | Some(MoveStage::CleaningUp));
        for long in [false, true] {
            let mut rests = false;
            for _ in 0..PASSES {
                flow(&mut w, without);
                let print = fingerprint(&w);
                if !given_up && self.good.contains(&print) {
                    self.good.extend(visited);
                    return Ok(());
                }
                if !given_up {
                    visited.push(print);
                }
                given_up |= w.record.stage == Some(MoveStage::CleaningUp) && w.record.at_to != w.wish;
                if !pass(&mut w, long, plans, without, &mut story) {
                    rests = true;
                    break;
                }
            }
            let view = without.blind(View::of(&w, 0, long));
            let decided = plans.decide(view);
            let served = (0..2).all(|p| w.pairs[p].writable() == w.record.placed(p));
            let settled = decided.rests && (given_up || w.record.at_to == w.wish) || decided.differs;
            let over = !long || decided.differs || w.record.stage.is_none() && clean(&w);
            if !(rests && served && settled && over) {
                story.push(Plans::explain(&view));
                story.push(format!("{w:#?}"));
                return Err(Stuck { story });
            }
        }
        self.good.extend(visited);
        Ok(())
    }
}

fn heal(w: &World) -> World {
    let mut w = *w;
    w.left = Budget {
        operators: 1,
        ..Budget::default()
    };
    w.ops = [Op::default(); 2];
    w.acked = 0;
    w
}

/// Nothing is left but what is served.
fn clean(w: &World) -> bool {
    (0..4).all(|at| {
        let s = w.server(at);
        s.channel.is_none() && s.has & BOTH == w.record.placed(at / 2) && s.shut == 0
    })
}

/// Everything that goes by itself.
fn flow(w: &mut World, without: Without) {
    loop {
        let before = *w;
        for at in 0..4 {
            events::start(w, at);
            events::pull(w, at);
        }
        for pair in 0..2 {
            events::read(w, pair, without);
            events::open(w, pair, without);
            events::join(w, pair, without);
            events::apply(w, pair);
        }
        let _ = events::copied(w, 0);
        for end in 0..2 {
            events::compared(w, 0, end, without);
        }
        if *w == before {
            return;
        }
    }
}

/// A whole pass of the operator that is left; `false` when there is nothing to be done.
fn pass(w: &mut World, long: bool, plans: &mut Plans, without: Without, story: &mut Vec<String>) -> bool {
    let Some(n) = next::observe(w, 0, long, plans, without) else {
        return false;
    };
    story.push(Plans::explain(&without.blind(View::of(w, 0, long))));
    *w = n;
    while w.ops[0].plan != 0 {
        let (_, n, _) = next::step(w, 0, plans, without);
        *w = n;
        flow(w, without);
    }
    true
}
