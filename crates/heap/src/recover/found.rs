//! A record found by the scan, and the judge of whether it is superseded.

use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::{Kind, RecordView};

/// A record found by the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The slot.
    pub slot: SlotId,
    /// Kind of the record.
    pub kind: Kind,
    /// Namespace.
    pub space: u8,
    /// Hash of space and key.
    pub hash: u64,
    /// Version.
    pub seq: u64,
    /// Moves of the version.
    pub rev: u32,
    /// Expiry, Unix milliseconds; 0 never. In spaces whose records do not expire: the mark.
    pub expiry_ms: u64,
    /// A field for the owner's use.
    pub aux: u32,
}

/// Answers recovery's questions about records above the watermarks: which newer records supersede them.
///
/// A function of heap, hash and version is a judge. It returns true if the scan has found a newer record of that hash.
/// Its records end with the flush mark of their space, or of all spaces (255).
pub trait Judge {
    /// True if the scan has found a record that supersedes this one.
    fn is_superseded(&self, heap: &Heap, found: &Found) -> bool;

    /// True if the record counts only under a [`Kind::Bound`] of its space and `aux`, and the scan has found none.
    fn lacks_bound(&self, found: &Found) -> bool {
        let _ = found;
        false
    }

    /// True if a newer flush mark ends the record. The owner of the record decides; by default no mark does.
    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        let _ = (mark, found);
        false
    }
}

impl<F: Fn(&Heap, u64, u64) -> bool> Judge for F {
    fn is_superseded(&self, heap: &Heap, found: &Found) -> bool {
        self(heap, found.hash, found.seq)
    }

    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        mark.space == found.space || mark.space == u8::MAX
    }
}

impl Found {
    pub(super) fn new(slot: SlotId, view: &RecordView<'_>) -> Self {
        Self {
            slot,
            kind: view.kind(),
            space: view.space(),
            hash: view.hash(),
            seq: view.seq(),
            rev: view.rev(),
            expiry_ms: view.expiry_ms(),
            aux: view.aux(),
        }
    }
}
