//! What can go wrong in the heap, told apart by who is to blame.

use crate::layout::SlotId;
use crate::loader::LoadId;
use landfall_media::MediaError;

/// An error of the heap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// Environment: the medium failed.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// Environment: no free run is left for writers.
    #[error("the region is full: delete something, or restart with a larger --capacity")]
    Full,
    /// Not an error of anyone: no free run is left for writers, but the compactor is about to find some. Retry then.
    #[error("space is being made")]
    Cleaning,
    /// Not an error of anyone: the batch must be durable before this record can be appended. Commit, retry.
    #[error("the current batch must be committed first")]
    Busy,
    /// Not an error of anyone: bytes that have left memory are being read. Retry then.
    #[error("the data are being read from the medium")]
    Loading(LoadId),
    /// Misuse: a key or value or group over its limit.
    #[error("{what} of {size} is over the limit of {max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// Corrupt: the file is not a region.
    #[error("this is not a Landfall region (wrong magic): nothing was changed")]
    NotARegion,
    /// Environment: the region was written by a newer version.
    #[error("the region has format version {found}, this program reads up to {known}: use a newer program")]
    NewerVersion {
        /// Version found.
        found: u32,
        /// Newest version known.
        known: u32,
    },
    /// Environment: the region uses features this program does not know.
    #[error("the region uses features this program does not know (mask {mask:#x}): use a newer program")]
    UnknownFeatures {
        /// The unknown must-know bits.
        mask: u32,
    },
    /// Misuse: the region holds records of a system that was not brought along.
    #[error("the region holds records of another system (space {space}): open it with that system")]
    Foreign {
        /// The records' space.
        space: u8,
    },
    /// Corrupt: both superblock copies fail their checksum.
    #[error("both copies of the superblock are damaged: restore the region from a copy")]
    SuperblockDamaged,
    /// Corrupt: the geometry in the superblock makes no sense.
    #[error("the superblock's geometry is impossible ({what} = {value})")]
    BadGeometry {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// Corrupt: the medium is shorter than the geometry.
    #[error(
        "the region was truncated: it needs {expected} bytes and has {actual}; restore it from a copy, nothing was changed"
    )]
    Truncated {
        /// Bytes needed.
        expected: u64,
        /// Bytes there.
        actual: u64,
    },
    /// Misuse: capacity outside what the format can hold.
    #[error("a capacity of {bytes} bytes is outside {min} to {max} bytes")]
    Capacity {
        /// Asked for.
        bytes: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// Corrupt: a record or the data it refers to fails its check.
    #[error("the record in slot {} is damaged ({what})", slot.0)]
    Damaged {
        /// Where.
        slot: SlotId,
        /// What failed.
        what: Damage,
    },
}

/// Which check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Damage {
    /// The record's own CRC-32C.
    RecordChecksum,
    /// The record's fields contradict each other or the geometry.
    RecordFields,
    /// The value's CRC-32C.
    ValueChecksum,
    /// The key does not match the hash kept in the record.
    KeyHash,
    /// The list of extents of a long value fails its checksum.
    ExtentList,
    /// Something was made durable there, and nothing is there: the medium has lost it.
    Lost,
    /// The medium answers with an error.
    Unreadable,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RecordChecksum => "record checksum",
            Self::RecordFields => "record fields",
            Self::ValueChecksum => "value checksum",
            Self::KeyHash => "key hash",
            Self::ExtentList => "extent list checksum",
            Self::Lost => "lost by the medium",
            Self::Unreadable => "cannot be read from the medium",
        })
    }
}
