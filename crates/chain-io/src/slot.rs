//! What a writer and the thread of its stream share.

use landfall_heap::SlotId;
use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Called when a batch is complete.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

/// A batch that is not complete.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) records: Vec<SlotId>,
    /// The seq behind a flush in it.
    pub(crate) flushed: Option<u64>,
}

/// The batch of one writer that is not complete.
#[derive(Default)]
pub(crate) struct Slot {
    batch: Mutex<Option<Batch>>,
    changed: Condvar,
    is_busy: AtomicBool,
    /// The batch, and every later one, will never be complete.
    is_lost: AtomicBool,
    /// Records of the writer with a lower seq are complete.
    complete_below: AtomicU64,
    wake: OnceLock<Wake>,
}

impl Slot {
    pub(crate) fn wake_by(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }

    /// A batch begins. The one before is complete.
    pub(crate) fn begin(&self, begun: Batch) {
        let mut batch = self.batch.lock();
        self.is_busy.store(true, Ordering::Release);
        *batch = Some(begun);
        self.changed.notify_all();
    }

    /// The batch, and every later one, will never be complete.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.end();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The batch is complete.
    pub(crate) fn complete(&self) {
        self.end();
    }

    fn end(&self) {
        let mut batch = self.batch.lock();
        *batch = None;
        self.is_busy.store(false, Ordering::Release);
        self.changed.notify_all();
        drop(batch);
        self.wake();
    }

    /// Wakes the worker of the writer.
    pub(crate) fn wake(&self) {
        self.wake.get().into_iter().for_each(|wake| wake());
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    pub(crate) fn batch(&self) -> Option<Batch> {
        self.batch.lock().clone()
    }

    /// Waits until the batch is complete; false if `is_over` says first that nobody waits any more, which is asked at
    /// least once in `turn`.
    pub(crate) fn wait(&self, turn: Duration, mut is_over: impl FnMut() -> bool) -> bool {
        let mut batch = self.batch.lock();
        while batch.is_some() {
            if is_over() {
                return false;
            }
            self.changed.wait_for(&mut batch, turn);
        }
        true
    }

    /// Waits until there is a batch, or something else has changed, at most for `time`, if that `may_wait`.
    pub(crate) fn wait_for_work(&self, time: Duration, may_wait: impl FnOnce() -> bool) {
        let mut batch = self.batch.lock();
        if batch.is_none() && may_wait() {
            self.changed.wait_for(&mut batch, time);
        }
    }

    /// Ends the waits.
    pub(crate) fn notify(&self) {
        let _batch = self.batch.lock();
        self.changed.notify_all();
    }

    pub(crate) fn note_complete(&self, seq: u64) {
        self.complete_below.fetch_max(seq, Ordering::AcqRel);
    }

    pub(crate) fn complete_below(&self) -> u64 {
        self.complete_below.load(Ordering::Acquire)
    }
}
