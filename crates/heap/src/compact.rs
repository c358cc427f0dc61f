//! Compaction: moving live bytes out of sparse data runs, and live records out of sparse slabs, within a
//! budget. The protocol and why a crash cannot hurt it: `docs/format/compaction.md`.

use crate::error::HeapError;
use crate::heap::{Extents, Heap};
use crate::layout::{RunId, SlotId};
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

/// A value of many pieces does not leave runs with a larger share of live bytes: it would gain next to nothing.
const GAIN_MIN: f32 = 0.03;
/// Pieces from which on a value is moved out of several runs at once.
const PIECES_MANY: usize = 64;
/// How often such a value's record is rewritten, about, until all its sparse runs are empty.
const REWRITES: u64 = 8;
/// What could be found is estimated anew when one part in so many of all runs has been taken.
const ESTIMATE_PARTS: u32 = 256;
/// Records moved between two fences at most.
const MOVES_MAX: usize = 1024;

/// The system that records belong to, as the compactor needs it.
pub trait Owner {
    /// If the record in `slot` is current: counts one more copy of it on the medium, calls `hold` while
    /// it is still current, and returns true.
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool;

    /// The copy in `new` is durable. If `old` is still current, `new` takes its place: true.
    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool;

    /// The copy announced by [`Self::begin_move`] was not made.
    fn abort_move(&self, name: Named);

    /// Records that are not current are gone from the medium, durably. Their order may be changed.
    fn forget(&self, gone: &mut [Gone]);
}

/// Whose version a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Namespace of the key: it tells the system, too.
    pub space: u8,
    /// Hash of space and key.
    pub hash: u64,
}

impl Named {
    fn of(view: &RecordView<'_>) -> Self {
        Self { space: view.space(), hash: view.hash() }
    }
}

/// A record that is gone from the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Whose version it was.
    pub name: Named,
    /// Its version.
    pub seq: u64,
}

/// When compaction rests, and what it may empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactGoal {
    /// It rests while so many runs are free: [`Heap::clean_below`].
    pub free_runs: u32,
    /// Whether live bytes may be moved out of data runs.
    pub data: bool,
    /// Whether current records may be moved out of slabs.
    pub slabs: bool,
}

impl CompactGoal {
    /// To rest while so many runs are free.
    pub const fn free(free_runs: u32) -> Self {
        Self { free_runs, data: true, slabs: true }
    }

    /// To rest only when nothing is left to gain.
    pub const DENSE: Self = Self::free(u32::MAX);
    /// The same, by data runs alone.
    pub const DENSE_DATA: Self = Self { slabs: false, ..Self::DENSE };
    /// The same, by slabs alone.
    pub const DENSE_SLABS: Self = Self { data: false, ..Self::DENSE };

