//! The errors of a medium, grouped by cause: misuse, environment, corruption.

use std::io;
use std::path::PathBuf;

/// An error of a medium. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// Misuse: an offset past the end of the region, or an unaligned word.
    #[error("range {off}+{len} is outside the region of {region_len} bytes")]
    OutOfBounds {
        /// Offset requested, bytes.
        off: u64,
        /// Length requested, bytes.
        len: u64,
        /// Size of the region, bytes.
        region_len: u64,
    },
    /// Environment: the file could not be opened, created, read, mapped or locked.
    #[error("{}: cannot {action}: {source}{}", path.display(), hint(source))]
    Io {
        /// The region's path.
        path: PathBuf,
        /// The operation that failed, as a verb phrase.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: another process has the region open.
    #[error("{}: another process has this region open; stop it first, or use another directory", path.display())]
    Locked {
        /// The region's path.
        path: PathBuf,
    },
    /// Corrupt: the file is shorter than the region's geometry says.
    #[error("{}: the file has {actual} bytes but the region needs {expected}: it was truncated; restore it from a copy, nothing was changed", path.display())]
    Truncated {
        /// The region's path.
        path: PathBuf,
        /// Bytes that the geometry needs.
        expected: u64,
        /// Bytes that the file has.
        actual: u64,
    },
    /// Environment: no space on the medium.
    #[error("{}: no space for a region of {wanted} bytes: free some, or ask for a smaller --capacity", path.display())]
    Full {
        /// The region's path.
        path: PathBuf,
        /// Bytes wanted.
        wanted: u64,
    },
    /// Misuse: the medium is not of the requested kind.
    #[error("{}: asked for {asked} but this is {found}: {advice}", path.display())]
    WrongKind {
        /// The region's path.
        path: PathBuf,
        /// The requested kind.
        asked: &'static str,
        /// The kind found.
        found: &'static str,
        /// What the user should do.
        advice: &'static str,
    },
    /// Environment: a write-back failed; the region takes no more writes until it is reopened.
    #[error(
        "a write to the medium failed ({source}); the region is closed for writing: check the device, then restart"
    )]
    WriteBack {
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: the region was closed for writing by an earlier failure.
    #[error("the region is closed for writing since an earlier failure: {reason}")]
    Closed {
        /// The failure.
        reason: String,
    },
    /// Misuse: this medium does not support the operation.
    #[error("{0}")]
    Unsupported(&'static str),
}

/// For whoever else needs what could not be read.
impl Clone for MediaError {
    fn clone(&self) -> Self {
        match self {
            Self::OutOfBounds { off, len, region_len } => {
                Self::OutOfBounds { off: *off, len: *len, region_len: *region_len }
            }
            Self::Io { path, action, source } => {
                Self::Io { path: path.clone(), action, source: same(source) }
            }
            Self::Locked { path } => Self::Locked { path: path.clone() },
            Self::Truncated { path, expected, actual } => {
                Self::Truncated { path: path.clone(), expected: *expected, actual: *actual }
            }
            Self::Full { path, wanted } => Self::Full { path: path.clone(), wanted: *wanted },
            Self::WrongKind { path, asked, found, advice } => {
                Self::WrongKind { path: path.clone(), asked, found, advice }
            }
            Self::WriteBack { source } => Self::WriteBack { source: same(source) },
            Self::Closed { reason } => Self::Closed { reason: reason.clone() },
            Self::Unsupported(what) => Self::Unsupported(what),
        }
    }
}

/// An error of the kernel is its number; another one keeps its kind and its text.
fn same(error: &io::Error) -> io::Error {
    let number = error.raw_os_error().map(io::Error::from_raw_os_error);
    number.unwrap_or_else(|| io::Error::new(error.kind(), error.to_string()))
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => " (check the owner and mode of the file and its directory)",
        io::ErrorKind::ReadOnlyFilesystem => " (the file system is read-only: choose another directory)",
        io::ErrorKind::NotFound => " (check that the directory exists)",
        _ => "",
    }
}
