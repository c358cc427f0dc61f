//! Writes to a region's file.

use crate::extent::Extent;

/// A contiguous write of region bytes to the file behind a region: block-aligned, ready for direct I/O.
///
/// `extent` is both the file offset and the place in the image: file offset = region offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// What to write; `off` and `len` are multiples of [`BLOCK_SIZE`](crate::BLOCK_SIZE).
    pub extent: Extent,
    /// Address of the image bytes at `extent.off`, valid while the region is open.
    pub addr: usize,
}
