//! Stale counts: how many records of a name are on the medium and not current. A name's tombstone stays while its count
//! is not 0. The rules, and why no deleted version reappears: `docs/format/commit.md`, "Deletes".

use crate::heap::Heap;
use crate::layout::SlotId;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for names, which are hashes or parts of hashes: a multiplication spreads them over all bits.
#[derive(Default)]
struct Product(u64);

impl Hasher for Product {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Counts that an index keeps in its entries, as far as there is room.
pub trait InlineCounts {
    /// Adds one to the count of this name, if there is room.
    fn count_one(&mut self, name: u64) -> bool;

    /// Subtracts one from the count of this name, if it is not 0.
    fn discount_one(&mut self, name: u64) -> bool;

    /// True if the count of this name is not 0.
    fn counts_any(&self, name: u64) -> bool;
}

/// An index without counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoInlineCounts;

impl InlineCounts for NoInlineCounts {
    fn count_one(&mut self, _: u64) -> bool {
        false
    }

    fn discount_one(&mut self, _: u64) -> bool {
        false
    }

    fn counts_any(&self, _: u64) -> bool {
        false
    }
}

/// Counts of stale records by name. Several keys may share a name. Their tombstones may then stay longer than
/// necessary, never shorter.
#[derive(Debug, Default)]
pub struct StaleCounts {
    /// Counts for which the index has no room.
    spilled: HashMap<u64, u32, BuildHasherDefault<Product>>,
    total: u64,
    /// Names of copies that the compactor has announced. An announced copy counts as stale until it is made or
    /// cancelled. A flush drops the announcements together with the counts.
    announced: Vec<u64>,
}

impl StaleCounts {
    /// Number of all stale records.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// True while the medium holds stale records of this name.
    pub fn has(&self, name: u64, inline: &impl InlineCounts) -> bool {
        inline.counts_any(name) || self.spilled.contains_key(&name)
    }

    /// Adds a stale record.
    #[inline]
    pub fn add(&mut self, name: u64, inline: &mut impl InlineCounts) {
        let is_counted = inline.count_one(name);
        self.add_counted(name, is_counted);
    }

    /// Adds a stale record. `is_counted`: the index has counted it; otherwise it has no room.
    #[inline]
    pub fn add_counted(&mut self, name: u64, is_counted: bool) {
        self.total += 1;
        if !is_counted {
            self.spill(name, 1);
        }
    }

    /// Removes a stale record. True if none of the name is left.
    pub fn remove(&mut self, name: u64, inline: &mut impl InlineCounts) -> bool {
        if !inline.discount_one(name) && self.take(name, 1) == 0 {
            return false;
        }
        self.total -= 1;
        !self.has(name, inline)
    }

    /// Counts a copy that is about to be made. A tombstone that is written meanwhile must outlive it.
    pub fn announce(&mut self, name: u64, inline: &mut impl InlineCounts) {
        self.add(name, inline);
        self.announced.push(name);
    }

    /// An announced copy was made. Either the original or the copy is stale now, so the count stays. False if the
    /// counts were dropped meanwhile.
    pub fn settle(&mut self, name: u64) -> bool {
        let known = self.announced.iter().rposition(|announced| *announced == name);
        known.map(|at| self.announced.swap_remove(at)).is_some()
    }

    /// An announced copy was not made. True if no stale record of the name is left.
    pub fn withdraw(&mut self, name: u64, inline: &mut impl InlineCounts) -> bool {
        self.settle(name) && self.remove(name, inline)
    }

    /// Takes over the count of an entry that leaves the index.
    pub fn spill(&mut self, name: u64, count: u32) {
        if count > 0 {
            *self.spilled.entry(name).or_insert(0) += count;
        }
    }

    /// Hands up to `most` of a spilled count to an entry of the index. Returns the amount.
    pub fn take(&mut self, name: u64, most: u32) -> u32 {
        if self.spilled.is_empty() {
            return 0;
        }
        let Some(spilled) = self.spilled.get_mut(&name) else { return 0 };
        let taken = (*spilled).min(most);
        *spilled -= taken;
        if *spilled == 0 {
            self.spilled.remove(&name);
        }
        taken
    }

    /// Drops the spilled count of a name.
    pub fn forget(&mut self, name: u64) {
        self.total -= u64::from(self.take(name, u32::MAX));
    }

    /// Estimate of the DRAM that the counts take, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.spilled.capacity() as u64 * 17
    }
}

