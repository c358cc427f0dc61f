//! Free runs: which are ready for writing, and which have been given back to the medium.
//!
//! Runs that were freed last are taken first, because their memory is warm. Of the runs that were not needed for a
//! whole window, a part is given back to the medium. Runs that will be needed soon are prepared ahead of need. Both happen in the
//! background, so requests do not wait for them.

use crate::layout::RunId;
use landfall_media::{RUN_SIZE, Standing};
use std::collections::VecDeque;

/// How many free runs keep their space on the medium and their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeGoal {
    /// If fewer runs have space on the medium, more are prepared.
    pub ready_min: usize,
    /// If more runs have space for a whole window, the space of those that were not needed is given back by and by.
    pub ready_max: usize,
    /// If more runs have memory for a whole window, the memory of those that were not needed is given back by and by.
    pub warm_max: usize,
    /// Runs that are prepared together, at most. On files they share a sync, and a commit of the file system's journal;
    /// nobody can take them meanwhile.
    pub ready_together: usize,
}

impl FreeGoal {
    /// The server's goal: 64 to 128 MiB of space, 16 MiB of memory.
    pub const DEFAULT: Self = Self { ready_min: 64, ready_max: 128, warm_max: 16, ready_together: 1 };
    /// The goal where programs wait for every sync.
    pub const TOGETHER: Self = Self { ready_together: 16, ..Self::DEFAULT };

    /// The goal where at most `limit` bytes of the region are in memory: free runs have a small part of it.
    pub(crate) fn within(self, limit: u64) -> Self {
        let warm_max = self.warm_max.min((limit / WARM_PARTS / RUN_SIZE) as usize);
        Self { warm_max, ..self }
    }
}

/// Free runs have at most one part in so many of a memory that is smaller than the region.
const WARM_PARTS: u64 = 16;

/// One part in so many of the runs that were not needed for a window loses its memory: half of them in 11 s. Touching memory
/// again takes 0.1 to 0.35 ms a MiB, and 2 ms in a virtual machine whose host has taken it back.
const WARM_FADES: usize = 16;
/// One part in so many of them loses its space: half of them in 44 s. To prepare space again, zeroes are written to it.
const READY_FADES: usize = 64;

/// Runs whose memory is populated ahead of need for each run that was taken without memory; and the limit.
const WARM_AHEAD_STEP: usize = 4;
const WARM_AHEAD_MAX: usize = 32;

/// A background task on free runs. They are on no list meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreeTask {
    /// Allocate the space of several on the medium.
    Ready(Vec<RunId>),
    /// Populate its memory: the run will be taken soon.
    Warm(RunId),
    /// Give it back, down to this standing.
    GiveBack(RunId, Standing),
}

/// The free runs, by what they still have: memory, space on the medium, or neither.
#[derive(Debug, Default)]
pub(crate) struct FreeRuns {
    /// With memory and space; the last one is taken first.
    warm: VecDeque<RunId>,
    /// With space on the medium; the last one is taken first.
    backed: VecDeque<RunId>,
    /// With neither; the last one is taken first.
    bare: Vec<RunId>,
    /// Lowest counts since the window began.
    least_warm: usize,
    least_ready: usize,
    /// Runs of the last window's surplus that are still to be given back.
    surplus_warm: usize,
    surplus_ready: usize,
    /// Number of runs that get memory ahead of need. It grows with each run taken without memory, and is 0 after a
    /// window in which no run was taken.
    warm_ahead: usize,
    /// Runs taken since the window began.
    taken: usize,
    /// The medium has no space for bare runs.
    refused: bool,
    /// The medium cannot give runs back.
    keeps_all: bool,
}

impl FreeRuns {
    /// Number of runs that can be taken.
    pub(crate) fn available(&self) -> usize {
        self.ready() + if self.refused { 0 } else { self.bare.len() }
    }

    /// Number of free runs.
    pub(crate) fn len(&self) -> usize {
        self.ready() + self.bare.len()
    }

    /// Number of runs that can be taken without an allocation on the medium.
    pub(crate) fn ready(&self) -> usize {
        self.warm.len() + self.backed.len()
    }

