//! A ring of runs in the region that values are copied into.

use crate::stores::error::StoreError;
use landfall_heap::Heap;
use landfall_media::{Dirty, Extent, Media, MediaError, RUN_SIZE, Site};

/// Runs of the ring at most: more than any cache holds, so that copies go where a store's would.
pub(super) const RUNS_MAX: usize = 64;

/// Runs taken from the heap as they are needed, then used in turns.
#[derive(Debug, Default)]
pub(super) struct Ring {
    runs: Vec<u64>,
    /// The run being filled, and the bytes filled of it.
    at: usize,
    used: u64,
    /// The ranges copied since the last flush.
    unflushed: Vec<Extent>,
    dirty: Dirty,
}

impl Ring {
    /// Copies bytes in.
    pub(super) fn copy(&mut self, heap: &Heap, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            if self.used == RUN_SIZE || self.runs.is_empty() {
                self.next_run(heap)?;
            }
            let room = usize::try_from(RUN_SIZE - self.used).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let off = self.runs[self.at] + self.used;
            heap.media().store(off, now)?;
            self.note(Extent::new(off, now.len() as u32));
            self.used += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Makes the copied values durable.
    pub(super) fn flush(&mut self, media: &dyn Media) -> Result<(), MediaError> {
        if self.unflushed.is_empty() {
            return Ok(());
        }
        for extent in self.unflushed.drain(..) {
            media.flush(&mut self.dirty, Site::Data, extent);
        }
        media.fence(&mut self.dirty, Site::Commit)
    }

    fn next_run(&mut self, heap: &Heap) -> Result<(), StoreError> {
        let new = if self.runs.len() < RUNS_MAX { heap.take_landing_run() } else { None };
        match new {
            Some(run) => {
                self.runs.push(run);
                self.at = self.runs.len() - 1;
            }
            None if self.runs.is_empty() => return Err(StoreError::Full),
            None => self.at = (self.at + 1) % self.runs.len(),
        }
        self.used = 0;
        Ok(())
    }

    fn note(&mut self, extent: Extent) {
        match self.unflushed.last_mut() {
            Some(last) if last.end() == extent.off => last.grow(extent.len()),
            _ => self.unflushed.push(extent),
        }
    }
}
