//! How far a region may grow.

use crate::error::MediaError;
use crate::units::RUN_SIZE;

/// Address space reserved for growth, bytes, at least.
const RESERVE_MIN: u64 = 64 << 30;

/// Address space reserved for growth, as a multiple of the length at open.
const RESERVE_FACTOR: u64 = 4;

/// Address space for a region of `len` bytes that is to grow to `whole` as soon as it is open, and perhaps further.
pub(super) fn reservation(len: u64, whole: u64) -> u64 {
    RESERVE_MIN.max(len.saturating_mul(RESERVE_FACTOR)).max(whole)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A start with a larger capacity grows the region by any factor.
    #[test]
    fn a_region_may_grow_to_what_it_is_opened_for() {
        for (len, whole) in [(64 << 20, 100 << 30), (1 << 30, 512 << 30), (512 << 30, 0)] {
            assert!(grows(len, whole.max(len), reservation(len, whole)).is_ok(), "{len} to {whole}");
        }
        assert!(grows(1 << 30, 512 << 30, reservation(1 << 30, 0)).is_err(), "nobody has said so");
    }
}
