//! What is to be appended: a record's fields, and where its value comes from.

use crate::pieces::{Crcs, Patch};
use crate::record::{Kind, PieceList};
use landfall_media::Extent;

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// No value.
    None,
    /// Bytes outside the region: they are copied into frames (or into the record, when short).
    Bytes(&'a [u8]),
    /// Bytes that landed in frames, which the caller holds: the record refers to them, and they become durable with it.
    Landed {
        /// Where, in value order.
        extents: &'a [Extent],
        /// Their checksums, if the caller knows them.
        crc: Option<Crcs<'a>>,
    },
    /// Bytes to which records refer already, and others that have landed now.
    Stored {
        /// Where, in value order.
        extents: &'a [Extent],
        /// Which of it, in any order, no record refers to yet.
        landed: &'a [Extent],
        /// The rest is durable, or was appended by this writer: it is not made durable again.
        durable: bool,
        /// Records of other keys may go on referring to the rest.
        shared: bool,
        /// The checksums of the whole, if the caller knows them.
        crc: Option<Crcs<'a>>,
        /// Where a value in pieces is listed that is taken as it is.
        list: Option<PieceList>,
    },
    /// A stored value in pieces of which a part is changed. Its record must be superseded by
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
    /// Which system, and what it means there.
    pub kind: Kind,
    /// Namespace of the key.
    pub space: u8,
    /// [`crate::Heap::hash`] of space and key.
    pub hash: u64,
    /// The key.
    pub key: &'a [u8],
    /// Where the key lies in frames, if it does, in one piece; long keys are then not copied.
    pub key_at: Option<Extent>,
    /// The value.
    pub value: Source<'a>,
    /// Arrival of the packet, Unix nanoseconds.
    pub arrival_ns: u64,
    /// Expiry, Unix milliseconds; 0 never.
    pub expiry_ms: u64,
    /// The owner's own field.
    pub aux: u32,
}

/// Bytes in all of them.
#[inline]
pub(crate) fn total_len(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len())).sum()
}
