//! Keeping a paged region within its memory: which bytes leave it.
//!
//! A clock goes over the runs and drops chunks that nobody has used since it passed last. Only data leave: records are
//! always in memory. A chunk may go when it is durable and nobody will store to it, which is so when
//!
//! 1. its run holds data and nobody fills it; it cannot become free meanwhile, since the clock has entered it;
//! 2. at a time after that, nobody had pinned the chunk. Bytes that landed are held, and so pinned, until the record that
//!    refers to them has been appended. So every record that makes bytes of the chunk matter has been appended by then;
//! 3. at a time after that, every record that refers to the run was durable, and so were its data;
//! 4. and the medium drops it only if nobody has pinned it since (2).

use crate::free::FreeGoal;
use crate::heap::Heap;
use crate::layout::RunId;
use landfall_media::{Evict, Pages, RUN_SIZE, Standing};
use parking_lot::Mutex;

/// Of the limit, one part in so many is kept free for what is read or received next.
const SPARE_PARTS: u64 = 32;
/// Times around the clock in which only what is unused goes: the first may find that all was used since long.
const ROUNDS_UNUSED: u32 = 2;
/// Times around the clock before what is pinned is all that is left.
const ROUNDS_MAX: u32 = 3;

/// The clock's hand: the run that is looked at next.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<u32>);

impl Heap {
    /// Drops data from memory that nobody uses until `incoming` bytes fit, and some more. Returns how many bytes were freed: 0
    /// where they fit, or where all of the region may be in memory.
    pub fn relieve_memory(&self, incoming: u64) -> u64 {
        let Some(pages) = self.runs.pages() else { return 0 };
        if pages.resident_bytes() + incoming <= pages.limit() {
            return 0;
        }
        let goal = pages.limit() - pages.limit() / SPARE_PARTS;
        let is_enough = || pages.resident_bytes() + incoming <= goal;
        // Another thread's hand moves already: what it frees is enough, or the next call goes on.
        let Some(mut hand) = self.clock.0.try_lock() else { return 0 };
        let mut freed = self.give_back_free_memory(&is_enough);
        for visited in 0..ROUNDS_MAX * self.runs.total() {
            if is_enough() {
                break;
            }
            let what = if visited < ROUNDS_UNUSED * self.runs.total() { Evict::Unused } else { Evict::Any };
            freed += self.evict_from(pages, RunId(*hand), what);
            *hand = (*hand + 1) % self.runs.total();
        }
        freed
    }

    /// Drops what may go of one run.
    fn evict_from(&self, pages: &dyn Pages, run: RunId, what: Evict) -> u64 {
        if !self.runs.is_settled_data(run) || !self.runs.enter(run) {
            return 0;
        }
        // In this order: see the module's documentation.
        let may_go = self.runs.is_settled_data(run)
            && (pages.cold_bytes(run.off()) > 0 || what == Evict::Any)
            && self.runs.all_durable(run);
        let freed = if may_go { pages.evict(run.off(), what) } else { 0 };
        self.runs.leave(run);
        freed
    }

    /// Gives back the memory of free runs, down to those that are kept ready.
    fn give_back_free_memory(&self, is_enough: &dyn Fn() -> bool) -> u64 {
        let mut freed = 0;
        while !is_enough() {
            let Some(run) = self.runs.change_free(|free| free.take_surplus_warm(FreeGoal::DEFAULT)) else {
                break;
            };
            let has = self.media.give_back_run(run.off(), Standing::Backed).unwrap_or(Standing::Warm);
            self.runs.change_free(|free| free.put_tended(run, has, Standing::Backed));
            if has == Standing::Warm {
                break;
            }
            freed += RUN_SIZE;
        }
        freed
    }
}
