//! Modes of `fallocate` (linux/falloc.h).

pub(crate) const KEEP_SIZE: u32 = 1;
pub(crate) const PUNCH_HOLE: u32 = 2;
pub(crate) const COLLAPSE_RANGE: u32 = 8;
pub(crate) const ZERO_RANGE: u32 = 16;
pub(crate) const INSERT_RANGE: u32 = 32;
