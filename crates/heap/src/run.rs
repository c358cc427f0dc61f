//! One run's state in DRAM.

use crate::layout::SLOTS_PER_RUN;
use crate::record::Seal;
use crate::referrers::{Referrers, Sharing};
use crate::table::Epoch;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What a run is being used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RunUse {
    /// Nothing; on the free list.
    Free = 0,
    /// Data: landing space, or bytes that a writer places. Free again when no frame is held.
    Data = 1,
    /// Records.
    Slab = 2,
    /// Superblocks and run tables.
    Table = 3,
    /// Taken out of use: its table word is damaged beyond repair.
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

/// One run's state.
#[derive(Debug, Default)]
pub struct Run {
    pub(crate) used_for: AtomicU8,
    /// Frames with a reference count above zero, plus one while a transport or writer fills the run.
    pub(crate) busy: AtomicU32,
    /// What live records refer to: [`Live`] (data runs).
    pub(crate) live: AtomicU64,
    /// Slots handed out (slabs).
    pub(crate) filled: AtomicU32,
    /// Slots known durable (slabs).
    pub(crate) durable: AtomicU32,
    /// Slots that hold the current version of something (slabs).
    pub(crate) live_slots: AtomicU32,
    /// The durable mark last written to the run table (slabs).
    pub(crate) marked: AtomicU32,
    /// The writer that appends here, plus one; 0 for none (slabs).
    pub(crate) owner: AtomicU8,
    /// A transport or writer fills the run (data runs).
    pub(crate) filling: AtomicU8,
    /// The batch that the owner gathers, and the slot with which it begins: [`GatheringBatch`] (slabs).
    pub(crate) batch: AtomicU64,
    /// How many runs had been taken when this one was, or the one that its data were moved from: tells its age.
    pub(crate) born: AtomicU32,
    /// Bytes that the compactor filled the run with; 0 if somebody else did (data runs).
    pub(crate) packed: AtomicU32,
    /// How often what lies here has been moved; 0 if it landed here (data runs).
    pub(crate) moves: AtomicU8,
    /// The slab holds what must not be moved: unreadable slots that may still be named (slabs).
    pub(crate) pinned: AtomicU8,
    /// The slab is being given back: its table word must not say slab again (slabs).
    pub(crate) leaving: AtomicU8,
    /// How often the run has become a slab.
    pub(crate) epoch: AtomicU32,
    /// What seals the records of its newest epoch.
    pub(crate) seal: AtomicU32,
    /// [`Sharing`] (data runs).
    pub(crate) sharing: AtomicU8,
    /// Who refers to this run (data runs).
    pub(crate) referrers: Mutex<Referrers>,
}

/// Bits of a slab's batch word that hold a slot's index, one past the last included.
const INDEX_BITS: u32 = 14;
const _: () = assert!(SLOTS_PER_RUN < 1 << INDEX_BITS);

/// The batch that a slab's owner gathers: its number, and the index of its first slot. In one word, so that a reader gets
/// both as they were at one time.
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

    /// The batch of a slot that was appended before the word was read. At most one batch before the one that gathers is not
    /// durable yet.
    pub(crate) fn of_slot(self, index: u32) -> u64 {
        if index >= self.first { self.number } else { self.number - 1 }
    }
}

/// What live records refer to in a data run, in one word: bytes below, records (one more for each piece) above.
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

    /// What seals the records of that epoch.
    #[inline]
    pub(crate) fn seal(&self) -> Seal {
        Seal::from_word(self.seal.load(Ordering::Relaxed))
    }

    /// The run's epoch is this one from now on. Of a free run only, or while a region is opened: whoever reads a record has
    /// learnt of it later than this.
    pub(crate) fn set_epoch(&self, epoch: Epoch, seal: Seal) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.seal.store(seal.to_word(), Ordering::Relaxed);
    }

    /// Slots handed out since the run became a slab.
    pub fn filled(&self) -> u32 {
        self.filled.load(Ordering::Relaxed)
    }

    /// A batch of the owner gathers from now on, beginning with slot `first`.
    pub(crate) fn begin_batch(&self, number: u64, first: u32) {
        self.batch.store(GatheringBatch { number, first }.to_word(), Ordering::Release);
    }

    /// What the run is used for.
    pub fn used_for(&self) -> RunUse {
        RunUse::from_u8(self.used_for.load(Ordering::Acquire))
    }

    pub(crate) fn set_use(&self, used_for: RunUse) {
        self.used_for.store(used_for as u8, Ordering::Release);
    }

    /// How often what lies here has been moved.
    pub(crate) fn moves(&self) -> u8 {
        self.moves.load(Ordering::Relaxed)
    }

    /// The compactor fills the run with what has been moved so often, this time included.
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

    /// Bytes that the compactor filled the data run with, if it did.
    pub(crate) fn packed_bytes(&self) -> Option<u32> {
        Some(self.packed.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// The compactor has filled the data run with so many bytes.
    pub(crate) fn pack(&self, bytes: u32) {
        self.packed.store(bytes, Ordering::Relaxed);
    }

    /// Age is counted from [`Runs::taken`].
    pub(crate) fn born(&self) -> u32 {
        self.born.load(Ordering::Relaxed)
    }

    /// The compactor fills this run with what is as old as that.
    pub(crate) fn take_over(&self, born: u32) {
        self.born.store(born, Ordering::Relaxed);
    }

    /// Someone appends to the run, or it must stay: not for the compactor.
    pub(crate) fn is_open(&self) -> bool {
        [&self.owner, &self.filling, &self.pinned].iter().any(|flag| flag.load(Ordering::Acquire) != 0)
            || self.filled.load(Ordering::Relaxed) != self.durable.load(Ordering::Relaxed)
    }

    /// A slab of which not everything that was handed out is marked, or more may be handed out.
    pub(crate) fn may_be_marked(&self) -> bool {
        // An owner that is gone has left all that it handed out.
        let is_owned = self.owner.load(Ordering::Acquire) != 0;
        let is_behind = self.marked.load(Ordering::Acquire) != self.filled.load(Ordering::Relaxed);
        self.used_for() == RunUse::Slab && (is_owned || is_behind)
    }

    /// No slab, or all that is durable in it is marked.
    pub(crate) fn is_marked(&self) -> bool {
        self.used_for() != RunUse::Slab
            || self.marked.load(Ordering::Acquire) == self.durable.load(Ordering::Acquire)
    }

    /// Keeps the compactor away from a slab.
    pub(crate) fn pin(&self) {
        self.pinned.store(1, Ordering::Release);
    }

    pub(crate) fn set_sharing(&self, sharing: Sharing) {
        self.sharing.store(sharing as u8, Ordering::Release);
    }

    /// Recovery has counted all references.
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
