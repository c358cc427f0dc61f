//! Compaction moves live bytes out of sparse data runs, and live records out of sparse slabs, within a budget. The
//! protocol and the argument for each crash point: `docs/format/compaction.md`.

use crate::error::HeapError;
use crate::extents::Extents;
use crate::goal::CompactGoal;
use crate::heap::Heap;
use crate::layout::{RunId, SlotId};
use crate::owner::{Gone, Named, Owner};
use crate::record::{RecordView, Slot};
use crate::run::RunUse;
use crate::spaces;
use crate::table::RunWord;
use crate::transactions::WithHeap;
use crate::victims::{Candidate, Victims, empty_slabs};
use crate::writer::Writer;
use landfall_media::{Extent, RUN_SIZE};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A value of many pieces is not moved out of runs with a smaller share of dead bytes than this.
const GAIN_MIN: f32 = 0.03;
/// A value of at least this many pieces is moved out of several runs at once.
const PIECES_MANY: usize = 64;
/// About how often the record of such a value is rewritten until all its sparse runs are empty.
const REWRITES: u64 = 8;
/// The reclaimable space is estimated again when one part in this many of all runs has been taken.
const ESTIMATE_PARTS: u32 = 256;
/// Most records that are moved between two fences.
const MOVES_MAX: usize = 1024;

/// The result of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Value and key bytes copied.
    pub moved_bytes: u64,
    /// Records rewritten.
    pub moved_records: u64,
    /// Slabs freed. (Data runs become free when no reference is left.)
    pub freed_slabs: u64,
    /// Records whose data fail their check. They are not moved.
    pub damaged: u64,
    /// The compactor has nothing to do until the region changes.
    pub is_idle: bool,
}

