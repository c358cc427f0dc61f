//! The data records that make the published blocks of a file what the file has in memory. Neighbours that were written one
//! by one are joined in one record: `docs/format/fs.md`, "Data".

use crate::data_map::{BLOCK_BYTES, Interval};
use crate::error::FsError;
use crate::key::InodeNumber;
use crate::node::Node;
use crate::state::{State, interval_of};
use landfall_heap::{
    Heap, HeapError, Item, ItemPart, Joined, KeptCrcs, PIECE_BYTES_MAX, PIECES_FROM, Source, ValuePlace, crc,
};
use landfall_media::{Extent, MediaError};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// A joined record lies within so many blocks of a file, counted from its start. A change of one block writes the list of
/// its pieces again, and a read of one block checks that list: 64 entries of 16 bytes at most, if each block was written
/// alone.
const JOINED_BLOCKS: u32 = 64;
/// Where neighbours are too short for pieces, their record is no longer than a piece: each read checks all of it.
const JOINED_BLOCKS_WHOLE: u32 = PIECE_BYTES_MAX / BLOCK_BYTES as u32;

/// Where the blocks of a record are now, in order. Each begins where the last one ends; there is at least one.
pub(crate) type Sources = SmallVec<[Interval; 1]>;

/// What a file's records need.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Change<'h> {
    Put(Sources, Value<'h>),
    Remove(u32),
}

/// The value of a data record. It is held.
#[derive(Debug)]
pub(crate) enum Value<'h> {
    /// Blocks that are reserved and not written.
    Reserved,
    /// All of the value of another record.
    Same { item: Item<'h>, shared: bool },
    /// Parts of the values of others.
    Parts { extents: Vec<Extent>, crcs: KeptCrcs, shared: bool, _held: Joined<'h> },
}

impl<'h> Value<'h> {
    fn of_parts(parts: Joined<'h>, shared: bool) -> Self {
        Self::Parts { extents: parts.extents(), crcs: parts.crcs(), shared, _held: parts }
    }

    /// The value for the record that refers to the same bytes. They are durable before that record counts.
    pub(crate) fn source(&self) -> Source<'_> {
        let (extents, shared, crc, list) = match self {
            Self::Reserved => return Source::None,
            Self::Same { item, shared } => match item.inline() {
                Some(bytes) => return Source::Bytes(bytes),
                None => (item.extents(), *shared, item.crcs(), item.list()),
            },
            Self::Parts { extents, crcs, shared, .. } => (&extents[..], *shared, Some(crcs.get()), None),
        };
        Source::Stored { extents, landed: &[], durable: true, shared, crc, list }
    }

    /// A copy of the bytes, if a record can refer to them, and they match their CRC-32C.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn copied(&self, heap: &Heap) -> Result<Option<Vec<u8>>, MediaError> {
        let source = self.source();
        let Source::Stored { extents, crc: Some(crcs), .. } = source else { return Ok(None) };
        let mut bytes = Vec::with_capacity(source.len() as usize);
        for extent in extents {
            bytes.extend_from_slice(&heap.pinned(*extent)?);
        }
        Ok((crc::of(&bytes) == crcs.whole()).then_some(bytes))
    }
}

/// Blocks that need a record, as they are now.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    part: Interval,
    /// Their bytes in the value of the record that has them.
    start: u64,
    end: u64,
    /// These bytes are the whole value.
    is_whole: bool,
    /// Other records may refer to these bytes.
    shared: bool,
    /// The bytes lie in frames, have a CRC-32C, are not shared, and are not known to be damaged.
    can_be_joined: bool,
    /// The bytes were read, and fail their checksum.
    is_damaged: bool,
}

impl Candidate {
    fn of(state: &State, part: Interval) -> Result<Self, FsError> {
        let Some(skip) = part.skip() else {
            return Ok(Self::reserved(part));
        };
        let view = state.heap.record(part.slot)?;
        let len = view.value_len() as u64;
        let start = u64::from(skip) * BLOCK_BYTES;
        let end = len.min(start + u64::from(part.blocks) * BLOCK_BYTES);
        let shared = state.tree.has_spread(part.slot) || view.is_shared();
        let is_inline = matches!(view.value(), ValuePlace::Inline(_));
        let can_be_joined = !shared && !is_inline && view.check().crc().is_some();
        let is_whole = start == 0 && end == len;
        Ok(Self { part, start, end, is_whole, shared, can_be_joined, is_damaged: false })
    }

    fn reserved(part: Interval) -> Self {
        let (start, end, is_whole) = (0, 0, false);
        Self { part, start, end, is_whole, shared: false, can_be_joined: false, is_damaged: false }
    }

    fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// True if one record within so many blocks may hold `next`, too. Only its last block may be short.
    fn joins(&self, next: &Self, blocks: u32) -> bool {
        let last = next.part.end() - 1;
        self.can_be_joined
            && next.can_be_joined
            && self.len() == u64::from(self.part.blocks) * BLOCK_BYTES
            && self.part.end() == u64::from(next.part.first)
            && u64::from(self.part.first / blocks) == last / u64::from(blocks)
    }

    /// The value of a record with these blocks and no others, unless they are a part of a value.
    fn as_it_is<'h>(&self, heap: &'h Heap) -> Result<Option<Value<'h>>, FsError> {
        let (slot, shared) = (self.part.slot, self.shared);
        if self.part.skip().is_none() {
            return Ok(Some(Value::Reserved));
        }
        if !self.is_whole {
            return Ok(None);
        }
        Ok(Some(Value::Same { item: Item::hold(heap, slot, &heap.record(slot)?)?, shared }))
    }

    fn hold<'h>(&self, heap: &'h Heap) -> Result<ItemPart<'h>, FsError> {
        let view = heap.record(self.part.slot)?;
        Ok(ItemPart::hold(heap, self.part.slot, &view, self.start as usize..self.end as usize)?)
    }

    /// True if the bytes, or others with which they share a checksum, do not match it.
    fn fails(&self, heap: &Heap) -> Result<bool, FsError> {
        let mut joined = Joined::new(heap, true);
        joined.take(self.hold(heap)?)?;
        Ok(joined.is_damaged())
    }

    /// The blocks that were found to be damaged apart from the others: they get records of their own, and reads of them
    /// fail.
    fn divided(&self, heap: &Heap) -> Result<Vec<Self>, FsError> {
        let mut divided: Vec<Self> = Vec::new();
        for block in u64::from(self.part.first)..self.part.end() {
            let start = self.start + (block - u64::from(self.part.first)) * BLOCK_BYTES;
            let end = self.end.min(start + BLOCK_BYTES);
            let part = self.part.part(&(block..block + 1));
            let one = Self { part, start, end, is_whole: false, ..*self };
            let is_damaged = one.fails(heap)?;
            match divided.last_mut() {
                Some(last) if last.is_damaged == is_damaged => {
                    last.end = end;
                    last.part.blocks += 1;
                }
                _ => {
                    divided.push(Self { is_damaged, can_be_joined: self.can_be_joined && !is_damaged, ..one })
                }
            }
        }
        // Whatever has failed does not count as good.
        if divided.iter().all(|part| !part.is_damaged) {
            divided = vec![Self { is_damaged: true, can_be_joined: false, ..*self }];
        }
        Ok(divided)
    }
}

/// Candidates in order, as many together as one record may hold.
fn together(all: &[Candidate]) -> impl Iterator<Item = &[Candidate]> {
    all.chunk_by(|one, next| one.joins(next, JOINED_BLOCKS)).flat_map(|some| {
        let len: u64 = some.iter().map(Candidate::len).sum();
        let is_between = len > u64::from(PIECE_BYTES_MAX) && len < PIECES_FROM;
        let blocks = if is_between { JOINED_BLOCKS_WHOLE } else { JOINED_BLOCKS };
        some.chunk_by(move |one, next| one.joins(next, blocks))
    })
}

/// Passes the record of neighbours, which one may hold, to `write`.
fn put<'h>(
    heap: &'h Heap,
    some: &[Candidate],
    write: &mut impl FnMut(Change<'h>) -> Result<(), FsError>,
) -> Result<(), FsError> {
    if let [one] = some
        && let Some(value) = one.as_it_is(heap)?
    {
        return write(Change::Put(smallvec![one.part], value));
    }
    // Without pieces, one checksum is for all: damage of one of them must not spread to the others.
    let verifies_all = some.iter().map(Candidate::len).sum::<u64>() < PIECES_FROM;
    let mut joined = Joined::new(heap, verifies_all);
    for (at, candidate) in some.iter().enumerate() {
        joined.take(candidate.hold(heap)?)?;
        if joined.is_damaged() && !candidate.is_damaged {
            let mut divided = some[..at].to_vec();
            divided.extend(candidate.divided(heap)?);
            divided.extend_from_slice(&some[at + 1..]);
            return together(&divided).try_for_each(|some| put(heap, some, write));
        }
    }
    let sources = some.iter().map(|candidate| candidate.part).collect();
    let shared = some.iter().any(|candidate| candidate.shared);
    write(Change::Put(sources, Value::of_parts(joined, shared)))
}

