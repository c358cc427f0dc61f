//! Which runs of the image are there: one atomic byte for each run.
//!
//! | state | image | may become |
//! |---|---|---|
//! | absent | meaningless | busy (being read), resident (claimed without reading) |
//! | busy | being read, or its file space being zeroed | resident or absent; prepared or fresh |
//! | fresh | zeroes, as in the file; the file's blocks are unwritten | busy, resident |
//! | prepared | zeroes, as in the file; the file's blocks are written | resident |
//! | resident | at least as new as the file | nothing: this is final |
//!
//! Only a resident run may be stored to or written back, and only a fresh one is ever zeroed in the file,
//! under `busy`: zeroes never meet a byte that somebody stored.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::{MediaError, RUN_SIZE};

/// How far ahead of the highest run in use unwritten space is zeroed, runs.
const PREPARE_RUNS_MAX: u64 = 64;

const ABSENT: u8 = 0;
const BUSY: u8 = 1;
const FRESH: u8 = 2;
const PREPARED: u8 = 3;
const RESIDENT: u8 = 4;

/// The states of a region's runs, growth included.
pub(super) struct Residency {
    states: Box<[AtomicU8]>,
    /// Every run before this one has been seen not to be absent.
    load_from: AtomicU64,
    /// Every run before this one has been seen not to be fresh.
    prepare_from: AtomicU64,
    /// One past the highest run that is resident.
    used_end: AtomicU64,
    /// Held while a busy state is left, so that a waiter cannot miss it.
    settling: Mutex<()>,
    settled: Condvar,
}

impl Residency {
    /// `runs` absent runs.
    pub(super) fn new(runs: u64) -> Self {
        Self {
            states: (0..runs).map(|_| AtomicU8::new(ABSENT)).collect(),
            load_from: AtomicU64::new(0),
            prepare_from: AtomicU64::new(0),
            used_end: AtomicU64::new(0),
            settling: Mutex::new(()),
            settled: Condvar::new(),
        }
    }

    /// Declares runs to be zeroes in the file. Before anybody else can reach them.
    pub(super) fn mark_fresh(&self, runs: Range<u64>) {
        for run in runs {
            self.state(run).store(FRESH, Ordering::Release);
        }
    }

