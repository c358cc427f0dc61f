//! A pool of chunks that packets land in: cut from landing runs, lent to the interface, and reused unless the packets
//! in them are held.
//!
//! A run stays with the transport while any of its chunks does. If many runs are partly held, the chunks of the oldest
//! run are not reused: after the last of them has come back the run is retired, and it becomes free when nothing in it
//! is held any more. So the space of held frames is found again after they are freed.

use crate::units::FRAME_SIZE;
use landfall_media::RUN_SIZE;
use landfall_sockets::Frames;
use std::collections::{BTreeMap, VecDeque};

/// Runs in use at once beyond what the fill ring needs; further runs are retired, oldest first.
const RUNS_SPARE: usize = 8;

/// A run some of whose chunks the transport has.
#[derive(Debug)]
struct Run {
    /// Chunks that are free, lent to the interface, or contain a packet that may still be held.
    chunks: u32,
    /// The run is being retired: its chunks are not reused.
    retiring: bool,
}

/// All chunks that a transport lands packets in.
#[derive(Debug)]
pub struct Pool {
    chunk: u64,
    runs: BTreeMap<u64, Run>,
    /// Runs from the oldest to the newest.
    order: VecDeque<u64>,
    spare: Vec<u64>,
    /// Chunks with a landed packet that may still be held.
    landed: VecDeque<u64>,
    runs_max: usize,
}

impl Pool {
    /// A pool of chunks of `chunk` bytes; the interface has at most `lent_max` of them at once.
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
            if !self.is_retiring(chunk) {
                return Some(chunk);
            }
            self.remove(chunk, frames);
        }
    }

    fn take_run(&mut self, frames: &mut dyn Frames) -> Option<()> {
        let off = frames.take_run()?;
        // In reverse order, so that they are taken from the start of the run.
        self.spare.extend((0..RUN_SIZE / self.chunk).rev().map(|index| off + index * self.chunk));
        let chunks = (RUN_SIZE / self.chunk) as u32;
        self.runs.insert(off, Run { chunks, retiring: false });
        self.order.push_back(off);
        if self.order.len() > self.runs_max
            && let Some(oldest) = self.order.pop_front()
            && let Some(run) = self.runs.get_mut(&oldest)
        {
            run.retiring = true;
        }
        Some(())
    }

    /// A packet has landed in `chunk` and was parsed: what is needed of it is held.
    pub fn landed(&mut self, chunk: u64, frames: &mut dyn Frames) {
        if self.is_held(chunk, frames) {
            self.landed.push_back(chunk);
        } else {
            self.reuse(chunk, frames);
        }
    }

    /// Checks each chunk that a packet landed in since the last call: chunks that are not held are reused, the others
    /// are left to their holders.
    pub fn recycle_landed(&mut self, frames: &mut dyn Frames) {
        for chunk in std::mem::take(&mut self.landed) {
            if self.is_held(chunk, frames) {
                self.remove(chunk, frames);
            } else {
                self.reuse(chunk, frames);
            }
        }
    }

    /// Returns everything to the heap; the interface must not have any chunk.
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

    fn reuse(&mut self, chunk: u64, frames: &mut dyn Frames) {
        if self.is_retiring(chunk) {
            self.remove(chunk, frames);
        } else {
            self.spare.push(chunk);
        }
    }

    fn is_retiring(&self, chunk: u64) -> bool {
        self.runs.get(&run_of(chunk)).is_some_and(|run| run.retiring)
    }

    /// Removes a chunk from the transport, and retires its run with the last one.
    fn remove(&mut self, chunk: u64, frames: &mut dyn Frames) {
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
    fn chunks_that_are_not_held_are_reused() {
        let mut fake = Fake { runs_max: 1, ..Fake::default() };
        let mut pool = Pool::new(2048, 64);
        for _ in 0..10_000 {
            let chunk = pool.take(&mut fake).expect("space");
            pool.landed(chunk, &mut fake);
            pool.recycle_landed(&mut fake);
        }
        assert_eq!(fake.next, 1);
        pool.clear(&mut fake);
        assert!(fake.lent.is_empty());
    }

    #[test]
    fn a_run_whose_chunks_are_all_held_is_retired() {
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
        pool.recycle_landed(&mut fake);
        assert!(fake.lent.is_empty(), "the run belongs to the holders of its frames");
        assert!(pool.take(&mut fake).is_some());
    }

    #[test]
    fn partly_held_runs_do_not_accumulate() {
        let mut fake = Fake { runs_max: 100_000, ..Fake::default() };
        let mut pool = Pool::new(2048, 512);
        // Of each run, all chunks except every hundredth are held.
        for index in 0..200_000_u64 {
            let chunk = pool.take(&mut fake).expect("space");
            if !index.is_multiple_of(100) {
                fake.held.insert(chunk);
            }
            pool.landed(chunk, &mut fake);
            pool.recycle_landed(&mut fake);
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
