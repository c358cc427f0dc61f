//! What a writer without room waits for, and when it reports that the region is full.

use super::{Urgency, Writer};
use crate::entry::Entry;
use crate::error::HeapError;
use crate::patience::Patience;
use crate::unfinished::Return;
use landfall_media::RUN_SIZE;

impl Writer {
    /// Begins a request, or tries it again: `patience` is what it has waited for so far, and [`Patience::default`] at first.
    #[inline]
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// What the request has waited for, after an attempt that has to wait.
    #[inline]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Ensures that enough runs are free for the bytes to be placed. A writer that waits requests all runs at once: what an
    /// append that finds no room midway has placed, and gives back, would look like room for its next attempt.
    #[inline]
    pub(super) fn check_runs(&mut self, entries: &[Entry<'_>]) -> Result<(), HeapError> {
        let bytes = entries.iter().map(Entry::placed_bytes).sum();
        // Deletes take slots and, for long keys, at most one run more.
        if self.urgency == Urgency::Delete && bytes < RUN_SIZE {
            return Ok(());
        }
        self.check_bytes(bytes)
    }

    /// Ensures that enough runs are free for this many bytes.
    #[inline]
    pub(super) fn check_bytes(&mut self, bytes: u64) -> Result<(), HeapError> {
        let runs = bytes / RUN_SIZE;
        // Without a compactor the writer just tries.
        let is_asked = runs > 0 && self.heap.space.is_cleaned();
        let runs = if is_asked { u32::try_from(runs).unwrap_or(u32::MAX) } else { 0 };
        if self.heap.runs.free_count().saturating_sub(self.reserve(self.urgency)) > runs {
            (self.patience.search, self.patience.returns) = (None, None);
            return Ok(());
        }
        let waits = match self.urgency {
            Urgency::Admitted => self.heap.may_wait_for_any(),
            urgency => self.heap.space.may_wait_for(&self.heap.runs, self.reserve(urgency), runs),
        };
        Err(self.wait_or_full(waits))
    }

    #[cold]
    fn wait_or_full(&mut self, waits: bool) -> HeapError {
        let asked = if waits { None } else { self.heap.space.searches_if_stale() };
        // The writer waits for one further search only.
        let asks = asked.filter(|searches| self.patience.search.is_none_or(|asked| asked == *searches));
        self.patience.search = asks;
        if waits || asks.is_some() || self.ask_unfinished() { HeapError::Cleaning } else { HeapError::Full }
    }

    /// If compaction does not help, requests the space of unfinished requests. True if the writer should wait for it.
    fn ask_unfinished(&mut self) -> bool {
        let asks = self.heap.unfinished.ask(&mut self.patience.returns, Return::Half);
        if !asks {
            self.patience.returns = None;
        }
        asks
    }

    /// The error for a writer that could take no run.
    pub(crate) fn no_run(&mut self) -> HeapError {
        let waits = match (self.urgency_base, self.urgency) {
            (Urgency::Compact, _) => false,
            (_, Urgency::Delete | Urgency::Admitted) => self.heap.may_wait_for_any(),
            (_, urgency) => self.heap.space.may_wait_for(&self.heap.runs, self.reserve(urgency), 1),
        };
        if self.is_compactor() { HeapError::Full } else { self.wait_or_full(waits) }
    }
}
