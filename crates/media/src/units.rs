//! The units of a region.

/// Granularity of a cache-line flush, bytes.
pub const LINE_SIZE: u64 = 64;

/// Unit of residency and of sequential writes, bytes. The heap's runs have this size.
pub const RUN_SIZE: u64 = 1 << 20;

/// Alignment of direct writes to a file, bytes.
pub const BLOCK_SIZE: u64 = 4096;
