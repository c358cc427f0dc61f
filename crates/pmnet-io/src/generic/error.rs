//! Errors of durable services.

use std::path::PathBuf;

/// Errors that stop a durable service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenericError {
    /// Environment: an operation on the file fails.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Corrupt: the file is not a journal, or not one of this service.
    #[error("{path} is damaged, or no journal of this service")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Corrupt: blocks that were synced follow a damaged one.
    #[error(
        "{path} is damaged at byte {at}, and acknowledged updates follow the damage: restore it from a copy, or discard \
         these updates by cutting the file there (truncate --size {at})"
    )]
    DamagedInside {
        /// The file.
        path: PathBuf,
        /// Offset at which the damage begins, bytes.
        at: u64,
    },
}
