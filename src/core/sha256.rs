//! SHA-256 as text.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// SHA-256 of the parts one after the other, in hexadecimal.
pub(super) fn hex<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    parts.into_iter().for_each(|part| hash.update(part));
    hash.finalize()
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard() {
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            (
                hex([b"abc".as_slice()]).as_str(),
                hex([b"a".as_slice(), b"bc"]).as_str()
            ),
            (want, want)
        );
    }
}