    /// Whether runs of this use may be emptied.
    pub(crate) const fn empties(self, used_for: RunUse) -> bool {
        match used_for {
            RunUse::Data => self.data,
            RunUse::Slab => self.slabs,
            _ => false,
        }
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Value and key bytes copied.
    pub moved_bytes: u64,
    /// Records rewritten.
    pub moved_records: u64,
    /// Slabs given back (data runs come free by themselves).
    pub freed_slabs: u64,
    /// Records whose data fail their check: they stay where they are.
    pub damaged: u64,
    /// Nothing to do until the region changes.
    pub rests: bool,
}

#[derive(Debug)]
enum Victim {
    Data {
        run: RunId,
        referrers: Vec<SlotId>,
        next: usize,
        /// Records that have come meanwhile are being visited, once.
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

/// The compactor: one for a region, run in steps by whoever has time.
#[derive(Debug)]
pub struct Compactor {
    heap: Arc<Heap>,
    writer: Writer,
    victim: Option<Victim>,
    moves: Vec<Move>,
    victims: Victims,
    /// [`crate::Runs::emptied`] when empty slabs were given back last.
    emptied: Option<u32>,
    /// Runs taken when it was estimated last what could be found.
    estimated: u32,
}

impl Compactor {
    /// The region's compactor.
    pub fn new(heap: Arc<Heap>) -> Self {
        let writer = Writer::compactor(Arc::clone(&heap));
        heap.set_cleaned(true);
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

    /// Gives empty slabs back; else moves about `budget_bytes`, if fewer runs are free than the goal says, and fences once.
    ///
    /// # Errors
    /// The medium's; [`HeapError::Full`] when not even the compactor's reserve is left.
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
            // An error may have ended the last one.
            self.leave_victim();
            self.victim = self.choose(goal)?;
        }
        let Some(mut victim) = self.victim.take() else {
            done.rests = done.freed_slabs == 0;
            return Ok(done);
        };
        let finished = match &mut victim {
            Victim::Data { run, referrers, next, .. } => {
                self.move_data(owner, *run, referrers, next, budget_bytes, &mut done)
            }
            Victim::Slab { run, next } => self.move_slab(owner, *run, next, &mut done),
        };
        // Copies made so far are settled even when a later one failed.
        self.settle(owner)?;
        if finished? && !self.visit_again(&mut victim)? {
            self.retire(owner, &victim, &mut done)?;
        } else {
            self.victim = Some(victim);
        }
        Ok(done)
    }

    /// Leaves the run that is being emptied as it is, and holds nothing of it any more.
    pub fn leave_victim(&mut self) {
        self.victim = None;
        self.writer.forwards.end(&self.heap);
    }

    /// The run that is best emptied, if more are to be free.
    fn choose(&mut self, goal: CompactGoal) -> Result<Option<Victim>, HeapError> {
        if self.heap.runs.free_count() >= goal.free_runs {
            self.rest();
            return Ok(None);
        }
        let Some(Candidate { run, used_for, .. }) = self.victims.next(&self.heap, goal) else {
            return Ok(None);
        };
        // Only records that recovery trusts without their data may move: move the watermarks first.
        self.heap.mark_slabs(1)?;
        self.writer.begin_victim(self.heap.runs.get(run));
        Ok(match used_for {
            RunUse::Slab if !self.heap.withdraw_spare(run) => None,
            RunUse::Slab => Some(Victim::Slab { run, next: 0 }),
            _ => Some(Victim::Data { run, referrers: self.heap.runs.referrers(run), next: 0, again: false }),
        })
    }

    /// Enough is free. What could be found is estimated now and then, as runs are taken.
    fn rest(&mut self) {
        self.victims.forget();
        self.heap.end_demand();
        let (taken, total) = (self.heap.runs.taken(), self.heap.runs.total());
        if taken.wrapping_sub(self.estimated) > total / ESTIMATE_PARTS {
            self.estimated = taken;
            self.heap.estimate_hope();
        }
    }

    /// Gives back every slab that has become empty since the last time: what it hides and holds is freed without a move.
    fn free_empty_slabs(&mut self, owner: &dyn Owner, done: &mut Compacted) -> Result<(), HeapError> {
        let emptied = self.heap.runs.emptied();
        if self.emptied.replace(emptied) == Some(emptied) {
            return Ok(());
        }
        let mut empty = empty_slabs(&self.heap);
        // The one that is being emptied is given back when that has ended.
        let is_victim = |run| matches!(self.victim, Some(Victim::Slab { run: victim, .. }) if victim == run);
        empty.retain(|run| !is_victim(*run) && self.heap.withdraw_spare(*run));
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
            // Who shares what lies in other runs that the value has left, too, is to leave them with it.
            if self.writer.forwards.runs().len() > known {
                let others = self.writer.forwards.runs().iter().filter(|other| **other != run);
                let sharers = others.flat_map(|other| self.heap.runs.referrers(*other));
                referrers.extend(sharers.collect::<Vec<_>>());
            }
        }
        Ok(true)
    }

