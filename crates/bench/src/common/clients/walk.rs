//! Keys one after the other: none comes again before all others came.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A round through the numbers of keys that several runs go on with.
#[derive(Debug)]
pub(crate) struct Walk {
    numbers: Vec<u64>,
    at: AtomicUsize,
}

impl Walk {
    /// Through numbers in their order, of which there is at least one.
    pub(crate) fn new(numbers: Vec<u64>) -> Self {
        assert!(!numbers.is_empty(), "a walk needs a key");
        Self { numbers, at: AtomicUsize::new(0) }
    }

    /// The next one.
    pub(crate) fn next(&self) -> u64 {
        self.numbers[self.at.fetch_add(1, Ordering::Relaxed) % self.numbers.len()]
    }

    pub(crate) fn len(&self) -> u64 {
        self.numbers.len() as u64
    }
}
