//! What a medium is made of.

use std::path::PathBuf;

use super::kind::Found;
use super::lock::LockedFile;

/// The parts that a medium is made of: a locked file, and its properties.
pub(super) struct Region {
    pub(super) file: LockedFile,
    pub(super) path: PathBuf,
    pub(super) found: Found,
    /// Length in bytes, a positive multiple of [`RUN_SIZE`](crate::RUN_SIZE).
    pub(super) len: u64,
    pub(super) created: bool,
    pub(super) read_only: bool,
    /// Blocks that cannot be read are zeroes, and are named.
    pub(super) salvage: bool,
}
