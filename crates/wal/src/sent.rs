//! What is sent to another machine with the same logs: `docs/format/wal.md`, "On a chain".

use crate::error::WalError;
use crate::format::{Head, parse_position_key};
use crate::log::{Log, Position, State};
use crate::logs::Logs;
use crate::read::ReadLimit;
use crate::wire;
use landfall_heap::{Damage, Gated, HeapError, Item, Kind, RecordView, SlotId, Tickets, spaces};
use std::ops::Bound;
use std::sync::Arc;

/// How far a copy of all logs has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogPlace {
    /// Before the first log.
    #[default]
    Start,
    /// Within a log: its name, its life, and the next entry.
    Within(String, u64, u64),
    /// Behind the log of this name.
    Behind(String),
}

/// The next records of a copy, of one log at most.
#[derive(Debug, Default)]
pub struct LogPage<'h> {
    /// The records.
    pub records: Vec<CopiedLogRecord<'h>>,
    /// Where to go on; `None` when there are no more.
    pub next: Option<LogPlace>,
    /// A log that cannot be copied, and which check its head fails.
    pub damaged: Option<(String, Damage)>,
}

/// A record of a log for another machine.
#[derive(Debug)]
pub struct CopiedLogRecord<'h> {
    /// Its space.
    pub space: u8,
    /// Its key, as others know it.
    pub key: Vec<u8>,
    /// What it is.
    pub part: LogPart<'h>,
}

/// What a record of a log is.
#[derive(Debug)]
pub enum LogPart<'h> {
    /// An entry. Its offset is the mark of its record.
    Entry(Item<'h>),
    /// The entry at this offset cannot be read.
    Lost(u64),
    /// A head or a position with this mark.
    Bound(u64),
}

impl Logs {
    /// The key under which others know a record.
    ///
    /// # Errors
    /// Damage, also if the record is one of no log.
    pub fn key_for_others(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Vec<u8>, HeapError> {
        let unknown = || HeapError::Damaged { slot, what: Damage::RecordFields };
        if view.kind() == Kind::Bound && view.space() == spaces::LOG {
            let name = self.heap.key(view)?;
            let value = self.heap.value_bytes(slot, view)?;
            let Head { settings, life, .. } = Head::decode(&value).map_err(|_| unknown())?;
            let name = std::str::from_utf8(&name).map_err(|_| unknown())?;
            return Ok(wire::head_key(life, settings, name));
        }
        let log = self.sent_log(view.aux()).ok_or_else(unknown)?;
        if view.kind() != Kind::Bound {
            return Ok(wire::entry_key(log.life, &log.name));
        }
        let key = self.heap.key(view)?;
        let (_, consumer) = parse_position_key(&key).ok_or_else(unknown)?;
        Ok(wire::position_key(log.life, &log.name, consumer))
    }

    /// A log, deleted or not, whose records may have to be sent.
    fn sent_log(&self, number: u32) -> Option<Arc<Log>> {
        let is_it = |(_, log): &&(_, Arc<Log>)| log.number == number;
        self.by_number(number)
            .or_else(|| self.ended.lock().iter().find(is_it).map(|(_, log)| Arc::clone(log)))
    }

    /// The current records with at least this seq: of each log its head, its entries in their order, its positions; then
    /// the heads of deleted logs. Another machine that has everything with a lower seq, and gets them, has everything.
    pub fn records_from(&self, seq: u64) -> Vec<SlotId> {
        let is_new = |slot: &SlotId| self.heap.record(*slot).is_ok_and(|view| view.seq() >= seq);
        let mut found = Vec::new();
        for log in self.names.read().values() {
            let state = log.state.lock();
            found.extend(Some(state.head.0).filter(is_new));
            let mut entries: Vec<SlotId> = Vec::new();
            for offset in (state.first..state.next()).rev() {
                let Some(slot) = state.entry_slot(offset).filter(|slot| *slot != SlotId::NONE) else {
                    continue;
                };
                match self.heap.record(slot) {
                    Ok(view) if view.seq() < seq => break,
                    Ok(_) => entries.push(slot),
                    Err(_) => {}
                }
            }
            found.extend(entries.into_iter().rev());
            found.extend(state.positions.values().filter_map(Position::readable).filter(is_new));
        }
        let bounds = self.bounds.lock();
        found.extend(bounds.tombstones.values().map(|tombstone| tombstone.slot).filter(is_new));
        found
    }

    /// The next records of a copy of all logs. What is appended after the call is in no page: it is sent by its writer.
    ///
    /// # Errors
    /// [`WalError::Wait`] for bytes that have left memory; the medium's.
    pub fn copy_page(&self, from: &LogPlace, limit: ReadLimit) -> Result<Gated<LogPage<'_>>, WalError> {
        let Some(log) = self.log_to_copy(from) else {
            // Records of a log that is deleted may be on their way: they must not come after the end of the copy.
            let deletes: Tickets = self.ended.lock().iter().map(|(delete, _)| *delete).collect();
            return Ok(Gated::new(LogPage::default(), deletes));
        };
        let behind = LogPlace::Behind(log.name.to_string());
        let state = log.state.lock();
        if state.check().is_err() {
            let damaged = state.damaged.map(|what| (log.name.to_string(), what));
            return Ok(Gated::durable(LogPage { next: Some(behind), damaged, ..LogPage::default() }));
        }
        let begin = match from {
            LogPlace::Within(_, life, offset) if *life == log.life => (*offset).max(state.first),
            _ => state.first,
        };
        let head = wire::head_key(log.life, state.settings, &log.name);
        let first = LogPart::Bound(state.first);
        let mut records = vec![CopiedLogRecord { space: spaces::LOG, key: head, part: first }];
        let end = self.copy_entries(&log, &state, begin, limit, &mut records)?;
        let is_whole = end == state.next();
        let mut tickets = state.pending(&self.heap);
        if is_whole {
            // A machine that has no position of a consumer says so. An older one would pass for the right one.
            let can_be_read = |(_, position): &(_, &Position)| position.unreadable.is_empty();
            for (consumer, position) in state.positions.iter().filter(can_be_read) {
                let key = wire::position_key(log.life, &log.name, consumer);
                let part = LogPart::Bound(position.offset);
                records.push(CopiedLogRecord { space: spaces::LOG_POSITION, key, part });
                self.heap.pending(position.slot).into_iter().for_each(|ticket| tickets.add(ticket));
            }
        }
        drop(state);
        check_entries(&mut records)?;
        let within = LogPlace::Within(log.name.to_string(), log.life, end);
        let next = Some(if is_whole { behind } else { within });
        Ok(Gated::new(LogPage { records, next, damaged: None }, tickets))
    }