impl Heap {
    /// Retires a tombstone that no stale record needs any more. False if the tombstone is not durable yet. A retired
    /// tombstone is itself a stale record.
    pub fn retire_tombstone(&self, slot: SlotId) -> bool {
        let is_durable = self.pending(slot).is_none();
        if is_durable {
            self.drop_record(slot);
        }
        is_durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// An index with room for [`ROOM`] counts of each even name.
    #[derive(Default)]
    struct Room(BTreeMap<u64, u32>);

    const ROOM: u32 = 3;

    impl InlineCounts for Room {
        fn count_one(&mut self, name: u64) -> bool {
            let count = self.0.entry(name).or_default();
            let has_room = name.is_multiple_of(2) && *count < ROOM;
            *count += u32::from(has_room);
            has_room
        }

        fn discount_one(&mut self, name: u64) -> bool {
            let count = self.0.entry(name).or_default();
            let counts_any = *count > 0;
            *count -= u32::from(counts_any);
            counts_any
        }

        fn counts_any(&self, name: u64) -> bool {
            self.0.get(&name).is_some_and(|count| *count > 0)
        }
    }

    #[test]
    fn removing_the_last_stale_record_of_a_name_is_reported_and_an_uncounted_one_is_ignored() {
        let mut stale = StaleCounts::default();
        assert!(!stale.remove(1, &mut NoInlineCounts), "never counted");
        stale.add(1, &mut NoInlineCounts);
        stale.add(1, &mut NoInlineCounts);
        stale.add(2, &mut NoInlineCounts);
        assert!(!stale.remove(1, &mut NoInlineCounts) && stale.has(1, &NoInlineCounts));
        assert!(stale.remove(1, &mut NoInlineCounts) && !stale.has(1, &NoInlineCounts));
        assert_eq!(stale.total(), 1);
        stale.forget(2);
        assert_eq!((stale.total(), stale.has(2, &NoInlineCounts)), (0, false));
    }

    #[test]
    fn a_copy_counts_from_its_announcement_and_only_as_long_as_the_counts_that_it_is_part_of() {
        let mut stale = StaleCounts::default();
        stale.announce(1, &mut NoInlineCounts);
        assert!(stale.has(1, &NoInlineCounts));
        assert!(stale.withdraw(1, &mut NoInlineCounts), "it was the only one");
        stale.announce(1, &mut NoInlineCounts);
        assert!(stale.settle(1) && stale.has(1, &NoInlineCounts), "made: the original is stale instead");
        stale.announce(1, &mut NoInlineCounts);
        // A flush drops everything. The count added afterwards is not that of the copy.
        stale = StaleCounts::default();
        stale.add(1, &mut NoInlineCounts);
        assert!(!stale.withdraw(1, &mut NoInlineCounts) && stale.has(1, &NoInlineCounts));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add,
        Remove,
        Announce,
        Settle,
        Withdraw,
        /// The entry of the name leaves the index.
        Leave,
        /// The entry of the name returns to the index.
        Enter,
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
        let step = prop_oneof![
            4 => Just(Step::Add),
            4 => Just(Step::Remove),
            1 => Just(Step::Announce),
            1 => Just(Step::Settle),
            1 => Just(Step::Withdraw),
            1 => Just(Step::Leave),
            1 => Just(Step::Enter),
        ];
        proptest::collection::vec((0_u64..4, step), 0..300)
    }

    proptest! {
        #[test]
        fn a_count_is_additions_less_removals_wherever_it_is_kept(steps in steps()) {
            let (mut stale, mut room) = (StaleCounts::default(), Room::default());
            let mut model: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
            for (name, step) in steps {
                let (count, announced) = model.entry(name).or_default();
                match step {
                    Step::Add => {
                        stale.add(name, &mut room);
                        *count += 1;
                    }
                    Step::Remove => {
                        prop_assert_eq!(stale.remove(name, &mut room), *count == 1);
                        *count = count.saturating_sub(1);
                    }
                    Step::Announce => {
                        stale.announce(name, &mut room);
                        (*count, *announced) = (*count + 1, *announced + 1);
                    }
                    Step::Settle => {
                        prop_assert_eq!(stale.settle(name), *announced > 0);
                        *announced = announced.saturating_sub(1);
                    }
                    Step::Withdraw => {
                        prop_assert_eq!(stale.withdraw(name, &mut room), *announced > 0 && *count == 1);
                        *count = count.saturating_sub(u32::from(*announced > 0));
                        *announced = announced.saturating_sub(1);
                    }
                    Step::Leave => stale.spill(name, room.0.remove(&name).unwrap_or(0)),
                    Step::Enter if name.is_multiple_of(2) => {
                        let here = room.0.entry(name).or_default();
                        *here += stale.take(name, ROOM - *here);
                    }
                    Step::Enter => {}
                }
                prop_assert_eq!(stale.has(name, &room), model[&name].0 > 0);
                prop_assert_eq!(stale.total(), model.values().map(|(count, _)| u64::from(*count)).sum::<u64>());
            }
        }
    }
}
