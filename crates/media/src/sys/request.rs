//! The kind of medium that is requested.

use std::fmt;
use std::str::FromStr;

use crate::error::MediaError;

/// The kind of medium that the caller requests. Another kind is never used instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MediaRequest {
    /// Any kind that the kernel reports.
    #[default]
    Auto,
    /// Device-DAX, or a file on a DAX file system.
    Dax,
    /// A file on an ordinary file system.
    File,
    /// tmpfs, ramfs or hugetlbfs.
    Volatile,
}

impl MediaRequest {
    /// The name used by the `--media` flag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dax => "dax",
            Self::File => "file",
            Self::Volatile => "volatile",
        }
    }
}

impl fmt::Display for MediaRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MediaRequest {
    type Err = MediaError;

    fn from_str(text: &str) -> Result<Self, MediaError> {
        let known = [Self::Auto, Self::Dax, Self::File, Self::Volatile];
        known
            .into_iter()
            .find(|r| r.name() == text)
            .ok_or(MediaError::Unsupported("unknown kind of medium: use auto, dax, file or volatile"))
    }
}
