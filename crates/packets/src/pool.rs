//! Chunks to land packets in: cut from landing runs, lent to the interface, and used again unless somebody keeps
//! what landed in them.
//!
//! A run stays with the transport while any of its chunks does. When many runs are partly kept, the oldest one's
//! chunks are not used again: once the last has come back the run is given up, and is free as soon as nobody
//! holds anything in it. So the space that kept frames leave behind when they are freed is found again.

use crate::FRAME_SIZE;
use landfall_media::RUN_SIZE;
use landfall_sockets::Frames;
use std::collections::{BTreeMap, VecDeque};

/// Runs in use at once beyond what the fill ring needs; more are given up, oldest first.
const RUNS_SPARE: usize = 8;

/// A run whose chunks are with the transport.
#[derive(Debug)]
struct Run {
    /// Chunks that are spare, lent to the interface, or hold a packet whose fate is open.
    chunks: u32,
    /// Its chunks are not used again.
    leaving: bool,
}

/// All chunks that a transport lands packets in.
#[derive(Debug)]
pub struct Pool {
    chunk: u64,
    runs: BTreeMap<u64, Run>,
    /// Runs from the oldest to the newest.
    order: VecDeque<u64>,
    spare: Vec<u64>,
    /// Chunks in which a packet has landed that may still be held.
    landed: VecDeque<u64>,
    runs_max: usize,
}

impl Pool {
    /// `chunk` bytes each, `lent_max` of them with the interface at once.
    pub fn new(chunk: u64, lent_max: u32) -> Self {
        let runs_max = (u64::from(lent_max) * chunk).div_ceil(RUN_SIZE) as usize + RUNS_SPARE;
        Self {
            chunk,
            runs: BTreeMap::new(),
            order: VecDeque::new(),
            spare: Vec::new(),
            landed: VecDeque::new(),
            runs_max,
        }
    }

    /// A chunk for the interface; `None`: there is no landing space.
    pub fn take(&mut self, frames: &mut dyn Frames) -> Option<u64> {
        loop {
            let Some(chunk) = self.spare.pop() else {
                self.take_run(frames)?;
                continue;
            };
            if !self.is_leaving(chunk) {
                return Some(chunk);
            }
            self.give_up(chunk, frames);
        }
    }

    fn take_run(&mut self, frames: &mut dyn Frames) -> Option<()> {
        let off = frames.take_run()?;
        // From the end, so that they are taken from the start.
        self.spare.extend((0..RUN_SIZE / self.chunk).rev().map(|index| off + index * self.chunk));
        let chunks = (RUN_SIZE / self.chunk) as u32;
        self.runs.insert(off, Run { chunks, leaving: false });
        self.order.push_back(off);
        if self.order.len() > self.runs_max
            && let Some(oldest) = self.order.pop_front()
            && let Some(run) = self.runs.get_mut(&oldest)
        {
            run.leaving = true;
        }
        Some(())
    }

    /// A packet has landed in `chunk` and has been looked at: what is needed of it is held.
    pub fn landed(&mut self, chunk: u64, frames: &mut dyn Frames) {
        if self.is_held(chunk, frames) {
            self.landed.push_back(chunk);
        } else {
            self.put_back(chunk, frames);
        }
    }

    /// Looks once at what landed since the last call: what nobody holds any more is used again, the rest is given
    /// up to its holders.
    pub fn sort_landed(&mut self, frames: &mut dyn Frames) {
        for chunk in std::mem::take(&mut self.landed) {
            if self.is_held(chunk, frames) {
                self.give_up(chunk, frames);
            } else {
                self.put_back(chunk, frames);
            }
        }
    }

    /// Gives everything back; the interface must not have any chunk any more.
    pub fn clear(&mut self, frames: &mut dyn Frames) {
        self.spare.clear();
        self.landed.clear();
        self.order.clear();
        for (off, _) in std::mem::take(&mut self.runs) {
            frames.retire_run(off);
        }
    }

    fn is_held(&self, chunk: u64, frames: &dyn Frames) -> bool {
        (chunk..chunk + self.chunk).step_by(FRAME_SIZE as usize).any(|frame| frames.is_held(frame))
    }

