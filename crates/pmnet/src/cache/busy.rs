//! Keys that something in flight may change. Kept apart from the values: giving up a value forgets nothing of this.

use std::collections::BTreeMap;

use super::{Id, Key};

#[derive(Clone, Debug)]
struct Busy<S> {
    updates: u32,
    bypasses: u32,
    /// The session that alone changes the key, so that its newest update is what the server will have. `None`: nobody
    /// here knows the order, and that remains so until nothing is in flight.
    writer: Option<S>,
    /// Highest number of the writer's.
    newest: u32,
    /// `BusyKeys::epoch` when this began.
    epoch: u64,
}

#[derive(Clone, Debug)]
pub(super) struct BusyKeys<S> {
    keys: BTreeMap<Key, Busy<S>>,
    /// Writers of former epochs count for nothing.
    epoch: u64,
    /// Whether this epoch has seen a writer.
    has_writers: bool,
}

impl<S: Copy + Ord> BusyKeys<S> {
    pub(super) fn new() -> Self {
        Self { keys: BTreeMap::new(), epoch: 0, has_writers: false }
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Something unknown may have changed any key: no update in flight says any more what a key will be.
    pub(super) fn distrust(&mut self) {
        self.epoch += u64::from(std::mem::take(&mut self.has_writers));
    }

    /// An update begins to change a key. `writer` is the update if it sets the key to a value that we know and if it is
    /// known not to be applied yet.
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

    /// A bypass begins to change a key.
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

    /// Nobody knows any more what the key will be once everything in flight is applied.
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

    /// The update that would decide what the key will hold, if nothing came after it.
    pub(super) fn decides(&self, key: &[u8]) -> Option<Id<S>> {
        let busy = self.keys.get(key)?;
        busy.writer.map(|session| Id { session, seq: busy.newest })
    }

    /// Whether the key will hold what this update sets once everything in flight is applied.
    pub(super) fn ends_with(&self, key: &[u8], id: Id<S>) -> bool {
        let Some(busy) = self.keys.get(key) else { return false };
        busy.epoch == self.epoch && busy.writer == Some(id.session) && busy.newest == id.seq
    }
}
