//! Chooses the run to empty next: by gain, cost, and the age of its live data.
//!
//! Cost and benefit as in the log-structured file system of Rosenblum and Ousterhout (1992), section 3.5. Old live data
//! will probably live on, so the free space beside them is worth more. Young data may be dead soon, without being
//! moved.

use crate::goal::{CompactGoal, GAIN_PARTS};
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId, SLOTS_PER_RUN};
use crate::run::{Run, RunUse};
use landfall_media::RUN_SIZE;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The unused end of a run that the compactor filled, where a long key or list did not fit, is not a gain below one
/// part in this many: the next fill would probably leave as much.
const END_PARTS: u64 = 8;
/// Runs chosen by a search: one part in this many of all runs, and at least this many.
const CHOSEN_PARTS: usize = 64;
const CHOSEN_MIN: usize = 8;
/// Fixed cost of emptying a run beside its live bytes, for fences and reads, bytes.
const FIXED_COST: u64 = 16 << 10;

/// A run that could not be emptied is a candidate again after 1, 2, 4 searches and so on, and at the latest after so many.
const PATIENCE_MAX: u64 = 256;
/// So often it is tried before its gain does not count as reclaimable any more: writers wait for what does.
const TRIES_COUNTED: u32 = 4;

/// Factor for the worth of a slab. Moving the data of its records makes its slots dead anyway.
const SLAB_PATIENCE: f32 = 0.3;

/// A run to be emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) run: RunId,
    pub(crate) used_for: RunUse,
    worth: f32,
}

/// The result of a search of all runs.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// Candidates; the best is last.
    best: Vec<Candidate>,
    /// Runs that could not be emptied.
    stuck: BTreeMap<RunId, Stuck>,
    /// Number of searches.
    searches: u64,
}

/// A run that could not be emptied: records that were not durable referred to it, or such that came while it was. Neither need
/// change the number of its live bytes: a record that has become durable, or has taken the place of another one, keeps the same
/// bytes, and can be moved.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// When the run was taken: what is in it later is something else.
    born: u32,
    /// Live bytes or slots that were left.
    left: u32,
    /// How often exactly these were left.
    tries: u32,
    /// The search that looks at it again.
    next: u64,
}

impl Victims {
    /// The run to empty next. Searches all runs when no earlier candidate is left, and reports the reclaimable space to
    /// the heap.
    pub(crate) fn next(&mut self, heap: &Heap, goal: CompactGoal) -> Option<Candidate> {
        while let Some(candidate) = self.best.pop() {
            let gain = gain(heap, heap.runs.get(candidate.run));
            if goal.empties(candidate.used_for) && gain.is_some_and(|gain| is_enough(gain, goal)) {
                return Some(candidate);
            }
        }
        self.search(heap, goal);
        self.best.pop()
    }

    /// Drops the candidates, which are out of date.
    pub(crate) fn forget(&mut self) {
        self.best.clear();
    }

    /// Notes that `left` live bytes or slots of a victim could not be moved.
    pub(crate) fn note_left(&mut self, heap: &Heap, run: RunId, left: u32) {
        let born = heap.runs.get(run).born();
        let before = self.stuck.remove(&run);
        if left > 0 {
            let tries = before
                .filter(|stuck| (stuck.born, stuck.left) == (born, left))
                .map_or(0, |stuck| stuck.tries)
                .saturating_add(1);
            let patience = 1_u64.checked_shl(tries - 1).unwrap_or(PATIENCE_MAX).min(PATIENCE_MAX);
            self.stuck.insert(run, Stuck { born, left, tries, next: self.searches + patience });
        }
    }

