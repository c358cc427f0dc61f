//! Where records have gone since a chunk was put together.

use landfall_heap::SlotId;
use std::collections::BTreeMap;

/// Records that the compactor has moved, by the slots in which they were at the begin. A slot that one has left may have become
/// another one's, which may have been moved as well: slots do not say which record is meant, unless with a time.
#[derive(Debug, Default)]
pub(crate) struct Relocations {
    /// Where what was in a slot at the begin is now.
    now: BTreeMap<SlotId, SlotId>,
    /// The inverse.
    begun: BTreeMap<SlotId, SlotId>,
}

impl Relocations {
    /// What is in a slot has moved to another one.
    pub(crate) fn note(&mut self, old: SlotId, new: SlotId) {
        let origin = match self.begun.remove(&old) {
            Some(origin) => origin,
            // It has come since the begin.
            None if self.now.contains_key(&old) => return,
            None => old,
        };
        self.now.insert(origin, new);
        self.begun.insert(new, origin);
    }

    /// Where what was in a slot at the begin, and is still current, is now.
    pub(crate) fn now(&self, slot: SlotId) -> SlotId {
        self.now.get(&slot).copied().unwrap_or(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOTS: u32 = 6;

    #[derive(Clone, Debug)]
    enum Step {
        /// A record moves from a slot to one that is free.
        Move(u32, u32),
        /// A record comes.
        Come(u32),
        /// A record goes.
        Go(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let slot = || 1..=SLOTS;
        prop_oneof![
            4 => (slot(), slot()).prop_map(|(old, new)| Step::Move(old, new)),
            1 => slot().prop_map(Step::Come),
            1 => slot().prop_map(Step::Go),
        ]
    }

    proptest! {
        #[test]
        fn each_record_is_found_wherever_others_have_gone(
            at_begin in prop::collection::btree_set(1..=SLOTS, 1..4),
            steps in prop::collection::vec(step(), 0..40),
        ) {
            // The record in each slot, by where it was at the begin.
            let mut records: BTreeMap<u32, Option<u32>> =
                at_begin.iter().map(|slot| (*slot, Some(*slot))).collect();
            let mut relocations = Relocations::default();
            for step in steps {
                match step {
                    Step::Move(old, new) if records.contains_key(&old) && !records.contains_key(&new) => {
                        let record = records.remove(&old).unwrap_or_default();
                        records.insert(new, record);
                        relocations.note(SlotId(old), SlotId(new));
                    }
                    Step::Come(slot) => drop(records.entry(slot).or_insert(None)),
                    Step::Go(slot) => drop(records.remove(&slot)),
                    Step::Move(..) => {}
                }
                for (at, origin) in records.iter().filter_map(|(at, origin)| Some((*at, (*origin)?))) {
                    prop_assert_eq!(relocations.now(SlotId(origin)), SlotId(at));
                }
            }
        }
    }
}
