//! Retention: which logs do not keep everything, and what they drop.

use crate::error::WalError;
use crate::format::Settings;
use crate::log::State;
use crate::logs::Logs;
use landfall_heap::Writer;
use std::collections::BTreeSet;

/// Most entries of one log that one step examines.
const STEP_ENTRIES: u64 = 4096;
/// Most logs that one step looks at.
const STEP_LOGS: usize = 1024;

/// Logs that do not keep everything, and how far the steps have come.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// Numbers of logs.
    logs: BTreeSet<u32>,
    /// The next one to be looked at.
    next: u32,
    /// Since the first one was looked at, a log had more to trim than one step does.
    is_behind: bool,
}

impl Retention {
    /// Notes what a log keeps from now on.
    pub(crate) fn note(&mut self, number: u32, settings: Settings) {
        if settings == Settings::default() {
            self.logs.remove(&number);
        } else {
            self.logs.insert(number);
        }
    }

    /// The logs of the next step.
    fn begin_step(&mut self) -> Vec<u32> {
        let some: Vec<u32> = self.logs.range(self.next..).take(STEP_LOGS).copied().collect();
        self.next = match some.last() {
            Some(last) if some.len() == STEP_LOGS => last.saturating_add(1),
            _ => 0,
        };
        some
    }

    /// Ends a step. True if another one has work.
    fn end_step(&mut self, is_behind: bool) -> bool {
        self.is_behind |= is_behind;
        self.next > 0 || std::mem::take(&mut self.is_behind)
    }
}

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
    /// The first one of a log: [`WalError::Wait`], and the heap's error for a closed region.
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
            let age_ms = view.map(|view| now_ms.saturating_sub(view.arrival_ns() / 1_000_000));
            let exceeds = |limit: u64, now: u64| limit != 0 && now > limit;
            let is_beyond_limit = exceeds(settings.retain_bytes, bytes)
                || exceeds(settings.retain_entries, state.next() - offset)
                || age_ms.is_some_and(|age_ms| exceeds(settings.retain_ms, age_ms));
            // Nobody knows how old an entry is that cannot be read: it goes with the next one.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limited() -> Settings {
        Settings { retain_entries: 1, ..Settings::default() }
    }

    #[test]
    fn steps_look_at_the_logs_that_have_limits_and_at_no_others() {
        let mut retention = Retention::default();
        (0..10).for_each(|number| retention.note(number, Settings::default()));
        (3..6).for_each(|number| retention.note(number, limited()));
        retention.note(4, Settings::default());
        assert_eq!(retention.begin_step(), [3, 5]);
        assert!(!retention.end_step(false));
        assert_eq!(retention.begin_step(), [3, 5]);
        assert!(retention.end_step(true), "one of them has more");
        assert_eq!(retention.begin_step(), [3, 5]);
        assert!(!retention.end_step(false));
    }

    #[test]
    fn a_step_goes_on_where_the_one_before_has_ended() {
        let mut retention = Retention::default();
        let count = 2 * STEP_LOGS as u32 + 10;
        (0..count).for_each(|number| retention.note(number, limited()));
        let mut seen = Vec::new();
        for is_last in [false, false, true] {
            seen.extend(retention.begin_step());
            assert_eq!(retention.end_step(seen.len() <= STEP_LOGS), true, "the first one was behind");
            assert_eq!(retention.next == 0, is_last);
        }
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
        assert_eq!(retention.begin_step().first(), Some(&0));
    }
}
