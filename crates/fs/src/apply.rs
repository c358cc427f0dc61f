//! What follows when a chunk is published, or cannot be.

use crate::build::{Built, LogPart, Record};
use crate::data_changes::Sources;
use crate::data_map::{Interval, Replaced};
use crate::header::LOG_ENDED;
use crate::kept::Tombstone;
use crate::key::InodeNumber;
use crate::node::Node;
use crate::published::Published;
use crate::state::State;
use landfall_heap::SlotId;
use std::sync::Arc;

/// The chunk's transaction is durable: its records are current, and what they replace is dropped.
pub(crate) fn apply(state: &mut State, built: Built) -> Published {
    let moves = state.moves.take().unwrap_or_default();
    let now = |slot: SlotId| moves.now(slot);
    // Blocks are found by where they were, so they are replaced before anything is dropped. First each file gets its own
    // records: what is left of the old ones then was cloned or shifted since the chunk was put together.
    let mut replaced = Vec::new();
    for (record, _, slot) in &built.records {
        let Record::Data(file, sources) = record else { continue };
        replaced.extend(replaced_by(sources, *slot, now).map(|(part, replaced)| (*file, part, replaced)));
    }
    for (file, part, replaced) in &replaced {
        state.tree.replace_blocks(*file, u64::from(part.first)..part.end(), replaced);
    }
    replaced.iter().for_each(|(_, _, replaced)| state.tree.replace_spread(replaced));
    let records = built.records.len() as u64;
    for (record, hash, slot) in built.records {
        take_over(state, record, hash, slot);
    }
    state.tree.end_spread();
    state.tree.evict(state.nodes_max);
    built.parts.iter().for_each(|part| drop_part(state, part));
    let operations = built.parts.iter().map(|part| part.operations as u64).sum();
    let written: u64 = built.parts.iter().map(|part| part.written).sum();
    Published {
        operations,
        records,
        relinked_bytes: built.relinked_bytes,
        coalesced_bytes: written.saturating_sub(built.put_bytes),
        undone: built.undone,
    }
}

/// The operations of a part of a log are published.
fn drop_part(state: &mut State, part: &LogPart) {
    let heap = Arc::clone(&state.heap);
    let Some(log) = state.log_of(part.client) else { return };
    log.slots.drain(..part.operations).for_each(|slot| heap.drop_record(slot));
    log.checked.drain(..part.operations.min(log.checked.len()));
    (log.first, log.bytes, log.above) = (part.until, log.bytes - part.bytes, 0);
    log.written -= part.written;
    if part.until == LOG_ENDED {
        state.others.remove(&part.client);
    }
}

/// The blocks that a record holds instead of others, which are at `now(slot)` if they have been moved.
fn replaced_by(
    sources: &Sources,
    new: SlotId,
    now: impl Fn(SlotId) -> SlotId,
) -> impl Iterator<Item = (Interval, Replaced)> {
    let first = sources[0].first;
    sources.iter().filter_map(move |part| {
        let (old, new_skip) = (now(part.slot), (part.first - first) as u16);
        Some((*part, Replaced { old, skip: part.skip()?, blocks: part.blocks, new, new_skip }))
    })
}

/// A record is current.
pub(crate) fn take_over(state: &mut State, record: Record, hash: u64, slot: SlotId) {
    let (space, stored) = (record.space(), &mut state.stored);
    let (old, tombstone) = match record {
        Record::Header => (stored.header.replace(slot), None),
        Record::Inode(number) => (state.tree.note_stored(number, slot), None),
        Record::NoInode(number) => {
            // Records of a number without an inode mean nothing: they need no tombstones, and are not counted.
            let all = stored.take_all_of(number);
            all.into_iter().for_each(|slot| state.heap.drop_record(slot));
            state.kept.forget_number(&state.heap, number);
            // Only a node of a chain is ever copied to.
            if state.header.seed.is_some() {
                state.dead.add(number);
            }
            (state.tree.note_gone(number), Some(number))
        }
        Record::Names(number, first) => {
            note_names(state, number, first, Some(slot));
            (state.stored.names.insert((number, first), slot), None)
        }
        Record::NoNames(number, first) => {
            note_names(state, number, first, None);
            (state.stored.names.remove(&(number, first)), Some(number))
        }
        Record::Data(number, sources) => (stored.data.insert((number, sources[0].first), slot), None),
        Record::NoData(number, first) => (stored.data.remove(&(number, first)), Some(number)),
        Record::Extended(number) => (stored.extended.insert(number, slot), None),
        Record::NoExtended(number) => (stored.extended.remove(&number), Some(number)),
        Record::Bound(client) => (stored.bounds.insert(client, slot), None),
        Record::EndedBound(client) => (stored.bounds.remove(&client), Some(InodeNumber(0))),
    };
    let heap = Arc::clone(&state.heap);
    let kept = state.kept_of(space);
    kept.replaced(&heap, hash, old);
    if let Some(number) = tombstone {
        kept.add_tombstone(hash, Tombstone { slot, space, number });
    }
}

fn note_names(state: &mut State, number: InodeNumber, first: crate::names::Position, slot: Option<SlotId>) {
    if let Some(directory) = state.tree.directory_mut(number) {
        directory.published(first, slot);
    }
}

/// The chunk is not published: all that it has changed waits for the next one.
pub(crate) fn abort(state: &mut State, built: Built) {
    state.moves = None;
    state.header_changed |= built.records.iter().any(|(record, ..)| *record == Record::Header);
    for (number, first) in built.names {
        if let Some(directory) = state.tree.directory_mut(number) {
            directory.note_unpublished([first]);
        }
    }
    for (number, ranges) in built.ranges {
        if let Some(data) = state.tree.in_memory_mut(number).and_then(Node::data_mut) {
            data.note_changes(&ranges);
        }
    }
    for number in built.extended {
        if let Some(node) = state.tree.in_memory_mut(number) {
            node.extended_changed = true;
        }
    }
    state.tree.note_unpublished(built.numbers);
}
