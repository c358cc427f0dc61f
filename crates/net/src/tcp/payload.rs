//! Payload where it landed.

use crate::frames::Frames;
use landfall_media::{Extent, Sum};

/// Payload in the frames it landed in, and its sum: the segment's checksum without its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload {
    pub(crate) extent: Extent,
    pub(crate) sum: Sum,
    /// When the packet arrived, Unix nanoseconds.
    pub(crate) arrival_ns: u64,
}

impl Payload {
    /// A part of the payload, with the sum of that part.
    pub(crate) fn part(&self, skip: u32, len: u32, frames: &dyn Frames) -> Self {
        if skip == 0 && len == self.extent.len() {
            return *self;
        }
        let range = skip as usize..(skip + len) as usize;
        let sum = self.sum.of_part(frames.bytes(self.extent), range);
        Self { extent: Extent::new(self.extent.off + u64::from(skip), len), sum, ..*self }
    }
}
