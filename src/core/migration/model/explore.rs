//! Breadth first through every world that can be reached: the first one in which a rule does not hold is one of the nearest.

use super::{
    broken::{Broken, broken},
    fair::Fair,
    next::{self, Next},
    plans::Plans,
    safeguards::Without,
    world::World,
};
use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// What came of a search.
pub struct Report {
    pub states: usize,
    pub transitions: usize,
    /// Moves from the first world to the farthest one.
    pub depth: usize,
    /// Different situations that the core decided upon.
    pub views: usize,
    /// The first rule that was broken, and the shortest way there.
    pub broken: Option<(Broken, Vec<String>)>,
}

/// Searches from `start` on, until `limit` worlds were found. Whether each of them ends healthy when left alone is asked where
/// nothing is left out, and where that is what would be missed.
pub fn explore(start: World, without: Without, limit: usize) -> Report {
    let mut search = Search {
        plans: Plans::new(without),
        fair: without.asks_for_rest().then(Fair::default),
        seen: Seen::default(),
        prints: vec![],
        parents: vec![],
        without,
    };
    search.run(start.canonical(), limit)
}

struct Search {
    plans: Plans,
    fair: Option<Fair>,
    seen: Seen,
    /// Fingerprint and predecessor of each world, in the order in which they were found.
    prints: Vec<u64>,
    parents: Vec<u32>,
    without: Without,
}

impl Search {
    fn run(&mut self, start: World, limit: usize) -> Report {
        let (mut transitions, mut depth) = (0, 0);
        let mut level = vec![(start, self.remember(&start, 0).expect("the first"))];
        let mut found = None;
        while !level.is_empty() && found.is_none() && self.prints.len() < limit {
            let mut next_level = vec![];
            'level: for (w, id) in &level {
                for (m, n, b) in next::next(w, &mut self.plans, self.without) {
                    transitions += 1;
                    let n = n.canonical();
                    if let Some(b) = b.or_else(|| broken(&n)) {
                        found = Some((b, self.path(*id, start, Some(format!("{m:?}")))));
                        break 'level;
                    }
                    let Some(new) = self.remember(&n, *id) else {
                        continue;
                    };
                    if let Some(fair) = &mut self.fair
                        && let Err(stuck) = fair.run(&n, &mut self.plans, self.without)
                    {
                        let mut path = self.path(new, start, None);
                        path.push("then left alone:".into());
                        path.extend(stuck.story);
                        found = Some((Broken::NeverSettles, path));
                        break 'level;
                    }
                    next_level.push((n, new));
                }
            }
            level = next_level;
            depth += 1;
        }
        Report {
            states: self.prints.len(),
            transitions,
            depth,
            views: self.plans.views(),
            broken: found,
        }
    }

    /// The number of a world that was not seen before.
    fn remember(&mut self, w: &World, parent: u32) -> Option<u32> {
        let print = fingerprint(w);
        if !self.seen.insert(print) {
            return None;
        }
        let id = u32::try_from(self.prints.len()).expect("more worlds than numbers");
        self.prints.push(print);
        self.parents.push(parent);
        Some(id)
    }

    /// The moves that lead to a world, found by making them again.
    fn path(&mut self, to: u32, start: World, last: Option<String>) -> Vec<String> {
        let mut ids = vec![to];
        while let Some(id) = ids.last().copied().filter(|id| *id != 0) {
            ids.push(self.parents[id as usize]);
        }
        let mut moves = vec![];
        let mut w = start;
        for id in ids.into_iter().rev().skip(1) {
            let print = self.prints[id as usize];
            let step = next::next(&w, &mut self.plans, self.without).into_iter();
            let (m, n): (_, World) = step
                .map(|(m, n, _): Next| (m, n.canonical()))
                .find(|(_, n)| fingerprint(n) == print)
                .expect("a way that was found is found again");
            moves.push(format!("{m:?}"));
            w = n;
        }
        moves.extend(last);
        moves
    }
}

/// 64 bits that stand for a world: two that differ have the same ones with a chance of less than one in a million in a whole search.
pub fn fingerprint(w: &World) -> u64 {
    let mut h = Mix(0x9e37_79b9_7f4a_7c15);
    w.hash(&mut h);
    h.finish()
}

/// Multiplies and folds; the same in every run.
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        let h = (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        h ^ h >> 32
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u16(&mut self, n: u16) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        let h = (self.0 ^ n)
            .wrapping_add(0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 = h ^ h >> 32;
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n.cast_unsigned() as u64);
    }
}

/// Fingerprints are mixed already.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

type Seen = HashSet<u64, BuildHasherDefault<Plain>>;
