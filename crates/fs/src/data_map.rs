//! Where the blocks of a file are: a map from blocks to the records that hold them.

use crate::ranges::Ranges;
use landfall_heap::SlotId;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a block, the grain of a file's data.
pub const BLOCK_BYTES: u64 = 4096;
/// Most blocks in one record of data: 64 pieces of 64 KiB.
pub const RECORD_BLOCKS_MAX: u16 = 1024;

/// Most blocks of a file.
pub(crate) const BLOCKS_MAX: u64 = 1 << 32;
/// Most blocks of an interval of reserved blocks.
const RESERVED_BLOCKS_MAX: u16 = 1 << 15;

/// True if an offset is at the start of a block.
pub(crate) fn is_aligned(offset: u64) -> bool {
    offset.is_multiple_of(BLOCK_BYTES)
}

/// `skip` of an interval whose blocks are reserved and not written.
const UNWRITTEN: u16 = u16::MAX;

/// Consecutive blocks of a file that lie one behind the other in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First block in the file.
    pub first: u32,
    /// Number of blocks, at least 1.
    pub blocks: u16,
    /// Blocks of the record's value before the first one; see [`Self::skip`].
    skip: u16,
    /// The record: of data, or of an operation that is not published. [`SlotId::NONE`] for blocks that are not written.
    pub slot: SlotId,
}

impl Interval {
    /// Blocks that lie in the value of `slot`, behind `skip` others.
    ///
    /// # Panics
    /// If there are no blocks, or the value would be longer than [`RECORD_BLOCKS_MAX`].
    pub fn written(first: u32, blocks: u16, slot: SlotId, skip: u16) -> Self {
        assert!(blocks > 0 && blocks <= RECORD_BLOCKS_MAX && skip <= RECORD_BLOCKS_MAX - blocks);
        Self { first, blocks, skip, slot }
    }

    /// Blocks that are reserved and not written.
    ///
    /// # Panics
    /// If there are no blocks.
    pub fn unwritten(first: u32, blocks: u16) -> Self {
        assert!(blocks > 0);
        Self { first, blocks, skip: UNWRITTEN, slot: SlotId::NONE }
    }

    /// Blocks of the record's value before this interval's; `None` for blocks that are not written.
    pub fn skip(&self) -> Option<u16> {
        (self.skip != UNWRITTEN).then_some(self.skip)
    }

    /// The block behind the last one.
    pub fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.blocks)
    }

    /// The same blocks at another place in a file.
    pub(crate) fn at(self, first: u32) -> Self {
        Self { first, ..self }
    }

    /// The part within `range`, which it must touch.
    pub(crate) fn part(&self, range: &Range<u64>) -> Self {
        let first = u64::from(self.first).max(range.start);
        let before = (first - u64::from(self.first)) as u16;
        let blocks = (self.end().min(range.end) - first) as u16;
        let skip = self.skip().map_or(UNWRITTEN, |skip| skip + before);
        Self { first: first as u32, blocks, skip, slot: self.slot }
    }

    /// True if `next` continues this interval, in the file and in the record.
    fn continues_in(&self, next: &Self) -> bool {
        let follows = match (self.skip(), next.skip()) {
            (Some(skip), Some(behind)) => skip + self.blocks == behind,
            (None, None) => true,
            _ => false,
        };
        follows && self.slot == next.slot && self.end() == u64::from(next.first)
    }
}

/// What a change has taken out of a map.
pub type Removed = Vec<Interval>;

/// The value of an interval in the map.
#[derive(Clone, Copy, Debug)]
struct Place {
    blocks: u16,
    skip: u16,
    slot: SlotId,
}

/// The blocks of a file. Blocks that no interval has are holes. Intervals do not overlap.
#[derive(Clone, Debug, Default)]
pub struct DataMap {
    by_first: BTreeMap<u32, Place>,
    /// Number of all blocks.
    blocks: u64,
    /// Blocks that were changed since [`Self::take_changes`].
    changed: Ranges,
}

/// Blocks of one record that another one holds now, with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) old: SlotId,
    /// Blocks of the old value before the ones that the new record holds.
    pub(crate) skip: u16,
    pub(crate) blocks: u16,
    pub(crate) new: SlotId,
    /// Blocks of the new value before them.
    pub(crate) new_skip: u16,
}

impl Replaced {
    /// All blocks of a record that was moved.
    pub(crate) fn moved(old: SlotId, new: SlotId) -> Self {
        Self { old, skip: 0, blocks: RECORD_BLOCKS_MAX, new, new_skip: 0 }
    }

