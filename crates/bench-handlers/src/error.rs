//! Errors of a pool and of its contents.

use landfall_media::MediaError;

/// Result of this crate's operations.
pub type Result<T> = std::result::Result<T, HandlerError>;

/// An error of the pool, of a structure in it, or of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// Environment: from the medium.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// Environment: no free block is large enough. The transaction changed nothing.
    #[error("the pool is full: no room for a block of {bytes} bytes")]
    Full {
        /// Size of the block, bytes.
        bytes: u64,
    },
    /// Environment: an earlier commit failed.
    #[error("the pool is closed since a commit failed; open it again")]
    Closed,
    /// A condition, not a failure: commit, then repeat the call. The transaction changed nothing.
    #[error("the batch has no room for this transaction: commit, then execute it again")]
    BatchFull,
    /// Misuse: the transaction is too large for any batch. It changed nothing.
    #[error("a transaction that changes {lines} lines is too large for a log of {log_bytes} bytes")]
    TooLarge {
        /// Number of lines of 64 bytes that it changes.
        lines: usize,
        /// Bytes of one half of the pool's log.
        log_bytes: u64,
    },
    /// Misuse: an argument is too long.
    #[error("a {what} has at most {max} bytes, not {len}")]
    TooLong {
        /// `key`, `value`, `floor` or `block`.
        what: &'static str,
        /// Bytes given.
        len: u64,
        /// Maximum number of bytes.
        max: u64,
    },
    /// Misuse: a region or a log is too small for a pool, or the log's size is not a multiple of 4096.
    #[error(
        "a pool with a log of {log_bytes} bytes does not fit into {region_bytes}, or the log's size is odd"
    )]
    Geometry {
        /// Bytes of one half of the log.
        log_bytes: u64,
        /// Bytes of the region.
        region_bytes: u64,
    },
    /// Misuse: the region holds no pool.
    #[error("the region holds no pool: create one")]
    NoPool,
    /// Misuse: the region already holds a pool or other data.
    #[error("the region is in use: it does not begin with zeroes")]
    Occupied,
    /// Misuse: this program does not support the pool's version or features.
    #[error("the pool has version {version} and features {features:#x}: a newer program is needed")]
    Unknown {
        /// The pool's version.
        version: u32,
        /// Features that a program must know to open the pool.
        features: u32,
    },
    /// Corrupt: a check failed.
    #[error("the pool is damaged: {what} at offset {off}")]
    Damaged {
        /// What failed the check.
        what: &'static str,
        /// Its offset from the start of the region, bytes.
        off: u64,
    },
}

impl HandlerError {
    pub(crate) const fn damaged(what: &'static str, off: u64) -> Self {
        Self::Damaged { what, off }
    }
}
