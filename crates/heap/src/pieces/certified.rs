//! The checksums of a value that is being appended.

use super::piece::{Crcs, PIECES_FROM, Piece, pieces_of_parts};
use crate::extents::total_len;
use crate::heap::Heap;
use crate::record::Check;
use landfall_media::{Extent, MediaError};

/// The checksums of a value that is being appended.
#[derive(Debug)]
pub(crate) enum Certified {
    /// One checksum of the whole value.
    Whole(Check),
    /// The value is stored in pieces.
    Pieces(Vec<Piece>),
}

impl Heap {
    /// The checksums for `extents`. The bytes are read only if no checksum is known.
    pub(crate) fn certified(
        &self,
        extents: &[Extent],
        known: Option<Crcs<'_>>,
    ) -> Result<Certified, MediaError> {
        let is_long = total_len(extents) >= PIECES_FROM;
        Ok(match known {
            // If the parts do not match pieces, their combined checksum is used. A new checksum would hide damage that
            // has happened meanwhile.
            Some(Crcs::Parts(parts)) if is_long => pieces_of_parts(extents, parts)
                .map_or_else(|| Certified::Whole(Check::Crc(Crcs::Parts(parts).whole())), Certified::Pieces),
            Some(known) => Certified::Whole(Check::Crc(known.whole())),
            None if self.policy.trusts_sums_of(extents) => Certified::Whole(Check::Sums),
            None if is_long => Certified::Pieces(self.reader().pieces_of(extents)?),
            None => Certified::Whole(Check::Crc(self.crc_of(extents)?)),
        })
    }
}