    fn search(&mut self, heap: &Heap, goal: CompactGoal) {
        heap.space.begin_search();
        self.searches += 1;
        let mut gains = 0;
        let mut found = Vec::new();
        for (id, run) in heap.runs.iter() {
            let used_for = run.used_for();
            let Some(gain) = gain(heap, run) else { continue };
            let stuck =
                self.stuck.get(&id).filter(|stuck| (stuck.born, stuck.left) == (run.born(), live(run)));
            if stuck.is_none_or(|stuck| stuck.tries < TRIES_COUNTED) {
                gains += gain;
            }
            let is_wanted = goal.empties(used_for) && is_enough(gain, goal);
            if !is_wanted || stuck.is_some_and(|stuck| stuck.next > self.searches) {
                continue;
            }
            let age = heap.runs.taken().wrapping_sub(run.born());
            found.push(Candidate { run: id, used_for, worth: worth(run, gain, age) });
        }
        heap.space.end_search(&heap.runs, u32::try_from(gains.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX));
        let kept = (heap.runs.total() as usize / CHOSEN_PARTS).max(CHOSEN_MIN);
        if found.len() > kept {
            found.select_nth_unstable_by(kept, |a, b| b.worth.total_cmp(&a.worth));
            found.truncate(kept);
        }
        found.sort_unstable_by(|a, b| a.worth.total_cmp(&b.worth));
        self.best = found;
    }
}

/// Live slots of a slab, live bytes of a data run.
fn live(run: &Run) -> u32 {
    if run.used_for() == RunUse::Slab { run.live_slots() } else { run.live_bytes() }
}

/// Whether so many bytes are as much as the goal asks for.
fn is_enough(gain: u64, goal: CompactGoal) -> bool {
    gain >= RUN_SIZE / goal.gain_parts
}

/// Bytes gained by emptying a run; `None` if that is not worthwhile or not possible.
fn gain(heap: &Heap, run: &Run) -> Option<u64> {
    if run.is_open() {
        return None;
    }
    let live = live(run);
    let gain = match run.used_for() {
        // Empty slabs are freed without a search, or wait for a writer.
        RunUse::Slab => u64::from(SLOTS_PER_RUN - live.min(SLOTS_PER_RUN)) * RECORD_SIZE,
        // A data run without live bytes becomes free without compaction.
        // Each rewritten record leaves a dead slot, and reclaiming that slot costs about as much.
        RunUse::Data => {
            let taken = u64::from(live) + u64::from(run.live_pieces()) * RECORD_SIZE / 2;
            filled_bytes(run).saturating_sub(taken)
        }
        _ => return None,
    };
    let is_worth_it = live > 0 && gain >= RUN_SIZE / GAIN_PARTS;
    (is_worth_it && has_room_for(heap, run)).then_some(gain)
}

/// Bytes of a data run that are live or can be gained.
fn filled_bytes(run: &Run) -> u64 {
    let packed = run.packed_bytes().map_or(RUN_SIZE, u64::from);
    if RUN_SIZE - packed < RUN_SIZE / END_PARTS { packed } else { RUN_SIZE }
}

/// True if enough runs are free for emptying: one for the data, some for their records, and one more, with which slabs
/// can always be emptied.
fn has_room_for(heap: &Heap, run: &Run) -> bool {
    let needed = match run.used_for() {
        RunUse::Slab => 1,
        _ => 2 + run.live_pieces().div_ceil(SLOTS_PER_RUN),
    };
    heap.runs.free_count() >= needed
}

/// Benefit over cost: bytes gained, weighted by the age of the moved data, over bytes moved.
///
/// The weight is the square root of the age. With the age itself, nearly full runs were emptied, which gains nothing if
/// overwrites are random (`cargo run --release -p landfall-kv --example cleaning` shows the cost of each choice).
fn worth(run: &Run, gain: u64, age: u32) -> f32 {
    let (records, patience) = match run.used_for() {
        RunUse::Slab => (run.live_slots(), SLAB_PATIENCE),
        _ => (run.live_pieces(), 1.0),
    };
    let moved = u64::from(run.live_bytes()) + u64::from(records) * RECORD_SIZE;
    (1.0 + age as f32).sqrt() * patience * gain as f32 / (moved + FIXED_COST) as f32
}

/// Slabs without a current record that no writer owns, or will: they can be freed without a move.
pub(crate) fn empty_slabs(heap: &Heap) -> Vec<RunId> {
    let is_empty = |run: &Run| {
        run.used_for() == RunUse::Slab
            && run.live_slots() == 0
            && !run.is_open()
            && (run.filled.load(Ordering::Relaxed) > 0 || run.abandoned.load(Ordering::Relaxed) != 0)
    };
    heap.runs.iter().filter(|(_, run)| is_empty(run)).map(|(id, _)| id).collect()
}
