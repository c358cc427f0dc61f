//! What goes on behind the clients.

use super::commands::request;
use super::{GOALS, Worker, World};
use crate::meddler::{self, Meddler, Meddling};
use crate::op::{Piece, value};
use crate::oracle::Key;
use crate::rng::Rng;
use crate::violation::Violation;
use landfall_heap::{CompactGoal, Compacted, FreeGoal, HeapError, Source};
use std::cell::RefCell;

/// Steps in which compaction must come to rest.
const REST_STEPS: usize = 2000;

impl World {
    /// One step of compaction; true when there was nothing to do.
    pub(super) fn compact(&mut self, goal: CompactGoal, budget: u64) -> Result<bool, Violation> {
        match self.compactor.step(&self.engine, goal, budget) {
            Ok(done) => Ok(self.note_compacted(done)),
            Err(HeapError::Full) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What a server does while somebody waits for space: one step, with whatever waits for a fence fenced.
    pub(super) fn clean(&mut self) -> Result<(), Violation> {
        self.commit_all()?;
        let goal = CompactGoal::free(self.engine.heap().clean_below());
        self.compact(goal, 1 << 20).map(drop)
    }

    /// Two windows in which nobody takes a free run, and what is done about the free runs in them.
    pub(super) fn tend_free_runs(&mut self, keep: usize) -> Result<(), Violation> {
        let goal = FreeGoal { ready_min: keep, ready_max: keep, warm_max: keep / 2 };
        for window_over in [true, false, false, false, true, false, false, false] {
            self.engine.heap().tend_free_runs(goal, window_over)?;
        }
        Ok(())
    }

    /// Adds up what compaction does; true when it rests.
    pub(super) fn note_compacted(&mut self, done: Compacted) -> bool {
        self.compacted.moved_records += done.moved_records;
        self.compacted.moved_bytes += done.moved_bytes;
        self.compacted.freed_slabs += done.freed_slabs;
        self.compacted.damaged += done.damaged;
        done.rests
    }

    pub(super) fn compact_meddled(&mut self, writer: usize, seed: u64) -> Result<(), Violation> {
        let Self { engine, workers, compactor, oracle, media, now_ms, .. } = self;
        let Worker { writer: appends, in_flight } = &mut workers[writer];
        let mut act = |key: &Key, piece: Option<Piece>, commits: bool| {
            let bytes = piece.map(value);
            match &bytes {
                Some(bytes) => {
                    engine.set(appends, &request(key, Source::Bytes(bytes), None, 0)).map(|_| ())?
                }
                None => engine.delete(appends, key.space, &key.bytes, *now_ms, 5).map(|_| ())?,
            }
            oracle.note(writer, meddler::change(key, piece));
            if commits && in_flight.is_none() {
                let acknowledges = oracle.pending(writer);
                appends.commit_now()?;
                if media.frozen().is_none() {
                    oracle.acknowledge(writer, acknowledges);
                }
            }
            Ok(())
        };
        let goal = GOALS[usize::from(seed.is_multiple_of(3))];
        let meddling = RefCell::new(Meddling { act: &mut act, rng: Rng::new(seed) });
        let stepped = compactor.step(&Meddler { engine, meddling }, goal, 1 << 20);
        match stepped.map(|done| self.note_compacted(done)) {
            Ok(_) | Err(HeapError::Full) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Compacts until there is nothing to do.
    ///
    /// # Errors
    /// It never comes to rest; the medium's.
    pub fn compact_to_rest(&mut self) -> Result<(), Violation> {
        for _ in 0..REST_STEPS {
            if self.compact(CompactGoal::DENSE, 1 << 20)? {
                return Ok(());
            }
        }
        Err(Violation(format!("compaction has not come to rest after {REST_STEPS} steps")))
    }
}
