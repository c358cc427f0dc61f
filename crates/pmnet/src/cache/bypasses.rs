//! Bypasses: reads whose responses may fill the cache, and requests that may change keys without being updates.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::codec::Query;
use super::updates::keys_at;
use super::values::Weight;
use super::{Cache, Id, Key};

/// A bypass in flight that may change keys.
#[derive(Clone, Debug)]
pub(super) struct Touching {
    /// The keys; `None`: any key.
    keys: Option<SmallVec<[Key; 1]>>,
    /// The mark when the bypass last passed.
    mark: u64,
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

    fn insert(&mut self, id: Id<S>, key: &[u8], mark: u64) {
        if self.by_id.len() < self.max {
            let key = Key::from(key);
            self.by_key.entry(Key::clone(&key)).or_default().push(id);
            self.by_id.insert(id, (key, mark));
        }
    }

    fn key(&self, id: Id<S>) -> Option<&[u8]> {
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

    fn before(&self, mark: u64) -> Vec<Id<S>> {
        self.by_id.iter().filter(|(_, (_, at))| *at < mark).map(|(id, _)| *id).collect()
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.by_key.clear();
    }
}

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// Handles a bypass that passes towards the server. `query` is the codec's result for `request`.
    ///
    /// The response to a read may fill the cache if the read passes for the first time, and no request that may
    /// change its key is in flight. Keys that a bypass may change miss from now on until its response has passed.
    pub fn bypass_seen(&mut self, id: Id<S>, request: &[u8], query: &Query) {
        let has_row = self.sessions.row(id.session).is_some();
        // A packet that passes while the cache is shut may be a copy from before the cache began. It does not show
        // which numbers the session uses.
        let first = self.sessions.first_sight(id.session, id.seq, self.open);
        match query {
            Query::None => {}
            Query::Reads { key } => {
                let Some(key) = request.get(key.clone()) else { return };
                if first && self.serves() && !self.busy.contains(key) {
                    self.reads.insert(id, key, self.marks);
                }
            }
            Query::Touches(keys) if has_row => self.touch(id, keys_at(request, keys)),
            Query::TouchesAll if has_row => self.touch(id, None),
            Query::Touches(_) | Query::TouchesAll => self.clear(),
        }
    }

    fn touch(&mut self, id: Id<S>, keys: Option<SmallVec<[Key; 1]>>) {
        if self.touching.contains_key(&id) {
            return self.touch_again(id, keys);
        }
        if self.touching.len() >= self.limits.touching_max {
            return self.clear();
        }
        if let Some(row) = self.sessions.get_mut(id.session) {
            row.in_flight += 1;
        }
        self.begin_touching(keys.as_deref());
        self.touching.insert(id, Touching { keys, mark: self.marks });
    }

    /// Handles a repeated bypass. If it names other keys than the first copy, it is not known which copy the server
    /// executes, so the keys of both count.
    fn touch_again(&mut self, id: Id<S>, keys: Option<SmallVec<[Key; 1]>>) {
        let Some(touching) = self.touching.get_mut(&id) else { return };
        touching.mark = self.marks;
        let Some(known) = &mut touching.keys else { return };
        match keys {
            None => {
                let known = touching.keys.take();
                self.begin_touching(None);
                self.end_touching(known.as_deref());
            }
            Some(mut more) => {
                more.retain(|key| !known.contains(key));
                known.extend(more.iter().cloned());
                self.begin_touching(Some(&more));
            }
        }
    }

    fn begin_touching(&mut self, keys: Option<&[Key]>) {
        let Some(keys) = keys else {
            self.blind += 1;
            return self.drop_all();
        };
        for key in keys {
            self.values.remove(key);
            self.reads.remove_key(key);
            self.busy.add_bypass(key);
        }
    }

    fn end_touching(&mut self, keys: Option<&[Key]>) {
        match keys {
            Some(keys) => keys.iter().for_each(|key| self.busy.remove_bypass(key)),
            None => self.blind -= 1,
        }
    }

    /// The key of a read whose response would fill the cache.
    pub fn awaited(&self, id: Id<S>) -> Option<&[u8]> {
        self.reads.key(id)
    }

    /// Handles the response to a bypass, or its first fragment, which passes towards the client. `value` is the
    /// value in the response, if it answers a read and the codec allows it to fill the cache. True if the cache has
    /// stored it.
    pub fn response_seen(&mut self, id: Id<S>, value: Option<V>) -> bool {
        self.remove_touching(id);
        let (Some(key), Some(value)) = (self.reads.remove(id), value) else { return false };
        self.values.insert(Key::clone(&key), value);
        self.values.contains(&key)
    }

    pub(super) fn remove_touching(&mut self, id: Id<S>) {
        let Some(touching) = self.touching.remove(&id) else { return };
        self.end_touching(touching.keys.as_deref());
        if let Some(row) = self.sessions.get_mut(id.session) {
            row.in_flight -= 1;
        }
    }

    /// Creates a mark between the packets that have passed and those that will: for [`Self::drop_before`].
    pub fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Stops waiting for the responses to bypasses that last passed before a mark. The caller guarantees that the
    /// server has executed them or never will, because they are older than the life of a packet.
    pub fn drop_before(&mut self, mark: u64) {
        for id in self.reads.before(mark) {
            self.reads.remove(id);
        }
        let gone: Vec<Id<S>> =
            self.touching.iter().filter(|(_, t)| t.mark < mark).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove_touching(id));
    }
}
