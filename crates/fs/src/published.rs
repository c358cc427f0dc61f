//! The report of publishing.

/// What publishing a chunk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Operations of the chunk.
    pub operations: u64,
    /// Records that were written.
    pub records: u64,
    /// Bytes of data to which new records refer. They were not copied.
    pub relinked_bytes: u64,
    /// Bytes of the operations that later ones of the chunk have undone (overwritten, cut off, deleted): no record refers to
    /// them. Bytes that were cloned count against them.
    pub coalesced_bytes: u64,
    /// Inodes that the chunk made and deleted again.
    pub undone: u64,
}
