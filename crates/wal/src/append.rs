//! Appending to a log: each entry becomes a record that refers to the place where its bytes are.

use crate::error::WalError;
use crate::format::{OFFSET_MAX, check_log_name, entry_key};
use crate::log::Log;
use crate::logs::{HeadChange, Logs};
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{Entry, Gated, Kind, Source, Writer, spaces};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries that were appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first entry; the other entries follow it without a gap.
    pub first: u64,
    /// Number of entries.
    pub count: usize,
}

impl Logs {
    /// Appends entries in the given order, at consecutive offsets. They count together or not at all.
    ///
    /// Bytes that have landed are not copied: the records refer to them. The result also depends on the entries that
    /// other writers have appended before and that are not durable yet: an append is acknowledged only when every
    /// entry in front of it is durable.
    ///
    /// # Errors
    /// [`WalError::BadName`], [`WalError::BadCount`], [`WalError::Wait`], [`WalError::Damaged`];
    /// [`WalError::Exhausted`] if no offset, or no number for a new log, is left; the heap's errors for a full region, a
    /// value that is too large and a closed region. No entry is appended when it fails; the log may be there then.
    pub fn append(
        &self,
        writer: &mut Writer,
        name: &[u8],
        values: &[Source<'_>],
        arrival_ns: u64,
    ) -> Result<Gated<Appended>, WalError> {
        let name = check_log_name(name)?;
        if !(1..=GROUP_RECORDS_MAX).contains(&values.len()) {
            return Err(WalError::BadCount { count: values.len(), max: GROUP_RECORDS_MAX });
        }
        loop {
            let log = self.find_or_create(writer, name, arrival_ns)?;
            match self.append_to(writer, &log, values, arrival_ns) {
                // The log was deleted after it was found. Its name is free, so a new log is created.
                Err(WalError::NoLog) => {}
                done => return done,
            }
        }
    }

    fn append_to(
        &self,
        writer: &mut Writer,
        log: &Arc<Log>,
        values: &[Source<'_>],
        arrival_ns: u64,
    ) -> Result<Gated<Appended>, WalError> {
        let mut state = log.state.lock();
        state.check()?;
        state.turns.take(&self.heap, writer)?;
        let (first, count) = (state.next(), values.len());
        if first > OFFSET_MAX - count as u64 {
            return Err(WalError::Exhausted { what: "offset" });
        }
        if state.needs_head(&self.heap, writer.id())? {
            // The head must name the cut before a new entry takes the offset of an unacknowledged one.
            let change = HeadChange::of(&state);
            self.write_head(writer, log, &mut state, change, arrival_ns)?;
        }
        let keys: SmallVec<[[u8; 12]; 4]> =
            (first..first + count as u64).map(|offset| entry_key(log.number, offset)).collect();
        let entries: SmallVec<[Entry<'_>; 4]> = (first..)
            .zip(keys.iter().zip(values))
            .map(|(offset, (key, value))| Entry {
                kind: Kind::Put,
                space: spaces::LOG,
                hash: self.heap.hash(spaces::LOG, key),
                key,
                key_at: None,
                value: *value,
                arrival_ns,
                expiry_ms: offset,
                aux: log.number,
            })
            .collect();
        let slots = writer.append_group(&entries)?;
        slots.iter().zip(values).for_each(|(slot, value)| state.slots.push(*slot, value.len()));
        state.turns.note(writer);
        if state.note_writer(writer.ticket()) {
            self.list(writer.id(), log);
        }
        self.counters.appended.fetch_add(count as u64, Ordering::Relaxed);
        Ok(Gated::new(Appended { first, count }, state.pending(&self.heap)))
    }
}
