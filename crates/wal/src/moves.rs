//! Logs as the owner of records that the compactor moves.

use crate::bounds::is_end;
use crate::format::{parse_entry_key, parse_position_key};
use crate::log::{Log, SlotIdOrNone, State};
use crate::logs::Logs;
use landfall_heap::{Gone, Kind, Named, Owner, RecordView, SlotId, spaces};
use std::sync::Arc;

/// What the record in a slot is.
enum What {
    Entry(Arc<Log>, u64),
    Head(Arc<Log>),
    Position(Arc<Log>, Box<str>),
    /// The end of a log or of a position.
    Tomb,
}

impl Logs {
    fn what(&self, slot: SlotId) -> Option<What> {
        let view = self.heap.record(slot).ok()?;
        let log = || self.by_number(view.aux());
        if matches!(view.kind(), Kind::Put | Kind::Tombstone) {
            return Some(What::Entry(log()?, view.mark()));
        }
        if is_end(view.mark()) {
            return Some(What::Tomb);
        }
        match view.space() {
            spaces::LOG => Some(What::Head(log()?)),
            _ => Some(What::Position(log()?, self.consumer_of(&view)?)),
        }
    }

    fn consumer_of(&self, view: &RecordView<'_>) -> Option<Box<str>> {
        let (_, consumer) = parse_position_key(self.heap.key(view).ok()?)?;
        Some(consumer.into())
    }
}

/// The slot that a log holds of what a record is, to be changed.
fn current(state: &mut State, what: &What, then: impl FnOnce(SlotId) -> Option<SlotId>) -> bool {
    let slot = match what {
        What::Entry(_, offset) => state.entry_slot(*offset),
        What::Head(_) => Some(state.head.0),
        What::Position(_, consumer) => state.positions.get(consumer).map(|known| known.slot),
        What::Tomb => None,
    };
    let Some(new) = slot.and_then(then) else { return false };
    match what {
        What::Entry(_, offset) => state.set_slot(*offset, new),
        What::Head(_) => state.head = SlotIdOrNone(new),
        What::Position(_, consumer) => {
            if let Some(known) = state.positions.get_mut(consumer) {
                known.slot = new;
            }
        }
        What::Tomb => {}
    }
    true
}

impl Owner for Logs {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let Some(what) = self.what(slot) else { return false };
        let mut begin = |is_it: bool| {
            is_it.then(|| {
                // The copy counts as stale until it takes over: a tomb written meanwhile must outlive it.
                if !matches!(what, What::Entry(..)) {
                    self.bounds.lock().announce_copy(name.hash);
                }
                hold();
                slot
            })
        };
        match &what {
            What::Entry(log, _) | What::Head(log) | What::Position(log, _) => {
                current(&mut log.state.lock(), &what, |known| begin(known == slot))
            }
            What::Tomb => {
                let mut bounds = self.bounds.lock();
                let is_it = bounds.tombs.get(&name.hash).is_some_and(|tomb| tomb.slot == slot);
                if is_it {
                    bounds.announce_copy(name.hash);
                    hold();
                }
                is_it
            }
        }
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        // Nothing was announced for an entry.
        self.bounds.lock().settle_copy(name.hash);
        let Some(what) = self.what(new) else { return false };
        match &what {
            What::Entry(log, _) | What::Head(log) | What::Position(log, _) => {
                current(&mut log.state.lock(), &what, |known| (known == old).then_some(new))
            }
            What::Tomb => {
                let mut bounds = self.bounds.lock();
                let tomb = bounds.tombs.get_mut(&name.hash).filter(|tomb| tomb.slot == old);
                tomb.map(|tomb| tomb.slot = new).is_some()
            }
        }
    }

    fn abort_move(&self, name: Named) {
        self.bounds.lock().withdraw_copy(&self.heap, name.hash);
    }

    fn forget(&self, gone: &mut [Gone]) {
        let mut bounds = self.bounds.lock();
        gone.iter().for_each(|gone| bounds.drop_stale(&self.heap, gone.name.hash));
    }
}

/// True if key and fields of an entry say the same.
pub(crate) fn agrees(key: &[u8], number: u32, offset: u64) -> bool {
    parse_entry_key(key) == Some((number, offset))
}
