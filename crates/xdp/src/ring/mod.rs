//! One side of a ring that two parties share: the kernel and this process, or two threads in tests.
//!
//! Indices are 32-bit counters that only grow, and wrap. The position of an entry is its index modulo the size, which
//! is a power of two. Each side keeps its own counter and a copy of the other side's. It reads the other's counter with
//! *acquire* and publishes its own with *release* (`Documentation/networking/af_xdp.rst`), once each per batch.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, Ordering};

/// A shared 32-bit counter.
pub(crate) trait Word {
    fn load(&self, ordering: Ordering) -> u32;
    fn store(&self, value: u32, ordering: Ordering);
}

impl Word for AtomicU32 {
    fn load(&self, ordering: Ordering) -> u32 {
        self.load(ordering)
    }

    fn store(&self, value: u32, ordering: Ordering) {
        self.store(value, ordering);
    }
}

/// The memory of a ring.
pub(crate) trait RingMemory {
    type Word: Word;
    type Entry: Copy;

    /// Number of entries, a power of two.
    fn entries(&self) -> u32;
    /// Number of entries ever produced.
    fn producer(&self) -> &Self::Word;
    /// Number of entries ever consumed.
    fn consumer(&self) -> &Self::Word;
    /// Reads the entry at `index`, which the caller's side owns.
    fn read(&self, index: u32) -> Self::Entry;
    /// Writes the entry at `index`, which the caller's side owns.
    fn write(&self, index: u32, entry: Self::Entry);
}

/// The side that fills entries in: this process, for the fill and transmit rings.
pub(crate) struct Producer<M> {
    memory: M,
    /// Entries written, published or not.
    written: u32,
    /// Entries published.
    published: u32,
    /// The consumer's counter as it was last read.
    consumed: u32,
}

impl<M: RingMemory> Producer<M> {
    /// Starts at the current counters of the ring.
    pub(crate) fn new(memory: M) -> Self {
        let written = memory.producer().load(Ordering::Relaxed);
        let consumed = memory.consumer().load(Ordering::Acquire);
        Self { memory, written, published: written, consumed }
    }

    /// Number of entries that may be pushed now.
    pub(crate) fn room(&mut self) -> u32 {
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.known_room()
    }

    fn known_room(&self) -> u32 {
        // The counter of the other side is not trusted: the result is never more than the ring's size.
        self.memory.entries().saturating_sub(self.written.wrapping_sub(self.consumed))
    }

    /// True if `wanted` entries may be pushed; reads the consumer's counter only if necessary.
    pub(crate) fn has_room(&mut self, wanted: u32) -> bool {
        self.known_room() >= wanted || self.room() >= wanted
    }

    /// Writes one entry, which the next [`Self::publish`] shows to the consumer; false if the ring is full.
    pub(crate) fn push(&mut self, entry: M::Entry) -> bool {
        if !self.has_room(1) {
            return false;
        }
        self.memory.write(self.written, entry);
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows all pushed entries to the consumer; returns their number.
    pub(crate) fn publish(&mut self) -> u32 {
        let new = self.written.wrapping_sub(self.published);
        if new > 0 {
            self.memory.producer().store(self.written, Ordering::Release);
            self.published = self.written;
        }
        new
    }

    /// Number of published entries that the consumer has not taken yet.
    pub(crate) fn pending(&mut self) -> u32 {
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.published.wrapping_sub(self.consumed)
    }

    pub(crate) const fn memory(&self) -> &M {
        &self.memory
    }
}

/// The side that takes entries out: this process, for the receive and completion rings.
pub(crate) struct Consumer<M> {
    memory: M,
    /// Entries taken, released or not.
    taken: u32,
    /// Entries released to the producer.
    released: u32,
}

impl<M: RingMemory> Consumer<M> {
    /// Starts at the current counters of the ring.
    pub(crate) fn new(memory: M) -> Self {
        let taken = memory.consumer().load(Ordering::Relaxed);
        Self { memory, taken, released: taken }
    }

    /// Takes at most `max` entries, in order, and releases their slots; returns their number.
    pub(crate) fn take(&mut self, max: u32, mut each: impl FnMut(M::Entry)) -> u32 {
        let count = self.available().min(max);
        for _ in 0..count {
            each(self.memory.read(self.taken));
            self.taken = self.taken.wrapping_add(1);
        }
        self.release();
        count
    }

    /// Number of entries that can be taken now.
    pub(crate) fn available(&self) -> u32 {
        let produced = self.memory.producer().load(Ordering::Acquire);
        // If the counter claims more than the ring holds, this side would read entries twice.
        produced.wrapping_sub(self.taken).min(self.memory.entries())
    }

    fn release(&mut self) {
        if self.taken != self.released {
            self.memory.consumer().store(self.taken, Ordering::Release);
            self.released = self.taken;
        }
    }
}
