//! Shards of keys that are no IDs (an address, a user name): MD5, modulo the number of shards.

use md5::{Digest, Md5};

/// The shard of `key`: MD5 of its bytes and nothing else, read as one big-endian number of 128 bits, modulo `modulus`.
///
/// A line end is a byte like any other: `echo 1.2.3.4 | md5sum` hashes another key than `1.2.3.4`.
/// `None` when `modulus` is not between 1 and `i32::MAX`.
pub fn shard(key: &[u8], modulus: i32) -> Option<i32> {
    let modulus = u128::try_from(modulus).ok().filter(|m| *m > 0)?;
    let number = u128::from_be_bytes(Md5::digest(key).into());
    i32::try_from(number % modulus).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_without_and_with_a_line_end() {
        assert_eq!(shard(b"1.2.3.4", 4096), Some(1537));
        assert_eq!(shard(b"1.2.3.4\n", 4096), Some(1524));
    }

    #[test]
    fn a_modulus_that_is_no_power_of_two_takes_the_whole_number() {
        // md5("") is d41d8cd98f00b204e9800998ecf8427e; its lower half alone would give 958.
        assert_eq!(shard(b"", 1000), Some(366));
        assert_eq!(shard(b"", 1), Some(0));
    }

    #[test]
    fn no_modulus_no_shard() {
        assert_eq!((shard(b"a", 0), shard(b"a", -1)), (None, None));
    }
}
