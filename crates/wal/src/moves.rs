//! The compactor's view of logs: [`Logs`] is the [`Owner`] of their records and follows them when they move.

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
    /// The tombstone of a log or of a position.
    Tombstone,
}

impl Logs {
    fn what(&self, slot: SlotId) -> Option<What> {
        let view = self.heap.record(slot).ok()?;
        let log = || self.by_number(view.aux());
        if matches!(view.kind(), Kind::Put | Kind::Tombstone) {
            return Some(What::Entry(log()?, view.mark()));
        }
        if is_end(view.mark()) {
            return Some(What::Tombstone);
        }
        match view.space() {
            spaces::LOG => Some(What::Head(log()?)),
            _ => Some(What::Position(log()?, self.consumer_of(&view)?)),
        }
    }

    fn consumer_of(&self, view: &RecordView<'_>) -> Option<Box<str>> {
        let key = self.heap.key(view).ok()?;
        let (_, consumer) = parse_position_key(&key)?;
        Some(consumer.into())
    }
}

/// Replaces the slot that a log holds for `what` by the result of `replace`, which gets the current slot. False if
/// there is none, or `replace` returns `None`.
fn replace_slot(state: &mut State, what: &What, replace: impl FnOnce(SlotId) -> Option<SlotId>) -> bool {
    let slot = match what {
        What::Entry(_, offset) => state.entry_slot(*offset),
        What::Head(_) => Some(state.head.0),
        What::Position(_, consumer) => state.positions.get(consumer).map(|known| known.slot),
        What::Tombstone => None,
    };
    let Some(new) = slot.and_then(replace) else { return false };
    match what {
        What::Entry(_, offset) => state.set_slot(*offset, new),
        What::Head(_) => state.head = SlotIdOrNone(new),
        What::Position(_, consumer) => {
            if let Some(known) = state.positions.get_mut(consumer) {
                known.slot = new;
            }
        }
        What::Tombstone => {}
    }
    true
}

impl Owner for Logs {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let Some(what) = self.what(slot) else { return false };
        let mut begin = |is_it: bool| {
            is_it.then(|| {
                // The copy counts as stale until it takes over: a tombstone written meanwhile must outlive the copy.
                if !matches!(what, What::Entry(..)) {
                    self.bounds.lock().announce_copy(name.hash);
                }
                hold();
                slot
            })
        };
        match &what {
            What::Entry(log, _) | What::Head(log) | What::Position(log, _) => {
                replace_slot(&mut log.state.lock(), &what, |known| begin(known == slot))
            }
            What::Tombstone => {
                let mut bounds = self.bounds.lock();
                let known = bounds.tombstones.get(name.hash);
                let is_it = known.is_some_and(|tombstone| tombstone.slot == slot);
                if is_it {
                    bounds.announce_copy(name.hash);
                    hold();
                }
                is_it
            }
        }
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        // No copy was announced for an entry; the call changes nothing then.
        self.bounds.lock().settle_copy(name.hash);
        let Some(what) = self.what(new) else { return false };
        match &what {
            What::Entry(log, _) | What::Head(log) | What::Position(log, _) => {
                replace_slot(&mut log.state.lock(), &what, |known| (known == old).then_some(new))
            }
            What::Tombstone => self.bounds.lock().tombstones.relocate(name.hash, old, new),
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

/// True if the key of an entry's record agrees with the number and the offset in its fields.
pub(crate) fn agrees(key: &[u8], number: u32, offset: u64) -> bool {
    parse_entry_key(key) == Some((number, offset))
}
