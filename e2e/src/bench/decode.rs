//! Decoding IDs, in the library.

use super::Figure;
use shardwright::core::id::Id;
use std::hint::black_box;
use std::time::Instant;

const IDS: u64 = 50_000_000;

/// Millions of IDs that are decoded in a second, on one core.
pub fn decode() -> Figure {
    let begun = Instant::now();
    let mut sum = 0u64;
    for n in 0..IDS {
        // Valid ones, all different: the shard, the type and the local part change.
        let id = black_box((n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 2);
        if let Ok(parts) = Id::decode(id) {
            sum = sum.wrapping_add(u64::from(parts.shard) ^ parts.local);
        }
    }
    black_box(sum);
    #[allow(clippy::cast_precision_loss, reason = "a count far below 2^52")]
    let per_second = IDS as f64 / begun.elapsed().as_secs_f64() / 1e6;
    Figure::at_least(
        "id decode, in the library",
        Some(per_second),
        "M/s",
        10.0,
        "(one core)".into(),
    )
}
