//! Free runs: which are ready to be written to, and which have been given back.
//!
//! Runs that were freed last are taken first: their memory is warm. The medium gets back what has not been needed for a
//! whole window, and brings back ahead of need what is about to be: requests meet neither.

use crate::layout::RunId;
use landfall_media::Standing;
use std::collections::VecDeque;

/// How many free runs keep what it takes to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeGoal {
    /// Fewer runs with space on the medium than this: more are made ready.
    pub ready_min: usize,
    /// More than this for a whole window: the space of those that were not needed is given back.
    pub ready_max: usize,
    /// More with memory than this for a whole window: the memory of those that were not needed is given back.
    pub warm_max: usize,
}

impl FreeGoal {
    /// What a server keeps: 64 to 128 MiB of space, 16 MiB of memory.
    pub const DEFAULT: Self = Self { ready_min: 64, ready_max: 128, warm_max: 16 };
}

/// Runs of which memory is brought back ahead of need, for each that was taken without; and at most.
const WARM_AHEAD_STEP: usize = 4;
const WARM_AHEAD_MAX: usize = 32;

/// What is to be done with a free run, which is on no list meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tend {
    /// Have its space brought back.
    Ready(RunId),
    /// Have its memory brought back: it will be taken soon.
    Warm(RunId),
    /// Give back down to this.
    GiveBack(RunId, Standing),
}

/// The free runs, by what they still have.
#[derive(Debug, Default)]
pub(crate) struct FreeRuns {
    /// With memory and space; the last one is taken first.
    warm: VecDeque<RunId>,
    /// With space on the medium; the last one is taken first.
    backed: VecDeque<RunId>,
    /// With neither; the last one is taken first.
    bare: Vec<RunId>,
    /// The least that there were of each since the window began.
    least_warm: usize,
    least_ready: usize,
    /// Still to be given back of what the last window did not need.
    surplus_warm: usize,
    surplus_ready: usize,
    /// How many are to have memory ahead of need: more with each that was taken without, none after a window in which none was taken.
    warm_ahead: usize,
    /// Taken since the window began.
    taken: usize,
    /// The medium is full: it has no space for bare runs.
    refused: bool,
    /// The medium keeps everything: nothing is given back.
    keeps_all: bool,
}

impl FreeRuns {
    /// Runs that can be taken.
    pub(crate) fn available(&self) -> usize {
        self.ready() + if self.refused { 0 } else { self.bare.len() }
    }

    /// All of them.
    pub(crate) fn len(&self) -> usize {
        self.ready() + self.bare.len()
    }

    /// Runs that can be taken without asking the medium for space.
    pub(crate) fn ready(&self) -> usize {
        self.warm.len() + self.backed.len()
    }

    /// Takes a run, if more than `keep` are left. Those kept are ready ones: what may take them must not fail because the medium
    /// has become full.
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

    /// A run that was just freed, or was not used after all.
    pub(crate) fn put(&mut self, run: RunId) {
        self.warm.push_back(run);
    }

    /// A run for which the medium has no space.
    pub(crate) fn put_refused(&mut self, run: RunId) {
        self.bare.push(run);
        self.refused = true;
    }

