//! The superblock: format version, features and geometry of a region. Byte table: `docs/format/region.md`.

use crate::crc;
use crate::error::HeapError;
use crate::layout::{FRAME_SIZE, RECORD_SIZE, RUN_SIZE, RUNS_MAX, RUNS_MIN, SUPERBLOCK_OFFSETS};
use landfall_media::{Extent, Media, MediaError, Site, persist};
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First eight bytes of a region.
pub const MAGIC: [u8; 8] = *b"LANDFALL";
/// The newest format version that this code reads, which it also writes.
pub const VERSION: u32 = 1;
const SIZE: usize = 128;
/// Bytes of a superblock that mean nothing yet.
pub(crate) const RESERVED: usize = 40;

/// Must-know feature: the region may hold records of logs.
pub const FEATURE_LOGS: u32 = 1;
/// Must-know feature: values may be certified by the sums of their extents alone.
pub const FEATURE_SUMS_ONLY: u32 = 2;
/// Must-know feature: the region may hold records of a PMNet device.
pub const FEATURE_PMNET: u32 = 4;
/// Must-know feature: slabs have epochs.
pub(crate) const FEATURE_EPOCHS: u32 = 8;
/// Must-know feature: records of several keys may refer to the same bytes. Such records have a flag.
pub const FEATURE_SHARED: u32 = 16;
/// Must-know feature: the region may hold records of transactions.
pub(crate) const FEATURE_TRANSACTIONS: u32 = 32;
/// Must-know feature: values may be kept in pieces.
pub const FEATURE_PIECES: u32 = 64;
/// Must-know feature: the region may hold records of files.
pub const FEATURE_FILES: u32 = 128;
/// Must-know feature: files know which calls of mounts on other machines were done.
pub const FEATURE_CALLS: u32 = 256;
/// Must-know features this code knows.
const KNOWN_INCOMPATIBLE: u32 = FEATURE_LOGS
    | FEATURE_SUMS_ONLY
    | FEATURE_PMNET
    | FEATURE_EPOCHS
    | FEATURE_SHARED
    | FEATURE_TRANSACTIONS
    | FEATURE_PIECES
    | FEATURE_FILES
    | FEATURE_CALLS;
/// Read-only-if-unknown features this code knows.
const KNOWN_READ_ONLY: u32 = 0;

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    compatible: U32,
    incompatible: U32,
    read_only: U32,
    salt: [u8; 16],
    hash_seed: U64,
    runs: U64,
    created_ms: U64,
    generation: U64,
    run_size: U32,
    frame_size: U32,
    record_size: U32,
    reserved: [u8; RESERVED],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == SIZE);
const _: () = assert!(std::mem::offset_of!(Raw, salt) == 24);
const _: () = assert!(std::mem::offset_of!(Raw, runs) == 48);
const _: () = assert!(std::mem::offset_of!(Raw, crc) == SIZE - 4);

/// The checked contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Random bytes, drawn at creation, that seed every checksum in the region.
    pub salt: [u8; 16],
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// Runs in the region, table runs included.
    pub runs: u32,
    /// Creation time, Unix milliseconds.
    pub created_ms: u64,
    /// Number of superblock updates.
    pub generation: u64,
    /// Features that a program which does not know them may ignore. They are kept.
    pub compatible: u32,
    /// Features that a program which does not know them may only read: all of them, as none is known so far.
    pub read_only: u32,
    /// Must-know features of the region.
    pub features: u32,
    /// Bytes that mean nothing to this program. They are kept: a feature that it may ignore may have its fields there.
    pub reserved: [u8; RESERVED],
}

/// Hash of a key within a space, in a region with this seed.
#[inline]
pub fn hash_of(hash_seed: u64, space: u8, key: &[u8]) -> u64 {
    let seed = hash_seed ^ u64::from(space).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxh3_64_with_seed(key, seed)
}

impl Geometry {
    /// Bytes of the region.
    pub fn bytes(&self) -> u64 {
        u64::from(self.runs) * RUN_SIZE
    }

    /// Hash of a key within a space; seeded by the region, so that clients cannot aim at one bucket.
    #[inline]
    pub(crate) fn hash(&self, space: u8, key: &[u8]) -> u64 {
        hash_of(self.hash_seed, space, key)
    }

    /// Checks that the region has no features that only allow reading.
    ///
    /// # Errors
    /// [`HeapError::UnknownFeatures`].
    pub(crate) fn check_writable(&self) -> Result<(), HeapError> {
        match self.read_only & !KNOWN_READ_ONLY {
            0 => Ok(()),
            mask => Err(HeapError::UnknownFeatures { mask }),
        }
    }

