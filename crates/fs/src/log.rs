//! A client's private log in memory: where the records of its operations are.

use crate::header::{LOG_ENDED, LogFields};
use crate::key::{InodeNumber, OperationKey, WritePlace};
use landfall_heap::{Entry, Heap, HeapError, Kind, RECORD_SIZE, SlotId, Source, Writer, spaces};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The client to which a mount's log belongs.
pub(crate) const CLIENT: u32 = 0;

/// A record to append to the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry<'a> {
    pub(crate) write: Option<WritePlace>,
    pub(crate) value: Source<'a>,
}

/// A client's log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) client: u32,
    /// Index of the first operation that is not published.
    pub(crate) first: u64,
    /// Records of the operations from there on.
    pub(crate) slots: VecDeque<SlotId>,
    /// The records as they were checked, with their slots then, if a foreign writer has stored them: one for each slot.
    /// [`SlotId::NONE`] if it is trusted.
    pub(crate) checked: VecDeque<(SlotId, [u8; RECORD_SIZE as usize])>,
    /// Bytes of their values.
    pub(crate) bytes: u64,
    /// Of these, data of files.
    pub(crate) written: u64,
    /// Above every index that recovery has seen. Operations that do not count may lie below: a bound has to be written
    /// before another one is appended.
    pub(crate) above: u64,
    pub(crate) epoch: u64,
    pub(crate) lease: u64,
    /// The client has ended: with what is in the log, a bound is published that says so.
    pub(crate) has_ended: bool,
}

impl Log {
    /// The log of a client that has not done anything.
    pub(crate) fn new(client: u32) -> Self {
        Self {
            client,
            first: 0,
            slots: VecDeque::new(),
            checked: VecDeque::new(),
            bytes: 0,
            written: 0,
            above: 0,
            epoch: 1,
            lease: 0,
            has_ended: false,
        }
    }

    /// The mark of the bound behind all that the log has.
    pub(crate) fn mark(&self) -> u64 {
        match (self.has_ended, self.client) {
            (true, _) => LOG_ENDED,
            // What was appended before the bound does not count.
            (false, CLIENT) => self.next(),
            (false, _) => self.next().max(self.above),
        }
    }

    /// What a bound of the log says.
    pub(crate) fn fields(&self, next_number: InodeNumber) -> LogFields {
        LogFields { epoch: self.epoch, lease: self.lease, next_number }
    }

    /// Index of the next operation.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// True if the bound on the medium says all.
    pub(crate) fn is_published(&self) -> bool {
        self.slots.is_empty() && self.above <= self.first && !self.has_ended
    }

    /// The record of an operation that is not published.
    pub(crate) fn slot_mut(&mut self, index: u64) -> Option<&mut SlotId> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// The compactor has written the record of an operation again: no client can change it any more, wherever it comes to
    /// lie.
    pub(crate) fn trust(&mut self, index: u64) {
        let at = index.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some((slot, _)) = at.and_then(|at| self.checked.get_mut(at)) {
            *slot = SlotId::NONE;
        }
    }

    /// Appends operations that count together or not at all. [`Self::keep`] follows, or [`Writer::take_back`].
    pub(crate) fn append(
        &self,
        writer: &mut Writer,
        heap: &Heap,
        time_ns: i64,
        entries: &[LogEntry<'_>],
    ) -> Result<SmallVec<[SlotId; 8]>, HeapError> {
        let (client, first) = (self.client, self.next());
        let key = |(index, entry): (u64, &LogEntry<'_>)| OperationKey { client, index, write: entry.write };
        let keys: SmallVec<[Vec<u8>; 4]> = (first..).zip(entries).map(|at| key(at).encode()).collect();
        let records: SmallVec<[Entry<'_>; 4]> = (first..)
            .zip(keys.iter().zip(entries))
            .map(|(index, (key, entry))| Entry {
                kind: Kind::Put,
                space: spaces::FILES_LOG,
                hash: heap.hash(spaces::FILES_LOG, key),
                key,
                key_at: None,
                value: entry.value,
                arrival_ns: time_ns.cast_unsigned(),
                expiry_ms: index,
                aux: client,
            })
            .collect();
        writer.append_group(&records)
    }

    /// The tree has executed what was appended.
    pub(crate) fn keep(&mut self, slots: &[SlotId], entries: &[LogEntry<'_>]) {
        self.slots.extend(slots);
        self.bytes += entries.iter().map(|entry| entry.value.len()).sum::<u64>();
        let writes = entries.iter().filter(|entry| entry.write.is_some());
        self.written += writes.map(|entry| entry.value.len()).sum::<u64>();
    }
}