    /// Orders the runs so that low ones are taken first: files then stay dense at their start.
    pub(crate) fn sort(&mut self) {
        self.warm.make_contiguous().sort_unstable_by(|a, b| b.cmp(a));
        self.backed.make_contiguous().sort_unstable_by(|a, b| b.cmp(a));
        self.bare.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Asks of every run what it has.
    pub(crate) fn sort_out(&mut self, mut standing: impl FnMut(RunId) -> Standing) {
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

    /// A window ends: what was left all the time is more than is needed.
    pub(crate) fn end_window(&mut self, goal: FreeGoal) {
        self.surplus_warm = self.least_warm.saturating_sub(goal.warm_max);
        self.surplus_ready = self.least_ready.saturating_sub(goal.ready_max);
        if self.taken == 0 {
            self.warm_ahead = 0;
        }
        self.begin_window();
    }

    /// What is to be done next, with a run that nobody else gets meanwhile.
    pub(crate) fn tend(&mut self, goal: FreeGoal) -> Option<Tend> {
        let done = if self.ready() < goal.ready_min {
            self.bare.pop().map(Tend::Ready)
        } else if self.warm.len() < self.warm_ahead && !self.backed.is_empty() {
            self.backed.pop_back().map(Tend::Warm)
        } else if self.keeps_all {
            None
        } else if self.surplus_ready > 0 && self.ready() > goal.ready_max {
            self.surplus_ready -= 1;
            let coldest = self.backed.pop_front().or_else(|| self.warm.pop_front());
            coldest.map(|run| Tend::GiveBack(run, Standing::Bare))
        } else if self.surplus_warm > 0 && self.warm.len() > goal.warm_max {
            self.surplus_warm -= 1;
            self.warm.pop_front().map(|run| Tend::GiveBack(run, Standing::Backed))
        } else {
            None
        };
        self.note_least();
        done
    }

    /// The coldest run with memory, if more have some than are kept at all times.
    pub(crate) fn take_surplus_warm(&mut self, goal: FreeGoal) -> Option<RunId> {
        if self.keeps_all || self.warm.len() <= goal.warm_max {
            return None;
        }
        let run = self.warm.pop_front();
        self.note_least();
        run
    }

    /// A run that was tended has this now. It is the coldest of its kind.
    pub(crate) fn put_tended(&mut self, run: RunId, has: Standing, asked: Standing) {
        self.keeps_all |= has == Standing::Warm && asked != Standing::Warm;
        match has {
            Standing::Warm => self.warm.push_front(run),
            Standing::Backed => self.backed.push_front(run),
            Standing::Bare => self.bare.push(run),
        }
    }

    /// The medium has space again.
    pub(crate) fn accepted(&mut self) {
        self.refused = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: FreeGoal = FreeGoal { ready_min: 2, ready_max: 4, warm_max: 1 };

    fn free(warm: u32) -> FreeRuns {
        let mut free = FreeRuns::default();
        (0..warm).for_each(|run| free.put(RunId(run)));
        free.begin_window();
        free
    }

    /// Does everything that there is to do; what was given back.
    fn settle(free: &mut FreeRuns) -> Vec<(RunId, Standing)> {
        let mut given = Vec::new();
        while let Some(todo) = free.tend(GOAL) {
            match todo {
                Tend::Ready(run) => free.put_tended(run, Standing::Backed, Standing::Backed),
                Tend::Warm(run) => free.put_tended(run, Standing::Warm, Standing::Warm),
                Tend::GiveBack(run, to) => {
                    given.push((run, to));
                    free.put_tended(run, to, to);
                }
            }
        }
        given
    }

    #[test]
    fn what_was_needed_within_a_window_is_kept_and_the_coldest_of_the_rest_goes_first() {
        let mut free = free(8);
        assert_eq!(settle(&mut free), [], "no window has passed");
        let taken: Vec<RunId> = (0..3).filter_map(|_| free.take(0)).collect();
        assert_eq!(taken, [RunId(7), RunId(6), RunId(5)], "the warmest first");
        taken.into_iter().for_each(|run| free.put(run));
        free.end_window(GOAL);
        // Five were left at the least: one more than is kept of space, four more than of memory.
        let given = settle(&mut free);
        assert_eq!(given[0], (RunId(0), Standing::Bare));
        assert!(given[1..].iter().all(|(_, to)| *to == Standing::Backed));
        assert_eq!((free.warm.len(), free.backed.len(), free.bare.len()), (3, 4, 1));
    }

    #[test]
    fn runs_are_made_ready_before_they_are_needed() {
        let mut free = FreeRuns { bare: vec![RunId(3), RunId(2), RunId(1)], ..FreeRuns::default() };
        settle(&mut free);
        assert_eq!((free.ready(), free.bare.len()), (2, 1));
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
        (0..9).for_each(|run| free.put_tended(RunId(run), Standing::Backed, Standing::Backed));
        free.end_window(GOAL);
        free.end_window(GOAL);
        assert_eq!(settle(&mut free).len(), 5, "space of all but four is given back");
        assert!(free.warm.is_empty(), "a window has passed in which nobody took any");
    }

    #[test]
    fn what_is_kept_back_is_ready_whatever_becomes_of_the_medium() {
        let mut free = free(3);
        free.bare = vec![RunId(9), RunId(8)];
        assert_eq!(free.take(3), Some(RunId(8)), "three ready ones are kept");
        free.put_refused(RunId(8));
        assert_eq!(free.take(3), None, "the medium is full");
        assert_eq!(free.available(), 3);
        assert!((0..3).all(|_| free.take(0).is_some()));
        assert_eq!(free.take(0), None);
        free.accepted();
        assert_eq!(free.take(0), Some(RunId(8)));
    }

    #[test]
    fn a_medium_that_keeps_everything_is_asked_once() {
        let mut free = free(8);
        free.end_window(GOAL);
        let Some(Tend::GiveBack(run, to)) = free.tend(GOAL) else { panic!("there is a surplus") };
        free.put_tended(run, Standing::Warm, to);
        assert_eq!(free.tend(GOAL), None);
        assert_eq!(free.len(), 8);
    }
}
