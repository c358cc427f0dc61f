//! Entries that a machine has kept while it is copied to: `docs/format/wal.md`, "On a chain".

use crate::error::WalError;
use crate::log::{Log, State};
use crate::logs::{Logs, Retired};
use crate::received::{By, LogRecord, ReceiveError};
use crate::wire;
use landfall_heap::{Item, Kind, SlotId, Source, Ticket, Writer, spaces};
use std::ops::RangeInclusive;
use std::sync::Arc;

impl Logs {
    /// Keeps the entries of a log that has just ended. What was kept of an earlier log of that name goes.
    pub(crate) fn keep(&self, log: Arc<Log>, end: Ticket) {
        let earlier = self.kept.lock().insert(log.name.clone(), (log, end));
        earlier.into_iter().for_each(|(log, end)| self.retire_kept(&log, end));
    }

    /// What is kept goes.
    pub(crate) fn drop_kept(&self) {
        let all = std::mem::take(&mut *self.kept.lock());
        all.into_values().for_each(|(log, end)| self.retire_kept(&log, end));
    }

    fn retire_kept(&self, log: &Log, end: Ticket) {
        self.numbers.write().remove(&log.number);
        let state = &mut *log.state.lock();
        let count = state.slots.len();
        let mut slots = state.slots.take_front(count, |_| 0);
        slots.retain(|slot| *slot != SlotId::NONE);
        slots.extend(std::mem::take(&mut state.unreadable).into_values());
        self.retired.lock().push_back(Retired { slots, cause: end });
    }

    /// The log of which something is kept, by its name and its life.
    fn kept_log(&self, (life, name): (u64, &str)) -> Option<Arc<Log>> {
        let kept = self.kept.lock();
        kept.get(name).filter(|(log, _)| log.life == life).map(|(log, _)| Arc::clone(log))
    }

    /// The durable entries that are kept of a log, up to `limit` of them; the offset is the mark of each. `key`: that of an
    /// entry, as others know it.
    ///
    /// # Errors
    /// [`ReceiveError::Malformed`] if that is no key; the medium's.
    pub fn kept_entries(
        &self,
        key: &[u8],
        offsets: &RangeInclusive<u64>,
        limit: usize,
    ) -> Result<Vec<Item<'_>>, ReceiveError> {
        let of = wire::parse_entry(key).ok_or(ReceiveError::Malformed)?;
        let Some(log) = self.kept_log(of) else { return Ok(Vec::new()) };
        let state = log.state.lock();
        let (begin, end) = ((*offsets.start()).max(state.first), (*offsets.end()).min(state.next()));
        let slots = (begin..=end).filter_map(|offset| self.kept_slot(&state, offset));
        let held = slots.take(limit).map(|slot| Item::hold(&self.heap, slot, &self.heap.record(slot)?));
        Ok(held.collect::<Result<_, _>>().map_err(WalError::from)?)
    }

    fn kept_slot(&self, state: &State, offset: u64) -> Option<SlotId> {
        state.slot(offset).filter(|slot| *slot != SlotId::NONE && self.heap.pending(*slot).is_none())
    }

    /// The log that is copied to this machine takes over an entry that is kept: it refers to the same bytes. False if
    /// there is none.
    ///
    /// # Errors
    /// As [`Self::receive`]. Nothing is taken then.
    pub fn adopt(&self, writer: &mut Writer, key: &[u8], offset: u64) -> Result<bool, ReceiveError> {
        let of = wire::parse_entry(key).ok_or(ReceiveError::Malformed)?;
        let Some(log) = self.kept_log(of) else { return Ok(false) };
        let mut state = log.state.lock();
        let Some(slot) = self.kept_slot(&state, offset) else { return Ok(false) };
        let view = self.heap.record(slot).map_err(WalError::from)?;
        let item = Item::hold(&self.heap, slot, &view).map_err(WalError::from)?;
        let value = match item.inline() {
            Some(bytes) => Source::Bytes(bytes),
            None => Source::Stored {
                extents: item.extents(),
                landed: &[],
                durable: true,
                shared: item.shared,
                crc: item.crcs(),
                list: item.list(),
            },
        };
        let arrival_ns = item.arrival_ns;
        let entry = LogRecord { kind: Kind::Put, space: spaces::LOG, key, mark: offset, arrival_ns, value };
        self.receive_entries(writer, &[entry], By::Page)?;
        // The compactor finds out that the entry is another record now.
        state.set_slot(offset, SlotId::NONE);
        writer.supersede(slot);
        Ok(true)
    }
}
