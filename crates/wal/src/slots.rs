//! Where a log's entries are: four bytes each, in chunks, so that an append moves nothing.

use landfall_heap::SlotId;
use std::collections::VecDeque;

/// Entries of a chunk.
const CHUNK: usize = 4096;

/// Slots of consecutive offsets; [`SlotId::NONE`] for an entry that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// All full but the first, which may have lost its start, and the last.
    chunks: VecDeque<Vec<SlotId>>,
    /// Entries that the first chunk has lost.
    skipped: usize,
    len: usize,
}

impl Slots {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, slot: SlotId) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(slot),
            _ => self.chunks.push_back(vec![slot]),
        }
        self.len += 1;
    }

    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let at = (index < self.len).then(|| self.skipped + index)?;
        Some((at / CHUNK, at % CHUNK))
    }

    pub(crate) fn get(&self, index: usize) -> Option<SlotId> {
        let (chunk, at) = self.place(index)?;
        Some(self.chunks[chunk][at])
    }

    pub(crate) fn set(&mut self, index: usize, slot: SlotId) {
        if let Some((chunk, at)) = self.place(index) {
            self.chunks[chunk][at] = slot;
        }
    }

    /// Takes the first `count` out.
    pub(crate) fn take_front(&mut self, count: usize) -> Vec<SlotId> {
        let count = count.min(self.len);
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let Some(front) = self.chunks.front() else { break };
            let until = front.len().min(self.skipped + count - taken.len());
            taken.extend_from_slice(&front[self.skipped..until]);
            self.skipped = until;
            // A chunk that is not full yet is still pushed to.
            if self.skipped == CHUNK {
                self.chunks.pop_front();
                self.skipped = 0;
            }
        }
        self.len -= count;
        taken
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.chunks.iter().flatten().skip(self.skipped).copied()
    }

    /// Bytes of DRAM.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.capacity() as u64 * 4 + 24).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_are_a_queue(steps in prop::collection::vec((0..9000usize, 0..9000usize), 1..20)) {
            let (mut slots, mut model, mut next) = (Slots::default(), VecDeque::new(), 0);
            for (pushes, takes) in steps {
                for _ in 0..pushes {
                    next += 1;
                    slots.push(SlotId(next));
                    model.push_back(SlotId(next));
                }
                let middle = model.len() / 2;
                if middle < model.len() {
                    slots.set(middle, SlotId(u32::MAX - next));
                    model[middle] = SlotId(u32::MAX - next);
                }
                prop_assert!(slots.iter().eq(model.iter().copied()));
                let taken: Vec<SlotId> = model.drain(..takes.min(model.len())).collect();
                prop_assert_eq!(slots.take_front(takes), taken);
                prop_assert_eq!(slots.len(), model.len());
                for index in [0, 1, 4095, 4096, model.len()] {
                    prop_assert_eq!(slots.get(index), model.get(index).copied());
                }
            }
        }
    }
}
