//! Trimming: retire entries on request or by the retention settings of a log, and free them once that is durable.

use crate::error::WalError;
use crate::log::{Log, State};
use crate::logs::{HeadChange, Logs, Retired};
use landfall_heap::{Gated, SlotId, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most entries of one log that one step of retention examines.
const STEP_ENTRIES: u64 = 4096;

impl Logs {
    /// Trims every entry below `before` and returns the new first offset of the log. Reads do not return these entries
    /// from now on. [`Self::sweep`] frees the bytes that they refer to once the trim is durable.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] if `before` is beyond the last entry; [`WalError::NoLog`], [`WalError::BadName`],
    /// [`WalError::Damaged`], [`WalError::Wait`], and the heap's error for a closed region.
    pub fn trim(
        &self,
        writer: &mut Writer,
        name: &[u8],
        before: u64,
        arrival_ns: u64,
    ) -> Result<Gated<u64>, WalError> {
        let log = self.find(name)?;
        let mut state = log.state.lock();
        state.check()?;
        state.turns.take(&self.heap, writer)?;
        if before > state.next() {
            let (first, next) = (state.first, state.durable(&self.heap));
            return Err(WalError::OutOfRange { offset: before, first, next });
        }
        self.trim_to(writer, &log, &mut state, before, arrival_ns)?;
        Ok(Gated::new(state.first, self.heap.pending(state.head.0)))
    }

    pub(crate) fn trim_to(
        &self,
        writer: &mut Writer,
        log: &Log,
        state: &mut State,
        before: u64,
        arrival_ns: u64,
    ) -> Result<(), WalError> {
        if before <= state.first {
            return Ok(());
        }
        let count = (before - state.first) as usize;
        let change = HeadChange { first: before, ..HeadChange::of(state) };
        self.write_head(writer, log, state, change, arrival_ns)?;
        self.retire_entries(writer, state, count);
        state.first = before;
        Ok(())
    }

    /// Removes the first `count` entries from a log. [`Self::sweep`] frees them once the writer's current batch, which
    /// holds the new head, is durable.
    pub(crate) fn retire_entries(&self, writer: &mut Writer, state: &mut State, count: usize) {
        let mut slots = state.slots.take_front(count, |slot| self.bytes_of(slot));
        slots.retain(|slot| *slot != SlotId::NONE);
        let later = state.unreadable.split_off(&(state.first + count as u64));
        for slot in std::mem::replace(&mut state.unreadable, later).into_values() {
            writer.supersede(slot);
        }
        self.counters.trimmed.fetch_add(count as u64, Ordering::Relaxed);
        self.retired.lock().push_back(Retired { slots, cause: writer.ticket() });
    }

    /// Bytes of an entry; 0 for one that cannot be read.
    fn bytes_of(&self, slot: SlotId) -> u64 {
        let view =
            Some(slot).filter(|slot| *slot != SlotId::NONE).and_then(|slot| self.heap.record(slot).ok());
        view.map_or(0, |view| view.value_len() as u64)
    }

    /// Frees up to `limit` entries whose trim or delete is durable, and returns how many it freed. The caller calls it
    /// periodically: the bytes of retired entries stay in use until then.
    pub fn sweep(&self, limit: usize) -> usize {
        self.ended.lock().retain(|(delete, _)| !self.heap.is_durable(*delete));
        let mut done = 0;
        let mut rounds = self.retired.lock().len();
        while done < limit && rounds > 0 {
            rounds -= 1;
            let Some(mut retired) = self.retired.lock().pop_front() else { break };
            if self.heap.is_durable(retired.cause) {
                done += self.free(&mut retired.slots, limit - done);
            }
            if !retired.slots.is_empty() {
                self.retired.lock().push_back(retired);
            }
        }
        done
    }

    /// Drops the records in `slots`, `limit` at most, and removes them from the list. A record that is not durable yet
    /// keeps its frames and stays in the list: bytes that are being written must not change.
    fn free(&self, slots: &mut Vec<SlotId>, limit: usize) -> usize {
        let (mut freed, mut pending) = (0, Vec::new());
        while freed < limit
            && let Some(slot) = slots.pop()
        {
            if self.heap.pending(slot).is_none() {
                self.heap.drop_record(slot);
                freed += 1;
            } else {
                pending.push(slot);
            }
        }
        slots.append(&mut pending);
        freed
    }

    /// Number of retired entries that [`Self::sweep`] has not freed yet.
    pub fn unswept(&self) -> usize {
        self.retired.lock().iter().map(|retired| retired.slots.len()).sum()
    }

    /// Trims every log to its retention settings, one step for each log. Returns how many entries were trimmed.
    ///
    /// # Errors
    /// [`WalError::Wait`], and the heap's error for a closed region.
    pub fn retain(&self, writer: &mut Writer, now_ms: u64) -> Result<u64, WalError> {
        let logs: Vec<Arc<Log>> = self.names.read().values().cloned().collect();
        let mut trimmed = 0;
        for log in logs {
            let mut state = log.state.lock();
            let settings = state.settings;
            if settings == crate::Settings::default() || state.check().is_err() {
                continue;
            }
            let (first, before) = (state.first, self.kept_from(&mut state, now_ms));
            self.trim_to(writer, &log, &mut state, before, now_ms.saturating_mul(1_000_000))?;
            trimmed += state.first - first;
        }
        Ok(trimmed)
    }

    /// The first offset that a log keeps. Only durable entries are trimmed, and [`STEP_ENTRIES`] of them at most.
    fn kept_from(&self, state: &mut State, now_ms: u64) -> u64 {
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
        kept_from
    }
}