    /// Takes a run if more than `keep` are available. The kept runs are ready ones, so that taking them does not fail
    /// if the medium is full.
    pub(crate) fn take(&mut self, keep: usize) -> Option<RunId> {
        if self.available() <= keep {
            return None;
        }
        self.taken += 1;
        if self.warm.is_empty() {
            self.warm_ahead = (self.warm_ahead + WARM_AHEAD_STEP).min(WARM_AHEAD_MAX);
        }
        let run = if self.ready() > keep {
            self.warm.pop_back().or_else(|| self.backed.pop_back())
        } else {
            self.bare.pop()
        };
        self.note_least();
        run
    }

    fn note_least(&mut self) {
        self.least_warm = self.least_warm.min(self.warm.len());
        self.least_ready = self.least_ready.min(self.ready());
    }

    /// Adds a run that was just freed, or was taken and not used.
    pub(crate) fn put(&mut self, run: RunId) {
        self.warm.push_back(run);
    }

    /// Adds a run for which the medium has no space.
    pub(crate) fn put_unbacked(&mut self, run: RunId) {
        self.bare.push(run);
        self.refused = true;
    }

    /// Sorts the runs so that low ones are taken first. Files then stay dense at their start.
    pub(crate) fn sort(&mut self) {
        self.warm.make_contiguous().sort_unstable_by(|a, b| b.cmp(a));
        self.backed.make_contiguous().sort_unstable_by(|a, b| b.cmp(a));
        self.bare.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Sorts every run into the list of its standing.
    pub(crate) fn classify(&mut self, mut standing: impl FnMut(RunId) -> Standing) {
        let all: Vec<RunId> =
            self.warm.drain(..).chain(self.backed.drain(..)).chain(self.bare.drain(..)).collect();
        for run in all {
            match standing(run) {
                Standing::Warm => self.warm.push_back(run),
                Standing::Backed => self.backed.push_back(run),
                Standing::Bare => self.bare.push(run),
            }
        }
        self.sort();
        self.begin_window();
    }

    fn begin_window(&mut self) {
        self.least_warm = self.warm.len();
        self.least_ready = self.ready();
        self.taken = 0;
    }

    /// Ends a window: a part of the runs that were free all through it is surplus. What comes in bursts finds most of what
    /// the burst before has left.
    pub(crate) fn end_window(&mut self, goal: FreeGoal) {
        self.surplus_warm = self.least_warm.saturating_sub(goal.warm_max).div_ceil(WARM_FADES);
        self.surplus_ready = self.least_ready.saturating_sub(goal.ready_max).div_ceil(READY_FADES);
        if self.taken == 0 {
            self.warm_ahead = 0;
        }
        self.begin_window();
    }

    /// The next background task. Its runs cannot be taken meanwhile.
    pub(crate) fn next_task(&mut self, goal: FreeGoal) -> Option<FreeTask> {
        let done = if self.ready() < goal.ready_min {
            self.take_bare(goal).map(FreeTask::Ready)
        } else if self.warm.len() < self.warm_ahead && !self.backed.is_empty() {
            self.backed.pop_back().map(FreeTask::Warm)
        } else if self.keeps_all {
            None
        } else if self.surplus_ready > 0 && self.ready() > goal.ready_max {
            self.surplus_ready -= 1;
            let coldest = self.backed.pop_front().or_else(|| self.warm.pop_front());
            coldest.map(|run| FreeTask::GiveBack(run, Standing::Bare))
        } else if self.surplus_warm > 0 && self.warm.len() > goal.warm_max {
            self.surplus_warm -= 1;
            self.warm.pop_front().map(|run| FreeTask::GiveBack(run, Standing::Backed))
        } else {
            None
        };
        self.note_least();
        done
    }

    /// Takes runs to prepare together. Nobody can take them meanwhile, so that it is one where few are free; and where
    /// the medium had no space, as more might be too many again.
    fn take_bare(&mut self, goal: FreeGoal) -> Option<Vec<RunId>> {
        let room = goal.ready_max.saturating_sub(self.ready());
        let spare = self.available().saturating_sub(goal.ready_min);
        let most = if self.refused { 1 } else { goal.ready_together.min(room).min(spare).max(1) };
        let rest = self.bare.len().saturating_sub(most);
        // The last one is taken first.
        let taken: Vec<RunId> = self.bare.drain(rest..).rev().collect();
        (!taken.is_empty()).then_some(taken)
    }

    /// Takes the coldest run with memory, if more runs have memory than the goal keeps.
    /// Memory is short, so no more than the goal is populated ahead of need either.
    pub(crate) fn take_surplus_warm(&mut self, goal: FreeGoal) -> Option<RunId> {
        self.warm_ahead = self.warm_ahead.min(goal.warm_max);
        if self.keeps_all || self.warm.len() <= goal.warm_max {
            return None;
        }
        let run = self.warm.pop_front();
        self.note_least();
        run
    }

    /// Adds the run of a finished task with its new standing. It becomes the coldest of its kind.
    pub(crate) fn put_back(&mut self, run: RunId, has: Standing, asked: Standing) {
        self.keeps_all |= has == Standing::Warm && asked != Standing::Warm;
        match has {
            Standing::Warm => self.warm.push_front(run),
            Standing::Backed => self.backed.push_front(run),
            Standing::Bare => self.bare.push(run),
        }
    }

    /// Notes that the medium has space again.
    pub(crate) fn note_space(&mut self) {
        self.refused = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_given_back_because_it_is_short_is_not_brought_back_ahead_of_need() {
        let mut free = FreeRuns::default();
        (0..20).for_each(|run| free.put_back(RunId(run), Standing::Backed, Standing::Backed));
        assert!((0..3).all(|_| free.take(0).is_some()));
        while let Some(FreeTask::Warm(run)) = free.next_task(GOAL) {
            free.put_back(run, Standing::Warm, Standing::Warm);
        }
        assert_eq!(free.warm.len(), 3 * WARM_AHEAD_STEP);
        while let Some(run) = free.take_surplus_warm(GOAL) {
            free.put_back(run, Standing::Backed, Standing::Backed);
        }
        assert_eq!((free.warm.len(), free.next_task(GOAL)), (GOAL.warm_max, None));
    }

    #[test]
    fn free_runs_have_a_part_of_a_small_memory() {
        assert_eq!(FreeGoal::DEFAULT.within(64 * RUN_SIZE).warm_max, 4);
        assert_eq!(FreeGoal::DEFAULT.within(1 << 40), FreeGoal::DEFAULT);
    }

    const GOAL: FreeGoal = FreeGoal { ready_min: 2, ready_max: 4, warm_max: 1, ready_together: 16 };

    fn free(warm: u32) -> FreeRuns {
        let mut free = FreeRuns::default();
        (0..warm).for_each(|run| free.put(RunId(run)));
        free.begin_window();
        free
    }

    /// Does all tasks. Returns the runs that were given back.
    fn settle(free: &mut FreeRuns) -> Vec<(RunId, Standing)> {
        let mut given = Vec::new();
        while let Some(todo) = free.next_task(GOAL) {
            match todo {
                FreeTask::Ready(runs) => {
                    runs.into_iter().for_each(|run| free.put_back(run, Standing::Backed, Standing::Backed));
                }
                FreeTask::Warm(run) => free.put_back(run, Standing::Warm, Standing::Warm),
                FreeTask::GiveBack(run, to) => {
                    given.push((run, to));
                    free.put_back(run, to, to);
                }
            }
        }
        given
    }

    #[test]
    fn runs_needed_within_a_window_are_kept_and_the_coldest_others_are_given_back_first() {
        let mut free = free(8);
        assert_eq!(settle(&mut free), [], "no window has passed");
        let taken: Vec<RunId> = (0..3).filter_map(|_| free.take(0)).collect();
        assert_eq!(taken, [RunId(7), RunId(6), RunId(5)], "the warmest first");
        taken.into_iter().for_each(|run| free.put(run));
        free.end_window(GOAL);
        // At least five runs were free: one more than the goal for space, four more than the goal for memory.
        assert_eq!(settle(&mut free), [(RunId(0), Standing::Bare), (RunId(1), Standing::Backed)]);
        assert_eq!((free.warm.len(), free.backed.len(), free.bare.len()), (6, 1, 1));
    }

    #[test]
    fn what_is_not_needed_for_many_windows_is_given_back_by_and_by() {
        let goal = FreeGoal { ready_min: 2, ready_max: 100, warm_max: 50, ready_together: 1 };
        let mut free = free(1000);
        let mut pass = |windows: usize| {
            for _ in 0..windows {
                free.end_window(goal);
                while let Some(FreeTask::GiveBack(run, to)) = free.next_task(goal) {
                    free.put_back(run, to, to);
                }
            }
            (free.warm.len(), free.ready())
        };
        let (warm, ready) = pass(2);
        assert!(warm > 800 && ready > 950, "{warm}, {ready}: a burst would find most of it");
        let (warm, ready) = pass(42);
        assert!(warm < 150 && (500..600).contains(&ready), "{warm}, {ready}: half of the space");
        assert_eq!(pass(600), (50, 100));
    }

    #[test]
    fn runs_are_made_ready_before_they_are_needed() {
        let mut free = FreeRuns { bare: (1..8).rev().map(RunId).collect(), ..FreeRuns::default() };
        let together = Some(FreeTask::Ready((1..5).map(RunId).collect()));
        assert_eq!(free.next_task(GOAL), together, "as many as there should be, in order");
        free.put_unbacked(RunId(1));
        assert_eq!(
            free.next_task(GOAL),
            Some(FreeTask::Ready(vec![RunId(1)])),
            "one, where there was no space"
        );
        free.note_space();
        free.bare = vec![RunId(6), RunId(5)];
        let one = Some(FreeTask::Ready(vec![RunId(5)]));
        assert_eq!(free.next_task(GOAL), one, "one, where no more are free than should be ready");
        (1..5).for_each(|run| free.put_back(RunId(run), Standing::Backed, Standing::Backed));
        assert_eq!(free.next_task(GOAL), None);
    }

    #[test]
    fn memory_comes_ahead_of_need_while_runs_without_it_are_taken() {
        let mut free = FreeRuns { backed: (0..9).map(RunId).collect(), ..FreeRuns::default() };
        assert_eq!(settle(&mut free), []);
        assert!(free.warm.is_empty(), "nobody takes any");
        free.take(0);
        settle(&mut free);
        assert_eq!(free.warm.len(), WARM_AHEAD_STEP);
        (0..2).for_each(|_| free.end_window(GOAL));
        while free.take(0).is_some() {}
        (0..9).for_each(|run| free.put_back(RunId(run), Standing::Backed, Standing::Backed));
        free.end_window(GOAL);
        let mut given = 0;
        for _ in 0..8 {
            free.end_window(GOAL);
            given += settle(&mut free).iter().filter(|(_, to)| *to == Standing::Bare).count();
        }
        assert_eq!(given, 5, "space of all but four is given back");
        assert!(free.warm.is_empty(), "a window has passed in which nobody took any");
    }

    #[test]
    fn reserved_runs_are_ready_also_if_the_medium_is_full() {
        let mut free = free(3);
        free.bare = vec![RunId(9), RunId(8)];
        assert_eq!(free.take(3), Some(RunId(8)), "three ready ones are kept");
        free.put_unbacked(RunId(8));
        assert_eq!(free.take(3), None, "the medium is full");
        assert_eq!(free.available(), 3);
        assert!((0..3).all(|_| free.take(0).is_some()));
        assert_eq!(free.take(0), None);
        free.note_space();
        assert_eq!(free.take(0), Some(RunId(8)));
    }

    #[test]
    fn a_medium_that_keeps_everything_is_asked_once() {
        let mut free = free(8);
        free.end_window(GOAL);
        let Some(FreeTask::GiveBack(run, to)) = free.next_task(GOAL) else { panic!("there is a surplus") };
        free.put_back(run, Standing::Warm, to);
        assert_eq!(free.next_task(GOAL), None);
        assert_eq!(free.len(), 8);
    }
}