    /// Where records share what has been moved: others may have come to share it, or may have become durable, since it was
    /// listed who refers to it. These are visited as well, once.
    fn visit_again(&mut self, victim: &mut Victim) -> Result<bool, HeapError> {
        let Victim::Data { referrers, next, again: again @ false, .. } = victim else { return Ok(false) };
        if self.writer.forwards.is_empty() {
            return Ok(false);
        }
        self.heap.mark_slabs(1)?;
        *referrers =
            self.writer.forwards.runs().iter().flat_map(|run| self.heap.runs.referrers(*run)).collect();
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
        // Nobody makes a record of a closed slab current again: at none it stays, and nothing is to be moved.
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
        // What cannot be read stays where it is.
        let Ok(Slot::Record(view)) = heap.slot(slot) else { return Ok(()) };
        if !heap.counts_by_itself(&view) {
            return Ok(());
        }
        // If the record is still current when they are held, they were its own when they were read.
        let extents = heap.all_extents(slot, &view);
        let forwards = &self.writer.forwards;
        let touches =
            |extents: &Extents| extents.iter().any(|extent| moves_data(*extent) || forwards.touches(*extent));
        if checks_data && extents.as_ref().is_ok_and(|extents| !touches(extents)) {
            return Ok(());
        }
        let mut hold = || {
            heap.begin_copy(slot);
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
                heap.cancel_copy(slot);
                owner.abort_move(Named::of(&view));
            }
            Err(error) => {
                heap.cancel_copy(slot);
                owner.abort_move(Named::of(&view));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Other sparse runs that a value of many pieces is to leave, too: it is verified, and its record rewritten, once
    /// for all of them.
    fn others_to_empty<'a>(&self, extents: impl Iterator<Item = &'a Extent> + Clone) -> Vec<RunId> {
        let mut runs = Vec::new();
        if extents.clone().take(PIECES_MANY).count() < PIECES_MANY {
            return runs;
        }
        let bytes: u64 = extents.clone().map(|extent| u64::from(extent.len())).sum();
        // Half of what is free: writers go on meanwhile.
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
        // Damaged data must not be copied under a fresh record: it stays, and is reported when read.
        let verified = match checks_data {
            true => self.heap.verify_moving(slot, view, moves),
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

    /// Fences the copies and moves the watermark past them, then lets each replace its original.
    fn settle(&mut self, owner: &dyn Owner) -> Result<(), HeapError> {
        let fenced = self.fence_copies();
        for Move { name, old, new } in self.moves.drain(..).filter(|_| fenced.is_ok()) {
            let replaces = owner.end_move(name, old, new);
            self.heap.end_copy(old, new, replaces);
        }
        fenced
    }

    /// A copy is trusted before its original goes: recovery would stop at one whose data were damaged before
    /// it was moved, and give up every copy after it.
    fn fence_copies(&mut self) -> Result<(), HeapError> {
        self.writer.commit_now()?;
        let mut slabs: Vec<RunId> = self.moves.iter().map(|moved| moved.new.run()).collect();
        slabs.dedup();
        self.heap.mark(&slabs)
    }

    fn retire(&mut self, owner: &dyn Owner, victim: &Victim, done: &mut Compacted) -> Result<(), HeapError> {
        self.writer.forwards.end(&self.heap);
        let (run, left) = match victim {
            Victim::Data { run, .. } => (*run, self.heap.runs.get(*run).live_bytes()),
            Victim::Slab { run, .. } => (*run, self.heap.runs.get(*run).live_slots()),
        };
        self.victims.note_left(run, left);
        if left == 0 && matches!(victim, Victim::Slab { .. }) {
            self.free_slabs(owner, &[run])?;
            done.freed_slabs += 1;
        }
        Ok(())
    }

    /// Gives empty slabs back: durably no slabs first, forgotten and reused after.
    fn free_slabs(&mut self, owner: &dyn Owner, slabs: &[RunId]) -> Result<(), HeapError> {
        if slabs.is_empty() {
            return Ok(());
        }
        slabs.iter().for_each(|run| self.heap.runs.get(*run).leaving.store(1, Ordering::Release));
        let words: Vec<_> = slabs.iter().map(|run| (*run, RunWord::NotSlab)).collect();
        self.heap.write_words(&words)?;
        slabs.iter().try_for_each(|run| self.forget_slab(owner, *run))
    }

    fn forget_slab(&mut self, owner: &dyn Owner, run: RunId) -> Result<(), HeapError> {
        let filled = self.heap.runs.get(run).filled.load(Ordering::Relaxed);
        let mut gone = Vec::with_capacity(filled as usize);
        for index in 0..filled {
            // Nobody has counted what no system owns: commit records, what repair has put in place of an unreadable record,
            // and what belongs to a transaction that does not count.
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
    /// Nobody is to wait for space that nobody makes.
    fn drop(&mut self) {
        self.writer.forwards.end(&self.heap);
        self.heap.set_cleaned(false);
    }
}
