//! Bypasses: reads whose responses may be kept, and requests that may change keys without being updates.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::codec::Query;
use super::updates::keys_at;
use super::values::Weight;
use super::{Cache, Id, Key};

/// A bypass in flight that may change keys.
#[derive(Clone, Debug)]
pub(super) struct Touching {
    /// `None`: any.
    keys: Option<SmallVec<[Key; 1]>>,
    /// When it passed last.
    mark: u64,
}

/// Reads in flight whose responses may be kept: nothing that may change their key was in flight when they passed, and
/// nothing has passed since, or they would not be here.
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

    pub(super) fn forget_key(&mut self, key: &[u8]) {
        for id in self.by_key.remove(key).into_iter().flatten() {
            self.by_id.remove(&id);
        }
    }

    /// Those of a session.
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
    /// A bypass passes towards the server. `query` is what the codec says about `request`.
    ///
    /// The response to a read may be kept if the read passes for the first time, and nothing that may change its key is
    /// in flight. Keys that a bypass may change miss from now on, until its response has passed.
    pub fn bypass_seen(&mut self, id: Id<S>, request: &[u8], query: &Query) {
        let has_row = self.sessions.row(id.session).is_some();
        // What passes while the cache is shut may be a copy from before it began: it does not tell
        // where a session's numbers are.
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

    /// A repetition. Should it name other keys, which of them the server sees is not known.
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
            self.reads.forget_key(key);
            self.busy.add_bypass(key);
        }
    }

    fn end_touching(&mut self, keys: Option<&[Key]>) {
        match keys {
            Some(keys) => keys.iter().for_each(|key| self.busy.remove_bypass(key)),
            None => self.blind -= 1,
        }
    }

    /// The key of a read whose response would be kept now.
    pub fn awaited(&self, id: Id<S>) -> Option<&[u8]> {
        self.reads.key(id)
    }

    /// The response to a bypass, or its first fragment, passes towards the client; `value` is its value, if it is the
    /// response to a read and its codec says that it may be kept. True if it has been kept.
    pub fn response_seen(&mut self, id: Id<S>, value: Option<V>) -> bool {
        self.forget_touching(id);
        let (Some(key), Some(value)) = (self.reads.remove(id), value) else { return false };
        self.values.insert(Key::clone(&key), value);
        self.values.contains(&key)
    }

    pub(super) fn forget_touching(&mut self, id: Id<S>) {
        let Some(touching) = self.touching.remove(&id) else { return };
        self.end_touching(touching.keys.as_deref());
        if let Some(row) = self.sessions.get_mut(id.session) {
            row.in_flight -= 1;
        }
    }

    /// A mark between what has passed and what will: for [`Self::forget_before`].
    pub fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Gives up waiting for the responses to bypasses that passed, for the last time, before a mark. The caller
    /// vouches that the server has executed them or never will: that they are older than a packet can live.
    pub fn forget_before(&mut self, mark: u64) {
        for id in self.reads.before(mark) {
            self.reads.remove(id);
        }
        let gone: Vec<Id<S>> =
            self.touching.iter().filter(|(_, t)| t.mark < mark).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget_touching(id));
    }
}
