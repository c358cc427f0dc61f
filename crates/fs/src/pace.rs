//! How writes keep pace with those who wait until what was written is durable.
//!
//! The log has one order: whoever syncs waits for everything that was written before, by anybody. While somebody waits, writes
//! wait, too, once so much has gathered for the next batch ([`GATHERED_BYTES_MAX`]), until that begins. So a sync waits for the
//! batch under way and for a short one, and not for all that the log has room for. The next batch is there when the one under way
//! is complete, so that little is lost.

use crate::files::Files;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of writes that gather for the next batch for each of those who wait.
const GATHERED_BYTES_MAX: u64 = 1 << 20;
/// Bytes of writes that are worth a fence of their own, while a batch is under way.
const FENCE_BYTES_MIN: u64 = 256 << 10;
/// A write waits no longer, so that what holds batches up does not hold writes up that nobody waits for.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// What has gathered for the next batch, and how many wait.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    /// A batch has begun, or nobody waits any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of writes that gather for the next batch.
    gathered: u64,
    waiters: u64,
}

impl State {
    /// True if a write of so many bytes goes on at once. Alone it does, however long it is.
    fn admits(&self, bytes: u64) -> bool {
        let most = GATHERED_BYTES_MAX.saturating_mul(self.waiters);
        self.waiters == 0 || self.gathered == 0 || self.gathered.saturating_add(bytes) <= most
    }
}

impl Pace {
    /// Waits until a write of so many bytes may go on. True if it has waited.
    fn keep(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let waits = !state.admits(bytes);
        if waits {
            self.changed.wait_while_for(&mut state, |state| !state.admits(bytes), WAIT_MAX);
        }
        state.gathered = state.gathered.saturating_add(bytes);
        waits
    }

    /// A batch begins: what has gathered is in it.
    pub(crate) fn begin_batch(&self) {
        self.state.lock().gathered = 0;
        self.changed.notify_all();
    }

    /// True if what has gathered for the next batch is worth a fence before that begins.
    pub(crate) fn is_worth_a_fence(&self) -> bool {
        self.state.lock().gathered >= FENCE_BYTES_MIN
    }

    fn add_waiter(&self) {
        self.state.lock().waiters += 1;
        self.changed.notify_all();
    }

    fn remove_waiter(&self) {
        let mut state = self.state.lock();
        state.waiters -= 1;
        if state.waiters == 0 {
            self.changed.notify_all();
        }
    }
}

/// Somebody waits until something is durable, as long as this lives: writes keep pace with that.
#[derive(Debug)]
pub struct Waiter(Arc<Files>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.pace.remove_waiter();
    }
}

impl Files {
    /// From now on somebody waits until something is durable.
    #[must_use]
    pub fn waiter(self: &Arc<Self>) -> Waiter {
        self.pace.add_waiter();
        Waiter(Arc::clone(self))
    }

    /// Called before a write of so many bytes that nobody waits for yet: waits while there is a [`Waiter`] and enough has gathered
    /// behind what that waits for, 100 ms at most. True if it has waited. The caller holds nothing that others need.
    pub fn keep_pace(&self, bytes: u64) -> bool {
        self.pace.keep(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: u64 = 512 << 10;

    /// A pace with a waiter, for whom as much has gathered as may.
    fn full() -> Pace {
        let pace = Pace::default();
        pace.add_waiter();
        (0..2).for_each(|_| assert!(!pace.keep(LONG)));
        pace
    }

    #[test]
    fn nothing_waits_where_nobody_does() {
        let pace = Pace::default();
        assert!((0..100).all(|_| !pace.keep(LONG)));
        assert!(pace.is_worth_a_fence());
        pace.begin_batch();
        assert!(!pace.is_worth_a_fence());
    }

    #[test]
    fn writes_wait_for_the_next_batch_once_enough_has_gathered() {
        let pace = full();
        assert!(!pace.state.lock().admits(1));
        pace.begin_batch();
        assert!(!pace.keep(LONG));
        assert_eq!(pace.state.lock().gathered, LONG);
    }

    #[test]
    fn a_batch_that_begins_ends_the_wait() {
        let pace = full();
        thread::scope(|scope| {
            let write = scope.spawn(|| pace.keep(LONG));
            // It may have to wait yet, and then does not.
            while !write.is_finished() {
                pace.begin_batch();
            }
            assert!(write.join().is_ok());
        });
        assert!(pace.state.lock().gathered <= LONG, "what had gathered is in the batch");
    }

    #[test]
    fn as_much_may_gather_for_each_who_waits() {
        let pace = full();
        assert!(!pace.state.lock().admits(1));
        pace.add_waiter();
        assert!(
            pace.state.lock().admits(GATHERED_BYTES_MAX) && !pace.state.lock().admits(GATHERED_BYTES_MAX + 1)
        );
    }

    #[test]
    fn a_write_waits_neither_for_ever_nor_for_itself_nor_for_who_has_gone() {
        let pace = full();
        assert!(pace.keep(LONG), "as long as it may");
        pace.begin_batch();
        assert!(!pace.keep(GATHERED_BYTES_MAX * 4), "nothing else has gathered");
        pace.remove_waiter();
        assert!(!pace.keep(LONG));
    }
}
