//! Values that identify themselves by key, version, length and checksum, so that any value read can be checked without
//! other data.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `LFDV` |
//! | 4..8 | length of the whole value |
//! | 8..16 | version: the number of the operation that wrote it |
//! | 16..24 | hash of the key |
//! | 24..n-4 | pseudo-random bytes seeded by version and key |
//! | n-4..n | CRC-32C of everything before |
//!
//! Values shorter than [`DESCRIBED_MIN`] are the first of the pseudo-random bytes: they can only be compared.

use super::rng::Rng;

/// Least length of a value that identifies itself.
pub(crate) const DESCRIBED_MIN: usize = 32;

const MAGIC: [u8; 4] = *b"LFDV";

/// The value that operation `version` writes to `key`.
pub(crate) fn make(key: &str, version: u64, len: usize) -> Vec<u8> {
    let hash = hash(key);
    let mut bytes = Vec::with_capacity(len + 8);
    if len >= DESCRIBED_MIN {
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&(len as u32).to_le_bytes());
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&hash.to_le_bytes());
    }
    let mut rng = Rng::new(hash ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    if len >= DESCRIBED_MIN {
        bytes.truncate(len - 4);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// What a value contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The value is complete, and this operation wrote it to this key.
    Version(u64),
    /// The value is too short to identify itself.
    Short,
    /// No operation wrote this value to this key.
    Torn,
}

/// Checks a value that was read.
pub(crate) fn read(key: &str, bytes: &[u8]) -> Content {
    if bytes.len() < DESCRIBED_MIN {
        return Content::Short;
    }
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let version = word(8);
    let whole = bytes[..4] == MAGIC && word(16) == hash(key) && bytes == make(key, version, bytes.len());
    if whole { Content::Version(version) } else { Content::Torn }
}

/// FNV-1a: equal in every run.
pub(crate) fn hash(key: &str) -> u64 {
    key.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_values_contain_their_version_and_torn_ones_do_not() {
        for len in [DESCRIBED_MIN, 100, 5000] {
            let value = make("a", 7, len);
            assert_eq!((value.len(), read("a", &value)), (len, Content::Version(7)));
            assert_eq!(read("b", &value), Content::Torn, "another key's");
            for at in [0, 9, 20, len / 2, len - 1] {
                let mut torn = value.clone();
                torn[at] ^= 1;
                assert_eq!(read("a", &torn), Content::Torn, "byte {at}");
            }
        }
    }

    #[test]
    fn short_values_differ_by_version() {
        assert_eq!(make("a", 1, 0), b"");
        assert_eq!(read("a", &make("a", 1, 9)), Content::Short);
        assert_ne!(make("a", 1, 9), make("a", 2, 9));
    }
}