    fn put_back(&mut self, chunk: u64, frames: &mut dyn Frames) {
        if self.is_leaving(chunk) {
            self.give_up(chunk, frames);
        } else {
            self.spare.push(chunk);
        }
    }

    fn is_leaving(&self, chunk: u64) -> bool {
        self.runs.get(&run_of(chunk)).is_some_and(|run| run.leaving)
    }

    /// A chunk is with the transport no more.
    fn give_up(&mut self, chunk: u64, frames: &mut dyn Frames) {
        let off = run_of(chunk);
        let Some(run) = self.runs.get_mut(&off) else { return };
        run.chunks -= 1;
        if run.chunks == 0 {
            self.runs.remove(&off);
            self.order.retain(|other| *other != off);
            frames.retire_run(off);
        }
    }
}

fn run_of(chunk: u64) -> u64 {
    chunk / RUN_SIZE * RUN_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::Extent;
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Fake {
        next: u64,
        lent: BTreeSet<u64>,
        held: BTreeSet<u64>,
        runs_max: u64,
    }

    impl Frames for Fake {
        fn take_run(&mut self) -> Option<u64> {
            (self.next < self.runs_max).then(|| {
                self.next += 1;
                self.lent.insert(self.next * RUN_SIZE);
                self.next * RUN_SIZE
            })
        }
        fn retire_run(&mut self, off: u64) {
            assert!(self.lent.remove(&off), "run {off} was not lent");
        }
        fn hold(&mut self, _: Extent) {}
        fn release(&mut self, _: Extent) {}
        fn is_held(&self, off: u64) -> bool {
            self.held.contains(&off)
        }
    }

    #[test]
    fn chunks_that_nobody_keeps_are_used_again_for_ever() {
        let mut fake = Fake { runs_max: 1, ..Fake::default() };
        let mut pool = Pool::new(2048, 64);
        for _ in 0..10_000 {
            let chunk = pool.take(&mut fake).expect("space");
            pool.landed(chunk, &mut fake);
            pool.sort_landed(&mut fake);
        }
        assert_eq!(fake.next, 1);
        pool.clear(&mut fake);
        assert!(fake.lent.is_empty());
    }

    #[test]
    fn a_run_whose_chunks_are_all_kept_is_given_up() {
        let mut fake = Fake { runs_max: 2, ..Fake::default() };
        let mut pool = Pool::new(4096, 64);
        let mut taken = Vec::new();
        for _ in 0..256 {
            let chunk = pool.take(&mut fake).expect("space");
            fake.held.insert(chunk + 2048);
            taken.push(chunk);
            pool.landed(chunk, &mut fake);
        }
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 256);
        pool.sort_landed(&mut fake);
        assert!(fake.lent.is_empty(), "the run belongs to who holds its frames");
        assert!(pool.take(&mut fake).is_some());
    }

    #[test]
    fn runs_of_which_a_little_is_used_again_do_not_pile_up() {
        let mut fake = Fake { runs_max: 100_000, ..Fake::default() };
        let mut pool = Pool::new(2048, 512);
        // Of each run, all but every hundredth chunk are kept.
        for index in 0..200_000_u64 {
            let chunk = pool.take(&mut fake).expect("space");
            if !index.is_multiple_of(100) {
                fake.held.insert(chunk);
            }
            pool.landed(chunk, &mut fake);
            pool.sort_landed(&mut fake);
        }
        assert!(fake.lent.len() <= 1 + RUNS_SPARE + 2, "{} runs are with the pool", fake.lent.len());
    }

    #[test]
    fn without_landing_space_there_is_no_chunk_until_one_comes_back() {
        let mut fake = Fake { runs_max: 1, ..Fake::default() };
        let mut pool = Pool::new(2048, 64);
        let chunks: Vec<u64> = std::iter::from_fn(|| pool.take(&mut fake)).collect();
        assert_eq!(chunks.len() as u64, RUN_SIZE / 2048);
        pool.landed(chunks[7], &mut fake);
        assert_eq!(pool.take(&mut fake), Some(chunks[7]));
    }
}
