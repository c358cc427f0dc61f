//! Sizes that several files share.

/// Unit of reference counting: a frame of the heap, bytes.
pub(crate) const FRAME_SIZE: u64 = 2048;
/// Chunks that an interface's queue has at once, and descriptors of its other rings.
pub(crate) const RING_ENTRIES: u32 = 2048;
