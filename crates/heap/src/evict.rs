//! Keeps a paged region within its memory limit: which bytes are evicted.
//!
//! The clock algorithm visits the runs and evicts chunks that nothing has used since its previous visit. It evicts only
//! data: records are always in memory. A chunk may be evicted when it is durable and nothing will store to it. That is
//! so when all of these hold:
//!
//! 1. The chunk's run holds data and nothing fills it. The run cannot become free meanwhile, because the clock has
//!    entered it.
//! 2. After (1), there was a time at which the chunk was not pinned. Landed bytes are held, and so pinned, until the
//!    record that refers to them has been appended. So every record that needs bytes of the chunk has been appended.
//! 3. After (2), there was a time at which every record that refers to the run was durable, with its data.
//! 4. Nothing pins the chunk. The medium checks this when it evicts. Who has pinned it since (2) has stored nothing there.

use crate::free::FreeGoal;
use crate::heap::Heap;
use crate::layout::RunId;
use crate::run::RunUse;
use landfall_media::{Evict, Extent, MediaError, Pages, RUN_SIZE, Standing};

/// One part in this many of the limit is kept free for bytes that are read or received next.
const SPARE_PARTS: u64 = 32;
/// Rounds of the clock that evict only unused chunks. The first round may find that all chunks have been used.
const ROUNDS_UNUSED: u32 = 2;
/// Most rounds of the clock in one call. After them only pinned chunks are left.
const ROUNDS_MAX: u32 = 3;

impl Heap {
    /// Evicts unused data until `incoming` bytes fit, and a little more. Returns the number of bytes freed: 0 if the
    /// bytes fit already, or if all of the region may be in memory.
    pub fn relieve_memory(&self, incoming: u64) -> u64 {
        let Some(pages) = self.runs.pages() else { return 0 };
        if pages.resident_bytes() + incoming <= pages.limit() {
            return 0;
        }
        let goal = pages.limit() - pages.limit() / SPARE_PARTS;
        let is_enough = || pages.resident_bytes() + incoming <= goal;
        // Another thread is evicting: either that is enough, or the next call continues.
        let Some(mut hand) = self.clock.0.try_lock() else { return 0 };
        let mut freed = self.give_back_free_memory(FreeGoal::DEFAULT.within(pages.limit()), &is_enough);
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

    /// Reads the bytes of a held extent that are not in memory. Blocks while the medium reads.
    ///
    /// # Errors
    /// The medium's.
    pub fn load(&self, extent: Extent) -> Result<(), MediaError> {
        self.runs.pages().map_or(Ok(()), |pages| {
            self.relieve_memory(u64::from(extent.len()));
            pages.load(extent)
        })
    }

    /// Evicts the runs of verified extents if the region is above its limit. For a check, during which nobody stores to the
    /// region, so that all bytes are those of the medium.
    pub(crate) fn evict_verified(&self, extents: &[Extent]) {
        let Some(pages) = self.runs.pages().filter(|pages| pages.resident_bytes() > pages.limit()) else {
            return;
        };
        let parts = extents.iter().filter(|extent| !extent.is_empty()).flat_map(|extent| extent.by_run());
        let runs = parts.map(|part| RunId::of(part.off));
        let data = runs.filter(|run| matches!(self.runs.get(*run).used_for(), RunUse::Free | RunUse::Data));
        for run in data {
            pages.evict(run.off(), Evict::Any, pages.unpinned(run.off()));
        }
    }

    /// Evicts what may be evicted of one run.
    fn evict_from(&self, pages: &dyn Pages, run: RunId, what: Evict) -> u64 {
        if !self.runs.is_settled_data(run) || !self.runs.enter(run) {
            return 0;
        }
        // The order matters: see the module's documentation.
        let may_go =
            self.runs.is_settled_data(run) && (pages.cold_bytes(run.off()) > 0 || what == Evict::Any);
        let unpinned = may_go.then(|| pages.unpinned(run.off()));
        let among = unpinned.filter(|_| self.runs.all_durable(run));
        let freed = among.map_or(0, |among| pages.evict(run.off(), what, among));
        self.runs.leave(run);
        freed
    }

    /// Gives back the memory of free runs, except of those that are kept warm.
    fn give_back_free_memory(&self, goal: FreeGoal, is_enough: &dyn Fn() -> bool) -> u64 {
        let mut freed = 0;
        while !is_enough() {
            let Some(run) = self.runs.change_free(|free| free.take_surplus_warm(goal)) else {
                break;
            };
            let has = self.media.give_back_run(run.off(), Standing::Backed).unwrap_or(Standing::Warm);
            self.runs.change_free(|free| free.put_back(run, has, Standing::Backed));
            if has == Standing::Warm {
                break;
            }
            freed += RUN_SIZE;
        }
        freed
    }
}
