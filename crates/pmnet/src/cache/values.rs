//! Values that are served, and values that wait until they may be served. Both are limited in number and bytes.

use super::clock::Clock;
use super::key::Key;

/// How much memory a value takes.
pub trait Weight {
    /// Bytes of memory. A value that is stored by reference takes the bytes of its packet's frames.
    fn bytes(&self) -> usize;
}

impl Weight for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Weight for std::sync::Arc<[u8]> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Values<V> {
    clock: Clock<Key, V>,
    entries_max: usize,
    bytes_max: usize,
    /// Bytes of the values that are served, with their keys.
    bytes: usize,
    /// Bytes of the waiting values, with their keys. Their owners are the updates that they belong to.
    waiting: usize,
}

impl<V: Weight> Values<V> {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { clock: Clock::new(), entries_max, bytes_max, bytes: 0, waiting: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.clock.len()
    }

    /// Bytes of all values, including the waiting ones.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.waiting
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.clock.contains(key)
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Option<&V> {
        self.clock.get_mut(key).map(|value| &*value)
    }

    /// Stores a value and replaces the key's old value. A value that exceeds the limit alone is not stored.
    pub(super) fn insert(&mut self, key: Key, value: V) {
        self.remove(&key);
        let bytes = weight(&key, &value);
        if self.make_room(self.entries_max, bytes) {
            self.bytes += bytes;
            self.clock.insert(key, value);
        }
    }

    /// Makes room for a waiting value. False if there is no room.
    pub(super) fn begin_waiting(&mut self, key: &Key, value: &V) -> bool {
        let bytes = weight(key, value);
        let has_room = self.make_room(usize::MAX, bytes);
        self.waiting += if has_room { bytes } else { 0 };
        has_room
    }

    /// Ends the wait of a value, which is now served or dropped.
    pub(super) fn end_waiting(&mut self, key: &Key, value: &V) {
        self.waiting -= weight(key, value);
    }

    /// Evicts values until there are fewer than `entries_max`, and room for `bytes`. False if that is impossible.
    fn make_room(&mut self, entries_max: usize, bytes: usize) -> bool {
        if bytes > self.bytes_max.saturating_sub(self.waiting) {
            return false;
        }
        while self.clock.len() >= entries_max || self.bytes + self.waiting + bytes > self.bytes_max {
            let Some((key, value)) = self.clock.evict(|_| true) else { return false };
            self.bytes -= weight(&key, &value);
        }
        true
    }

    /// Drops the values that satisfy `condition`.
    pub(super) fn remove_if(&mut self, condition: impl Fn(&V) -> bool) {
        for (key, value) in self.clock.remove_if(condition) {
            self.bytes -= weight(&key, &value);
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, value)) = self.clock.remove(key) {
            self.bytes -= weight(&key, &value);
        }
    }

    pub(super) fn clear(&mut self) {
        if self.clock.len() > 0 {
            self.clock.clear();
            self.bytes = 0;
        }
    }
}

fn weight(key: &Key, value: &impl Weight) -> usize {
    key.len() + value.bytes()
}
