//! Counts of payload bytes that user space copied. A path makes no copies if its counter stays at zero.

use std::sync::atomic::{AtomicU64, Ordering};

/// The reason for a copy of payload bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPath {
    /// A value short enough for its record.
    Inline,
    /// A value that did not land in frames (computed by a command, or gathered) placed into them.
    Placed,
    /// A long key placed into frames.
    Key,
    /// Live bytes that the compactor moved out of sparse runs.
    Moved,
    /// Bytes copied into a reply instead of sent from frames.
    Reply,
    /// Lists of extents of values in many pieces: metadata, placed beside the data.
    List,
    /// Unparsed bytes of a slow client, copied out of landing runs.
    Stalled,
    /// A short value that came in packets of its own, copied next to others.
    Consolidated,
}

impl CopyPath {
    /// Every path with its label in `/metrics`.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Inline, "inline"),
        (Self::Placed, "placed"),
        (Self::Key, "key"),
        (Self::Moved, "moved"),
        (Self::Reply, "reply"),
        (Self::List, "list"),
        (Self::Stalled, "stalled"),
        (Self::Consolidated, "consolidated"),
    ];
}

/// Bytes copied on each path since the region was opened.
#[derive(Debug, Default)]
pub struct Copies {
    bytes: [AtomicU64; CopyPath::ALL.len()],
}

impl Copies {
    /// Counts a copy.
    pub fn add(&self, path: CopyPath, bytes: usize) {
        self.bytes[path as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes copied on one path.
    pub fn get(&self, path: CopyPath) -> u64 {
        self.bytes[path as usize].load(Ordering::Relaxed)
    }
}
