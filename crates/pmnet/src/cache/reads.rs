//! Bypasses in flight: reads whose responses may fill the cache, and requests that may change keys.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::key::{Id, Key};

/// A bypass in flight that may change keys.
#[derive(Clone, Debug)]
pub(super) struct Touching {
    /// The keys; `None`: any key.
    pub(super) keys: Option<SmallVec<[Key; 1]>>,
    /// The mark when the bypass last passed.
    pub(super) mark: u64,
}

/// Reads in flight whose responses may fill the cache. No request that may change their key was in flight when they
/// passed, and none has passed since; otherwise they are removed.
#[derive(Clone, Debug)]
pub(super) struct Reads<S> {
    by_id: BTreeMap<Id<S>, (Key, u64)>,
    by_key: BTreeMap<Key, SmallVec<[Id<S>; 2]>>,
    max: usize,
}

impl<S: Copy + Ord> Reads<S> {
    pub(super) fn new(max: usize) -> Self {
        Self { by_id: BTreeMap::new(), by_key: BTreeMap::new(), max }
    }

    pub(super) fn insert(&mut self, id: Id<S>, key: &[u8], mark: u64) {
        if self.by_id.len() < self.max {
            let key = Key::from(key);
            self.by_key.entry(Key::clone(&key)).or_default().push(id);
            self.by_id.insert(id, (key, mark));
        }
    }

    pub(super) fn key(&self, id: Id<S>) -> Option<&[u8]> {
        self.by_id.get(&id).map(|(key, _)| &**key)
    }

    pub(super) fn remove(&mut self, id: Id<S>) -> Option<Key> {
        let (key, _) = self.by_id.remove(&id)?;
        let ids = self.by_key.get_mut(&key)?;
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            self.by_key.remove(&key);
        }
        Some(key)
    }

    pub(super) fn remove_key(&mut self, key: &[u8]) {
        for id in self.by_key.remove(key).into_iter().flatten() {
            self.by_id.remove(&id);
        }
    }

    /// The reads of a session.
    pub(super) fn of(&self, session: S) -> Vec<Id<S>> {
        let all = Id { session, seq: 0 }..=Id { session, seq: u32::MAX };
        self.by_id.range(all).map(|(id, _)| *id).collect()
    }

    pub(super) fn before(&self, mark: u64) -> Vec<Id<S>> {
        self.by_id.iter().filter(|(_, (_, at))| *at < mark).map(|(id, _)| *id).collect()
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.by_key.clear();
    }
}
