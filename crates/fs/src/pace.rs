//! How writes keep pace with those who wait until the log's successor has what was written.
//!
//! The log has one order: whoever syncs waits for everything that was written before, by anybody. While somebody waits, writes
//! wait, too, once so much has gathered for the next batch ([`GATHERED_BYTES_MAX`]), until that begins. So who syncs again and
//! again waits for the batch under way and for a short one, and not for all that the log has room for. The next batch is there when
//! the one under way is complete, so that the successor is not left without work.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Bytes of writes after which a chunk is sent, and published.
pub const CHUNK_BYTES: u64 = 4 << 20;

/// Bytes of writes that gather for the next batch for each of those who wait.
const GATHERED_BYTES_MAX: u64 = 1 << 20;
/// A write waits no longer than its bytes take at 32 MiB/s: where a batch takes long, the next one may become longer, too, and what
/// holds batches up hardly holds writes up.
const WAIT_NS_PER_BYTE: u64 = 1_000_000_000 / (32 << 20);
/// Bytes of writes that are worth a fence of their own, while a batch is under way.
const FENCE_BYTES_MIN: u64 = 256 << 10;

/// What has gathered for the next batch, and how many wait.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    /// A chunk has gathered: [`CHUNK_BYTES`].
    filled: Condvar,
    /// A batch has begun, or more may gather.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of writes that gather for the next batch.
    gathered: u64,
    /// Those of them that no fence was begun for.
    unfenced: u64,
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
    pub(crate) fn keep(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let waits = !state.admits(bytes);
        if waits {
            let most = Duration::from_nanos(bytes.saturating_mul(WAIT_NS_PER_BYTE));
            self.changed.wait_while_for(&mut state, |state| !state.admits(bytes), most);
        }
        let before = state.gathered;
        state.gathered = state.gathered.saturating_add(bytes);
        if before < CHUNK_BYTES && state.gathered >= CHUNK_BYTES {
            self.filled.notify_all();
        }
        state.unfenced = state.unfenced.saturating_add(bytes);
        waits
    }

    /// Waits until a chunk has gathered for the next batch, at most for so long; false if none has.
    pub(crate) fn wait_for_chunk(&self, most: Duration) -> bool {
        let mut state = self.state.lock();
        self.filled.wait_while_for(&mut state, |state| state.gathered < CHUNK_BYTES, most);
        state.gathered >= CHUNK_BYTES
    }

    /// A batch begins: what has gathered is in it.
    pub(crate) fn begin_batch(&self) {
        let mut state = self.state.lock();
        (state.gathered, state.unfenced) = (0, 0);
        self.changed.notify_all();
    }

    /// True, once, if what has gathered for the next batch is worth a fence before that begins.
    pub(crate) fn begin_fence(&self) -> bool {
        let mut state = self.state.lock();
        let is_worth_it = state.unfenced >= FENCE_BYTES_MIN;
        if is_worth_it {
            state.unfenced = 0;
        }
        is_worth_it
    }

    pub(crate) fn add_waiter(&self) {
        self.state.lock().waiters += 1;
        self.changed.notify_all();
    }

    pub(crate) fn remove_waiter(&self) {
        let mut state = self.state.lock();
        state.waiters -= 1;
        if state.waiters == 0 {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: u64 = 512 << 10;
    /// A write that waits for years.
    const ENDLESS: u64 = u64::MAX;

    /// A pace with a waiter, for whom as much has gathered as may.
    fn full() -> Pace {
        let pace = Pace::default();
        pace.add_waiter();
        (0..2).for_each(|_| assert!(!pace.keep(LONG)));
        assert!(!pace.state.lock().admits(1));
        pace
    }

    /// Somebody has waited. Whoever finds nothing changed waits again.
    fn until_it_waits(changed: &Condvar) {
        while changed.notify_all() == 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn nothing_waits_where_nobody_does() {
        let pace = Pace::default();
        assert!((0..100).all(|_| !pace.keep(LONG)));
    }

    #[test]
    fn as_much_may_gather_for_each_who_waits() {
        let pace = full();
        pace.add_waiter();
        let state = pace.state.lock();
        assert!(state.admits(GATHERED_BYTES_MAX) && !state.admits(GATHERED_BYTES_MAX + 1));
    }

    #[test]
    fn a_write_waits_no_longer_than_it_may() {
        let pace = full();
        assert!(pace.keep(LONG));
        assert_eq!(pace.state.lock().gathered, 3 * LONG);
    }

    #[test]
    fn a_wait_ends_with_a_batch_that_begins_and_with_the_last_who_waits() {
        for ends in [Pace::begin_batch, Pace::remove_waiter] {
            let pace = full();
            thread::scope(|scope| {
                let write = scope.spawn(|| pace.keep(ENDLESS));
                until_it_waits(&pace.changed);
                assert!(!write.is_finished());
                ends(&pace);
                assert!(write.join().expect("a wait does not panic"));
            });
        }
    }

    #[test]
    fn a_chunk_that_has_gathered_wakes_who_sends_it() {
        let pace = Pace::default();
        assert!(!pace.wait_for_chunk(Duration::ZERO));
        thread::scope(|scope| {
            let send = scope.spawn(|| pace.wait_for_chunk(Duration::from_secs(60)));
            pace.keep(CHUNK_BYTES - 1);
            until_it_waits(&pace.filled);
            pace.keep(1);
            assert!(send.join().expect("a wait does not panic"));
        });
        pace.begin_batch();
        assert!(!pace.wait_for_chunk(Duration::ZERO), "it is in the batch");
    }

    #[test]
    fn what_has_gathered_is_fenced_once_before_its_batch_begins() {
        let pace = Pace::default();
        pace.keep(FENCE_BYTES_MIN - 1);
        assert!(!pace.begin_fence());
        pace.keep(1);
        assert!(pace.begin_fence() && !pace.begin_fence());
        pace.keep(FENCE_BYTES_MIN);
        pace.begin_batch();
        assert!(!pace.begin_fence(), "the batch has one");
    }
}
