//! Sizes, limits and offsets. Byte table: `docs/format/fs-link.md`, "Memory".

use std::time::Duration;

/// Version of the link. Both sides must have the same one.
pub const VERSION: u16 = 4;
/// Bytes of the control memory.
pub const CONTROL_BYTES: usize = 36_864;
/// Words of the control memory.
pub const CONTROL_WORDS: usize = CONTROL_BYTES / 8;
/// Places for leases.
pub const LEASES_MAX: usize = 512;
/// Most slabs that are granted to a client and not adopted.
pub const SLABS_MAX: u64 = 8;
/// Most landing runs that are granted to a client and not done.
pub const LANDINGS_MAX: u64 = 64;
/// Seqs that come with a lease.
pub const SEQS_PER_LEASE: u64 = 1 << 20;
/// Most bytes of one operation.
pub const ENTRY_BYTES_MAX: u64 = 64 << 10;
/// Most extents of one operation: as many as fit beside its key.
pub const ENTRY_EXTENTS_MAX: usize = 2;
/// Offsets in files, and starts of extents, are multiples of so many bytes.
pub const BLOCK_BYTES: u64 = landfall_fs::BLOCK_BYTES;
/// Most bytes that a thread reads or appends while it is in a lease.
pub const USE_BYTES_MAX: u64 = 1 << 20;
/// A library that is in a lease for longer, after it was revoked, is fenced.
pub const LEASE_TIME: Duration = Duration::from_secs(1);

/// The letters, and the version behind them, as one word.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"LFLINK\0\0") | (VERSION as u64) << 48;
/// The bits of the letters in it.
pub(crate) const LETTERS: u64 = (1 << 48) - 1;

// Words of the server.
pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const CLIENT_AT: usize = 1;
pub(crate) const HASH_SEED_AT: usize = 2;
pub(crate) const REGION_BYTES_AT: usize = 3;
pub(crate) const STATE_AT: usize = 8;
pub(crate) const APPLIED_AT: usize = 9;
pub(crate) const SLABS_GRANTED_AT: usize = 10;
pub(crate) const LANDINGS_GRANTED_AT: usize = 11;
// Words of the library, on a cache line of their own.
pub(crate) const APPENDED_AT: usize = 16;
/// The bit of *appended* that says that nothing more counts.
pub(crate) const SEALED: u64 = 1 << 63;
pub(crate) const DURABLE_AT: usize = 17;
pub(crate) const DONE_AT: usize = 18;
// Words of the server, in memory that clients have one after the other.
pub(crate) const BOOT_AT: usize = 32;
// Tables.
pub(crate) const SLABS_AT: usize = 64;
pub(crate) const LANDINGS_AT: usize = 128;
pub(crate) const LEASES_AT: usize = 512;
/// Words of a lease.
pub(crate) const LEASE_WORDS: usize = 8;
// Words within a lease.
pub(crate) const WORD_AT: usize = 0;
pub(crate) const INODE_AT: usize = 1;
pub(crate) const NUMBER_AT: usize = 2;
pub(crate) const SEQ_AT: usize = 3;
pub(crate) const SIZE_AT: usize = 4;
pub(crate) const MTIME_AT: usize = 5;
pub(crate) const USES_AT: usize = 6;

const _: () = assert!(LEASES_AT * 8 == 4096);
const _: () = assert!(LEASES_AT + LEASES_MAX * LEASE_WORDS == CONTROL_WORDS);
const _: () = assert!(SLABS_AT * 8 == 512 && SLABS_AT + SLABS_MAX as usize <= LANDINGS_AT);
const _: () = assert!(LANDINGS_AT * 8 == 1024 && LANDINGS_AT + LANDINGS_MAX as usize <= LEASES_AT);
const _: () = assert!(ENTRY_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
