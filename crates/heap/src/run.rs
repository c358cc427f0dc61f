//! The state of one run in DRAM.

use crate::layout::SLOTS_PER_RUN;
use crate::record::Seal;
use crate::referrers::{Referrers, Sharing};
use crate::table::Epoch;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The use of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RunUse {
    /// None: the run is on the free list.
    Free = 0,
    /// Data: landed bytes, or bytes that a writer places. The run becomes free when no frame of it is referenced.
    Data = 1,
    /// Records.
    Slab = 2,
    /// Superblocks and run tables.
    Table = 3,
    /// Out of use: both copies of its table word or epoch are damaged.
    Bad = 4,
}

impl RunUse {
    fn from_u8(byte: u8) -> Self {
        match byte {
            0 => Self::Free,
            1 => Self::Data,
            2 => Self::Slab,
            3 => Self::Table,
            _ => Self::Bad,
        }
    }
}

/// The state of one run.
#[derive(Debug, Default)]
pub struct Run {
    pub(crate) used_for: AtomicU8,
    /// Frames with a reference count above zero, plus one while a transport or writer fills the run.
    pub(crate) busy: AtomicU32,
    /// Bytes to which live records refer, as [`Live`] (data runs).
    pub(crate) live: AtomicU64,
    /// Slots appended to (slabs).
    pub(crate) filled: AtomicU32,
    /// Slots known durable (slabs).
    pub(crate) durable: AtomicU32,
    /// Slots that hold the current version of something (slabs).
    pub(crate) live_slots: AtomicU32,
    /// The durable mark last written to the run table (slabs).
    pub(crate) marked: AtomicU32,
    /// Id of the writer that appends to the slab, plus one; 0 for none (slabs).
    pub(crate) owner: AtomicU8,
    /// A transport or writer fills the run (data runs).
    pub(crate) filling: AtomicU8,
    /// The owner's current batch and its first slot, as [`GatheringBatch`] (slabs).
    pub(crate) batch: AtomicU64,
    /// Number of runs taken before this one, or before the run that its data were moved from. The age of the run.
    pub(crate) born: AtomicU32,
    /// Bytes that the compactor placed in the run; 0 if the compactor did not fill it (data runs).
    pub(crate) packed: AtomicU32,
    /// How often the bytes in the run have been moved; 0 if they landed here (data runs).
    pub(crate) moves: AtomicU8,
    /// The slab has unreadable slots and is excluded from compaction (slabs).
    pub(crate) pinned: AtomicU8,
    /// Its writer has left it, and appends nothing more (slabs).
    pub(crate) abandoned: AtomicU8,
    /// The slab is being freed: its table word must not be written as a slab's again (slabs).
    pub(crate) leaving: AtomicU8,
    /// How often the run has become a slab.
    pub(crate) epoch: AtomicU32,
    /// The seal of its newest epoch's records.
    pub(crate) seal: AtomicU32,
    /// [`Sharing`] (data runs).
    pub(crate) sharing: AtomicU8,
    /// The records that refer to the run (data runs).
    pub(crate) referrers: Mutex<Referrers>,
}

/// Bits of a slab's batch word that hold a slot's index, one past the last included.
const INDEX_BITS: u32 = 14;
const _: () = assert!(SLOTS_PER_RUN < 1 << INDEX_BITS);

/// The current batch of a slab's owner: its number, and the index of its first slot. Both are in one word, so that a
/// reader gets a consistent pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatheringBatch {
    pub(crate) number: u64,
    pub(crate) first: u32,
}

impl GatheringBatch {
    fn to_word(self) -> u64 {
        self.number << INDEX_BITS | u64::from(self.first)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self { number: word >> INDEX_BITS, first: (word & ((1 << INDEX_BITS) - 1)) as u32 }
    }

    /// The batch of a slot that was appended before the word was read. At most one batch before the current one is not
    /// durable yet.
    pub(crate) fn of_slot(self, index: u32) -> u64 {
        if index >= self.first { self.number } else { self.number - 1 }
    }
}

/// References of live records to a data run in one word: bytes in the low half, referring pieces in the high half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) bytes: u32,
    pub(crate) pieces: u32,
}

impl Live {
    pub(crate) const fn piece(bytes: u32) -> u64 {
        1 << 32 | bytes as u64
    }

    pub(crate) const fn from_word(word: u64) -> Self {
        Self { bytes: word as u32, pieces: (word >> 32) as u32 }
    }
}