    /// The blocks of `part` that the new record holds, and what they are now.
    fn of(&self, part: Interval) -> Option<Interval> {
        let skip = part.skip().filter(|_| part.slot == self.old)?;
        let (start, end) = (skip.max(self.skip), (skip + part.blocks).min(self.skip + self.blocks));
        let first = part.first + u32::from(start.saturating_sub(skip));
        (start < end)
            .then(|| Interval::written(first, end - start, self.new, start - self.skip + self.new_skip))
    }
}

impl DataMap {
    /// The blocks that records on the medium hold.
    pub(crate) fn of_stored(intervals: impl IntoIterator<Item = Interval>) -> Self {
        let mut map = Self::default();
        intervals.into_iter().for_each(|interval| drop(map.place(interval)));
        map
    }

    /// Number of intervals.
    pub fn len(&self) -> usize {
        self.by_first.len()
    }

    /// True if all of the file is a hole.
    pub fn is_empty(&self) -> bool {
        self.by_first.is_empty()
    }

    /// All intervals that have blocks in `range`, as a whole, in order.
    fn touching(&self, range: Range<u64>) -> impl Iterator<Item = Interval> + '_ {
        let first = u32::try_from(range.start).unwrap_or(u32::MAX);
        // An interval that begins before the range may reach into it.
        let from = self.by_first.range(..=first).next_back().map_or(first, |(before, _)| *before);
        self.by_first
            .range(from..)
            .map(|(first, place)| interval(*first, *place))
            .skip_while(move |interval| interval.end() <= range.start)
            .take_while(move |interval| u64::from(interval.first) < range.end)
    }

    /// The parts of intervals that lie in `range`, in order.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Interval> + '_ {
        self.touching(range.clone()).map(move |interval| interval.part(&range))
    }

    /// The interval with this block.
    pub fn get(&self, block: u32) -> Option<Interval> {
        let range = u64::from(block)..u64::from(block) + 1;
        self.touching(range).next()
    }

    /// Takes the blocks of `range` out. Returns what they were.
    pub fn remove(&mut self, range: Range<u64>) -> Removed {
        let removed = self.take(range);
        removed.iter().for_each(|part| self.changed.add(u64::from(part.first)..part.end()));
        removed
    }

    fn take(&mut self, range: Range<u64>) -> Removed {
        if range.is_empty() {
            return Removed::new();
        }
        let whole: Vec<Interval> = self.touching(range.clone()).collect();
        for interval in &whole {
            self.pull(interval.first);
            let sides = [u64::from(interval.first)..range.start, range.end..interval.end()];
            for side in sides.iter().filter(|side| !side.is_empty()) {
                self.put(interval.part(side));
            }
        }
        whole.iter().map(|interval| interval.part(&range)).collect()
    }

    /// Puts an interval in the place of what its blocks were, which is returned. Neighbours that continue it in the same
    /// record become one interval with it.
    pub fn insert(&mut self, interval: Interval) -> Removed {
        self.changed.add(u64::from(interval.first)..interval.end());
        self.place(interval)
    }

    fn place(&mut self, interval: Interval) -> Removed {
        let removed = self.take(u64::from(interval.first)..interval.end());
        let mut joined = interval;
        let before = self.by_first.range(..interval.first).next_back().map(|(first, place)| (*first, *place));
        if let Some((first, place)) = before
            && let before = self::interval(first, place)
            && before.continues_in(&joined)
            && let Some(blocks) = before.blocks.checked_add(joined.blocks)
        {
            self.pull(first);
            joined = Interval { blocks, ..before };
        }
        let behind = u32::try_from(joined.end()).ok();
        if let Some(first) = behind
            && let Some(place) = self.by_first.get(&first)
            && joined.continues_in(&self::interval(first, *place))
            && let Some(blocks) = joined.blocks.checked_add(place.blocks)
        {
            self.pull(first);
            joined.blocks = blocks;
        }
        self.put(joined);
        removed
    }

    fn put(&mut self, interval: Interval) {
        let place = Place { blocks: interval.blocks, skip: interval.skip, slot: interval.slot };
        self.blocks += u64::from(place.blocks);
        self.by_first.insert(interval.first, place);
    }

    fn pull(&mut self, first: u32) {
        let place = self.by_first.remove(&first);
        self.blocks -= place.map_or(0, |place| u64::from(place.blocks));
    }

    /// Blocks of `range` that are in a record which another one replaces refer to the new one. That is no change.
    pub(crate) fn replace(&mut self, range: Range<u64>, replaced: &Replaced) {
        let parts: Vec<Interval> = self.parts(range).filter_map(|part| replaced.of(part)).collect();
        parts.into_iter().for_each(|part| drop(self.place(part)));
    }

    /// The blocks that were changed since the last call, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<Range<u64>> {
        self.changed.take()
    }

    /// Notes blocks as changed whose change was not published.
    pub(crate) fn note_changes(&mut self, ranges: &[Range<u64>]) {
        ranges.iter().for_each(|range| self.changed.add(range.clone()));
    }

    /// Reserves those blocks of `range` that are holes.
    pub fn reserve(&mut self, range: Range<u64>) {
        let mut next = range.start;
        let parts: Vec<Interval> = self.parts(range.clone()).collect();
        for (start, end) in
            parts.iter().map(|part| (u64::from(part.first), part.end())).chain([(range.end, 0)])
        {
            while next < start {
                let blocks = (start - next).min(u64::from(RESERVED_BLOCKS_MAX)) as u16;
                self.insert(Interval::unwritten(next as u32, blocks));
                next += u64::from(blocks);
            }
            next = end;
        }
    }

    /// Takes out the blocks of `range`, and moves everything behind it to its start.
    pub fn collapse(&mut self, range: &Range<u64>) -> Removed {
        let removed = self.remove(range.clone());
        let behind = self.remove(range.end..BLOCKS_MAX);
        let shift = (range.end - range.start) as u32;
        behind.into_iter().for_each(|part| drop(self.insert(part.at(part.first - shift))));
        removed
    }

    /// Moves everything from the start of `range` on to its end. The caller has made sure that it fits.
    pub fn open_hole(&mut self, range: &Range<u64>) {
        let shift = (range.end - range.start) as u32;
        for part in self.remove(range.start..BLOCKS_MAX) {
            self.insert(part.at(part.first + shift));
        }
    }

    /// The first block at or behind `from` that is written (`SEEK_DATA`).
    pub fn next_data(&self, from: u32) -> Option<u32> {
        let range = u64::from(from)..BLOCKS_MAX;
        let part = self.parts(range).find(|part| part.skip().is_some());
        part.map(|part| part.first)
    }

    /// The first block at or behind `from` that is not written (`SEEK_HOLE`). It may lie behind the end of the file.
    pub fn next_hole(&self, from: u32) -> u64 {
        let mut next = u64::from(from);
        let range = next..BLOCKS_MAX;
        for part in self.parts(range) {
            if u64::from(part.first) != next || part.skip().is_none() {
                break;
            }
            next = part.end();
        }
        next
    }

    /// True if a block is written.
    pub(crate) fn is_written(&self, block: u32) -> bool {
        self.get(block).is_some_and(|interval| interval.skip().is_some())
    }

    /// Number of blocks that are written or reserved.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

