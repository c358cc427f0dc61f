//! Replacement by the CLOCK algorithm. It differs from LRU only in the order among items that were used since the
//! hand passed them.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// Items by key. Chooses the item to evict; the owner deciding_update when to evict.
#[derive(Clone, Debug)]
pub(super) struct Clock<K, T> {
    index: BTreeMap<K, usize>,
    slots: Vec<Option<Slot<K, T>>>,
    free: Vec<usize>,
    hand: usize,
}

#[derive(Clone, Debug)]
struct Slot<K, T> {
    key: K,
    item: T,
    used: bool,
}

impl<K: Ord + Clone, T> Clock<K, T> {
    pub(super) fn new() -> Self {
        Self { index: BTreeMap::new(), slots: Vec::new(), free: Vec::new(), hand: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.index.contains_key(key)
    }

    /// Returns an item without marking it as used.
    pub(super) fn peek<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&T>
    where
        K: Borrow<Q>,
    {
        let at = *self.index.get(key)?;
        self.slots[at].as_ref().map(|slot| &slot.item)
    }

    /// Returns an item and marks it as used.
    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut T>
    where
        K: Borrow<Q>,
    {
        let at = *self.index.get(key)?;
        let slot = self.slots[at].as_mut()?;
        slot.used = true;
        Some(&mut slot.item)
    }

    /// Adds an item whose key is not present. The item is not marked as used.
    pub(super) fn insert(&mut self, key: K, item: T) {
        let slot = Some(Slot { key: key.clone(), item, used: false });
        let at = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(at) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        let before = self.index.insert(key, at);
        debug_assert!(before.is_none(), "the caller removes the old item first");
    }

    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, T)>
    where
        K: Borrow<Q>,
    {
        let at = self.index.remove(key)?;
        self.free.push(at);
        self.slots[at].take().map(|slot| (slot.key, slot.item))
    }

    /// The keys of this range that are present.
    pub(super) fn keys(&self, among: std::ops::RangeInclusive<K>) -> Vec<K> {
        self.index.range(among).map(|(key, _)| key.clone()).collect()
    }

    /// Evicts an item that `is_evictable` accepts and that has not been used since the hand passed it. The hand
    /// passes each item at most twice.
    pub(super) fn evict(&mut self, is_evictable: impl Fn(&T) -> bool) -> Option<(K, T)> {
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[at] else { continue };
            if std::mem::take(&mut slot.used) || !is_evictable(&slot.item) {
                continue;
            }
            let key = slot.key.clone();
            return self.remove(&key);
        }
        None
    }

    /// Removes the items that satisfy `condition`.
    pub(super) fn remove_if(&mut self, condition: impl Fn(&T) -> bool) -> Vec<(K, T)> {
        let all = self.slots.iter().flatten();
        let keys: Vec<K> = all.filter(|slot| condition(&slot.item)).map(|slot| slot.key.clone()).collect();
        keys.into_iter().filter_map(|key| self.remove(&key)).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(keys: &[&'static str]) -> Clock<&'static str, ()> {
        let mut clock = Clock::new();
        keys.iter().for_each(|key| clock.insert(*key, ()));
        clock
    }

    #[test]
    fn items_used_since_the_hand_passed_are_not_evicted() {
        let mut clock = clock(&["a", "b", "c"]);
        clock.get_mut("a");
        clock.get_mut("c");
        assert_eq!(clock.evict(|()| true), Some(("b", ())));
        clock.insert("d", ());
        assert_eq!(
            clock.evict(|()| true),
            Some(("a", ())),
            "the hand cleared its mark, and it was not used again"
        );
        assert_eq!(clock.evict(|()| true), Some(("d", ())));
    }

    #[test]
    fn items_that_are_not_evictable_stay() {
        let mut clock = clock(&["a", "b"]);
        assert_eq!(clock.evict(|()| false), None);
        assert_eq!(clock.len(), 2);
    }

    #[test]
    fn slots_of_removed_items_are_reused() {
        let mut clock = clock(&["a", "b"]);
        for _ in 0..100 {
            clock.remove("a");
            clock.insert("a", ());
        }
        assert_eq!(clock.slots.len(), 2);
    }
}