impl Run {
    /// How often the run has become a slab.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    /// The seal of that epoch's records.
    #[inline]
    pub(crate) fn seal(&self) -> Seal {
        Seal::from_word(self.seal.load(Ordering::Relaxed))
    }

    /// Sets the epoch. Only for a free run, or while a region is opened: no reader knows of a record in the run yet.
    pub(crate) fn set_epoch(&self, epoch: Epoch, seal: Seal) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.seal.store(seal.to_word(), Ordering::Relaxed);
    }

    /// Slots appended to since the run became a slab.
    pub fn filled(&self) -> u32 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Begins the owner's next batch at slot `first`.
    pub(crate) fn begin_batch(&self, number: u64, first: u32) {
        self.batch.store(GatheringBatch { number, first }.to_word(), Ordering::Release);
    }

    /// The use of the run.
    pub fn used_for(&self) -> RunUse {
        RunUse::from_u8(self.used_for.load(Ordering::Acquire))
    }

    pub(crate) fn set_use(&self, used_for: RunUse) {
        self.used_for.store(used_for as u8, Ordering::Release);
    }

    /// How often the bytes in the run have been moved.
    pub(crate) fn moves(&self) -> u8 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Sets how often the bytes that the compactor places in the run have been moved, this move included.
    pub(crate) fn set_moves(&self, moves: u8) {
        self.moves.store(moves, Ordering::Relaxed);
    }

    /// Bytes that live records refer to.
    pub fn live_bytes(&self) -> u32 {
        Live::from_word(self.live.load(Ordering::Relaxed)).bytes
    }

    /// Pieces of values and keys that live records refer to.
    pub(crate) fn live_pieces(&self) -> u32 {
        Live::from_word(self.live.load(Ordering::Relaxed)).pieces
    }

    /// Bytes that the compactor placed in the data run; `None` if the compactor did not fill it.
    pub(crate) fn packed_bytes(&self) -> Option<u32> {
        Some(self.packed.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets the number of bytes that the compactor has placed in the data run.
    pub(crate) fn pack(&self, bytes: u32) {
        self.packed.store(bytes, Ordering::Relaxed);
    }

    /// The value of [`crate::Runs`]' counter of taken runs when the run's data were new.
    pub(crate) fn born(&self) -> u32 {
        self.born.load(Ordering::Relaxed)
    }

    /// Sets the age of the data that the compactor places in the run.
    pub(crate) fn take_over(&self, born: u32) {
        self.born.store(born, Ordering::Relaxed);
    }

    /// True if the compactor must not empty the run: it is being appended to, or pinned.
    pub(crate) fn is_open(&self) -> bool {
        [&self.owner, &self.filling, &self.pinned].iter().any(|flag| flag.load(Ordering::Acquire) != 0)
            || self.filled.load(Ordering::Relaxed) != self.durable.load(Ordering::Relaxed)
    }

    /// True for a slab whose durable mark may rise: it has an owner, or its mark is behind.
    pub(crate) fn may_be_marked(&self) -> bool {
        // A slab without an owner is not appended to.
        let is_owned = self.owner.load(Ordering::Acquire) != 0;
        let is_behind = self.marked.load(Ordering::Acquire) != self.filled.load(Ordering::Relaxed);
        self.used_for() == RunUse::Slab && (is_owned || is_behind)
    }

    /// True if the durable mark is up to date, or the run is no slab.
    pub(crate) fn is_marked(&self) -> bool {
        self.used_for() != RunUse::Slab
            || self.marked.load(Ordering::Acquire) == self.durable.load(Ordering::Acquire)
    }

    /// Excludes a slab from compaction.
    pub(crate) fn pin(&self) {
        self.pinned.store(1, Ordering::Release);
    }

    pub(crate) fn set_sharing(&self, sharing: Sharing) {
        self.sharing.store(sharing as u8, Ordering::Release);
    }

    /// Ends the counting of references by recovery.
    pub(crate) fn end_counting(&self) {
        let mut referrers = self.referrers.lock();
        referrers.tidy();
        referrers.shared.keep_shared();
        let shares = !referrers.shared.is_empty();
        self.set_sharing(if shares { Sharing::Some } else { Sharing::None });
    }

    pub(crate) fn has_sharing(&self, sharing: Sharing) -> bool {
        self.sharing.load(Ordering::Acquire) == sharing as u8
    }

    /// Slots that hold current records.
    pub fn live_slots(&self) -> u32 {
        self.live_slots.load(Ordering::Relaxed)
    }
}
