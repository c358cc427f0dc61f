//! Giving entries up: by hand, and by what a log is set to keep.

use crate::error::WalError;
use crate::log::{Log, State};
use crate::logs::{Doomed, HeadChange, Logs};
use landfall_heap::{Gated, SlotId, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries that one step of retention looks at, in one log.
const STEP_ENTRIES: u64 = 4096;

impl Logs {
    /// Gives up every entry below `before`; the log's first offset then. They are not shown from now on. [`Self::sweep`]
    /// frees what they refer to once that is durable.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] if `before` is beyond the last entry; [`WalError::NoLog`],
    /// [`WalError::BadName`], [`WalError::Damaged`], [`WalError::Wait`], closed.
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
        if before > state.next() {
            let (first, next) = (state.first, state.durable(&self.heap));
            return Err(WalError::OutOfRange { offset: before, first, next });
        }
        self.trim_to(writer, &log, &mut state, before, arrival_ns)?;
        Ok(Gated::new(state.first, self.heap.pending(state.head.0)))
    }

    fn trim_to(
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
        self.doom(writer, state, count);
        state.first = before;
        Ok(())
    }

    /// Takes the first `count` entries out of a log, to be let go once what the writer has appended is durable.
    pub(crate) fn doom(&self, writer: &mut Writer, state: &mut State, count: usize) {
        let mut slots = state.slots.take_front(count, |slot| self.bytes_of(slot));
        slots.retain(|slot| *slot != SlotId::NONE);
        let later = state.unreadable.split_off(&(state.first + count as u64));
        for slot in std::mem::replace(&mut state.unreadable, later).into_values() {
            writer.supersede(slot);
        }
        self.counters.trimmed.fetch_add(count as u64, Ordering::Relaxed);
        self.doomed.lock().push_back(Doomed { slots, cause: writer.ticket() });
    }

    /// Bytes of an entry; 0 for one that cannot be read.
    fn bytes_of(&self, slot: SlotId) -> u64 {
        let view =
            Some(slot).filter(|slot| *slot != SlotId::NONE).and_then(|slot| self.heap.record(slot).ok());
        view.map_or(0, |view| view.value_len() as u64)
    }

    /// Lets go of up to `limit` entries that are given up, durably; how many it did. To be called now
    /// and then: until then their bytes stay in use.
    pub fn sweep(&self, limit: usize) -> usize {
        let mut done = 0;
        let mut rounds = self.doomed.lock().len();
        while done < limit && rounds > 0 {
            rounds -= 1;
            let Some(mut doomed) = self.doomed.lock().pop_front() else { break };
            if self.heap.is_durable(doomed.cause) {
                done += self.let_go(&mut doomed.slots, limit - done);
            }
            if !doomed.slots.is_empty() {
                self.doomed.lock().push_back(doomed);
            }
        }
        done
    }

    /// An entry on its way to the medium keeps its frames: what is being written must not change.
    fn let_go(&self, slots: &mut Vec<SlotId>, limit: usize) -> usize {
        let (mut gone, mut stays) = (0, Vec::new());
        while gone < limit
            && let Some(slot) = slots.pop()
        {
            if self.heap.pending(slot).is_none() {
                self.heap.drop_record(slot);
                gone += 1;
            } else {
                stays.push(slot);
            }
        }
        slots.append(&mut stays);
        gone
    }

    /// Entries that are given up and wait for [`Self::sweep`].
    pub fn unswept(&self) -> usize {
        self.doomed.lock().iter().map(|doomed| doomed.slots.len()).sum()
    }

    /// Trims logs to what they are set to keep, a step each; how many entries were trimmed.
    ///
    /// # Errors
    /// [`WalError::Wait`], closed.
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

    /// The first offset that a log is to keep, looking at a limited number of durable entries.
    fn kept_from(&self, state: &mut State, now_ms: u64) -> u64 {
        let settings = state.settings;
        let end = state.durable(&self.heap).min(state.first + STEP_ENTRIES);
        let (mut offset, mut bytes) = (state.first, state.slots.bytes());
        while offset < end {
            let view = state.slot(offset).and_then(|slot| self.heap.record(slot).ok());
            let len = view.map_or(0, |view| view.value_len() as u64);
            let age_ms = view.map_or(0, |view| now_ms.saturating_sub(view.arrival_ns() / 1_000_000));
            let exceeds = |limit: u64, now: u64| limit != 0 && now > limit;
            let goes = exceeds(settings.retain_bytes, bytes)
                || exceeds(settings.retain_entries, state.next() - offset)
                || exceeds(settings.retain_ms, age_ms);
            if !goes {
                break;
            }
            bytes = bytes.saturating_sub(len);
            offset += 1;
        }
        offset
    }
}
