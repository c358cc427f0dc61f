//! Executing what clients of a killed server have left ([`crate::LeftLog`]).

use crate::error::FsError;
use crate::key::OperationKey;
use crate::operation::Stamp;
use crate::recover::{LeftFound, Recovered};
use crate::state::{Doer, State, Step};
use landfall_heap::{Damage, HeapError, ItemPart, SlotId, Source};
use std::collections::BTreeSet;
use std::sync::Arc;

impl State {
    /// Executes what clients have left, in the log of the mount. Each has left operations on inodes that nobody else could
    /// change.
    pub(crate) fn execute_left(
        &mut self,
        left: Vec<LeftFound>,
        report: &mut Recovered,
    ) -> Result<(), FsError> {
        let left: Vec<LeftFound> = left.into_iter().filter(|left| !left.operations.is_empty()).collect();
        if left.is_empty() {
            return Ok(());
        }
        let in_log = self.first_bytes_in_log()?;
        self.writer.set_admitted(true);
        for LeftFound { log, operations } in left {
            let mut refused = None;
            for operation in &operations {
                if refused.is_none() {
                    refused = self.execute_one_left(operation.slot, &in_log).err();
                }
                if refused.is_none() {
                    log.note_executed(operation.index + 1);
                }
                self.heap.drop_record(operation.slot);
            }
            let count = operations.len();
            let how = refused.map_or_else(|| "executed".into(), |error| format!("not all executed: {error}"));
            report.notes.push(format!("{count} writes that a library had left are {how}"));
        }
        self.writer.set_admitted(false);
        Ok(())
    }

    fn execute_one_left(&mut self, slot: SlotId, in_log: &BTreeSet<u64>) -> Result<(), FsError> {
        let heap = Arc::clone(&self.heap);
        let view = heap.record(slot)?;
        let damaged = |what| HeapError::Damaged { slot, what };
        let key = OperationKey::decode(&heap.key(&view)?).map_err(damaged)?;
        let part = ItemPart::hold(&heap, slot, &view, 0..view.value_len())?;
        let item = part.item();
        let (Some(place), Some(first)) = (key.write, item.extents().first()) else { return Ok(()) };
        // It was executed, and its client was not told yet.
        if in_log.contains(&first.off) {
            return Ok(());
        }
        if !item.verify()? {
            return Err(damaged(Damage::ValueChecksum).into());
        }
        let (extents, crc) = (item.extents(), item.crcs());
        let value = Source::Stored { extents, landed: &[], durable: false, shared: true, crc, list: None };
        let stamp = Stamp { lease: place.lease, time_ns: view.arrival_ns().cast_signed() };
        self.apply_for(Doer::Client, stamp, place.file, &[Step::Write(place.offset, value)])
    }

    /// Where the bytes of writes begin that the log of the mount has.
    fn first_bytes_in_log(&self) -> Result<BTreeSet<u64>, FsError> {
        let mut first = BTreeSet::new();
        for slot in &self.log.slots {
            let view = self.heap.record(*slot)?;
            let part = ItemPart::hold(&self.heap, *slot, &view, 0..view.value_len())?;
            first.extend(part.item().extents().first().map(|extent| extent.off));
        }
        Ok(first)
    }
}
