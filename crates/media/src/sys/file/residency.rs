//! Which runs of the image are in memory: one atomic byte for each run.
//!
//! | state | image | may become |
//! |---|---|---|
//! | absent | meaningless | busy (being read), resident (claimed unread), prepared (forgotten), paged |
//! | busy | the run is being read, or its file space or memory is being changed | the previous state, or the new one |
//! | fresh | zeroes; the file has no blocks, or unwritten ones | busy, prepared (allocated, zeroed), resident (blocks allocated) |
//! | prepared | zeroes; the file has blocks: zeroes, unwritten ones or unneeded bytes | busy, resident, fresh (given back) |
//! | resident | at least as new as the file, or free | busy, prepared or fresh (given back, while free), paged |
//! | paged | some blocks only: `paged.rs` knows which; they are as new as the file | resident, busy (given back) |
//!
//! Only a resident run may be stored to or written back; a paged run becomes resident before that. Only a fresh run is
//! ever zeroed in the file, under `busy`. So zeroes never overwrite a byte that was stored.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::MediaError;
use crate::standing::Standing;
use crate::units::RUN_SIZE;

const ABSENT: u8 = 0;
const BUSY: u8 = 1;
const FRESH: u8 = 2;
const PREPARED: u8 = 3;
const RESIDENT: u8 = 4;
const PAGED: u8 = 5;

/// The states of a region's runs, growth included.
pub(super) struct Residency {
    states: Box<[AtomicU8]>,
    /// Every run before this one was found not to be absent, or could not be read.
    load_from: AtomicU64,
    /// Bytes of runs that are wholly in memory, and of the present blocks of paged runs.
    resident_bytes: AtomicU64,
    /// Held while a run leaves the busy state, so that a waiter cannot miss it.
    settling: Mutex<()>,
    settled: Condvar,
}

impl Residency {
    /// `runs` absent runs.
    pub(super) fn new(runs: u64) -> Self {
        Self {
            states: (0..runs).map(|_| AtomicU8::new(ABSENT)).collect(),
            load_from: AtomicU64::new(0),
            resident_bytes: AtomicU64::new(0),
            settling: Mutex::new(()),
            settled: Condvar::new(),
        }
    }

    /// Declares that runs are zeroes in the file. Called before any other thread can reach them.
    pub(super) fn mark_fresh(&self, runs: Range<u64>) {
        for run in runs {
            self.state(run).store(FRESH, Ordering::Release);
        }
    }

