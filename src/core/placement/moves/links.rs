//! The links between pairs that moves are. They close no circle (I7): a pair that two ways lead to hears over the longer one of transactions
//! whose rows the filters on it have left out, counts them as executed, and skips them when they come over the shorter one.

use crate::api::placement::{Move, MoveKey, Placement};
use std::collections::{BTreeMap, BTreeSet};

/// The move between two pairs, in whichever order.
pub fn between<'a>(p: &'a Placement, a: &str, b: &str) -> Option<&'a Move> {
    p.moves.iter().find(|m| m.other_end(a) == Some(b))
}

/// What the moves on record are found by.
pub fn keys(p: &Placement) -> Vec<MoveKey> {
    p.moves.iter().map(Move::key).collect()
}

/// The moves that have `pair` at an end.
pub fn of_pair<'a>(p: &'a Placement, pair: &'a str) -> impl Iterator<Item = &'a Move> {
    p.moves.iter().filter(move |m| m.other_end(pair).is_some())
}

/// The links that lead from `a` to `b`, in this order; `None` when none do.
pub fn path(links: &[MoveKey], a: &str, b: &str) -> Option<Vec<MoveKey>> {
    let mut seen = BTreeSet::from([a]);
    let mut trails = vec![(a, vec![])];
    while let Some((at, trail)) = trails.pop() {
        if at == b {
            return Some(trail);
        }
        for link in links {
            let other: &str = match at {
                from if from == link.from => &link.to,
                to if to == link.to => &link.from,
                _ => continue,
            };
            if seen.insert(other) {
                let mut longer = trail.clone();
                longer.push(link.clone());
                trails.push((other, longer));
            }
        }
    }
    None
}

/// The links as text.
pub fn listed(links: &[MoveKey]) -> String {
    let all: Vec<String> = links.iter().map(ToString::to_string).collect();
    all.join(" and ")
}

/// The first move whose ends are connected by those before it.
pub(super) fn circle(moves: &[Move]) -> Option<&Move> {
    // Pairs that are connected have the same number.
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, m) in moves.iter().enumerate() {
        let a = *numbers.entry(&m.from).or_insert(2 * i);
        let b = *numbers.entry(&m.to).or_insert(2 * i + 1);
        if a == b {
            return Some(m);
        }
        for n in numbers.values_mut().filter(|n| **n == b) {
            *n = a;
        }
    }
    None
}