fn interval(first: u32, place: Place) -> Interval {
    Interval { first, blocks: place.blocks, skip: place.skip, slot: place.slot }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks of the files in these tests.
    const FILE_BLOCKS: u32 = 48;

    /// What a block is: its record, and its place in the record's value, if it is written.
    type Block = Option<(SlotId, Option<u16>)>;

    fn blocks_of(interval: &Interval) -> impl Iterator<Item = (u32, Block)> + '_ {
        (0..interval.blocks).map(|at| {
            let place = interval.skip().map(|skip| skip + at);
            (interval.first + u32::from(at), Some((interval.slot, place)))
        })
    }

    /// A file as a list of its blocks.
    #[derive(Debug)]
    struct Model(Vec<Block>);

    impl Model {
        fn replace(&mut self, blocks: impl Iterator<Item = (u32, Block)>) -> Vec<(u32, Block)> {
            let old = blocks.map(|(at, new)| (at, std::mem::replace(&mut self.0[at as usize], new)));
            old.filter(|(_, old)| old.is_some()).collect()
        }

        fn first(&self, from: u32, is_wanted: impl Fn(&Block) -> bool) -> Option<u32> {
            (from..FILE_BLOCKS).find(|at| is_wanted(&self.0[*at as usize]))
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Interval),
        Remove(Range<u64>),
        Reserve(Range<u64>),
        Collapse(Range<u64>),
        Open(Range<u64>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let span = (0..FILE_BLOCKS).prop_flat_map(|first| (Just(first), 1..=(FILE_BLOCKS - first) as u16));
        let insert = (span.clone(), 0..4_u32, 0..4_u16, prop::bool::weighted(0.2)).prop_map(
            |((first, blocks), slot, skip, is_reserved)| {
                Step::Insert(if is_reserved {
                    Interval::unwritten(first, blocks)
                } else {
                    Interval::written(first, blocks, SlotId(slot), skip)
                })
            },
        );
        let range = span.prop_map(|(first, blocks)| u64::from(first)..u64::from(first) + u64::from(blocks));
        let reserve = range.clone().prop_map(Step::Reserve);
        prop_oneof![
            6 => insert,
            2 => range.clone().prop_map(Step::Remove),
            2 => reserve,
            1 => range.clone().prop_map(Step::Collapse),
            1 => range.prop_map(Step::Open),
        ]
    }

    fn is_written(block: &Block) -> bool {
        matches!(block, Some((_, Some(_))))
    }

    proptest! {
        /// Every change, and every question, agrees with a plain list of blocks.
        #[test]
        fn a_map_is_a_list_of_blocks(steps in prop::collection::vec(step(), 1..40), from in 0..FILE_BLOCKS) {
            let mut map = DataMap::default();
            let mut model = Model(vec![None; FILE_BLOCKS as usize]);
            for step in steps {
                let (removed, expected) = match step {
                    Step::Insert(interval) => (map.insert(interval), model.replace(blocks_of(&interval))),
                    Step::Remove(range) => {
                        let gone = (range.start as u32..range.end as u32).map(|at| (at, None));
                        (map.remove(range), model.replace(gone))
                    }
                    Step::Reserve(range) => {
                        let within = &mut model.0[range.start as usize..range.end as usize];
                        let holes = within.iter_mut().filter(|block| block.is_none());
                        holes.for_each(|block| *block = Some((SlotId::NONE, None)));
                        map.reserve(range);
                        Default::default()
                    }
                    Step::Collapse(range) => {
                        let gone: Vec<_> = model.0.drain(range.start as usize..range.end as usize).collect();
                        model.0.resize(FILE_BLOCKS as usize, None);
                        let gone = (range.start as u32..).zip(gone).filter(|(_, block)| block.is_some());
                        (map.collapse(&range), gone.collect())
                    }
                    Step::Open(range) => {
                        map.open_hole(&range);
                        let holes = range.clone().map(|_| None);
                        model.0.splice(range.start as usize..range.start as usize, holes);
                        model.0.truncate(FILE_BLOCKS as usize);
                        map.remove(u64::from(FILE_BLOCKS)..BLOCKS_MAX);
                        Default::default()
                    }
                };
                let removed: Vec<_> = removed.iter().flat_map(blocks_of).collect();
                prop_assert_eq!(removed, expected);
                let all: Vec<_> = map.parts(0..u64::from(FILE_BLOCKS)).collect();
                let is_apart = |pair: &[Interval]| !pair[0].continues_in(&pair[1]);
                prop_assert!(all.windows(2).all(|pair| pair[0].end() <= u64::from(pair[1].first)));
                prop_assert!(all.len() == map.len() && map.is_empty() == all.is_empty());
                prop_assert!(all.windows(2).all(is_apart), "neighbours are joined: {:?}", all);
                let mut listed = vec![None; FILE_BLOCKS as usize];
                all.iter().flat_map(blocks_of).for_each(|(at, block)| listed[at as usize] = block);
                prop_assert_eq!(&listed, &model.0);
            }
            prop_assert_eq!(map.blocks(), model.0.iter().flatten().count() as u64);
            prop_assert_eq!(map.get(from).is_some(), model.0[from as usize].is_some());
            prop_assert_eq!(map.next_data(from), model.first(from, is_written));
            let hole = model.first(from, |block| !is_written(block)).unwrap_or(FILE_BLOCKS);
            prop_assert_eq!(map.next_hole(from), u64::from(hole));
            prop_assert_eq!(map.blocks(), model.0.iter().flatten().count() as u64);
        }
    }

    #[test]
    fn the_last_block_of_the_largest_file_has_a_place() {
        let mut map = DataMap::default();
        let last = Interval::written(u32::MAX, 1, SlotId(7), 3);
        assert_eq!(map.insert(last), []);
        assert_eq!(map.get(u32::MAX), Some(last));
        assert_eq!((map.next_data(0), map.next_hole(u32::MAX)), (Some(u32::MAX), 1 << 32));
        assert_eq!(map.remove(0..1 << 32), [last]);
        assert!(map.is_empty());
    }

    #[test]
    fn an_interval_takes_sixteen_bytes_at_most() {
        assert!(size_of::<u32>() + size_of::<Place>() <= 16);
    }
}
