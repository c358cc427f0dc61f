//! Short lists of extents.

use landfall_media::Extent;
use smallvec::SmallVec;

/// The extents a value or a record refers to.
pub type Extents = SmallVec<[Extent; 4]>;

/// The extents that one version refers to, until they are released.
pub(crate) type Refers = SmallVec<[Extent; 2]>;

/// Total length of the extents, bytes.
#[inline]
pub(crate) fn total_len(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len())).sum()
}
