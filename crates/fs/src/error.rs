//! Why a call of [`crate::Files`] has failed.

use crate::tree::TreeError;
use landfall_heap::{Damage, HeapError, Until};
use landfall_media::MediaError;
use thiserror::Error;

/// Why a call has failed. It has changed nothing.
#[derive(Debug, Error)]
pub enum FsError {
    /// The tree does not allow it. Each has the meaning of an error of POSIX.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It cannot be done yet: the caller tries again after the event.
    #[error("not yet: {0:?}")]
    Wait(Until),
    /// The log of the mount has as much that is not published as it may have. The caller tries again when a chunk is
    /// published.
    #[error("not yet: too much of the log is not published")]
    Backlog,
    /// The newest header of the tree cannot be read. An older one may be of a tree that a copy has replaced.
    #[error(
        "the header of the files is damaged ({0}), and an older one must not stand in for it: run `landfall check \
         --repair`, or remove the region and have it copied anew from another server of its chain"
    )]
    Header(Damage),
    /// As [`Self::Header`], and nothing else says which records are of the tree: a repair would mix it with the one before.
    #[error(
        "the header of the files is damaged, and nothing else says which records a copy has replaced: remove the \
         region, and have it copied anew from another server of its chain"
    )]
    FloorLost,
    /// A failure of the region; [`HeapError::Full`] is `ENOSPC`, all others are `EIO`.
    #[error(transparent)]
    Heap(HeapError),
}

impl FsError {
    /// What to wait for after a failure that does not last; `None` if it lasts. Publishing and compaction may make room in a
    /// region that is full now.
    pub fn until(&self) -> Option<Until> {
        match self {
            Self::Wait(until) => Some(*until),
            Self::Heap(HeapError::Full) | Self::Backlog => Some(Until::Space),
            _ => None,
        }
    }
}

impl From<HeapError> for FsError {
    fn from(error: HeapError) -> Self {
        Until::of(&error).map_or(Self::Heap(error), Self::Wait)
    }
}

impl From<MediaError> for FsError {
    fn from(error: MediaError) -> Self {
        Self::Heap(error.into())
    }
}
