//! What must never be, looked for in every world.

use super::world::{COMMITS, World, of};

/// A rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// R1: a shard can be written on a pair where the record does not place it.
    WritableElsewhere,
    /// A commit was acknowledged that the pair that serves its shard does not have.
    Lost,
    /// R4: what was cut over is not what was there.
    Unequal,
    /// R6: a copy was dropped that is served.
    DroppedServed,
    /// R6: a copy was dropped while a channel of the move was left.
    DroppedWithChannel,
    /// A copy was made over databases that are served.
    SeededServed,
    /// P3: a pair with two members takes the channel of a move for one of them.
    AcknowledgesForAnother,
    /// A transition of the record was refused that nobody else had made impossible.
    Refused,
    /// Left alone with one operator, it does not come to rest as it is wished.
    NeverSettles,
}

/// The first rule that does not hold.
pub fn broken(w: &World) -> Option<Broken> {
    for pair in [0, 1] {
        if w.pairs[pair].writable() & !w.record.placed(pair) != 0 {
            return Some(Broken::WritableElsewhere);
        }
        let served = of(w.record.placed(pair)) & w.acked & COMMITS;
        if served & !w.pairs[pair].active().rows != 0 {
            return Some(Broken::Lost);
        }
    }
    (0..4)
        .any(|at| w.acknowledges_for_another(at))
        .then_some(Broken::AcknowledgesForAnother)
}
