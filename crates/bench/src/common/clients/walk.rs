//! A walk through keys: each key comes once before any key comes again.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A walk through the numbers of keys. Several runs continue one walk.
#[derive(Debug)]
pub(crate) struct Walk {
    numbers: Vec<u64>,
    at: AtomicUsize,
}

impl Walk {
    /// Begins a walk through `numbers` in their order. There is at least one.
    pub(crate) fn new(numbers: Vec<u64>) -> Self {
        assert!(!numbers.is_empty(), "a walk needs a key");
        Self { numbers, at: AtomicUsize::new(0) }
    }

    /// Returns the next number.
    pub(crate) fn next(&self) -> u64 {
        self.numbers[self.at.fetch_add(1, Ordering::Relaxed) % self.numbers.len()]
    }

    pub(crate) fn len(&self) -> u64 {
        self.numbers.len() as u64
    }
}