#[derive(Debug)]
enum Victim {
    Data {
        run: RunId,
        referrers: Vec<SlotId>,
        next: usize,
        /// The second pass has begun, over records that were added during the first.
        again: bool,
    },
    Slab {
        run: RunId,
        next: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Move {
    name: Named,
    old: SlotId,
    new: SlotId,
}

/// The compactor. A region has one; a background thread runs its steps.
#[derive(Debug)]
pub struct Compactor {
    heap: Arc<Heap>,
    writer: Writer,
    victim: Option<Victim>,
    moves: Vec<Move>,
    victims: Victims,
    /// The value of the runs' counter of emptied slabs when empty slabs were freed last.
    emptied: Option<u32>,
    /// Number of runs taken when the reclaimable space was estimated last.
    estimated: u32,
}

impl Compactor {
    /// The region's compactor.
    pub fn new(heap: Arc<Heap>) -> Self {
        let writer = Writer::compactor(Arc::clone(&heap));
        heap.space.set_cleaned(&heap.runs, true);
        let estimated = heap.runs.taken();
        Self {
            heap,
            writer,
            victim: None,
            moves: Vec::new(),
            victims: Victims::default(),
            emptied: None,
            estimated,
        }
    }

    /// Frees empty slabs. Then, if fewer runs are free than the goal says, moves about `budget_bytes` and fences once.
    ///
    /// # Errors
    /// The medium's; [`HeapError::Full`] if the compactor's reserve is used up.
    pub fn step(
        &mut self,
        owner: &dyn Owner,
        goal: CompactGoal,
        budget_bytes: u64,
    ) -> Result<Compacted, HeapError> {
        let heap = Arc::clone(&self.heap);
        let owner = &WithHeap { heap: &heap, systems: owner };
        let mut done = Compacted::default();
        self.free_empty_slabs(owner, &mut done)?;
        if self.victim.is_none() {
            // An error may have interrupted the previous victim.
            self.leave_victim();
            self.victim = self.choose(goal)?;
        }
        let Some(mut victim) = self.victim.take() else {
            done.is_idle = done.freed_slabs == 0;
            return Ok(done);
        };
        let finished = match &mut victim {
            Victim::Data { run, referrers, next, .. } => {
                self.move_data(owner, *run, referrers, next, budget_bytes, &mut done)
            }
            Victim::Slab { run, next } => self.move_slab(owner, *run, next, &mut done),
        };
        // Copies made so far are completed even if a later one failed.
        self.settle(owner)?;
        if finished? && !self.visit_again(&mut victim)? {
            self.retire(owner, &victim, &mut done)?;
        } else {
            self.victim = Some(victim);
        }
        Ok(done)
    }

    /// Stops emptying the current run, and releases everything held for it.
    pub fn leave_victim(&mut self) {
        self.victim = None;
        self.writer.forwards.end(&self.heap);
    }

    /// Chooses the next run to empty; `None` if enough runs are free.
    fn choose(&mut self, goal: CompactGoal) -> Result<Option<Victim>, HeapError> {
        if self.heap.runs.free_count() >= goal.free_runs {
            self.note_enough_free();
            return Ok(None);
        }
        let Some(Candidate { run, used_for, .. }) = self.victims.next(&self.heap, goal) else {
            return Ok(None);
        };
        // Only records below the watermark may move, so the watermarks are raised first.
        self.heap.mark_slabs(1)?;
        self.writer.begin_victim(self.heap.runs.get(run));
        Ok(match used_for {
            RunUse::Slab if !self.heap.slabs.directory.withdraw_spare(&self.heap.runs, run) => None,
            RunUse::Slab => Some(Victim::Slab { run, next: 0 }),
            _ => Some(Victim::Data { run, referrers: self.heap.runs.referrers(run), next: 0, again: false }),
        })
    }

    /// Enough runs are free. The reclaimable space is estimated occasionally, as runs are taken.
    fn note_enough_free(&mut self) {
        self.victims.forget();
        self.heap.space.end_demand();
        let (taken, total) = (self.heap.runs.taken(), self.heap.runs.total());
        if taken.wrapping_sub(self.estimated) > total / ESTIMATE_PARTS {
            self.estimated = taken;
            self.heap.space.estimate_reclaimable(&self.heap.runs);
        }
    }

    /// Frees every slab that has become empty since the last call. No record has to be moved for that.
    fn free_empty_slabs(&mut self, owner: &dyn Owner, done: &mut Compacted) -> Result<(), HeapError> {
        let emptied = self.heap.runs.emptied();
        if self.emptied.replace(emptied) == Some(emptied) {
            return Ok(());
        }
        let mut empty = empty_slabs(&self.heap);
        // The current victim is freed when it has been processed.
        let is_victim = |run| matches!(self.victim, Some(Victim::Slab { run: victim, .. }) if victim == run);
        empty.retain(|run| {
            !is_victim(*run) && self.heap.slabs.directory.withdraw_spare(&self.heap.runs, *run)
        });
        done.freed_slabs += empty.len() as u64;
        self.free_slabs(owner, &empty)
    }

    fn move_data(
        &mut self,
        owner: &dyn Owner,
        run: RunId,
        referrers: &mut Vec<SlotId>,
        next: &mut usize,
        budget_bytes: u64,
        done: &mut Compacted,
    ) -> Result<bool, HeapError> {
        let (start, end) = (run.off(), run.off() + RUN_SIZE);
        let inside = |extent: Extent| extent.off < end && extent.end() > start;
        while let Some(slot) = referrers.get(*next) {
            if done.moved_bytes >= budget_bytes || self.moves.len() >= MOVES_MAX {
                return Ok(false);
            }
            let (slot, known) = (*slot, self.writer.forwards.runs().len());
            *next += 1;
            self.move_one(owner, slot, true, inside, done)?;
            // The value has also left other runs. Records that share its bytes there are moved, too.
            if self.writer.forwards.runs().len() > known {
                let others = self.writer.forwards.runs().iter().filter(|other| **other != run);
                let sharers = others.flat_map(|other| self.heap.runs.referrers(*other));
                referrers.extend(sharers.collect::<Vec<_>>());
            }
        }
        Ok(true)
    }

    /// Starts a second pass if shared bytes have been moved, or if something is left. Since the referrers were listed, further
    /// records may have come to share the bytes, taken the place of others, or become durable. These are visited once.
    fn visit_again(&mut self, victim: &mut Victim) -> Result<bool, HeapError> {
        let Victim::Data { run, referrers, next, again: again @ false } = victim else { return Ok(false) };
        if self.writer.forwards.is_empty() && self.heap.runs.get(*run).live_bytes() == 0 {
            return Ok(false);
        }
        self.heap.mark_slabs(1)?;
        let others = self.writer.forwards.runs().iter().filter(|other| *other != run);
        let runs = std::iter::once(&*run).chain(others);
        *referrers = runs.flat_map(|run| self.heap.runs.referrers(*run)).collect();
        (*next, *again) = (0, true);
        Ok(true)
    }

    fn move_slab(
        &mut self,
        owner: &dyn Owner,
        run: RunId,
        next: &mut u32,
        done: &mut Compacted,
    ) -> Result<bool, HeapError> {
        let heap = Arc::clone(&self.heap);
        let state = heap.runs.get(run);
        let filled = state.filled.load(Ordering::Relaxed);
        // No record of a closed slab becomes current again. So at zero live slots nothing has to be moved.
        while *next < filled && state.live_slots() > 0 {
            if self.moves.len() >= MOVES_MAX {
                return Ok(false);
            }
            let slot = SlotId::new(run, *next);
            *next += 1;
            self.move_one(owner, slot, false, |_| false, done)?;
        }
        Ok(true)
    }

    fn move_one(
        &mut self,
        owner: &dyn Owner,
        slot: SlotId,
        checks_data: bool,
        moves_data: impl Fn(Extent) -> bool,
        done: &mut Compacted,
    ) -> Result<(), HeapError> {
        let heap = Arc::clone(&self.heap);
        if heap.runs.get(slot.run()).used_for() != RunUse::Slab || !heap.is_marked(slot) {
            return Ok(());
        }
        // Unreadable records are not moved, and none whose references nobody counts.
        let Ok(Slot::Record(view)) = heap.slot(slot) else { return Ok(()) };
        if !heap.counts_by_itself(&view) || !heap.is_counted(slot) {
            return Ok(());
        }
        // If the record is still current when the extents are held, they belonged to the record when they were read.
        let extents = heap.all_extents(slot, &view);
        let forwards = &self.writer.forwards;
        let touches =
            |extents: &Extents| extents.iter().any(|extent| moves_data(*extent) || forwards.touches(*extent));
        if checks_data && extents.as_ref().is_ok_and(|extents| !touches(extents)) {
            return Ok(());
        }
        let mut hold = || {
            heap.copying.begin(slot);
            extents.iter().flatten().for_each(|extent| heap.runs.hold(*extent));
        };
        if !owner.begin_move(Named::of(&view), slot, &mut hold) {
            return Ok(());
        }
        let others = if checks_data { self.others_to_empty(extents.iter().flatten()) } else { Vec::new() };
        let moves_data =
            |extent: Extent| moves_data(extent) || others.binary_search(&RunId::of(extent.off)).is_ok();
        let copied = self.copy_one(slot, &view, extents.is_ok(), checks_data, &moves_data, done);
        extents.iter().flatten().for_each(|extent| heap.runs.release(*extent));
        match copied {
            Ok(Some(new)) => self.moves.push(Move { name: Named::of(&view), old: slot, new }),
            Ok(None) => {
                heap.copying.cancel(slot);
                owner.abort_move(Named::of(&view));
            }
            Err(error) => {
                heap.copying.cancel(slot);
                owner.abort_move(Named::of(&view));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Other sparse runs out of which a value of many pieces is moved in the same step, so that it is verified, and its
    /// record rewritten, once for all of them.
    fn others_to_empty<'a>(&self, extents: impl Iterator<Item = &'a Extent> + Clone) -> Vec<RunId> {
        let mut runs = Vec::new();
        if extents.clone().take(PIECES_MANY).count() < PIECES_MANY {
            return runs;
        }
        let bytes: u64 = extents.clone().map(|extent| u64::from(extent.len())).sum();
        // At most half of the free bytes, since writers continue.
        let mut left = (bytes / REWRITES).max(RUN_SIZE).min(self.heap.free_bytes() / 2);
        for extent in extents {
            let (run, len) = (RunId::of(extent.off), u64::from(extent.len()));
            let state = self.heap.runs.get(run);
            let is_full = state.live_bytes() as f32 >= (1.0 - GAIN_MIN) * RUN_SIZE as f32;
            if is_full || state.used_for() != RunUse::Data || state.is_open() {
                continue;
            }
            if left < len {
                break;
            }
            left -= len;
            if let Err(place) = runs.binary_search(&run) {
                runs.insert(place, run);
            }
        }
        runs
    }

    fn copy_one(
        &mut self,
        slot: SlotId,
        view: &RecordView<'_>,
        readable: bool,
        checks_data: bool,
        moves_data: &impl Fn(Extent) -> bool,
        done: &mut Compacted,
    ) -> Result<Option<SlotId>, HeapError> {
        let forwards = &self.writer.forwards;
        let moves = |extent| checks_data && (moves_data(extent) || forwards.touches(extent));
        // Damaged data must not be copied under a new record. They stay, and reads report them.
        let verified = match checks_data {
            true => self.heap.reader().verify_moving(slot, view, moves),
            false => Ok(0),
        };
        let (true, Ok(moved_bytes)) = (readable, verified) else {
            done.damaged += 1;
            return Ok(None);
        };
        let new = self.writer.append_moved(slot, view, moves_data)?;
        done.moved_records += 1;
        if checks_data {
            done.moved_bytes += moved_bytes + view.key_len() as u64;
        }
        Ok(Some(new))
    }

    /// Fences the copies, raises the watermark above them, then makes each current instead of its original.
    fn settle(&mut self, owner: &dyn Owner) -> Result<(), HeapError> {
        let fenced = self.fence_copies();
        for Move { name, old, new } in self.moves.drain(..).filter(|_| fenced.is_ok()) {
            let replaces = owner.end_move(name, old, new);
            self.heap.end_copy(old, new, replaces);
        }
        fenced
    }

    /// Raises the watermark above each copy before its original is retired. Otherwise recovery would cut the tail at a
    /// copy whose data were damaged before the move, and lose every copy after it.
    fn fence_copies(&mut self) -> Result<(), HeapError> {
        self.writer.commit_now()?;
        let mut slabs: Vec<RunId> = self.moves.iter().map(|moved| moved.new.run()).collect();
        slabs.dedup();
        self.heap.slabs.mark(&self.heap.runs, &slabs)
    }

    fn retire(&mut self, owner: &dyn Owner, victim: &Victim, done: &mut Compacted) -> Result<(), HeapError> {
        self.writer.forwards.end(&self.heap);
        let (run, left) = match victim {
            Victim::Data { run, .. } => (*run, self.heap.runs.get(*run).live_bytes()),
            Victim::Slab { run, .. } => (*run, self.heap.runs.get(*run).live_slots()),
        };
        self.victims.note_left(&self.heap, run, left);
        if left == 0 && matches!(victim, Victim::Slab { .. }) {
            self.free_slabs(owner, &[run])?;
            done.freed_slabs += 1;
        }
        Ok(())
    }

    /// Frees empty slabs: first they are durably marked as no slabs, then their records are forgotten and the runs
    /// freed.
    fn free_slabs(&mut self, owner: &dyn Owner, slabs: &[RunId]) -> Result<(), HeapError> {
        if slabs.is_empty() {
            return Ok(());
        }
        slabs.iter().for_each(|run| self.heap.runs.get(*run).leaving.store(1, Ordering::Release));
        let words: Vec<_> = slabs.iter().map(|run| (*run, RunWord::NotSlab)).collect();
        self.heap.slabs.table.write(&words)?;
        slabs.iter().try_for_each(|run| self.forget_slab(owner, *run))
    }

    fn forget_slab(&mut self, owner: &dyn Owner, run: RunId) -> Result<(), HeapError> {
        let filled = self.heap.runs.get(run).filled.load(Ordering::Relaxed);
        let mut gone = Vec::with_capacity(filled as usize);
        for index in 0..filled {
            // Stale counts do not include records that no system owns: commit records, tombstones that repair has
            // written over unreadable records, and records of transactions that do not count.
            if let Slot::Record(view) = self.heap.slot(SlotId::new(run, index))?
                && !spaces::is_none(view.space())
                && view.transaction().is_none_or(|id| self.heap.forget_marked(id))
            {
                gone.push(Gone { name: Named::of(&view), seq: view.seq() });
            }
        }
        owner.forget(&mut gone);
        self.heap.runs.leave_slab(run);
        Ok(())
    }
}

impl Drop for Compactor {
    /// From now on no writer waits for the compactor.
    fn drop(&mut self) {
        self.writer.forwards.end(&self.heap);
        self.heap.space.set_cleaned(&self.heap.runs, false);
    }
}
