//! The point index of a shard: eight bytes a key, one cache line for most lookups.
//!
//! Open addressing with linear probing (Knuth, TAOCP vol. 3, 6.4, algorithms L and R). It replaces `hashbrown`, which
//! keeps its control bytes apart: a lookup misses two cache lines instead of one, and neither can be prefetched.
//! `docs/results/kv/index-structures.md` has the measurements.

use landfall_heap::SlotId;

/// An index entry. The record in `slot` holds the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The tag in the upper bits. The lower bits count the stale records of keys with this tag, as far as the count
    /// fits.
    bits: u32,
    pub(crate) slot: SlotId,
}

/// Bits of an entry's count.
const COUNT_BITS: u32 = 5;
/// The highest count an entry holds.
pub(crate) const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

impl Entry {
    /// A vacant place. No record has this slot.
    const VACANT: Self = Self { bits: 0, slot: SlotId::NONE };

    pub(crate) fn new(tag: u32, count: u32, slot: SlotId) -> Self {
        debug_assert!(count <= COUNT_MAX && slot != SlotId::NONE);
        Self { bits: tag << COUNT_BITS | count, slot }
    }

    fn is_vacant(self) -> bool {
        self.slot == SlotId::NONE
    }

    pub(crate) fn tag(self) -> u32 {
        self.bits >> COUNT_BITS
    }

    pub(crate) fn count(self) -> u32 {
        self.bits & COUNT_MAX
    }

    /// Counts one more stale record, unless the count is at its maximum.
    pub(crate) fn count_one(&mut self) -> bool {
        let has_room = self.count() < COUNT_MAX;
        self.bits += u32::from(has_room);
        has_room
    }

    /// Counts one stale record less.
    pub(crate) fn discount_one(&mut self) {
        debug_assert!(self.count() > 0);
        self.bits -= 1;
    }
}

/// The bits of a key hash that the index keeps; the shard number comes from the others.
pub(crate) fn tag(hash: u64) -> u32 {
    (hash >> (32 + COUNT_BITS)) as u32
}

/// Spreads a tag over all bits of a word.
pub(crate) fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Denominator of the load factor: at most [`LOAD_MAX`] of 5 places are taken.
const LOAD_PLACES: usize = 5;
/// Numerator of the load factor. At this load a lookup probes 13 places on average for an absent key, 3 for a present
/// one.
const LOAD_MAX: usize = 4;
/// Fewest places of a table that is not empty.
const PLACES_MIN: usize = 16;

/// Entries by tag. Several entries may have the same tag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    places: Vec<Entry>,
    taken: usize,
}

impl Table {
    /// An empty table with room for `entries` entries.
    pub(crate) fn with_room(entries: usize) -> Self {
        Self { places: vec![Entry::VACANT; places_for(entries)], taken: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Memory that the table uses, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(self.places.as_slice()) as u64
    }

    /// Every entry, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.places.iter().copied().filter(|entry| !entry.is_vacant())
    }

    /// The first place to probe for a tag. The spread tag, divided by 2^64, is a fraction; the home is the place at
    /// that fraction of the table, whatever its size.
    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u128::from(spread(tag)) * self.places.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }

    /// The address that a lookup of this tag reads first, for prefetching only.
    #[inline]
    pub(crate) fn home_addr(&self, tag: u32) -> Option<usize> {
        self.places.get(self.home(tag)).map(|first| std::ptr::from_ref(first).addr())
    }

    /// Places that hold entries of this tag, in probe order.
    #[inline]
    fn places_of(&self, tag: u32) -> impl Iterator<Item = usize> + '_ {
        let mut next = self.home(tag);
        std::iter::from_fn(move || {
            loop {
                let (place, entry) = (next, *self.places.get(next)?);
                if entry.is_vacant() {
                    return None;
                }
                next = self.after(place);
                if entry.tag() == tag {
                    return Some(place);
                }
            }
        })
    }

    /// Entries of this tag.
    #[inline]
    pub(crate) fn of(&self, tag: u32) -> impl Iterator<Item = Entry> + '_ {
        self.places_of(tag).map(|place| self.places[place])
    }

    /// The first entry of this tag for which `predicate` is true. The caller must not change its tag.
    #[inline]
    pub(crate) fn find_mut(&mut self, tag: u32, predicate: impl Fn(&Entry) -> bool) -> Option<&mut Entry> {
        let place = self.places_of(tag).find(|place| predicate(&self.places[*place]))?;
        Some(&mut self.places[place])
    }

    /// Adds an entry; others may have the same tag.
    pub(crate) fn insert(&mut self, entry: Entry) {
        if places_for(self.taken + 1) > self.places.len() {
            // Grows by half, so that unused memory stays below half of the used.
            self.resize((self.taken + 1) * 3 / 2);
        }
        self.put(entry);
    }

    /// Removes the entry with this tag and slot.
    pub(crate) fn remove(&mut self, tag: u32, slot: SlotId) -> Option<Entry> {
        let mut hole = self.places_of(tag).find(|place| self.places[*place].slot == slot)?;
        let removed = self.places[hole];
        self.taken -= 1;
        // An entry behind the hole moves into it if its lookup would otherwise stop at the hole.
        let mut place = self.after(hole);
        while !self.places[place].is_vacant() {
            if self.may_move(self.places[place], place, hole) {
                self.places[hole] = self.places[place];
                hole = place;
            }
            place = self.after(place);
        }
        self.places[hole] = Entry::VACANT;
        Some(removed)
    }

    /// True if a lookup of the entry at `place` probes `hole` first.
    fn may_move(&self, entry: Entry, place: usize, hole: usize) -> bool {
        let home = self.home(entry.tag());
        let from_home = |at: usize| if at >= home { at - home } else { at + self.places.len() - home };
        from_home(hole) < from_home(place)
    }

    /// Frees memory that the entries do not need.
    pub(crate) fn shrink(&mut self) {
        if self.places.len() > places_for(self.taken) {
            self.resize(self.taken);
        }
    }

    /// Rehashes all entries into a table with room for `entries`.
    fn resize(&mut self, entries: usize) {
        let old = std::mem::replace(self, Self::with_room(entries));
        old.iter().for_each(|entry| self.put(entry));
    }

    /// Puts an entry into the first vacant place from its home on. The table must have one.
    fn put(&mut self, entry: Entry) {
        let mut place = self.home(entry.tag());
        while !self.places[place].is_vacant() {
            place = self.after(place);
        }
        self.places[place] = entry;
        self.taken += 1;
    }
}