    /// Number of whole runs in `bytes`, if it is within the limits of a region.
    ///
    /// # Errors
    /// [`HeapError::Capacity`].
    pub fn runs_for(bytes: u64) -> Result<u32, HeapError> {
        let (min, max) = (u64::from(RUNS_MIN), u64::from(RUNS_MAX));
        let runs = bytes / RUN_SIZE;
        if !(min..=max).contains(&runs) {
            return Err(HeapError::Capacity { bytes, min: min * RUN_SIZE, max: max * RUN_SIZE });
        }
        Ok(runs as u32)
    }

    fn encode(&self) -> Raw {
        let mut raw = Raw {
            magic: MAGIC,
            version: U32::new(VERSION),
            compatible: U32::new(self.compatible),
            incompatible: U32::new(self.features),
            read_only: U32::new(self.read_only),
            salt: self.salt,
            hash_seed: U64::new(self.hash_seed),
            runs: U64::new(u64::from(self.runs)),
            created_ms: U64::new(self.created_ms),
            generation: U64::new(self.generation),
            run_size: U32::new(RUN_SIZE as u32),
            frame_size: U32::new(FRAME_SIZE as u32),
            record_size: U32::new(RECORD_SIZE as u32),
            reserved: self.reserved,
            crc: U32::new(0),
        };
        raw.crc = U32::new(crc::of(&raw.as_bytes()[..SIZE - 4]));
        raw
    }

    /// Writes both copies, one after the other, each durable before the next is touched.
    ///
    /// # Errors
    /// The medium's.
    pub fn write(&self, media: &dyn Media) -> Result<(), MediaError> {
        let raw = self.encode();
        for off in SUPERBLOCK_OFFSETS {
            media.store(off, raw.as_bytes())?;
            persist(media, Extent::new(off, SIZE as u32), Site::Superblock, Site::SuperblockFence)?;
        }
        Ok(())
    }

    /// Reads the newest valid copy. The flag is true if the other copy must be rewritten.
    ///
    /// # Errors
    /// [`HeapError::Truncated`]; the errors of [`decode`]; the medium's.
    pub fn read(media: &dyn Media) -> Result<(Self, bool), HeapError> {
        let shortest = SUPERBLOCK_OFFSETS[1] + SIZE as u64;
        if media.len() < shortest {
            return Err(HeapError::Truncated { expected: shortest, actual: media.len() });
        }
        let copies = [read_copy(media, 0), read_copy(media, 1)];
        match copies {
            [Ok(a), Ok(b)] => Ok((if b.generation > a.generation { b } else { a }, a != b)),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok((one, true)),
            [Err(HeapError::NotARegion), Err(other)] | [Err(other), Err(_)] => Err(other),
        }
    }

    /// Number of copies that fail their checks.
    ///
    /// # Errors
    /// The medium's.
    pub fn damaged_copies(media: &dyn Media) -> Result<u32, HeapError> {
        let mut damaged = 0;
        for copy in 0..SUPERBLOCK_OFFSETS.len() {
            match read_copy(media, copy) {
                Err(HeapError::Media(error)) => return Err(error.into()),
                other => damaged += u32::from(other.is_err()),
            }
        }
        Ok(damaged)
    }

    /// Checks that the medium is as long as the region.
    ///
    /// # Errors
    /// [`HeapError::Truncated`].
    pub fn check_length(&self, media: &dyn Media) -> Result<(), HeapError> {
        if media.len() < self.bytes() {
            return Err(HeapError::Truncated { expected: self.bytes(), actual: media.len() });
        }
        Ok(())
    }
}

fn read_copy(media: &dyn Media, copy: usize) -> Result<Geometry, HeapError> {
    let bytes = media.bytes(Extent::new(SUPERBLOCK_OFFSETS[copy], SIZE as u32))?;
    decode(bytes)
}

/// Decodes one superblock copy from untrusted bytes.
///
/// # Errors
/// [`HeapError::NotARegion`], [`HeapError::SuperblockDamaged`], [`HeapError::NewerVersion`], [`HeapError::UnknownFeatures`], [`HeapError::BadGeometry`].
pub fn decode(bytes: &[u8]) -> Result<Geometry, HeapError> {
    let Ok(raw) = Raw::read_from_bytes(&bytes[..SIZE.min(bytes.len())]) else {
        return Err(HeapError::NotARegion);
    };
    let intact = crc::of(&raw.as_bytes()[..SIZE - 4]) == raw.crc.get();
    if !intact {
        let ours = raw.magic == MAGIC || raw.run_size.get() == RUN_SIZE as u32;
        return Err(if ours { HeapError::SuperblockDamaged } else { HeapError::NotARegion });
    }
    if raw.magic != MAGIC {
        return Err(HeapError::NotARegion);
    }
    check_version(&raw)?;
    check_geometry(&raw)
}

