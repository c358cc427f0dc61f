//! Errors of the heap, classified by cause: environment, corruption, misuse.

use crate::layout::SlotId;
use crate::load::LoadId;
use crate::spaces;
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
    /// Retry later: no free run is left for writers, but the compactor is about to free some.
    #[error("space is being made")]
    Cleaning,
    /// Retry after a commit: the current batch must be durable before the record can be appended.
    #[error("the current batch must be committed first")]
    Busy,
    /// Retry later: evicted bytes are being read.
    #[error("the data are being read from the medium")]
    Loading(LoadId),
    /// Misuse: a key, a value or a group exceeds its limit.
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
    /// Environment: a newer release has written something in a form that this program does not know. It is no damage: a
    /// repair must not drop it.
    #[error(
        "{what} was written by a newer release, in a form that this program does not know: use that release"
    )]
    NewerRecord {
        /// What it is.
        what: &'static str,
    },
    /// Misuse: the region holds records of a system that is not among the tenants.
    #[error(
        "the region holds {} (space {space}), which this command does not open: give it another region",
        spaces::name(*space)
    )]
    Foreign {
        /// The records' space.
        space: u8,
    },
    /// Corrupt: both superblock copies fail their checksum.
    #[error("both copies of the superblock are damaged: restore the region from a copy")]
    SuperblockDamaged,
    /// Corrupt: the geometry in the superblock is impossible.
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
        /// Bytes present.
        actual: u64,
    },
    /// Misuse: the capacity is outside the limits of the format.
    #[error("a capacity of {bytes} bytes is outside {min} to {max} bytes")]
    Capacity {
        /// Capacity requested.
        bytes: u64,
        /// Smallest capacity.
        min: u64,
        /// Largest capacity.
        max: u64,
    },
    /// Misuse: what so many transports reserve would leave nothing for writes.
    #[error(
        "{transports} workers need a region of {} MiB at least: give fewer (--workers), or a larger region",
        bytes >> 20
    )]
    Transports {
        /// The transports.
        transports: usize,
        /// The smallest region for them, bytes.
        bytes: u64,
    },
    /// Environment: the batch is durable in this region, and the server stops before another node has it.
    #[error("{node} has not acknowledged a batch, and the wait was ended")]
    Alone {
        /// The node.
        node: String,
    },
    /// Corrupt: a record, or the data that it refers to, fails its check.
    #[error("the record in slot {} is damaged ({what})", slot.0)]
    Damaged {
        /// The slot of the record.
        slot: SlotId,
        /// The check that failed.
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
    /// The medium has lost a durable record: its slot is empty, or holds a record of an earlier epoch.
    Lost,
    /// The medium returned an error.
    Unreadable,
    /// The record belongs to a transaction without a commit record, and the medium has lost a record that may have been
    /// that: whether it counts is unknown.
    Undecided,
    /// The mark of a flush of all keys, whose version is not known any more: it ends what was certainly written before it.
    FlushMark,
    /// A repair of what it says something of has begun, and has not ended.
    Unrepaired,
    /// No damage: the bytes hold, and are of a version that this program does not know.
    Newer,
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
            Self::Undecided => "the commit record of its transaction may be lost",
            Self::FlushMark => "which keys it has deleted is not certain: some may be back",
            Self::Unrepaired => "a repair has begun, and has not ended: repair again",
            Self::Newer => "written by a newer release",
        })
    }
}