/// Places of a table with room for `entries` entries. At least one place stays vacant, because a vacant place ends a
/// lookup.
const fn places_for(entries: usize) -> usize {
    if entries == 0 {
        return 0;
    }
    let places = entries * LOAD_PLACES / LOAD_MAX + 1;
    if places < PLACES_MIN { PLACES_MIN } else { places }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u32),
        Remove(prop::sample::Index),
        Count(prop::sample::Index),
        Shrink,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        // Few tags, some with neighbouring homes: probe sequences overlap and wrap around.
        let op = prop_oneof![
            6 => (0..40_u32).prop_map(Op::Insert),
            4 => any::<prop::sample::Index>().prop_map(Op::Remove),
            2 => any::<prop::sample::Index>().prop_map(Op::Count),
            1 => Just(Op::Shrink),
        ];
        prop::collection::vec(op, 0..400)
    }

    fn sorted(entries: impl Iterator<Item = Entry>) -> Vec<(u32, u32, u32)> {
        let mut all: Vec<_> = entries.map(|entry| (entry.tag(), entry.slot.0, entry.count())).collect();
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn table_matches_a_list(ops in ops()) {
            let (mut table, mut model, mut slot) = (Table::default(), Vec::<Entry>::new(), 0);
            for op in ops {
                match op {
                    Op::Insert(tag) => {
                        slot += 1;
                        let entry = Entry::new(tag, 0, SlotId(slot));
                        table.insert(entry);
                        model.push(entry);
                    }
                    Op::Remove(which) if !model.is_empty() => {
                        let entry = model.swap_remove(which.index(model.len()));
                        prop_assert_eq!(table.remove(entry.tag(), entry.slot), Some(entry));
                        prop_assert_eq!(table.remove(entry.tag(), entry.slot), None);
                    }
                    Op::Count(which) if !model.is_empty() => {
                        let at = which.index(model.len());
                        let entry = model[at];
                        let found = table.find_mut(entry.tag(), |it| it.slot == entry.slot).unwrap();
                        prop_assert_eq!(found.count_one(), model[at].count_one());
                    }
                    Op::Shrink => table.shrink(),
                    Op::Remove(_) | Op::Count(_) => {}
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(sorted(table.iter()), sorted(model.iter().copied()));
                for tag in 0..41 {
                    let same = model.iter().copied().filter(|entry| entry.tag() == tag);
                    prop_assert_eq!(sorted(table.of(tag)), sorted(same));
                }
            }
        }
    }

    #[test]
    fn an_empty_table_takes_no_memory_and_finds_nothing() {
        let mut table = Table::default();
        assert_eq!(table.home_addr(7), None);
        assert_eq!((table.memory_bytes(), table.of(7).count()), (0, 0));
        assert_eq!((table.remove(7, SlotId(1)), table.find_mut(7, |_| true)), (None, None));
        table.insert(Entry::new(7, 3, SlotId(1)));
        assert_eq!(table.remove(7, SlotId(1)).map(Entry::count), Some(3));
        table.shrink();
        assert_eq!(table.memory_bytes(), 0);
    }

    #[test]
    fn lookups_probe_few_places_and_little_memory_is_unused() {
        let mut table = Table::default();
        // Uniform, as hashes of keys are (the finalizer of splitmix64).
        let tag_of = |key: u64| {
            let mixed = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            tag(mixed ^ mixed >> 31)
        };
        for key in 0..100_000_u32 {
            table.insert(Entry::new(tag_of(u64::from(key)), 0, SlotId(key + 1)));
        }
        assert!(table.memory_bytes() <= 8 * 100_000 * 2, "{} bytes", table.memory_bytes());
        table.shrink();
        assert!(table.memory_bytes() <= 8 * 125_001, "{} bytes", table.memory_bytes());
        let distance = |place: usize, tag: u32| {
            let home = table.home(tag);
            (place + table.places.len() - home) % table.places.len() + 1
        };
        let met: usize = (0..100_000_u32)
            .map(|key| {
                let tag = tag_of(u64::from(key));
                let mut places = table.places_of(tag);
                distance(places.find(|place| table.places[*place].slot.0 == key + 1).unwrap(), tag)
            })
            .sum();
        assert!(met <= 4 * 100_000, "{met} places for 100,000 lookups");
    }
}
