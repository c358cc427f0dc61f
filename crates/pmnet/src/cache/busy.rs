//! The keys that requests in flight may change. They are kept apart from the values, so that evicting a value
//! deletes none of this.

use std::collections::BTreeMap;

use super::key::{Id, Key};

#[derive(Clone, Debug)]
struct Busy<S> {
    updates: u32,
    bypasses: u32,
    /// The only session whose updates change the key: its newest update is what the server will have. `None`: the
    /// order of the changes is not known here, and remains unknown until no request is in flight.
    writer: Option<S>,
    /// Highest number of an update by the writer.
    newest: u32,
    /// The value of `BusyKeys::epoch` when the entry was created.
    epoch: u64,
}

#[derive(Clone, Debug)]
pub(super) struct BusyKeys<S> {
    keys: BTreeMap<Key, Busy<S>>,
    /// Entries of earlier epochs have no valid writer.
    epoch: u64,
    /// Whether an entry with a writer was created in this epoch.
    has_writers: bool,
}

impl<S: Copy + Ord> BusyKeys<S> {
    pub(super) fn new() -> Self {
        Self { keys: BTreeMap::new(), epoch: 0, has_writers: false }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// An unknown request may have changed any key. From now on no update in flight determines a key's value.
    pub(super) fn invalidate_writers(&mut self) {
        self.epoch += u64::from(std::mem::take(&mut self.has_writers));
    }

    /// Notes that an update in flight changes a key. `writer` is the update, if it sets the key to a known value and
    /// is known not to be applied yet.
    pub(super) fn add_update(&mut self, key: &Key, writer: Option<Id<S>>) {
        match self.keys.get_mut(key) {
            Some(busy) => {
                busy.updates += 1;
                busy.writer = busy.writer.filter(|session| writer.is_some_and(|id| id.session == *session));
                busy.newest = writer.map_or(busy.newest, |id| id.seq.max(busy.newest));
            }
            None => {
                let (session, newest) = (writer.map(|id| id.session), writer.map_or(0, |id| id.seq));
                self.add(key, Busy { updates: 1, bypasses: 0, writer: session, newest, epoch: self.epoch });
            }
        }
    }

    /// Notes that a bypass in flight may change a key.
    pub(super) fn add_bypass(&mut self, key: &Key) {
        match self.keys.get_mut(key) {
            Some(busy) => {
                busy.bypasses += 1;
                busy.writer = None;
            }
            None => {
                self.add(key, Busy { updates: 0, bypasses: 1, writer: None, newest: 0, epoch: self.epoch });
            }
        }
    }

    fn add(&mut self, key: &Key, busy: Busy<S>) {
        self.has_writers |= busy.writer.is_some();
        self.keys.insert(Key::clone(key), busy);
    }

    /// Notes that the value of the key after all requests in flight is no longer known.
    pub(super) fn lose_order(&mut self, key: &[u8]) {
        if let Some(busy) = self.keys.get_mut(key) {
            busy.writer = None;
        }
    }

    pub(super) fn remove_update(&mut self, key: &[u8]) {
        self.release(key, |busy| busy.updates -= 1);
    }

    pub(super) fn remove_bypass(&mut self, key: &[u8]) {
        self.release(key, |busy| busy.bypasses -= 1);
    }

    fn release(&mut self, key: &[u8], less: impl FnOnce(&mut Busy<S>)) {
        let Some(busy) = self.keys.get_mut(key) else { return };
        less(busy);
        if busy.updates + busy.bypasses == 0 {
            self.keys.remove(key);
        }
    }

    /// The update that determines the key's value, unless a later request changes it.
    pub(super) fn deciding_update(&self, key: &[u8]) -> Option<Id<S>> {
        let busy = self.keys.get(key)?;
        busy.writer.map(|session| Id { session, seq: busy.newest })
    }

    /// Whether the key will have the value that this update sets, once all requests in flight are applied.
    pub(super) fn ends_with(&self, key: &[u8], id: Id<S>) -> bool {
        let Some(busy) = self.keys.get(key) else { return false };
        busy.epoch == self.epoch && busy.writer == Some(id.session) && busy.newest == id.seq
    }
}
