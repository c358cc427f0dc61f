//! Which run to empty next: by what that gains, what it costs, and how long what still lives there has lived.
//!
//! Cost and benefit as in the log-structured file system of Rosenblum and Ousterhout (1992), section 3.5: what has
//! lived long will probably go on living, so that the space beside it is worth taking sooner; what is
//! young may soon be dead without being moved.

use crate::compact::CompactGoal;
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId, SLOTS_PER_RUN};
use crate::run::{Run, RunUse};
use landfall_media::RUN_SIZE;
use std::sync::atomic::Ordering;

/// Least gain for which a run is emptied, one part in so many. A delete needs a slot, and the reserve for deletes
/// lasts until the average slab has twice as large a part of dead ones.
const GAIN_PARTS: u64 = 64;
/// The end of a run that the compactor filled, where a long key or list did not fit: left as it is below one part in so
/// many, since it would mostly be as long the next time.
const END_PARTS: u64 = 8;
/// Runs chosen when all are looked at: one part in so many, and at least so many.
const CHOSEN_PARTS: usize = 64;
const CHOSEN_MIN: usize = 8;
/// Emptying a run costs this much beside its live bytes: fences, and looking at what lies there.
const FIXED_COST: u64 = 16 << 10;

/// What a slab's worth is multiplied with: moving the data of its records leaves their slots dead without any cost.
const SLAB_PATIENCE: f32 = 0.3;

/// A run to be emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) run: RunId,
    pub(crate) used_for: RunUse,
    worth: f32,
}

/// What a look at all runs has found.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// The best last.
    best: Vec<Candidate>,
    /// Runs that could not be emptied, and how many live bytes or slots they had then.
    stuck: Vec<(RunId, u32)>,
}

impl Victims {
    /// The run to empty next. Looks at all runs when those that it found before are used up, and tells the heap then
    /// what there is to be had.
    pub(crate) fn next(&mut self, heap: &Heap, goal: CompactGoal) -> Option<Candidate> {
        while let Some(candidate) = self.best.pop() {
            if goal.empties(candidate.used_for) && self.gain(heap, candidate.run).is_some() {
                return Some(candidate);
            }
        }
        self.search(heap, goal);
        self.best.pop()
    }

    /// What was found is out of date.
    pub(crate) fn forget(&mut self) {
        self.best.clear();
    }

    /// A victim has been worked through, and `left` live bytes or slots could not be moved.
    pub(crate) fn note_left(&mut self, run: RunId, left: u32) {
        self.stuck.retain(|(known, _)| *known != run);
        if left > 0 {
            // Readers, replies or unfenced batches still need it: look again when that has changed.
            self.stuck.push((run, left));
        }
    }

    fn search(&mut self, heap: &Heap, goal: CompactGoal) {
        heap.begin_search();
        let mut gains = 0;
        let mut found = Vec::new();
        for (id, run) in heap.runs.iter() {
            let used_for = run.used_for();
            let Some(gain) = self.gain(heap, id).filter(|_| goal.empties(used_for)) else { continue };
            gains += gain;
            let age = heap.runs.taken().wrapping_sub(run.born());
            found.push(Candidate { run: id, used_for, worth: worth(run, gain, age) });
        }
        heap.end_search(u32::try_from(gains.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX));
        let kept = (heap.runs.total() as usize / CHOSEN_PARTS).max(CHOSEN_MIN);
        if found.len() > kept {
            found.select_nth_unstable_by(kept, |a, b| b.worth.total_cmp(&a.worth));
            found.truncate(kept);
        }
        found.sort_unstable_by(|a, b| a.worth.total_cmp(&b.worth));
        self.best = found;
    }

    /// Bytes that emptying a run would gain, if that is worth while and can be done.
    fn gain(&self, heap: &Heap, id: RunId) -> Option<u64> {
        let run = heap.runs.get(id);
        if run.is_open() {
            return None;
        }
        let (live, gain) = match run.used_for() {
            // An empty slab is given back without a search; or it waits for its writer, who would only have it made
            // again.
            RunUse::Slab => {
                let live = run.live_slots();
                (live, u64::from(SLOTS_PER_RUN - live.min(SLOTS_PER_RUN)) * RECORD_SIZE)
            }
            // Without live bytes a data run comes free by itself.
            // Each record that is rewritten leaves a dead slot, which takes about as much again to make use of.
            RunUse::Data => {
                let taken = u64::from(run.live_bytes()) + u64::from(run.live_pieces()) * RECORD_SIZE / 2;
                (run.live_bytes(), filled_bytes(run).saturating_sub(taken))
            }
            _ => return None,
        };
        let is_worth_it = live > 0 && gain >= RUN_SIZE / GAIN_PARTS;
        (is_worth_it && has_room_for(heap, run) && !self.stuck.contains(&(id, live))).then_some(gain)
    }
}

/// Bytes of a data run that are live, or could be gained.
fn filled_bytes(run: &Run) -> u64 {
    let packed = run.packed_bytes().map_or(RUN_SIZE, u64::from);
    if RUN_SIZE - packed < RUN_SIZE / END_PARTS { packed } else { RUN_SIZE }
}

/// What emptying takes before it gives: a run for the data, runs for their records, and always one more, with which
/// slabs can be emptied whatever else fails.
fn has_room_for(heap: &Heap, run: &Run) -> bool {
    let needed = match run.used_for() {
        RunUse::Slab => 1,
        _ => 2 + run.live_pieces().div_ceil(SLOTS_PER_RUN),
    };
    heap.runs.free_count() >= needed
}

/// Benefit over cost: bytes gained, weighed by how long what is moved has lived, over bytes moved.
///
/// Age counts by its root: what is overwritten at random gains nothing from age, and by age alone nearly full runs were
/// emptied (`cargo run --release -p landfall-kv --example cleaning` shows what each choice costs).
fn worth(run: &Run, gain: u64, age: u32) -> f32 {
    let (records, patience) = match run.used_for() {
        RunUse::Slab => (run.live_slots(), SLAB_PATIENCE),
        _ => (run.live_pieces(), 1.0),
    };
    let moved = u64::from(run.live_bytes()) + u64::from(records) * RECORD_SIZE;
    (1.0 + age as f32).sqrt() * patience * gain as f32 / (moved + FIXED_COST) as f32
}

/// Slabs without a current record, closed by their writers: nothing has to be moved to give them back.
pub(crate) fn empty_slabs(heap: &Heap) -> Vec<RunId> {
    let is_empty = |run: &Run| {
        run.used_for() == RunUse::Slab
            && run.live_slots() == 0
            && run.filled.load(Ordering::Relaxed) > 0
            && !run.is_open()
    };
    heap.runs.iter().filter(|(_, run)| is_empty(run)).map(|(id, _)| id).collect()
}
