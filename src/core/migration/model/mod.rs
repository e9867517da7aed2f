//! The decision core of moves, explored: every world that two pairs, two operators and clients with any map can get into by so many faults
//! (see `docs/split.md`). It calls the shipped [`super::decide`] on what an operator sees, and carries out what comes of it step by step;
//! between any two steps anything else may happen. In every world the rules R1, R2, R4 and R6 are asked for ([`broken`]), and that it ends as it is
//! wished when it is left alone ([`fair`]).
//!
//! What it takes for granted of a pair, each explored in `core::pair::model`: a commit is acknowledged when both members have it; whoever is promoted has
//! everything that was acknowledged; a former active server acknowledges nothing. And of its controller: it reads `status.placement` after the
//! new active server is on record, and opens that with exactly [`super::fences::shut`] READ ONLY; the channels of moves are locked out of
//! an active server before commits wait for an acknowledgement there. Of copies: they are closed from the first moment.

#![allow(
    clippy::cast_possible_truncation,
    clippy::large_types_passed_by_value,
    clippy::struct_excessive_bools,
    clippy::many_single_char_names,
    reason = "a world is small numbers and switches, and is copied at every move"
)]

mod acts;
mod broken;
mod events;
mod explore;
mod fair;
mod next;
mod observe;
mod plans;
mod safeguards;
mod tests;
mod world;
