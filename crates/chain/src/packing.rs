//! Packed payloads: how values are cut into blocks, and what a receiver believes of that.

use crate::record::Records;
use crate::wire::WireError;

/// Bytes of the values in one block; the last one may be shorter.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Length of what a block begins with, bytes.
pub const BLOCK_HEADER_BYTES: usize = 4;
/// The block is as it is.
const STORED: u32 = 1 << 31;
/// Fewest bytes of values of a packed payload.
pub const PACKED_BYTES_MIN: u64 = 4 << 10;
/// Most bytes of values of a packed payload.
pub const PACKED_BYTES_MAX: u64 = 32 << 20;

/// What a block begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockHeader {
    /// So many bytes follow, which unpack to the block.
    Packed(usize),
    /// The block follows as it is.
    Stored,
}

impl BlockHeader {
    /// The bytes on the wire, of a block with so many bytes.
    ///
    /// # Panics
    /// If the block is longer than [`BLOCK_BYTES`], or what is packed not shorter than the block.
    pub fn encode(self, block_len: usize) -> [u8; BLOCK_HEADER_BYTES] {
        assert!(block_len <= BLOCK_BYTES, "a block has a limit");
        let word = match self {
            Self::Stored => block_len as u32 | STORED,
            Self::Packed(len) => {
                assert!(len < block_len, "a block that does not shrink is stored");
                len as u32
            }
        };
        word.to_le_bytes()
    }

    /// Reads what a block of `block_len` bytes begins with.
    ///
    /// # Errors
    /// [`WireError::Length`]: the block would have another length.
    pub fn decode(bytes: [u8; BLOCK_HEADER_BYTES], block_len: usize) -> Result<Self, WireError> {
        let word = u32::from_le_bytes(bytes);
        let len = (word & !STORED) as usize;
        match word & STORED != 0 {
            true if len == block_len => Ok(Self::Stored),
            false if (1..block_len).contains(&len) => Ok(Self::Packed(len)),
            _ => Err(WireError::Length),
        }
    }

    /// Length of what follows for a block of `block_len` bytes.
    pub fn len(self, block_len: usize) -> usize {
        match self {
            Self::Packed(len) => len,
            Self::Stored => block_len,
        }
    }
}

/// Lengths of the blocks of values with so many bytes.
pub fn block_lens(values_len: u64) -> impl Iterator<Item = usize> {
    let mut rest = values_len;
    std::iter::from_fn(move || {
        let len = rest.min(BLOCK_BYTES as u64);
        rest -= len;
        (len > 0).then_some(len as usize)
    })
}

/// How long the values of a head are, if a payload of `payload_len` bytes may be what they are packed to.
///
/// # Errors
/// [`WireError`]: the head is malformed, or the lengths cannot belong together.
pub fn values_len(head: &[u8], payload_len: u64) -> Result<u64, WireError> {
    let mut len = 0;
    for record in Records::new(head) {
        len += u64::from(record?.value_len);
    }
    if len > PACKED_BYTES_MAX {
        return Err(WireError::TooLong { what: "a packed payload", len });
    }
    if len < PACKED_BYTES_MIN || payload_len >= len { Err(WireError::Length) } else { Ok(len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, RecordKind};
    use proptest::prelude::*;

    fn head(lens: &[u32]) -> Vec<u8> {
        let mut head = Vec::new();
        let (kind, more, space, aux) = (RecordKind::Put, false, 0, 0);
        for value_len in lens.iter().copied() {
            Record { kind, more, space, aux, arrival_ns: 0, mark: 0, key: b"key", value_len, value_crc: 0 }
                .encode(&mut head);
        }
        head
    }

    proptest! {
        #[test]
        fn blocks_are_read_as_they_were_written(block_len in 2..=BLOCK_BYTES, part in 1..BLOCK_BYTES) {
            for header in [BlockHeader::Stored, BlockHeader::Packed(1 + part % (block_len - 1))] {
                prop_assert_eq!(BlockHeader::decode(header.encode(block_len), block_len), Ok(header));
                prop_assert!((1..=block_len).contains(&header.len(block_len)));
            }
        }

        #[test]
        fn no_block_grows_whatever_it_begins_with(word: u32, block_len in 1..=BLOCK_BYTES) {
            if let Ok(header) = BlockHeader::decode(word.to_le_bytes(), block_len) {
                prop_assert!((1..=block_len).contains(&header.len(block_len)));
            }
        }

        #[test]
        fn blocks_fill_the_values(len in 0..PACKED_BYTES_MAX) {
            let lens: Vec<usize> = block_lens(len).collect();
            prop_assert_eq!(lens.iter().sum::<usize>() as u64, len);
            prop_assert!(lens.iter().rev().skip(1).all(|len| *len == BLOCK_BYTES));
        }
    }

    #[test]
    fn what_cannot_be_packed_values_is_refused() {
        assert_eq!(values_len(&head(&[4000, 96]), 100), Ok(4096));
        assert_eq!(values_len(&head(&[4000, 95]), 100), Err(WireError::Length), "too short");
        assert_eq!(values_len(&head(&[4096]), 4096), Err(WireError::Length), "not shorter");
        let most = PACKED_BYTES_MAX as u32;
        assert_eq!(values_len(&head(&[most]), 100), Ok(PACKED_BYTES_MAX));
        let long = WireError::TooLong { what: "a packed payload", len: PACKED_BYTES_MAX + 1 };
        assert_eq!(values_len(&head(&[most, 1]), 100), Err(long));
        assert!(values_len(&head(&[u32::MAX; 3]), 100).is_err());
        assert_eq!(values_len(&[1, 2, 3], 0), Err(WireError::Length), "no head");
    }
}
