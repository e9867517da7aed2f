//! What an application needs to live with a fleet whose shards move: it follows the published map by long poll ([`Follower`]), writes where the
//! map says, and when a shard moves or a server goes it reads the map again and repeats the *whole* transaction ([`Client`]).
//!
//! Copy it, or translate it: `client/transaction.rs` has all there is to know in its `again` and `repeat`.

mod follow;
mod map;
mod transaction;

pub use follow::Follower;
#[allow(unused_imports, reason = "whoever uses it may name them")]
pub use map::{Map, Place};
#[allow(unused_imports, reason = "whoever uses it may name them")]
pub use transaction::{Account, Client, Done, Error};
