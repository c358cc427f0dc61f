//! Offline repair: record durably that entries are lost, so that recovery keeps the entries behind them.

use crate::error::WalError;
use crate::format::{ENDED, entry_key};
use crate::log::{Log, Position};
use crate::logs::Logs;
use landfall_heap::{Entry, HeapError, Kind, SlotId, Source, Writer, spaces};
use std::sync::Arc;

/// Writes, and once more behind a commit if it has to wait for one. For repairs and recovery, which have one writer.
///
/// # Errors
/// Those of `write`, and the medium's.
pub fn with_commit<T>(
    writer: &mut Writer,
    mut write: impl FnMut(&mut Writer) -> Result<T, WalError>,
) -> Result<T, WalError> {
    match write(writer) {
        Err(WalError::Wait(_)) => {
            writer.commit_now()?;
            write(writer)
        }
        written => written,
    }
}

impl Logs {
    /// Writes a record "lost" for every entry that cannot be read, and for every entry of `damaged` (log number, offset)
    /// that is damaged: it may have several records, of which an old one is. Once these records are durable, the slots
    /// that cannot be read may be cleared. Returns one line of text for each lost entry. For offline repair.
    ///
    /// # Errors
    /// The heap's errors for a full and for a closed region.
    pub fn mark_lost(&self, writer: &mut Writer, damaged: &[(u32, u64)]) -> Result<Vec<String>, WalError> {
        let logs: Vec<Arc<Log>> = self.names.read().values().cloned().collect();
        let mut done = Vec::new();
        for log in logs {
            let named = damaged.iter().filter(|(number, _)| *number == log.number).map(|(_, offset)| *offset);
            let mut offsets: Vec<u64> = named.collect();
            {
                let state = log.state.lock();
                let mut lost = Vec::new();
                for offset in offsets {
                    let is_lost = match state.slot(offset) {
                        None => false,
                        Some(SlotId::NONE) => true,
                        Some(slot) => self.is_damaged(slot)?,
                    };
                    lost.extend(Some(offset).filter(|_| is_lost));
                }
                offsets = lost;
                let unread = (state.first..state.next()).filter(|at| state.slot(*at) == Some(SlotId::NONE));
                offsets.extend(unread);
            }
            offsets.sort_unstable();
            offsets.dedup();
            for offset in offsets {
                self.mark_one(writer, &log, offset)?;
                done.push(format!("log {}, offset {offset}: lost", log.name));
            }
        }
        Ok(done)
    }

    /// Deletes the positions that cannot be read. Once that is durable, the slots that cannot be read may be cleared: no
    /// older position is known then. Returns one line of text for each. For offline repair.
    ///
    /// # Errors
    /// The heap's errors for a full and for a closed region.
    pub fn drop_positions(&self, writer: &mut Writer) -> Result<Vec<String>, WalError> {
        let logs: Vec<Arc<Log>> = self.names.read().values().cloned().collect();
        let mut done = Vec::new();
        for log in logs {
            let mut state = log.state.lock();
            let lost = state.positions.extract_if(.., |_, position| !position.unreadable.is_empty());
            let lost: Vec<(Box<str>, Position)> = lost.collect();
            for (consumer, position) in lost {
                with_commit(writer, |writer| {
                    self.write_position(writer, &log, &consumer, ENDED, Some(&position), 0)
                })?;
                done.push(format!("log {}, consumer {consumer}: its position is dropped", log.name));
            }
        }
        Ok(done)
    }

    fn is_damaged(&self, slot: SlotId) -> Result<bool, HeapError> {
        match self.heap.record(slot).and_then(|view| self.heap.value_bytes(slot, &view).map(drop)) {
            Err(HeapError::Damaged { .. }) => Ok(true),
            read => read.map(|()| false),
        }
    }

    fn mark_one(&self, writer: &mut Writer, log: &Log, offset: u64) -> Result<(), WalError> {
        let key = entry_key(log.number, offset);
        let mut state = log.state.lock();
        let entry = Entry {
            kind: Kind::Tombstone,
            space: spaces::LOG,
            hash: self.heap.hash(spaces::LOG, &key),
            key: &key,
            key_at: None,
            value: Source::None,
            arrival_ns: 0,
            expiry_ms: offset,
            aux: log.number,
        };
        let slot = match writer.append(&entry) {
            Err(HeapError::Busy) => {
                writer.commit_now()?;
                writer.append(&entry)?
            }
            slot => slot?,
        };
        if let Some(old) = state.entry_slot(offset).filter(|old| *old != SlotId::NONE) {
            writer.supersede(old);
        }
        state.unreadable.remove(&offset);
        state.set_slot(offset, SlotId::NONE);
        state.unreadable.insert(offset, slot);
        Ok(())
    }

    /// Log number and offset of an entry, from the key of its record. `None` for a record that is not an entry.
    pub fn entry_of(space: u8, key: &[u8]) -> Option<(u32, u64)> {
        (space == spaces::LOG).then(|| crate::format::parse_entry_key(key)).flatten()
    }
}
