//! The compactor's view of files: [`Files`] is the [`Owner`] of their records and follows them when they move.

use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX, RECORD_BLOCKS_MAX, Replaced};
use crate::files::Files;
use crate::key::{DataKey, InodeNumber, NamesKey, OperationKey};
use crate::names::Position;
use crate::state::State;
use landfall_heap::{Gone, Heap, Kind, Named, Owner, SlotId, spaces};

/// What the record in a slot is.
#[derive(Clone, Copy, Debug)]
enum What {
    Header,
    Inode(InodeNumber),
    Names(InodeNumber, Position),
    Data(DataKey),
    Extended(InodeNumber),
    /// The client, and the hash of the key.
    Bound(u32, u64),
    Operation(OperationKey),
    /// The space, and the hash of the key.
    Tombstone(u8, u64),
}

fn what(heap: &Heap, slot: SlotId) -> Option<What> {
    let view = heap.record(slot).ok()?;
    let key = heap.key(&view).ok()?;
    if view.kind() == Kind::Tombstone {
        return Some(What::Tombstone(view.space(), view.hash()));
    }
    Some(match view.space() {
        spaces::FILES_HEADER => What::Header,
        spaces::FILES_INODE => What::Inode(InodeNumber::of_key(&key).ok()?),
        spaces::FILES_NAMES => {
            let key = NamesKey::decode(&key).ok()?;
            What::Names(key.directory, Position(key.first))
        }
        spaces::FILES_DATA => What::Data(DataKey::decode(&key).ok()?),
        spaces::FILES_EXTENDED => What::Extended(InodeNumber::of_key(&key).ok()?),
        spaces::FILES_LOG if view.kind() == Kind::Bound => What::Bound(view.aux(), view.hash()),
        spaces::FILES_LOG => What::Operation(OperationKey::decode(&key).ok()?),
        _ => return None,
    })
}

impl What {
    /// The record's slot, if it is current.
    fn slot(self, state: &mut State) -> Option<SlotId> {
        let stored = &state.stored;
        match self {
            Self::Header => stored.header,
            Self::Inode(number) => state.tree.slot(number),
            Self::Names(number, first) => stored.names.get(&(number, first)).copied(),
            Self::Data(key) => stored.data.get(&(key.file, key.first)).copied(),
            Self::Extended(number) => stored.extended.get(&number).copied(),
            Self::Bound(client, hash) => {
                stored.bounds.get(&client).copied().or_else(|| state.kept_bounds.tombstone(hash))
            }
            Self::Operation(key) => state.operation_slot(&key).copied(),
            Self::Tombstone(space, hash) => state.kept_of(space).tombstone(hash),
        }
    }

    /// The record is in `new` now.
    fn moved(self, state: &mut State, old: SlotId, new: SlotId) {
        match self {
            Self::Header => state.stored.header = Some(new),
            Self::Inode(number) => state.tree.note_moved(number, new),
            Self::Names(number, first) => {
                state.stored.names.insert((number, first), new);
                if let Some(directory) = state.tree.directory_mut(number) {
                    directory.moved(first, old, new);
                }
            }
            Self::Data(key) => {
                state.stored.data.insert((key.file, key.first), new);
                let end = (u64::from(key.first) + u64::from(RECORD_BLOCKS_MAX)).min(BLOCKS_MAX);
                let moved = Replaced::moved(old, new);
                state.tree.replace_blocks(key.file, u64::from(key.first)..end, &moved);
                state.tree.replace_spread(&moved);
            }
            Self::Extended(number) => drop(state.stored.extended.insert(number, new)),
            Self::Bound(client, hash) => match state.stored.bounds.get_mut(&client) {
                Some(slot) => *slot = new,
                None => state.kept_bounds.move_tombstone(hash, new),
            },
            Self::Operation(key) => {
                if let Some(slot) = state.operation_slot(&key) {
                    *slot = new;
                }
                if let Some(log) = state.others.get_mut(&key.client) {
                    log.trust(key.index);
                }
                if let Some(write) = key.write {
                    let first = write.offset / BLOCK_BYTES;
                    let end = (first + u64::from(RECORD_BLOCKS_MAX)).min(BLOCKS_MAX);
                    let moved = Replaced::moved(old, new);
                    state.tree.replace_blocks(write.file, first..end, &moved);
                    state.tree.replace_spread(&moved);
                }
            }
            Self::Tombstone(space, hash) => state.kept_of(space).move_tombstone(hash, new),
        }
    }

    /// True if older records of the key are counted.
    fn is_counted(self) -> bool {
        !matches!(self, Self::Operation(_))
    }
}

impl Owner for Files {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let Some(what) = what(&self.heap, slot) else { return false };
        let mut state = self.lock();
        let is_current = what.slot(&mut state) == Some(slot);
        if is_current {
            // The copy counts as stale until it takes over: a tombstone written meanwhile must outlive the copy.
            if what.is_counted() {
                state.kept_of(name.space).announce_copy(name.hash);
            }
            hold();
        }
        is_current
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        let what = what(&self.heap, new);
        let mut state = self.lock();
        // No copy was announced for an operation; the call changes nothing then.
        state.kept_of(name.space).settle_copy(name.hash);
        let Some(what) = what else { return false };
        let is_current = what.slot(&mut state) == Some(old);
        if is_current {
            what.moved(&mut state, old, new);
            if let Some(moves) = &mut state.moves {
                moves.note(old, new);
            }
        }
        is_current
    }

    fn abort_move(&self, name: Named) {
        let mut state = self.lock();
        state.kept_of(name.space).withdraw_copy(&self.heap, name.hash);
    }

    fn forget(&self, gone: &mut [Gone]) {
        let mut state = self.lock();
        for Gone { name, seq } in gone {
            if name.space == spaces::FILES_LOG || *seq >= state.header.floor {
                state.kept_of(name.space).drop_stale(&self.heap, name.hash);
            }
        }
    }
}
