//! Compares every row of whole databases on several servers, at one and the same GTID position.
//!
//! [`crate::mysql::seed::pin`] opens connections to all of them that see one position: the source's applier stands still for that moment only,
//! not for as long as the comparison takes. Each server then makes digests of its own rows, part by part, and only these travel. Where they
//! differ, the rows are looked at one by one, so that those that differ are named.
//!
//! A digest is COUNT and the XOR of SHA-256 over all rows of a part: it does not depend on their order, and no two changes cancel each
//! other. (CRC32 is no hash for that: it is linear, so two rows that exchange a value leave the XOR as it was.) Equal rows cancel in an XOR, so a
//! table without a primary key has the sum of 64 bits of the hashes instead. Text is hashed as the bytes that are stored, FLOAT as the DOUBLE it is,
//! ENUM and SET as their numbers, JSON as its text. Virtual columns are not data and are left out; stored generated columns are not.
//!
//! A short comparison looks only at the rows that transactions since an earlier position have touched ([`touched`]).

mod compare;
mod digest;
mod rows;
mod schema;
mod touched;
mod work;

pub use compare::{Found, compare};
pub use touched::{Rows, Touched, touched};
pub use work::What;

/// What was found of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same definition and the same rows on all servers.
    Equal,
    /// Something differs: where, in words.
    Different(Vec<String>),
    /// Nobody knows: why. It is never the same as equal.
    Unknown(String),
}
