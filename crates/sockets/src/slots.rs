//! A worker's connections, with look-up by id in constant time.

use crate::conn_id::ConnId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a [`ConnId`] that contain the slot of the connection.
const SLOT_BITS: u32 = 20;
/// Bits of a [`ConnId`] above the slot, which contain a number that is unique in the process.
const SERIAL_BITS: u32 = 40;
/// Bits of a connection id; a transport can use the bits above for its own tag.
pub(crate) const ID_BITS: u32 = SLOT_BITS + SERIAL_BITS;
/// Connections of one worker at once, at most.
pub(crate) const CONNECTIONS_MAX: usize = 1 << SLOT_BITS;

/// Number of the next connection. It is process-wide, so that ids are unique over all workers.
static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// Connections by slot. Slots are reused, ids are not.
pub(crate) struct Slots<T> {
    slots: Vec<Option<(ConnId, T)>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// True when no further connection can be stored.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= CONNECTIONS_MAX
    }

    /// Stores a connection under a new id.
    ///
    /// # Panics
    /// If the table is full: callers check [`Self::is_full`] first.
    pub(crate) fn insert(&mut self, value: T) -> ConnId {
        assert!(!self.is_full(), "more than {CONNECTIONS_MAX} connections");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("slots are bounded by CONNECTIONS_MAX")
        });
        let serial = NEXT_SERIAL.fetch_add(1, Ordering::Relaxed) & ((1 << SERIAL_BITS) - 1);
        let id = ConnId(serial << SLOT_BITS | u64::from(slot));
        self.slots[slot as usize] = Some((id, value));
        id
    }

    pub(crate) fn get(&self, id: ConnId) -> Option<&T> {
        match self.slots.get(Self::slot(id))? {
            Some((known, value)) if *known == id => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        match self.slots.get_mut(Self::slot(id))? {
            Some((known, value)) if *known == id => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<T> {
        let slot = Self::slot(id);
        self.get_mut(id)?;
        self.free.push(u32::try_from(slot).expect("slots are bounded by CONNECTIONS_MAX"));
        self.slots[slot].take().map(|(_, value)| value)
    }

    /// The ids of all connections.
    pub(crate) fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().flatten().map(|(id, _)| *id).collect()
    }

    const fn slot(id: ConnId) -> usize {
        (id.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_under_another_id() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_ne!(first, second);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut 'b'));
        assert_eq!(slots.ids(), [second]);
        assert!(first.0 >> ID_BITS == 0 && second.0 >> ID_BITS == 0);
    }
}
