//! The input of an append: a record's fields, and the source of its value.

use crate::extents::total_len;
use crate::pieces::patch::Patch;
use crate::pieces::piece::Crcs;
use crate::record::{KEY_INLINE_MAX, Kind, PieceList};
use landfall_media::Extent;

/// A run that is filled with copied keys has an end into which the next key does not fit, of at most one part in this
/// many: a run is 1 MiB long, a key at most 64 KiB.
const KEY_WASTE_PARTS: u64 = 16;

/// The source of a value.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// No value.
    None,
    /// Bytes outside the region. They are copied into frames, or into the record if they are short.
    Bytes(&'a [u8]),
    /// Landed bytes that the caller holds. The record refers to them, and they become durable with it.
    Landed {
        /// The extents, in value order.
        extents: &'a [Extent],
        /// Their checksums, if known.
        crc: Option<Crcs<'a>>,
    },
    /// Bytes to which records refer already, and newly landed ones.
    Stored {
        /// The extents, in value order.
        extents: &'a [Extent],
        /// Those extents to which no record refers yet, in any order.
        landed: &'a [Extent],
        /// All other extents are durable, or were appended by this writer. They are not flushed again.
        durable: bool,
        /// Records of other keys may refer to the other extents.
        shared: bool,
        /// The checksums of the whole value, if known.
        crc: Option<Crcs<'a>>,
        /// The list of pieces, if the value is an unchanged value in pieces.
        list: Option<PieceList>,
    },
    /// A changed value in pieces. The record that it replaces must be superseded by
    /// [`crate::Writer::supersede_patched`].
    Patched(&'a Patch),
}

impl Source<'_> {
    /// Length of the value, bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Landed { extents, .. } | Self::Stored { extents, .. } => total_len(extents),
            Self::Patched(patch) => patch.len(),
        }
    }

    /// True for the empty value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The kind of record.
    pub kind: Kind,
    /// Namespace of the key.
    pub space: u8,
    /// [`crate::Heap::hash`] of space and key.
    pub hash: u64,
    /// The key.
    pub key: &'a [u8],
    /// The key's extent, if the key lies in frames in one extent. A long key is then not copied.
    pub key_at: Option<Extent>,
    /// The value.
    pub value: Source<'a>,
    /// Arrival of the packet, Unix nanoseconds.
    pub arrival_ns: u64,
    /// Expiry, Unix milliseconds; 0 never.
    pub expiry_ms: u64,
    /// A field for the owner's use.
    pub aux: u32,
}

impl Entry<'_> {
    /// Estimate of the bytes that are copied into runs for this record.
    #[inline]
    pub fn placed_bytes(&self) -> u64 {
        let is_placed = self.key_at.is_none() && self.key.len() > KEY_INLINE_MAX;
        let key = if is_placed { self.key.len() as u64 } else { 0 };
        let value = match self.value {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Patched(patch) => patch.placed_bytes(),
            Source::None | Source::Landed { .. } | Source::Stored { .. } => 0,
        };
        key + key / KEY_WASTE_PARTS + value
    }
}