fn check_version(raw: &Raw) -> Result<(), HeapError> {
    if raw.version.get() > VERSION {
        return Err(HeapError::NewerVersion { found: raw.version.get(), known: VERSION });
    }
    let unknown = raw.incompatible.get() & !KNOWN_INCOMPATIBLE;
    if unknown != 0 {
        return Err(HeapError::UnknownFeatures { mask: unknown });
    }
    Ok(())
}

fn check_geometry(raw: &Raw) -> Result<Geometry, HeapError> {
    let sizes = [
        ("run size", u64::from(raw.run_size.get()), RUN_SIZE),
        ("frame size", u64::from(raw.frame_size.get()), FRAME_SIZE),
        ("record size", u64::from(raw.record_size.get()), RECORD_SIZE),
    ];
    for (what, value, expected) in sizes {
        if value != expected {
            return Err(HeapError::BadGeometry { what, value });
        }
    }
    let value = raw.runs.get();
    let runs = u32::try_from(value).ok().filter(|runs| (RUNS_MIN..=RUNS_MAX).contains(runs));
    let runs = runs.ok_or(HeapError::BadGeometry { what: "runs", value })?;
    Ok(Geometry {
        salt: raw.salt,
        hash_seed: raw.hash_seed.get(),
        runs,
        created_ms: raw.created_ms.get(),
        generation: raw.generation.get(),
        compatible: raw.compatible.get(),
        read_only: raw.read_only.get(),
        features: raw.incompatible.get(),
        reserved: raw.reserved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            salt: [7; 16],
            hash_seed: 0x1122_3344_5566_7788,
            runs: 64,
            created_ms: 1_800_000_000_000,
            generation: 3,
            compatible: 0,
            read_only: 0,
            features: 0,
            reserved: [0; RESERVED],
        }
    }

    /// A superblock after a change to its fields, with a checksum that holds.
    fn changed(change: impl FnOnce(&mut Raw)) -> Result<Geometry, HeapError> {
        let mut raw = geometry().encode();
        change(&mut raw);
        raw.crc = U32::new(crc::of(&raw.as_bytes()[..SIZE - 4]));
        decode(raw.as_bytes())
    }

    /// Byte for byte as in `docs/format/region.md`.
    #[test]
    fn the_bytes_of_a_superblock_are_frozen() {
        let hex: String = geometry().encode().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let frozen = concat!(
            "4c414e4446414c4c010000000000000000000000000000000707070707070707",
            "07070707070707078877665544332211400000000000000000505c18a3010000",
            "0300000000000000000010000008000080000000000000000000000000000000",
            "00000000000000000000000000000000000000000000000000000000ae0aafb0",
        );
        assert_eq!(hex, frozen);
    }

    /// A feature that this program may ignore may have its fields there.
    #[test]
    fn reserved_bytes_of_a_newer_program_are_kept_when_features_are_added() {
        let reserved = std::array::from_fn(|at| at as u8);
        let newer = changed(|raw| raw.reserved = reserved).expect("they mean nothing here");
        let next = Geometry { features: newer.features | FEATURE_LOGS, generation: 4, ..newer };
        assert_eq!(next.encode().reserved, reserved);
        assert_eq!(decode(next.encode().as_bytes()).expect("unchanged"), next);
    }

    #[test]
    fn newer_versions_and_unknown_must_know_features_are_refused() {
        assert_eq!(changed(|_| {}).expect("unchanged"), geometry());
        let newer = changed(|raw| raw.version = U32::new(VERSION + 1));
        assert!(matches!(newer, Err(HeapError::NewerVersion { .. })));
        let feature = changed(|raw| raw.incompatible = U32::new(1 << 31));
        assert!(matches!(feature, Err(HeapError::UnknownFeatures { mask }) if mask == 1 << 31));
        let logs = changed(|raw| raw.incompatible = U32::new(FEATURE_LOGS)).expect("logs are known");
        assert_eq!(logs.features, FEATURE_LOGS);
        let reads = changed(|raw| raw.read_only = U32::new(1 << 31)).expect("may be read");
        assert!(
            matches!(reads.check_writable(), Err(HeapError::UnknownFeatures { mask }) if mask == 1 << 31)
        );
        let ignores = changed(|raw| raw.compatible = U32::new(1 << 31)).expect("may be ignored");
        assert_eq!(ignores, Geometry { compatible: 1 << 31, ..geometry() });
        for kept in [reads, ignores] {
            assert_eq!(
                decode(kept.encode().as_bytes()).expect("unchanged"),
                kept,
                "whoever knows it finds it"
            );
        }
    }
}
