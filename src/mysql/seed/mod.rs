//! Copies whole databases from one server to others, as of one GTID set, while the source goes on.
//!
//! [`pin`] opens connections to the source that all see one position. [`copy`] moves the databases through them, table by table and in parts,
//! to every target at once, and outside their binary logs. [`count_as_executed`] makes the targets count that position as executed, so that a
//! filtered channel goes on from there; for a channel that is there already, [`pin`] stops it where the source stands.
//!
//! - What is copied: databases and InnoDB tables. Views, triggers, routines, events, tables of other engines, foreign keys to other
//!   databases, and JSON values that their text does not bring back, are refused by name, with the whole database. (Triggers, events and
//!   routines are seen only by an account that has a right to them.)
//! - A half copy never looks like a whole one: see [`marks`]. A database whose copying was cut short is copied anew; one that is marked
//!   complete stays, also when the operator dies.
//! - Clients cannot write into a copy while it is made: what they may do by a pattern is withheld from them for that long.
//! - Memory: [`copy`] holds about 2 MB for each stream, and one row of whatever size.
//! - Targets have `super_read_only` off; `local_infile` is on while they are copied to (rows go by `LOAD DATA LOCAL`). A complete copy is closed for writes (`READ ONLY`).

mod control;
mod copy;
pub(crate) mod layout;
mod pin;
mod queue;
pub(crate) mod rows;
mod stream;
mod target;
mod withheld;

pub use control::{Control, Progress, UNLIMITED};
pub use copy::{Failure, Outcome, copy};
pub use pin::{Channel, Pin, Pinned, Position, pin};
pub use target::{Mark, count_as_executed, discard, forget, marks, release};
pub(crate) use target::{OWN, without_fence};
pub(crate) use withheld::{lift_here, withhold_here};