    /// Makes every run that the range touches readable; `load` reads one run.
    #[inline]
    pub(super) fn make_readable<E>(
        &self,
        off: u64,
        len: u64,
        load: impl Fn(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in touched(off, len) {
            if self.state(run).load(Ordering::Acquire) < FRESH {
                self.settle_for_reading(run, &load)?;
            }
        }
        Ok(())
    }

    /// Makes every run that the range touches resident; `load` reads one run, `back` allocates the blocks of a fresh
    /// one.
    #[inline]
    pub(super) fn make_writable<E>(
        &self,
        off: u64,
        len: u64,
        load: impl Fn(u64) -> Result<(), E>,
        back: impl Fn(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in touched(off, len) {
            if self.state(run).load(Ordering::Acquire) != RESIDENT {
                self.settle_for_writing(run, &load, &back)?;
            }
        }
        Ok(())
    }

    /// Makes every run that lies wholly within the range resident without reading it; `back` allocates the blocks of a
    /// fresh run.
    pub(super) fn claim_whole_runs<E>(
        &self,
        off: u64,
        len: u64,
        back: impl Fn(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for run in off.div_ceil(RUN_SIZE)..(off + len) / RUN_SIZE {
            self.settle_for_writing(run, &|_| Ok(()), &back)?;
        }
        Ok(())
    }

    /// Declares the file's contents of an absent run unneeded: the run is not read from now on. Returns what the run
    /// has.
    pub(super) fn forget(&self, run: u64) -> Standing {
        let state = self.state(run);
        // A busy run is being read by a thread that needs it.
        let _ = state.compare_exchange(ABSENT, PREPARED, Ordering::AcqRel, Ordering::Relaxed);
        self.standing(run)
    }

    /// True for an unused run of zeroes. There is no barrier against concurrent changes: only memory advice may depend
    /// on it.
    pub(super) fn is_free(&self, run: u64) -> bool {
        self.states
            .get(run as usize)
            .is_none_or(|state| matches!(state.load(Ordering::Acquire), FRESH | PREPARED))
    }

    pub(super) fn is_resident(&self, run: u64) -> bool {
        self.states.get(run as usize).is_some_and(|state| state.load(Ordering::Acquire) == RESIDENT)
    }

    /// True for a run of which some blocks are in memory, and `paged.rs` knows which.
    #[inline]
    pub(super) fn is_paged(&self, run: u64) -> bool {
        self.state(run).load(Ordering::Acquire) == PAGED
    }

    /// True for a run that is wholly in memory, or reads as zeroes.
    #[inline]
    pub(super) fn is_whole(&self, run: u64) -> bool {
        matches!(self.state(run).load(Ordering::Acquire), FRESH | PREPARED | RESIDENT)
    }

    /// An absent run becomes paged, with no block in memory, or a resident run, with all blocks. False if the run was
    /// not in that state.
    pub(super) fn page(&self, run: u64, from_resident: bool) -> bool {
        let from = if from_resident { RESIDENT } else { ABSENT };
        self.state(run).compare_exchange(from, PAGED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A paged run becomes resident. `present` bytes of it are in memory: all of the run, or all that is needed of it.
    pub(super) fn unpage(&self, run: u64, present: u64) {
        let state = self.state(run);
        if state.compare_exchange(PAGED, RESIDENT, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.add_resident(RUN_SIZE - present);
        }
    }

    /// Bytes of the region that are in memory.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add_resident(&self, bytes: u64) {
        self.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn drop_resident(&self, bytes: u64) {
        self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn standing(&self, run: u64) -> Standing {
        match self.state(run).load(Ordering::Acquire) {
            FRESH => Standing::Bare,
            PREPARED => Standing::Backed,
            _ => Standing::Warm,
        }
    }

    /// Reads the next absent run of the first `count`; false when there is none. A run that cannot be read is skipped;
    /// it is tried again when its bytes are requested.
    pub(super) fn load_next(
        &self,
        count: u64,
        load: impl Fn(u64) -> Result<(), MediaError>,
    ) -> Result<bool, MediaError> {
        let mut run = self.load_from.load(Ordering::Relaxed);
        while run < count && self.state(run).load(Ordering::Acquire) >= FRESH {
            run += 1;
        }
        // A busy run may become absent again, so that only runs in other states are skipped permanently.
        self.load_from.fetch_max(run, Ordering::Relaxed);
        if run < count {
            self.settle_for_reading(run, &load).inspect_err(|_| {
                self.load_from.fetch_max(run + 1, Ordering::Relaxed);
            })?;
        }
        Ok(run < count)
    }

    /// Prepares the file space of those of the runs that are fresh, by calling `zero`. Returns what all of them have then.
    pub(super) fn prepare<E>(
        &self,
        runs: &[u64],
        zero: impl FnOnce(&[u64]) -> Result<(), E>,
    ) -> Result<Vec<Standing>, E> {
        let fresh: Vec<u64> = runs.iter().copied().filter(|run| self.enter(*run, FRESH)).collect();
        if !fresh.is_empty() {
            let done = zero(&fresh);
            let to = if done.is_ok() { PREPARED } else { FRESH };
            fresh.iter().for_each(|run| self.leave(*run, to));
            done?;
        }
        Ok(runs.iter().map(|run| self.standing(*run)).collect())
    }

    /// Releases a free run's memory, or its memory and blocks, by calling `give`.
    pub(super) fn give_back<E>(
        &self,
        run: u64,
        down_to: Standing,
        give: impl FnOnce() -> Result<(), E>,
    ) -> Result<Standing, E> {
        let to = if down_to == Standing::Bare { FRESH } else { PREPARED };
        let from = self.state(run).load(Ordering::Acquire);
        if from > to && self.enter(run, from) {
            let done = give();
            if done.is_ok() && from == RESIDENT {
                self.drop_resident(RUN_SIZE);
            }
            self.leave(run, if done.is_ok() { to } else { from });
            done?;
        }
        Ok(self.standing(run))
    }

    /// Makes one run readable.
    #[cold]
    fn settle_for_reading<E>(&self, run: u64, load: &impl Fn(u64) -> Result<(), E>) -> Result<(), E> {
        loop {
            match self.state(run).load(Ordering::Acquire) {
                ABSENT => self.load_one(run, load)?,
                BUSY => self.wait(run),
                _ => return Ok(()),
            }
        }
    }

    /// Reads an absent run, unless another thread has started to.
    fn load_one<E>(&self, run: u64, load: &impl Fn(u64) -> Result<(), E>) -> Result<(), E> {
        if !self.enter(run, ABSENT) {
            return Ok(());
        }
        let done = load(run);
        self.leave(run, if done.is_ok() { self.note_resident() } else { ABSENT });
        done
    }

    /// Makes one run resident.
    #[cold]
    fn settle_for_writing<E>(
        &self,
        run: u64,
        load: &impl Fn(u64) -> Result<(), E>,
        back: &impl Fn(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            match self.state(run).load(Ordering::Acquire) {
                ABSENT => self.load_one(run, load)?,
                BUSY => self.wait(run),
                FRESH => {
                    if self.enter(run, FRESH) {
                        let done = back(run);
                        self.leave(run, if done.is_ok() { self.note_resident() } else { FRESH });
                        done?;
                    }
                }
                PREPARED => {
                    let state = self.state(run);
                    let done =
                        state.compare_exchange(PREPARED, RESIDENT, Ordering::AcqRel, Ordering::Relaxed);
                    done.is_ok().then(|| self.note_resident());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Counts a run that is now wholly in memory.
    fn note_resident(&self) -> u8 {
        self.add_resident(RUN_SIZE);
        RESIDENT
    }

    fn enter(&self, run: u64, from: u8) -> bool {
        self.state(run).compare_exchange(from, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn leave(&self, run: u64, to: u8) {
        let guard = self.settling.lock();
        self.state(run).store(to, Ordering::Release);
        drop(guard);
        self.settled.notify_all();
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

    /// The file system is full.
    fn no_space(_: u64) -> Result<(), MediaError> {
        Err(ANY)
    }

    #[test]
    fn runs_are_loaded_once_and_only_where_touched() {
        let (runs, loads) = (Residency::new(8), RefCell::new(Vec::new()));
        let load = |run| -> Result<(), MediaError> {
            loads.borrow_mut().push(run);
            Ok(())
        };
        runs.make_readable(RUN_SIZE - 1, 2, load).expect("loads");
        runs.make_writable(0, 2 * RUN_SIZE, load, no_space).expect("nothing to load");
        runs.make_readable(5 * RUN_SIZE, 0, load).expect("nothing to load");
        assert_eq!(*loads.borrow(), [0, 1]);
    }

    #[test]
    fn a_claimed_run_is_not_read_and_a_partial_one_is() {
        let runs = Residency::new(4);
        runs.claim_whole_runs(RUN_SIZE / 2, 2 * RUN_SIZE, no_space).expect("an absent run has blocks");
        assert!(runs.make_writable(RUN_SIZE, RUN_SIZE, |_| Err(ANY), no_space).is_ok());
        assert!(runs.make_writable(0, RUN_SIZE, |_| Err(ANY), no_space).is_err());
        assert!(runs.make_writable(2 * RUN_SIZE, RUN_SIZE, |_| Err(ANY), no_space).is_err());
    }

    #[test]
    fn a_forgotten_run_is_not_read_and_one_in_memory_stays() {
        let runs = Residency::new(3);
        runs.mark_fresh(2..3);
        runs.make_readable(RUN_SIZE, 1, |_| Ok::<_, MediaError>(())).expect("loads");
        let has: Vec<Standing> = (0..3).map(|run| runs.forget(run)).collect();
        assert_eq!(has, [Standing::Backed, Standing::Warm, Standing::Bare]);
        assert!(!runs.load_next(3, |_| Err(ANY)).expect("nothing to load"));
        runs.make_writable(0, 3 * RUN_SIZE, |_| Err(ANY), |_| Ok(())).expect("nothing to load");
    }

    #[test]
    fn an_unreadable_run_is_skipped_and_tried_again_on_request() {
        let runs = Residency::new(2);
        let first_fails = |run| if run == 0 { Err(ANY) } else { Ok(()) };
        assert!(runs.load_next(2, first_fails).is_err());
        assert!(runs.load_next(2, first_fails).expect("the second loads"));
        assert!(!runs.load_next(2, first_fails).expect("nothing left"));
        assert!(runs.make_readable(0, 1, first_fails).is_err());
        runs.make_readable(0, 1, |_| Ok::<_, MediaError>(())).expect("loads");
    }

    #[test]
    fn only_fresh_runs_are_prepared_and_only_they_need_space() {
        let (runs, zeroed) = (Residency::new(3), RefCell::new(Vec::new()));
        runs.mark_fresh(1..3);
        let zero = |fresh: &[u64]| {
            zeroed.borrow_mut().extend_from_slice(fresh);
            Ok::<_, MediaError>(())
        };
        runs.forget(0);
        for some in [&[0][..], &[0, 1], &[1]] {
            let have = runs.prepare(some, zero).expect("zeroes");
            assert!(have.len() == some.len() && have.iter().all(|has| *has == Standing::Backed));
        }
        assert_eq!(*zeroed.borrow(), [1]);
        runs.claim_whole_runs(0, 2 * RUN_SIZE, no_space).expect("both have blocks");
        assert!(runs.claim_whole_runs(2 * RUN_SIZE, RUN_SIZE, no_space).is_err());
        assert_eq!(runs.forget(2), Standing::Bare, "it stays what it was");
        runs.claim_whole_runs(2 * RUN_SIZE, RUN_SIZE, |_| Ok::<_, MediaError>(()))
            .expect("there is space now");
    }

    #[test]
    fn giving_back_lowers_the_standing_of_a_run_and_never_raises_it() {
        let runs = Residency::new(1);
        let give = |to| runs.give_back(0, to, || Ok::<_, MediaError>(()));
        runs.make_writable(0, 1, |_| Ok(()), no_space).expect("loads");
        assert!(runs.give_back(0, Standing::Bare, || Err(ANY)).is_err());
        assert_eq!(runs.forget(0), Standing::Warm, "it stays what it was");
        assert_eq!(give(Standing::Backed).expect("gives"), Standing::Backed);
        assert_eq!(give(Standing::Bare).expect("gives"), Standing::Bare);
        assert_eq!(give(Standing::Backed).expect("nothing to give"), Standing::Bare);
        runs.make_readable(0, 1, |_| Err(ANY)).expect("zeroes need no load");
    }

    #[test]
    fn a_store_waits_until_zeroes_are_written() {
        let runs = Residency::new(1);
        runs.mark_fresh(0..1);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            let zero = |_: &[u64]| {
                threads.spawn(|| {
                    runs.make_writable(0, 1, |_| Err(ANY), no_space).expect("it has been prepared");
                    order.lock().push("stored");
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                order.lock().push("zeroed");
                Ok::<_, MediaError>(())
            };
            runs.prepare(&[0], zero).expect("zeroes");
        });
        assert_eq!(*order.lock(), ["zeroed", "stored"]);
    }
}
