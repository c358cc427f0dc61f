//! Commits of batches in a world, in one step or in two.

use super::World;
use crate::violation::Violation;
use landfall_media::{Media, Site};

impl World {
    /// Commits every worker's batch.
    ///
    /// # Errors
    /// A fence failed.
    pub fn commit_all(&mut self) -> Result<(), Violation> {
        (0..self.workers.len()).try_for_each(|writer| self.commit(writer))
    }

    pub(super) fn commit(&mut self, writer: usize) -> Result<(), Violation> {
        // Several rounds, because finishing a batch may leave slots to erase, which the next batch makes durable.
        for _ in 0..3 {
            self.finish(writer)?;
            self.begin(writer);
        }
        self.finish(writer)
    }

    pub(super) fn begin(&mut self, writer: usize) {
        let acknowledges = self.oracle.pending(writer);
        let worker = &mut self.workers[writer];
        if worker.in_flight.is_none()
            && let Some(mut dirty) = worker.writer.begin_commit()
        {
            self.media.submit(&mut dirty);
            worker.in_flight = Some((dirty, acknowledges));
        }
    }

    pub(super) fn finish(&mut self, writer: usize) -> Result<(), Violation> {
        let worker = &mut self.workers[writer];
        let Some((mut dirty, acknowledges)) = worker.in_flight.take() else { return Ok(()) };
        let outcome = self.media.fence(&mut dirty, Site::Commit);
        worker.writer.finish_commit(outcome)?;
        // After the moment of a simulated crash, no client gets an acknowledgement.
        if self.media.frozen().is_none() {
            self.oracle.acknowledge(writer, acknowledges);
        }
        Ok(())
    }
}