    fn log_to_copy(&self, from: &LogPlace) -> Option<Arc<Log>> {
        let from = match from {
            LogPlace::Start => Bound::Unbounded,
            LogPlace::Within(name, ..) => Bound::Included(&**name),
            LogPlace::Behind(name) => Bound::Excluded(&**name),
        };
        let names = self.names.read();
        names.range::<str, _>((from, Bound::Unbounded)).next().map(|(_, log)| Arc::clone(log))
    }

    /// Adds entries from `begin` on to a page; returns the offset behind them.
    fn copy_entries<'h>(
        &'h self,
        log: &Log,
        state: &State,
        begin: u64,
        limit: ReadLimit,
        page: &mut Vec<CopiedLogRecord<'h>>,
    ) -> Result<u64, WalError> {
        let (mut offset, mut bytes) = (begin, 0);
        while offset < state.next() && offset - begin < limit.entries as u64 && bytes < limit.bytes {
            let part = match self.hold(state, offset) {
                Ok(item) => LogPart::Entry(item),
                Err(WalError::Damaged { .. }) => LogPart::Lost(offset),
                Err(error) => return Err(error),
            };
            bytes += if let LogPart::Entry(item) = &part { item.len as u64 } else { 0 };
            page.push(CopiedLogRecord {
                space: spaces::LOG,
                key: wire::entry_key(log.life, &log.name),
                part,
            });
            offset += 1;
        }
        Ok(offset)
    }
}

/// Reads the bytes of a page; entries that fail their checksum are lost.
fn check_entries(records: &mut [CopiedLogRecord<'_>]) -> Result<(), WalError> {
    Item::fetch_all(records.iter().filter_map(|record| match &record.part {
        LogPart::Entry(item) => Some(item),
        _ => None,
    }))?;
    for record in records {
        if let LogPart::Entry(item) = &record.part
            && !item.verify()?
        {
            record.part = LogPart::Lost(item.expiry_ms);
        }
    }
    Ok(())
}
