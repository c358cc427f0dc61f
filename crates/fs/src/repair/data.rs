//! Bytes of files that are lost.

use super::notes::Notes;
use super::records::readable;
use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX, Interval};
use crate::error::FsError;
use crate::key::InodeNumber;
use crate::node::Node;
use crate::state::State;
use landfall_heap::{Damage, HeapError, ItemPart, SlotId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Blocks in these records that fail their checksums become holes.
pub(super) fn cut_damaged(
    state: &mut State,
    suspects: &BTreeSet<SlotId>,
    notes: &mut Notes,
) -> Result<(), FsError> {
    let stored = state.stored.data.iter().filter(|(_, slot)| suspects.contains(*slot));
    let mut files: BTreeSet<InodeNumber> = stored.map(|((number, _), _)| *number).collect();
    files.extend(state.tree.files_with_blocks_in(suspects));
    for number in files {
        let size = state.node(number)?.inode.size;
        let data = state.tree.in_memory(number).and_then(Node::data);
        let parts: Vec<Interval> = data.into_iter().flat_map(|data| data.parts(0..BLOCKS_MAX)).collect();
        let mut failed: Vec<Range<u64>> = Vec::new();
        for part in parts.iter().filter(|part| suspects.contains(&part.slot)) {
            for block in failed_blocks(state, *part)? {
                match failed.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    _ => failed.push(block..block + 1),
                }
            }
        }
        for range in failed {
            let (from, to) = (range.start * BLOCK_BYTES, (range.end * BLOCK_BYTES).min(size));
            notes.of(number, format!("bytes {from} to {to} are lost and read as zeroes"));
            if let Some(data) = state.tree.in_memory_mut(number).and_then(Node::data_mut) {
                data.remove(range);
            }
            state.tree.note_unpublished([number]);
        }
    }
    Ok(())
}

/// The blocks of a part in pieces that fail.
fn failed_blocks(state: &State, part: Interval) -> Result<Vec<u64>, FsError> {
    let Some(skip) = part.skip() else { return Ok(Vec::new()) };
    let heap = &*state.heap;
    let view = heap.record(part.slot)?;
    let len = view.value_len() as u64;
    let mut failed = Vec::new();
    for at in 0..u64::from(part.blocks) {
        let start = (u64::from(skip) + at) * BLOCK_BYTES;
        let bytes = start.min(len) as usize..len.min(start + BLOCK_BYTES) as usize;
        let verify = || {
            let is_whole = ItemPart::hold(heap, part.slot, &view, bytes)?.item().verify()?;
            let what = Damage::ValueChecksum;
            if is_whole { Ok(()) } else { Err(HeapError::Damaged { slot: part.slot, what }.into()) }
        };
        if readable(verify())?.is_none() {
            failed.push(u64::from(part.first) + at);
        }
    }
    Ok(failed)
}
