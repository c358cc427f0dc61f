//! Two runs share a huge page. Where only one of them is in use, memory for the other must not be allocated.
//!
//! A page fault in one run of a pair, or the kernel thread that merges small pages (khugepaged), would allocate memory
//! for both runs: a third of the image, measured after a load with compaction and a restart. So the pair is backed by
//! small pages until both runs are in use. Each change of backing may split a mapping of the process. The kernel allows
//! about 65,000 mappings, so the number of such pairs is bounded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::sys::image::{ALIGN_DEFAULT, Image};
use crate::units::RUN_SIZE;

/// Maximum number of pairs that are backed by small pages.
const SMALL_MAX: usize = 8192;

const _: () = assert!(ALIGN_DEFAULT == 2 * RUN_SIZE);

/// Which pairs of runs are backed by small pages.
pub(super) struct Pairs {
    small: Box<[AtomicBool]>,
    count: AtomicUsize,
}

impl Pairs {
    /// Pairs for `runs` runs, all backed by huge pages.
    pub(super) fn new(runs: u64) -> Self {
        let pairs = runs.div_ceil(2);
        Self { small: (0..pairs).map(|_| AtomicBool::new(false)).collect(), count: AtomicUsize::new(0) }
    }

    /// One run of the pair is in use, and the other is not.
    pub(super) fn split(&self, image: &Image, run: u64) {
        let small = &self.small[run as usize / 2];
        if self.count.load(Ordering::Relaxed) < SMALL_MAX && !small.swap(true, Ordering::AcqRel) {
            self.count.fetch_add(1, Ordering::Relaxed);
            image.advise_huge(pair_off(run), ALIGN_DEFAULT, false);
        }
    }

    /// Both runs of the pair are in use.
    pub(super) fn join(&self, image: &Image, run: u64) {
        let small = &self.small[run as usize / 2];
        if small.load(Ordering::Acquire) && small.swap(false, Ordering::AcqRel) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            image.advise_huge(pair_off(run), ALIGN_DEFAULT, true);
        }
    }
}

fn pair_off(run: u64) -> u64 {
    run / 2 * ALIGN_DEFAULT
}
