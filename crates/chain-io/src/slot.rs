//! What a writer and the thread of its stream share.

use crate::answers::Announced;
use crate::line::Line;
use landfall_chain::Compression;
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

/// The batch of one writer that is not complete, and the connection by which it is sent.
pub(crate) struct Slot {
    batch: Mutex<Option<Batch>>,
    completed: Condvar,
    /// There is something to do for the thread.
    is_wanted: Mutex<bool>,
    wanted: Condvar,
    is_busy: AtomicBool,
    /// The batch, and every later one, will never be complete.
    is_lost: AtomicBool,
    /// Records of the writer with a lower seq are complete.
    complete_below: AtomicU64,
    wake: OnceLock<Wake>,
    pub(crate) line: Mutex<Line>,
    pub(crate) announced: Announced,
    /// The writer reads the answer to what it has sent itself.
    reads_answers: AtomicBool,
}

impl Slot {
    pub(crate) fn new(compression: Compression, spin: Duration) -> Self {
        Self {
            batch: Mutex::default(),
            completed: Condvar::new(),
            is_wanted: Mutex::default(),
            wanted: Condvar::new(),
            is_busy: AtomicBool::default(),
            is_lost: AtomicBool::default(),
            complete_below: AtomicU64::default(),
            wake: OnceLock::new(),
            line: Mutex::new(Line::new(compression, spin)),
            announced: Announced::default(),
            reads_answers: AtomicBool::default(),
        }
    }

    pub(crate) fn wake_by(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }

    /// From now on the writer reads the answer to what it has sent itself: it waits, or looks when an answer is announced.
    pub(crate) fn read_answers(&self) {
        self.reads_answers.store(true, Ordering::Release);
    }

    /// The thread reads all answers again.
    pub(crate) fn leave_answers(&self) {
        self.reads_answers.store(false, Ordering::Release);
    }

    /// True after [`Self::read_answers`].
    pub(crate) fn reads_answers(&self) -> bool {
        self.reads_answers.load(Ordering::Acquire)
    }

    /// A batch begins. The one before is complete. Somebody has to send it.
    pub(crate) fn begin(&self, begun: Batch) {
        let mut batch = self.batch.lock();
        self.is_busy.store(true, Ordering::Release);
        *batch = Some(begun);
    }

    /// The batch, and every later one, will never be complete.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.complete();
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// The batch is complete: its writer is woken.
    pub(crate) fn complete(&self) {
        self.complete_by_writer();
        self.wake();
    }

    /// The batch is complete, and its writer knows.
    pub(crate) fn complete_by_writer(&self) {
        let mut batch = self.batch.lock();
        *batch = None;
        self.is_busy.store(false, Ordering::Release);
        self.completed.notify_all();
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
            self.completed.wait_for(&mut batch, turn);
        }
        true
    }

    /// Waits until there is something to do for the thread, at most for `time`.
    pub(crate) fn wait_for_work(&self, time: Duration) {
        let mut is_wanted = self.is_wanted.lock();
        if !*is_wanted {
            self.wanted.wait_for(&mut is_wanted, time);
        }
        *is_wanted = false;
    }

    /// There is something to do for the thread.
    pub(crate) fn want_thread(&self) {
        *self.is_wanted.lock() = true;
        self.wanted.notify_all();
    }

    /// Ends the waits.
    pub(crate) fn notify(&self) {
        self.want_thread();
        let _batch = self.batch.lock();
        self.completed.notify_all();
    }

    pub(crate) fn note_complete(&self, seq: u64) {
        self.complete_below.fetch_max(seq, Ordering::AcqRel);
    }

    pub(crate) fn complete_below(&self) -> u64 {
        self.complete_below.load(Ordering::Acquire)
    }
}
