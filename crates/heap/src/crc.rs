//! CRC-32C (Castagnoli; RFC 3720 appendix B.4), as every checksum of the format uses it.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of some bytes.
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of what has the checksum `crc`, followed by `bytes`.
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    if crc == 0 {
        return of(bytes);
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(of(b""), 0);
    }

    proptest! {
        #[test]
        fn another_implementation_agrees_however_the_bytes_are_split(
            bytes in prop::collection::vec(any::<u8>(), 0..5000),
            split in any::<prop::sample::Index>(),
        ) {
            let (head, tail) = bytes.split_at(split.index(bytes.len() + 1));
            prop_assert_eq!(of(&bytes), crc32c::crc32c(&bytes));
            prop_assert_eq!(append(of(head), tail), crc32c::crc32c(&bytes));
        }
    }
}
