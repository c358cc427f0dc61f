//! What a program asks of a tree of files. Paths are relative to the root, whose path is empty; links are not followed.

use std::fmt;
use std::sync::Arc;

/// Modes of `fallocate` (linux/falloc.h).
pub mod falloc {
    /// Reserve, and make the file longer.
    pub const RESERVE: u32 = 0;
    /// The size of the file stays.
    pub const KEEP_SIZE: u32 = 1;
    /// A hole instead of the range.
    pub const PUNCH_HOLE: u32 = 2;
    /// Take the range out.
    pub const COLLAPSE_RANGE: u32 = 8;
    /// Zeroes instead of the range.
    pub const ZERO_RANGE: u32 = 16;
    /// Move what is behind the start of the range to its end.
    pub const INSERT_RANGE: u32 = 32;
}

/// Bytes of a file or of an attribute. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub Arc<Vec<u8>>);

impl Bytes {
    /// `len` bytes that are different for each seed.
    pub fn pattern(len: u64, seed: u64) -> Self {
        let seed = seed.wrapping_mul(0x9E37_79B9) as u8;
        (0..len).map(|at| ((at * 13 % 241) as u8).wrapping_add(seed) | 1).collect::<Vec<u8>>().into()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

/// Long contents are named by their length and first bytes.
impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = &self.0[..self.0.len().min(8)];
        write!(f, "{} B \"{}\"", self.0.len(), begin.escape_ascii())
    }
}

/// A call that changes the tree. It is there as a whole after a crash, or not at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the calls and their arguments are those of POSIX and Linux")]
pub enum Call {
    Create { path: String },
    Mkdir { path: String },
    Symlink { target: String, path: String },
    Link { from: String, to: String },
    Unlink { path: String },
    Rmdir { path: String },
    Rename { from: String, to: String },
    Write { path: String, offset: u64, bytes: Bytes },
    Truncate { path: String, size: u64 },
    Allocate { path: String, mode: u32, offset: u64, len: u64 },
    SetExtended { path: String, name: String, value: Bytes },
    RemoveExtended { path: String, name: String },
}

/// A call after which changes are durable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persist {
    /// Of a file or directory.
    Fsync(String),
    /// Of a file.
    Fdatasync(String),
    /// Of everything.
    Sync,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A program changes the tree.
    Call(Call),
    /// A program waits until changes are durable.
    Persist(Persist),
    /// The log is published.
    Publish,
    /// The region is compacted.
    Compact,
}

/// Why a call is refused: the errors of POSIX that both the model and the tree have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the error of POSIX that it names")]
pub enum Errno {
    NotFound,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    Invalid,
    NotPermitted,
    NoAttribute,
}
