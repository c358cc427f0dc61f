//! Landing space of the io_uring transport.

use crate::frames::Frames;
use crate::sys::{BUFFERS_MAX, BufferId, Completion, Region, Ring};
use landfall_media::{Extent, RUN_SIZE};

/// Runs kept posted: one that is being filled, and one for when the first is full in the middle of a turn.
const RUNS_POSTED_MIN: usize = 2;
/// Runs kept posted after a turn that needed more than was posted.
const RUNS_POSTED_MAX: usize = 4;
/// Runs filled without such a shortage after which fewer are posted again.
const CALM_RUNS: u32 = 64;
const _: () = assert!(RUNS_POSTED_MAX <= BUFFERS_MAX);

/// The runs lent to the kernel, by buffer number, and how far each is filled.
///
/// The kernel takes buffers in the order they were posted and fills each from its front, and completions come in the
/// order of filling. The sum of their lengths therefore tells where each piece landed.
pub(super) struct Landings {
    runs: [Option<Landing>; BUFFERS_MAX],
    posted: usize,
    /// Number of runs to keep posted; zero until there is a connection.
    target: usize,
    calm_runs: u32,
    starved: bool,
}

#[derive(Clone, Copy)]
struct Landing {
    run: Extent,
    filled: u32,
}

impl Landings {
    pub(super) const fn new() -> Self {
        Self { runs: [None; BUFFERS_MAX], posted: 0, target: 0, calm_runs: 0, starved: false }
    }

    /// True while a connection needs space and there is none.
    pub(super) const fn starved(&self) -> bool {
        self.starved
    }

    /// True while a run is posted.
    pub(super) const fn any_posted(&self) -> bool {
        self.posted > 0
    }

    /// Posts runs from the next turn on, because there is a connection.
    pub(super) const fn want(&mut self) {
        if self.target == 0 {
            self.target = RUNS_POSTED_MIN;
        }
    }

    pub(super) const fn note_shortage(&mut self) {
        (self.target, self.calm_runs) = (RUNS_POSTED_MAX, 0);
    }

    const fn note_filled_run(&mut self) {
        self.calm_runs += 1;
        if self.calm_runs >= CALM_RUNS && self.target > RUNS_POSTED_MIN {
            (self.target, self.calm_runs) = (self.target - 1, 0);
        }
    }

    /// Posts runs up to the target, or as few as possible while there is no room for more; true when starvation has just begun.
    pub(super) fn replenish(&mut self, frames: &mut dyn Frames, ring: &mut Ring, region: Region) -> bool {
        let target = if frames.is_short() { self.target.min(RUNS_POSTED_MIN) } else { self.target };
        while self.posted < target {
            let Some(run_off) = frames.take_run() else { break };
            self.post(Region::run(run_off), ring, region);
        }
        let was_starved = self.starved;
        self.starved = self.target > 0 && self.posted == 0;
        self.starved && !was_starved
    }

    fn post(&mut self, run: Extent, ring: &mut Ring, region: Region) {
        let free = self.runs.iter().position(Option::is_none);
        let free = free.expect("fewer runs are posted than there are buffer numbers");
        self.runs[free] = Some(Landing { run, filled: 0 });
        self.posted += 1;
        ring.post(region, run, BufferId(u16::try_from(free).expect("below BUFFERS_MAX")));
    }

    /// Accounts for one completion: holds the bytes that landed, and retires the run if it is full.
    pub(super) fn landed(&mut self, frames: &mut dyn Frames, completion: &Completion) -> Option<Extent> {
        let (BufferId(id), stays_posted) = completion.buffer?;
        let slot = self.runs.get_mut(usize::from(id))?;
        let landing = slot.as_mut().expect("the kernel fills only runs that are posted");
        let len = completion.outcome().unwrap_or(0);
        let extent = Extent::new(landing.run.off + u64::from(landing.filled), len);
        landing.filled += len;
        assert!(u64::from(landing.filled) <= RUN_SIZE, "the kernel filled a run past its end");
        if len > 0 {
            frames.hold(extent);
        }
        if !stays_posted {
            let run = landing.run;
            *slot = None;
            self.posted -= 1;
            frames.retire_run(run.off);
            self.note_filled_run();
        }
        (len > 0).then_some(extent)
    }

    /// Retires every run; the kernel must have released them.
    pub(super) fn retire_all(&mut self, frames: &mut dyn Frames) {
        for landing in self.runs.iter_mut().filter_map(Option::take) {
            frames.retire_run(landing.run.off);
        }
        (self.posted, self.target, self.starved) = (0, 0, false);
    }
}