    /// Makes every run that the range touches readable; `load` reads one.
    #[inline]
    pub(super) fn make_readable<E>(
        &self,
        off: u64,
        len: u64,
        load: impl Fn(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in touched(off, len) {
            if self.state(run).load(Ordering::Acquire) < FRESH {
                self.settle(run, FRESH, &load)?;
            }
        }
        Ok(())
    }

    /// Makes every run that the range touches resident; `load` reads one.
    #[inline]
    pub(super) fn make_writable<E>(
        &self,
        off: u64,
        len: u64,
        load: impl Fn(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in touched(off, len) {
            if self.state(run).load(Ordering::Acquire) != RESIDENT {
                self.settle(run, RESIDENT, &load)?;
            }
        }
        Ok(())
    }

    /// Makes every run that lies wholly within the range resident, without reading it.
    pub(super) fn claim_whole_runs(&self, off: u64, len: u64) {
        for run in off.div_ceil(RUN_SIZE)..(off + len) / RUN_SIZE {
            let nothing_to_read = |_| Ok::<(), std::convert::Infallible>(());
            let Ok(()) = self.settle(run, RESIDENT, &nothing_to_read);
        }
    }

    /// Reads the first absent run of the first `count`; false when there is none.
    pub(super) fn load_next(
        &self,
        count: u64,
        load: impl Fn(u64) -> Result<(), MediaError>,
    ) -> Result<bool, MediaError> {
        let mut run = self.load_from.load(Ordering::Relaxed);
        while run < count && self.state(run).load(Ordering::Acquire) >= FRESH {
            run += 1;
        }
        // A busy run may yet turn out absent, so that only settled ones are passed for good.
        self.load_from.fetch_max(run, Ordering::Relaxed);
        if run < count {
            self.settle(run, FRESH, &load)?;
        }
        Ok(run < count)
    }

    /// Zeroes the file space of the next fresh run before or shortly after the runs in use.
    pub(super) fn prepare_next(
        &self,
        count: u64,
        zero: impl Fn(u64) -> Result<(), MediaError>,
    ) -> Result<bool, MediaError> {
        let end = count.min(self.used_end.load(Ordering::Relaxed) + PREPARE_RUNS_MAX);
        for run in self.prepare_from.load(Ordering::Relaxed)..end {
            let entered = self.enter(run, FRESH);
            self.prepare_from.fetch_max(run + 1, Ordering::Relaxed);
            if entered {
                let done = zero(run);
                self.leave(run, if done.is_ok() { PREPARED } else { FRESH });
                return done.map(|()| true);
            }
        }
        Ok(false)
    }

    /// Brings one run at least to the state `wanted`.
    #[cold]
    fn settle<E>(&self, run: u64, wanted: u8, load: &impl Fn(u64) -> Result<(), E>) -> Result<(), E> {
        loop {
            match self.state(run).load(Ordering::Acquire) {
                ABSENT => self.load_one(run, load)?,
                BUSY => self.wait(run),
                state if state >= wanted => return Ok(()),
                state => self.take(run, state),
            }
        }
    }

    /// Reads an absent run, unless another thread was faster.
    fn load_one<E>(&self, run: u64, load: &impl Fn(u64) -> Result<(), E>) -> Result<(), E> {
        if !self.enter(run, ABSENT) {
            return Ok(());
        }
        let done = load(run);
        self.leave(run, if done.is_ok() { RESIDENT } else { ABSENT });
        done
    }

    /// Takes a run of zeroes into use, unless another thread was faster.
    fn take(&self, run: u64, from: u8) {
        if self.state(run).compare_exchange(from, RESIDENT, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.used_end.fetch_max(run + 1, Ordering::Relaxed);
        }
    }

    fn enter(&self, run: u64, from: u8) -> bool {
        self.state(run).compare_exchange(from, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn leave(&self, run: u64, to: u8) {
        let guard = self.settling.lock();
        self.state(run).store(to, Ordering::Release);
        drop(guard);
        self.settled.notify_all();
        if to == RESIDENT {
            self.used_end.fetch_max(run + 1, Ordering::Relaxed);
        }
    }

    fn wait(&self, run: u64) {
        let mut guard = self.settling.lock();
        while self.state(run).load(Ordering::Acquire) == BUSY {
            self.settled.wait(&mut guard);
        }
    }

    #[inline]
    fn state(&self, run: u64) -> &AtomicU8 {
        &self.states[run as usize]
    }
}

/// The runs that a range touches; none for an empty range.
#[inline]
fn touched(off: u64, len: u64) -> Range<u64> {
    let end = if len == 0 { off / RUN_SIZE } else { (off + len - 1) / RUN_SIZE + 1 };
    off / RUN_SIZE..end
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const ANY: MediaError = MediaError::Unsupported("as asked");

    #[test]
    fn runs_are_loaded_once_and_only_where_touched() {
        let (runs, loads) = (Residency::new(8), RefCell::new(Vec::new()));
        let load = |run| -> Result<(), MediaError> {
            loads.borrow_mut().push(run);
            Ok(())
        };
        runs.make_readable(RUN_SIZE - 1, 2, load).expect("loads");
        runs.make_writable(0, 2 * RUN_SIZE, load).expect("nothing to load");
        runs.make_readable(5 * RUN_SIZE, 0, load).expect("nothing to load");
        assert_eq!(*loads.borrow(), [0, 1]);
    }

    #[test]
    fn a_claimed_run_is_not_read_and_a_partial_one_is() {
        let runs = Residency::new(4);
        runs.claim_whole_runs(RUN_SIZE / 2, 2 * RUN_SIZE);
        assert!(runs.make_writable(RUN_SIZE, RUN_SIZE, |_| Err(ANY)).is_ok());
        assert!(runs.make_writable(0, RUN_SIZE, |_| Err(ANY)).is_err());
        assert!(runs.make_writable(2 * RUN_SIZE, RUN_SIZE, |_| Err(ANY)).is_err());
    }

    #[test]
    fn a_failed_load_is_tried_again() {
        let runs = Residency::new(1);
        assert!(runs.load_next(1, |_| Err(ANY)).is_err());
        assert!(runs.load_next(1, |_| Ok(())).expect("loads"));
        assert!(!runs.load_next(1, |_| Err(ANY)).expect("nothing left"));
    }

    #[test]
    fn only_fresh_runs_a_bounded_distance_ahead_are_prepared() {
        let (runs, zeroed) = (Residency::new(200), RefCell::new(Vec::new()));
        runs.mark_fresh(0..200);
        runs.make_writable(3 * RUN_SIZE, 1, |_| Err(ANY)).expect("fresh runs need no load");
        let zero = |run| {
            zeroed.borrow_mut().push(run);
            Ok(())
        };
        while runs.prepare_next(200, zero).expect("zeroes") {}
        let expected: Vec<u64> = (0..3).chain(4..4 + PREPARE_RUNS_MAX).collect();
        assert_eq!(*zeroed.borrow(), expected);
    }

    #[test]
    fn a_store_waits_until_the_zeroes_are_written() {
        let runs = Residency::new(1);
        runs.mark_fresh(0..1);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            let zero = |_| {
                threads.spawn(|| {
                    runs.make_writable(0, 1, |_| Err(ANY)).expect("fresh runs need no load");
                    order.lock().push("stored");
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                order.lock().push("zeroed");
                Ok(())
            };
            assert!(runs.prepare_next(1, zero).expect("zeroes"));
        });
        assert_eq!(*order.lock(), ["zeroed", "stored"]);
    }
}
