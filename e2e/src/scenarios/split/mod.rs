//! Shards move between pairs while clients write to all of them.
//!
//! Three pairs: `p0` has shards 0 to 15, `p2` has 32 to 35, and `p1` has none. Each scenario begins there and need not end there.

mod data;
mod faults;
mod large;
mod moves;
mod physical;
mod rotation;
mod stage;
mod steps;
mod watch;
mod zoo;

use crate::scenario::Group;

/// All of them; each runs alone.
pub fn groups() -> Vec<Group> {
    let mut all = vec![
        moves::group(),
        physical::group(),
        data::group(),
        faults::group(),
        large::group(),
    ];
    all.extend(steps::groups());
    all
}
