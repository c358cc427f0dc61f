//! Background work of a world: compaction, and maintenance of free runs.

use super::commands::request;
use super::{GOALS, Worker, World};
use crate::interference::{self, Interference, InterferingOwner};
use crate::op::{Piece, value};
use crate::oracle::Key;
use crate::violation::Violation;
use landfall_heap::{CompactGoal, Compacted, FreeGoal, HeapError, Source};
use landfall_media::Media;

/// Most steps until compaction must have nothing to do.
const STEPS_MAX: usize = 2000;

impl World {
    /// Executes one step of compaction. True if there was nothing to do.
    pub(super) fn compact(&mut self, goal: CompactGoal, budget: u64) -> Result<bool, Violation> {
        match self.compactor.step(&self.engine, goal, budget) {
            Ok(done) => Ok(self.note_compacted(done)),
            Err(HeapError::Full) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Executes one step of cleaning, as a server does while a client waits for space. All batches are committed first.
    pub(super) fn clean(&mut self) -> Result<(), Violation> {
        self.commit_all()?;
        let goal = CompactGoal::free(self.engine.heap().clean_below());
        self.compact(goal, 1 << 20).map(drop)
    }

    /// Maintains free runs over four windows in which no free run is taken: a part of them is given back in each.
    pub(super) fn maintain_free_runs(&mut self, keep: usize) -> Result<(), Violation> {
        let goal = FreeGoal { ready_min: keep, ready_max: keep, warm_max: keep / 2, ready_together: 4 };
        for window_over in [true, false, true, false, true, false, true, false] {
            self.engine.heap().maintain_free_runs(goal, window_over)?;
        }
        Ok(())
    }

    /// Adds up the counts of compaction. True if there was nothing to do.
    pub(super) fn note_compacted(&mut self, done: Compacted) -> bool {
        self.compacted.moved_records += done.moved_records;
        self.compacted.moved_bytes += done.moved_bytes;
        self.compacted.freed_slabs += done.freed_slabs;
        self.compacted.damaged += done.damaged;
        done.is_idle
    }

    /// Executes one step of compaction while a writer changes keys that are being moved.
    pub(super) fn compact_with_interference(&mut self, writer: usize, seed: u64) -> Result<(), Violation> {
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
            oracle.note(writer, interference::change(key, piece));
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
        let owner = InterferingOwner::new(engine, Interference::new(&mut act, seed));
        let stepped = compactor.step(&owner, goal, 1 << 20);
        let failed = owner.into_failed();
        if let Some(error) = failed.filter(|_| self.media.closed().is_none()) {
            return Err(Violation::from(error).during("a change beside compaction"));
        }
        match stepped.map(|done| self.note_compacted(done)) {
            Ok(_) | Err(HeapError::Full) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Compacts until there is nothing to do.
    ///
    /// # Errors
    /// There is still something to do after `STEPS_MAX` steps; the errors of the medium.
    pub fn compact_fully(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            if self.compact(CompactGoal::DENSE, 1 << 20)? {
                return Ok(());
            }
        }
        Err(Violation(format!("compaction has not finished after {STEPS_MAX} steps")))
    }
}
