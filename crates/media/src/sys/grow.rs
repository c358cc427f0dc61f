//! How far a region may grow.

use crate::error::MediaError;
use crate::units::RUN_SIZE;

/// Address space reserved for growth, bytes, at least.
pub(super) const RESERVE_MIN: u64 = 64 << 30;

/// Address space reserved for growth, as a multiple of the length at open.
pub(super) const RESERVE_FACTOR: u64 = 4;

/// Whether growing from `now` to `len` requires work. Shrinking, a length that is not a multiple of a run, and a length
/// beyond the reservation are errors.
pub(crate) fn grows(now: u64, len: u64, reserved: u64) -> Result<bool, MediaError> {
    if len < now {
        return Err(MediaError::Unsupported("a region cannot shrink"));
    }
    if !len.is_multiple_of(RUN_SIZE) {
        return Err(MediaError::Unsupported("the capacity of a region is a positive multiple of 1 MiB"));
    }
    if len > reserved {
        return Err(MediaError::Unsupported(
            "the region cannot grow that far while it is open: restart, and grow it again",
        ));
    }
    Ok(len > now)
}
