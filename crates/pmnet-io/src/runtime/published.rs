//! Reports that threads publish for others.

use std::sync::{Mutex, PoisonError};

/// A report that one thread publishes periodically for others. Only the latest value is kept.
#[derive(Debug, Default)]
pub struct Published<T> {
    latest: Mutex<T>,
}

impl<T: Copy> Published<T> {
    /// The latest value.
    pub fn get(&self) -> T {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a value, which replaces the one before.
    pub fn set(&self, value: T) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
