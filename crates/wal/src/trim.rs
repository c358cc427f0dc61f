//! Trimming: retire entries, and free them once that is durable.

use crate::error::WalError;
use crate::log::{Log, State};
use crate::logs::{HeadChange, Logs, Retired};
use landfall_heap::{Gated, SlotId, Writer};
use std::sync::atomic::Ordering;

impl Logs {
    /// Trims every entry below `before` and returns the new first offset of the log. Reads do not return these entries
    /// from now on. [`Self::sweep`] frees the bytes that they refer to once the trim is durable.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] if `before` is beyond the last entry; [`WalError::NoLog`], [`WalError::BadName`],
    /// [`WalError::Damaged`], [`WalError::Wait`], and the heap's errors for a full and for a closed region: the trim
    /// itself needs a record.
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
}
