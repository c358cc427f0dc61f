//! Bypasses: reads whose responses may fill the cache, and requests that may change keys without being updates.

use smallvec::SmallVec;

use super::codec::Query;
use super::flight::keys_at;
use super::key::{Id, Key};
use super::reads::Touching;
use super::state::Cache;
use super::values::Weight;

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
