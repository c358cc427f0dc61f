//! The slots of a log's entries: a queue of four bytes for each entry. It consists of chunks, so that an append never
//! moves the slots before it.

use landfall_heap::SlotId;
use std::collections::VecDeque;

/// Entries of a chunk.
const CHUNK: usize = 4096;

#[derive(Debug)]
struct Chunk {
    slots: Vec<SlotId>,
    /// Bytes of all entries before the chunk, since the queue was created.
    start_bytes: u64,
}

/// Slots of consecutive offsets; [`SlotId::NONE`] for an entry that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Every chunk but the last is full. The first `skipped` slots of the first chunk have been taken out.
    chunks: VecDeque<Chunk>,
    /// Slots at the start of the first chunk that have been taken out.
    skipped: usize,
    len: usize,
    /// Bytes of all entries before the first one, since the queue was created.
    first_bytes: u64,
    /// Bytes of all entries that were pushed, since the queue was created.
    end_bytes: u64,
}

impl Slots {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.end_bytes.saturating_sub(self.first_bytes)
    }

    /// Adds an entry of `bytes` bytes.
    pub(crate) fn push(&mut self, slot: SlotId, bytes: u64) {
        match self.chunks.back_mut() {
            Some(chunk) if chunk.slots.len() < CHUNK => chunk.slots.push(slot),
            _ => self.chunks.push_back(Chunk { slots: vec![slot], start_bytes: self.end_bytes }),
        }
        self.len += 1;
        self.end_bytes += bytes;
    }

    fn place(&self, index: usize) -> Option<(usize, usize)> {
        let at = (index < self.len).then(|| self.skipped + index)?;
        Some((at / CHUNK, at % CHUNK))
    }

    pub(crate) fn get(&self, index: usize) -> Option<SlotId> {
        let (chunk, at) = self.place(index)?;
        Some(self.chunks[chunk].slots[at])
    }

    pub(crate) fn set(&mut self, index: usize, slot: SlotId) {
        if let Some((chunk, at)) = self.place(index) {
            self.chunks[chunk].slots[at] = slot;
        }
    }

    /// Removes the first `count` slots and returns them. `bytes_of` is called for entries of one chunk at most.
    pub(crate) fn take_front(&mut self, count: usize, bytes_of: impl Fn(SlotId) -> u64) -> Vec<SlotId> {
        let count = count.min(self.len);
        self.first_bytes = self.bytes_before(count, bytes_of);
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let Some(front) = self.chunks.front() else { break };
            let until = front.slots.len().min(self.skipped + count - taken.len());
            taken.extend_from_slice(&front.slots[self.skipped..until]);
            self.skipped = until;
            // Only a full chunk is removed: the next pushes still go to one that is not full.
            if self.skipped == CHUNK {
                self.chunks.pop_front();
                self.skipped = 0;
            }
        }
        self.len -= count;
        taken
    }

    /// Bytes of all entries before the one at `index`, since the queue was created. Records of what was taken out before may
    /// be gone, and others may be in their places: only those of the queue are asked for their bytes.
    fn bytes_before(&self, index: usize, bytes_of: impl Fn(SlotId) -> u64) -> u64 {
        let Some((chunk, at)) = self.place(index) else { return self.end_bytes };
        let slots = &self.chunks[chunk].slots;
        let (begin, before) = match chunk {
            0 => (self.first_bytes, &slots[self.skipped..at]),
            _ => (self.chunks[chunk].start_bytes, &slots[..at]),
        };
        begin + before.iter().map(|slot| bytes_of(*slot)).sum::<u64>()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.chunks.iter().flat_map(|chunk| &chunk.slots).skip(self.skipped).copied()
    }

    /// DRAM of the chunks, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.slots.capacity() as u64 * 4 + 32).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The length of an entry in this test, derived from its slot.
    fn bytes_of(slot: SlotId) -> u64 {
        u64::from(slot.0 % 7)
    }

    proptest! {
        #[test]
        fn slots_are_a_queue(steps in prop::collection::vec((0..9000usize, 0..9000usize), 1..20)) {
            let (mut slots, mut model, mut next) = (Slots::default(), VecDeque::new(), 0);
            for (pushes, takes) in steps {
                for _ in 0..pushes {
                    next += 1;
                    slots.push(SlotId(next), bytes_of(SlotId(next)));
                    model.push_back(SlotId(next));
                }
                let middle = model.len() / 2;
                if middle < model.len() {
                    let moved = SlotId(model[middle].0 + 7_000_000);
                    slots.set(middle, moved);
                    model[middle] = moved;
                }
                prop_assert!(slots.iter().eq(model.iter().copied()));
                let live: BTreeSet<SlotId> = model.iter().copied().collect();
                let taken: Vec<SlotId> = model.drain(..takes.min(model.len())).collect();
                let bytes_of_live = |slot| {
                    // What was taken out before may be gone, and another record may be in its place.
                    assert!(live.contains(&slot), "{slot:?}");
                    bytes_of(slot)
                };
                prop_assert_eq!(slots.take_front(takes, bytes_of_live), taken);
                prop_assert_eq!(slots.len(), model.len());
                prop_assert_eq!(slots.bytes(), model.iter().map(|slot| bytes_of(*slot)).sum::<u64>());
                for index in [0, 1, 4095, 4096, model.len()] {
                    prop_assert_eq!(slots.get(index), model.get(index).copied());
                }
            }
        }
    }

    #[test]
    fn taking_many_slots_asks_for_the_bytes_of_one_chunk_at_most() {
        let mut slots = Slots::default();
        (1..50_000).for_each(|slot| slots.push(SlotId(slot), 1));
        let asked = std::cell::Cell::new(0);
        slots.take_front(40_000, |_| {
            asked.set(asked.get() + 1);
            1
        });
        assert!(asked.get() < CHUNK && slots.bytes() == 9_999, "{}", asked.get());
    }
}
