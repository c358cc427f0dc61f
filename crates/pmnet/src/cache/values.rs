//! Values that may be served: bounded in number and bytes.

use super::Key;
use super::clock::Clock;

/// What holding a value costs. A value that is held where its packet landed costs its frames.
pub trait Weight {
    /// Bytes held.
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
    bytes: usize,
}

impl<V: Weight> Values<V> {
    pub(super) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self { clock: Clock::new(), entries_max, bytes_max, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.clock.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.clock.contains(key)
    }

    pub(super) fn get(&mut self, key: &[u8]) -> Option<&V> {
        self.clock.get_mut(key).map(|value| &*value)
    }

    /// Holds a value in place of the key's former one. One that is too long on its own is not held.
    pub(super) fn insert(&mut self, key: Key, value: V) {
        self.remove(&key);
        let bytes = weight(&key, &value);
        if bytes > self.bytes_max {
            return;
        }
        while self.clock.len() >= self.entries_max || self.bytes + bytes > self.bytes_max {
            let Some((key, value)) = self.clock.evict(|_| true) else { return };
            self.bytes -= weight(&key, &value);
        }
        self.bytes += bytes;
        self.clock.insert(key, value);
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
