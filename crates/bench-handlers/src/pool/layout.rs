//! The offsets of a pool's parts. Byte tables: `docs/format/pool.md`.

use crate::error::{HandlerError, Result};
use landfall_media::{BLOCK_SIZE, LINE_SIZE};

/// `LANDPOOL`.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"LANDPOOL");
/// Size of the header, bytes.
pub(crate) const HEADER_BYTES: usize = 64;
/// The state's line: root, top, used.
pub(crate) const ROOT_AT: u64 = 64;
pub(crate) const TOP_AT: u64 = 72;
pub(crate) const USED_AT: u64 = 80;
/// Heads of the free lists.
pub(crate) const HEADS_AT: u64 = 128;
/// The log's first half.
pub(crate) const LOG_AT: u64 = BLOCK_SIZE;

const VERSION: u32 = 1;
const CRC_AT: usize = 12;

/// The sizes of a pool's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of the pool, bytes.
    pub(crate) len: u64,
    /// Size of one half of the log, bytes.
    pub(crate) log_bytes: u64,
}

impl Layout {
    /// The layout of a pool of `len` bytes, if the sizes are valid.
    pub(crate) fn new(len: u64, log_bytes: u64) -> Result<Self> {
        let heap_at = log_bytes.checked_mul(2).and_then(|bytes| bytes.checked_add(LOG_AT));
        let fits = heap_at.is_some_and(|at| at.saturating_add(BLOCK_SIZE) <= len);
        let whole = log_bytes != 0 && log_bytes.is_multiple_of(BLOCK_SIZE) && len.is_multiple_of(LINE_SIZE);
        if !fits || !whole || u32::try_from(log_bytes).is_err() {
            return Err(HandlerError::Geometry { log_bytes, region_bytes: len });
        }
        Ok(Self { len, log_bytes })
    }

    /// The offset of the heap.
    pub(crate) const fn heap_at(&self) -> u64 {
        LOG_AT + 2 * self.log_bytes
    }

    /// The half of the log that holds batch `number`.
    pub(crate) const fn half_of(&self, number: u64) -> u64 {
        LOG_AT + number % 2 * self.log_bytes
    }

    /// True where a batch may change lines.
    pub(crate) fn is_home(&self, off: u64, len: u64) -> bool {
        let within = |from, to| off >= from && off.checked_add(len).is_some_and(|end| end <= to);
        within(ROOT_AT, LOG_AT) || within(self.heap_at(), self.len)
    }

    /// The header's bytes, magic included.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.len.to_le_bytes());
        header[24..32].copy_from_slice(&self.log_bytes.to_le_bytes());
        let crc = header_crc(&header);
        header[CRC_AT..16].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Parses a header without trusting it.
    pub(crate) fn decode(header: &[u8; HEADER_BYTES], region_len: u64) -> Result<Self> {
        if long(header, 0) != MAGIC {
            return Err(HandlerError::NoPool);
        }
        if word(header, CRC_AT) != header_crc(header) {
            return Err(HandlerError::damaged("header", 0));
        }
        let (version, features) = (word(header, 8), word(header, 36) | word(header, 40));
        if version != VERSION || features != 0 {
            return Err(HandlerError::Unknown { version, features });
        }
        let layout = Self::new(long(header, 16), long(header, 24))?;
        if layout.len > region_len {
            return Err(HandlerError::damaged("length in the header, or a region cut short", 16));
        }
        Ok(layout)
    }
}

fn header_crc(header: &[u8; HEADER_BYTES]) -> u32 {
    crc_of(&[&header[8..CRC_AT], &header[16..]])
}

/// CRC-32C of some pieces of bytes in order.
pub(crate) fn crc_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_frozen() {
        let header = Layout { len: 1 << 20, log_bytes: 65536 }.encode();
        let hex: String = header[..32].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "4c414e44504f4f4c01000000641b309a00001000000000000000010000000000");
        assert_eq!(header[32..], [0; 32]);
    }

    #[test]
    fn only_an_encoded_header_is_decoded() {
        let layout = Layout::new(1 << 20, 65536).expect("fits");
        let good = layout.encode();
        assert_eq!(Layout::decode(&good, 1 << 20).expect("good"), layout);
        assert!(matches!(Layout::decode(&good, 1 << 19), Err(HandlerError::Damaged { .. })));
        for at in 8..HEADER_BYTES {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(matches!(Layout::decode(&bad, 1 << 20), Err(HandlerError::Damaged { .. })), "byte {at}");
        }
    }

    #[test]
    fn unknown_required_features_refuse_the_pool() {
        for (at, known) in [(32, true), (36, false), (40, false)] {
            let mut header = Layout { len: 1 << 20, log_bytes: 65536 }.encode();
            header[at] = 1;
            let crc = header_crc(&header);
            header[CRC_AT..16].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Layout::decode(&header, 1 << 20).is_ok(), known, "mask at {at}");
        }
    }

    #[test]
    fn invalid_pool_sizes_are_refused() {
        for (len, log_bytes) in [(1 << 20, 0), (1 << 20, 100), (12288, 4096), (1 << 20, u64::MAX - 4095)] {
            assert!(matches!(Layout::new(len, log_bytes), Err(HandlerError::Geometry { .. })));
        }
    }
}