/// Passes what makes the published blocks of a file what the file has in the changed ranges to `write`.
pub(crate) fn write_changes<'h>(
    heap: &'h Heap,
    state: &State,
    file: InodeNumber,
    ranges: &[Range<u64>],
    mut write: impl FnMut(Change<'h>) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let mut done = 0;
    for range in ranges {
        let range = widened(state, file, range)?;
        let range = range.start.max(done)..range.end;
        if range.is_empty() {
            continue;
        }
        done = range.end;
        let data = state.tree.in_memory(file).and_then(Node::data);
        let (mut changed, mut firsts) = (Vec::new(), Vec::new());
        for part in data.into_iter().flat_map(|data| data.parts(range.clone())) {
            match stored_interval(state, file, part.first)? {
                Some(stored) if stored == part => firsts.push(part.first),
                _ => changed.push(Candidate::of(state, part)?),
            }
        }
        together(&changed).try_for_each(|some| {
            put(heap, some, &mut |change| {
                firsts.extend(change.put_from());
                write(change)
            })
        })?;
        firsts.sort_unstable();
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        let stored = state.stored.data_from(file, start).map(|(first, _)| first);
        let stored = stored.take_while(|first| u64::from(*first) < range.end);
        let superfluous = stored.filter(|first| firsts.binary_search(first).is_err());
        superfluous.map(Change::Remove).try_for_each(&mut write)?;
    }
    Ok(())
}

impl Change<'_> {
    /// The first block of a record to write.
    fn put_from(&self) -> Option<u32> {
        match self {
            Self::Put(sources, _) => Some(sources[0].first),
            Self::Remove(_) => None,
        }
    }
}

/// The blocks of the record that begins at a block.
fn stored_interval(state: &State, file: InodeNumber, first: u32) -> Result<Option<Interval>, FsError> {
    let Some(slot) = state.stored.data.get(&(file, first)).copied() else { return Ok(None) };
    let interval = interval_of(&state.heap.record(slot)?, first, slot);
    Ok(Some(interval.map_err(|what| HeapError::Damaged { slot, what })?))
}

/// A range that ends where records of the file end.
fn widened(state: &State, file: InodeNumber, range: &Range<u64>) -> Result<Range<u64>, FsError> {
    let mut wide = range.clone();
    let last = u32::try_from(range.end - 1).unwrap_or(u32::MAX);
    let first = u32::try_from(range.start).unwrap_or(u32::MAX);
    for block in [first, last] {
        let Some((before, _)) = state.stored.data_before(file, block) else { continue };
        if let Some(interval) = stored_interval(state, file, before)?
            && interval.end() > range.start
        {
            wide = wide.start.min(u64::from(before))..wide.end.max(interval.end());
        }
    }
    Ok(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_heap::SlotId;

    /// Neighbours of so many bytes each, written one by one.
    fn neighbours(first: u32, lens: &[u64]) -> Vec<Candidate> {
        let mut first = first;
        let mut all = Vec::new();
        for (at, len) in lens.iter().enumerate() {
            let blocks = len.div_ceil(BLOCK_BYTES) as u16;
            let part = Interval::written(first, blocks, SlotId(at as u32), 0);
            all.push(Candidate { end: *len, can_be_joined: true, ..Candidate::reserved(part) });
            first += u32::from(blocks);
        }
        all
    }

    fn counts(all: &[Candidate]) -> Vec<usize> {
        together(all).map(<[_]>::len).collect()
    }

    #[test]
    fn records_end_at_multiples_of_their_most_blocks() {
        assert_eq!(counts(&neighbours(0, &[16_384; 40])), [16, 16, 8]);
        assert_eq!(counts(&neighbours(60, &[16_384; 18])), [1, 16, 1]);
        assert_eq!(counts(&neighbours(0, &[24_576; 22])), [10, 1, 10, 1], "one is in both and stays alone");
    }

    #[test]
    fn what_is_too_short_for_pieces_is_no_longer_than_a_piece() {
        assert_eq!(counts(&neighbours(0, &[16_384; 4])), [4]);
        assert_eq!(counts(&neighbours(0, &[16_384; 7])), [4, 3]);
        assert_eq!(counts(&neighbours(0, &[16_384; 8])), [8], "128 KiB are in pieces");
    }

    #[test]
    fn what_follows_a_short_block_or_is_shared_or_apart_is_not_joined() {
        assert_eq!(counts(&neighbours(0, &[4096, 5000, 4096, 100])), [2, 2]);
        let mut all = neighbours(0, &[4096; 4]);
        all[1].can_be_joined = false;
        assert_eq!(counts(&all), [1, 1, 2]);
        let mut all = neighbours(0, &[4096; 4]);
        all[3].part = all[3].part.at(9);
        assert_eq!(counts(&all), [3, 1]);
    }
}
