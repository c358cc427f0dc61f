//! Requests that were interrupted before they began to wait.

use landfall_fuse::Unique;
use std::collections::VecDeque;

/// Requests that are remembered.
const REMEMBERED_MAX: usize = 1024;

/// Requests that were interrupted, the newest ones. An interrupt may overtake its request, or be lost with a server that
/// dies.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(VecDeque<Unique>);

impl Interrupts {
    pub(crate) fn note(&mut self, unique: Unique) {
        if self.0.len() == REMEMBERED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(unique.first());
    }

    /// Whether a request was interrupted, whenever it was delivered.
    pub(crate) fn has(&self, unique: Unique) -> bool {
        self.0.contains(&unique.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bit of a request that is delivered again.
    const AGAIN: u64 = 1 << 63;

    #[test]
    fn the_newest_are_remembered_however_often_they_are_delivered() {
        let mut interrupts = Interrupts::default();
        (0..=REMEMBERED_MAX as u64).for_each(|number| interrupts.note(Unique(number * 2)));
        assert!(!interrupts.has(Unique(0)), "the oldest one");
        assert!(interrupts.has(Unique(2)) && interrupts.has(Unique(REMEMBERED_MAX as u64 * 2)));
        assert!(interrupts.has(Unique(2 | AGAIN)) && !interrupts.has(Unique(3)));
        assert_eq!(interrupts.0.len(), REMEMBERED_MAX);
    }
}
