//! Trims logs to their retention settings.

use crate::error::WalError;
use crate::log::State;
use crate::logs::Logs;
use landfall_heap::Writer;

/// Most entries of one log that one step examines.
const STEP_ENTRIES: u64 = 4096;

/// What one step has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Entries that were trimmed.
    pub trimmed: u64,
    /// Another step has work at once.
    pub has_more: bool,
}

/// What a log keeps, as far as one step has looked.
#[derive(Clone, Copy, Debug)]
struct KeptFrom {
    offset: u64,
    /// There may be more to trim.
    is_full_step: bool,
}

impl Logs {
    /// Trims logs to their retention settings: one step for each log, and for so many logs as one step has time for. A log
    /// that cannot be trimmed does not keep the others from it.
    ///
    /// # Errors
    /// The first one of a log: [`WalError::Wait`], and the heap's errors for a full and for a closed region. Other logs
    /// are trimmed all the same.
    pub fn retain(&self, writer: &mut Writer, now_ms: u64) -> Result<Retained, WalError> {
        let numbers = self.retention.lock().begin_step();
        let (mut trimmed, mut is_behind, mut failed) = (0, false, None);
        for log in numbers.into_iter().filter_map(|number| self.by_number(number)) {
            let mut state = log.state.lock();
            if state.ended || state.check().is_err() {
                continue;
            }
            let (first, kept) = (state.first, self.kept_from(&mut state, now_ms));
            let arrival_ns = now_ms.saturating_mul(1_000_000);
            match self.trim_to(writer, &log, &mut state, kept.offset, arrival_ns) {
                Ok(()) => is_behind |= kept.is_full_step,
                Err(error) => failed = failed.or(Some(error)),
            }
            trimmed += state.first - first;
        }
        let has_more = self.retention.lock().end_step(is_behind);
        failed.map_or(Ok(Retained { trimmed, has_more }), Err)
    }

    /// The first offset that a log keeps. Only durable entries are trimmed, and [`STEP_ENTRIES`] of them at most.
    fn kept_from(&self, state: &mut State, now_ms: u64) -> KeptFrom {
        let settings = state.settings;
        let end = state.durable(&self.heap).min(state.first + STEP_ENTRIES);
        let (mut offset, mut bytes, mut kept_from) = (state.first, state.slots.bytes(), state.first);
        while offset < end {
            let view = state.slot(offset).and_then(|slot| self.heap.record(slot).ok());
            let len = view.map_or(0, |view| view.value_len() as u64);
            let age_ms = view.and_then(|view| now_ms.checked_sub(view.arrival_ns() / 1_000_000));
            let exceeds = |limit: u64, now: u64| limit != 0 && now > limit;
            let is_beyond_limit = exceeds(settings.retain_bytes, bytes)
                || exceeds(settings.retain_entries, state.next() - offset)
                || age_ms.is_some_and(|age_ms| exceeds(settings.retain_ms, age_ms));
            // Nobody knows how old an entry is that cannot be read, or that came when the clock was ahead: it goes with the
            // next one.
            if !is_beyond_limit && age_ms.is_some() {
                break;
            }
            bytes = bytes.saturating_sub(len);
            offset += 1;
            if is_beyond_limit {
                kept_from = offset;
            }
        }
        let is_full_step = offset == state.first + STEP_ENTRIES && kept_from > state.first;
        KeptFrom { offset: kept_from, is_full_step }
    }
}
