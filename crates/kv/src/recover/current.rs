//! A bit for each slot, slab by slab: set if the slot holds the current version of a key.
//!
//! The index holds this, too. But the bits of neighbouring slots share a cache line, so that reading them in order of
//! slots costs few cache misses.

use landfall_heap::{RunId, SLOTS_PER_RUN, ScanUnit, SlotId};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS_PER_SLAB: usize = SLOTS_PER_RUN as usize / 64;
const NO_SLAB: u32 = u32::MAX;

/// The bits of every slab.
#[derive(Debug)]
pub(super) struct CurrentSlots {
    /// The slab's number, by run; [`NO_SLAB`] for other runs.
    slabs: Vec<u32>,
    words: Vec<AtomicU64>,
}

impl CurrentSlots {
    pub(super) fn new(units: &[ScanUnit]) -> Self {
        let runs = units.iter().map(|unit| unit.run.0 as usize + 1).max().unwrap_or(0);
        let mut slabs = vec![NO_SLAB; runs];
        units.iter().enumerate().for_each(|(number, unit)| slabs[unit.run.0 as usize] = number as u32);
        let words = (0..units.len() * WORDS_PER_SLAB).map(|_| AtomicU64::new(0)).collect();
        Self { slabs, words }
    }

    pub(super) fn set(&self, slot: SlotId) {
        let (word, bit) = self.place(slot);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    pub(super) fn clear(&self, slot: SlotId) {
        let (word, bit) = self.place(slot);
        word.fetch_and(!bit, Ordering::Relaxed);
    }

    pub(super) fn clear_all(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The current slots of slab `number`, which lies in `run`, in order.
    pub(super) fn of_slab(&self, number: usize, run: RunId) -> impl Iterator<Item = SlotId> + '_ {
        let words = &self.words[number * WORDS_PER_SLAB..(number + 1) * WORDS_PER_SLAB];
        words.iter().enumerate().flat_map(move |(index, word)| {
            let word = word.load(Ordering::Relaxed);
            let bits = (0..64).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| SlotId::new(run, index as u32 * 64 + bit))
        })
    }

    fn place(&self, slot: SlotId) -> (&AtomicU64, u64) {
        let slab = self.slabs[slot.run().0 as usize] as usize;
        (&self.words[slab * WORDS_PER_SLAB + slot.index() as usize / 64], 1 << (slot.index() % 64))
    }
}
