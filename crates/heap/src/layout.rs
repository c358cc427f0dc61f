//! Sizes and offsets in a region. The byte tables are in `docs/format/region.md` and `docs/format/records.md`. This
//! file names the values and asserts how they depend on each other.

pub use landfall_media::RUN_SIZE;

/// Bytes of a frame, the unit of reference counting.
pub const FRAME_SIZE: u64 = 2048;
/// Frames in a run.
pub const FRAMES_PER_RUN: u64 = RUN_SIZE / FRAME_SIZE;
/// Size of a record, bytes.
pub const RECORD_SIZE: u64 = 128;
/// Records in a slab, which is a run.
pub const SLOTS_PER_RUN: u32 = 8192;
/// Runs in a zone; the first run of each zone holds the zone's run table.
pub const ZONE_RUNS: u32 = 1024;
/// Most runs in a region. Slot numbers have 32 bits, so a region has at most 512 GiB.
pub const RUNS_MAX: u32 = 512 * 1024;
/// Fewest runs in a region: room for the table, landing runs, slabs and the compactor.
pub const RUNS_MIN: u32 = 32;

/// Offsets of the two superblock copies, bytes.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 32 << 10];
/// Offsets of the two run-table copies from their zone's start, bytes.
pub const TABLE_OFFSETS: [u64; 2] = [64 << 10, 128 << 10];
/// Offsets of the two copies of the epochs from their zone's start, bytes.
pub const EPOCH_OFFSETS: [u64; 2] = [192 << 10, 256 << 10];

/// Bytes of the first run that no heap uses: for what is shared with a virtual machine whose NVDIMM the region is.
pub const MACHINE_AREA: std::ops::Range<u64> = 320 << 10..968 << 10;

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: u64 = 512 << 20;
/// Most records in one group: a group lies in one slab.
pub const GROUP_RECORDS_MAX: usize = SLOTS_PER_RUN as usize;

const _: () = assert!(FRAMES_PER_RUN == 512);
const _: () = assert!(SLOTS_PER_RUN as u64 * RECORD_SIZE == RUN_SIZE);
const _: () = assert!(RUNS_MAX as u64 * RUN_SIZE == 512 << 30);
const _: () = assert!(TABLE_OFFSETS[1] + ZONE_RUNS as u64 * 8 <= EPOCH_OFFSETS[0]);
const _: () = assert!(EPOCH_OFFSETS[1] + ZONE_RUNS as u64 * 8 <= MACHINE_AREA.start);
const _: () = assert!(MACHINE_AREA.end <= RUN_SIZE);

/// Number of a run: its region offset divided by [`RUN_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u32);

impl RunId {
    /// The run that holds region offset `off`.
    pub const fn of(off: u64) -> Self {
        Self((off / RUN_SIZE) as u32)
    }

    /// Region offset of the run's first byte.
    pub const fn off(self) -> u64 {
        self.0 as u64 * RUN_SIZE
    }

    /// True for the runs that hold superblocks and run tables.
    pub const fn is_table(self) -> bool {
        self.0.is_multiple_of(ZONE_RUNS)
    }

    /// Offsets of the two copies of this run's table word.
    pub const fn table_words(self) -> [u64; 2] {
        self.words_at(TABLE_OFFSETS)
    }

    /// Offsets of the two copies of this run's epoch.
    pub const fn epoch_words(self) -> [u64; 2] {
        self.words_at(EPOCH_OFFSETS)
    }

    const fn words_at(self, offsets: [u64; 2]) -> [u64; 2] {
        let zone = (self.0 / ZONE_RUNS * ZONE_RUNS) as u64 * RUN_SIZE;
        let word = (self.0 % ZONE_RUNS) as u64 * 8;
        [zone + offsets[0] + word, zone + offsets[1] + word]
    }
}

/// Number of a record slot: its region offset divided by [`RECORD_SIZE`]. Zero is never a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);

impl SlotId {
    /// No record. It counts as durable.
    pub const NONE: Self = Self(0);

    /// Slot `index` of slab `run`.
    pub const fn new(run: RunId, index: u32) -> Self {
        Self(run.0 * SLOTS_PER_RUN + index)
    }

    /// Region offset of the record.
    pub const fn off(self) -> u64 {
        self.0 as u64 * RECORD_SIZE
    }

    /// The slab.
    pub const fn run(self) -> RunId {
        RunId(self.0 / SLOTS_PER_RUN)
    }

    /// Index of the slot in its slab.
    pub const fn index(self) -> u32 {
        self.0 % SLOTS_PER_RUN
    }
}
