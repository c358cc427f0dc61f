//! A client's private log in memory: where the records of its operations are.

use crate::key::{OperationKey, WritePlace};
use landfall_heap::{Entry, Heap, HeapError, Kind, SlotId, Source, Writer, spaces};
use smallvec::SmallVec;
use std::collections::VecDeque;

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
    pub(crate) writer: Writer,
    /// Index of the first operation that is not published.
    pub(crate) first: u64,
    /// Records of the operations from there on.
    pub(crate) slots: VecDeque<SlotId>,
    /// Bytes of their values.
    pub(crate) bytes: u64,
    /// Above every index that recovery has seen. Operations that do not count may lie below: the next bound is here.
    pub(crate) above: u64,
    pub(crate) epoch: u64,
    pub(crate) lease: u64,
}

impl Log {
    /// Index of the next operation.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// True if the bound on the medium says all.
    pub(crate) fn is_published(&self) -> bool {
        self.slots.is_empty() && self.above <= self.first
    }

    /// The record of an operation that is not published.
    pub(crate) fn slot_mut(&mut self, index: u64) -> Option<&mut SlotId> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// Appends operations that count together or not at all. [`Self::keep`] or [`Self::take_back`] follows.
    pub(crate) fn append(
        &mut self,
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
        self.writer.append_group(&records)
    }

    /// The tree has executed what was appended.
    pub(crate) fn keep(&mut self, slots: &[SlotId], entries: &[LogEntry<'_>]) {
        self.slots.extend(slots);
        self.bytes += entries.iter().map(|entry| entry.value.len()).sum::<u64>();
    }

    /// The tree has refused what was appended.
    pub(crate) fn take_back(&mut self, slots: &[SlotId]) -> Result<(), HeapError> {
        Ok(self.writer.take_back(slots)?)
    }
}
