//! The table of connections, with look-up by number and by tuple.

use crate::address::Tuple;
use crate::event::ConnId;
use crate::tcp::Tcb;
use crate::time::Instant;
use hashbrown::HashTable;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bits of a [`ConnId`] that contain the slot of the connection. The bits above contain a number that is never reused.
const SLOT_BITS: u32 = 20;
/// Bits of a [`ConnId`] from here on contain the number of the stack.
const STACK_SHIFT: u32 = 54;

#[derive(Debug)]
struct Entry {
    id: ConnId,
    tcb: Box<Tcb>,
    /// The connection is in the queue of those that may have something to send.
    ready: bool,
    /// Deadlines that the timer queue has for the connection, in descending order. A deadline that moves back costs
    /// nothing: the timer that fires too early finds nothing to do.
    timers: SmallVec<[Instant; 4]>,
}

#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_tuple: HashTable<u32>,
    seed: u64,
    next_serial: u64,
    stack: u64,
    max: usize,
}

impl Table {
    pub(super) fn new(stack_id: u8, seed: u64, max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_tuple: HashTable::new(),
            seed,
            next_serial: 1,
            stack: u64::from(stack_id) << STACK_SHIFT,
            max: max.min(1 << SLOT_BITS),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_tuple.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        self.slots.iter().flatten().map(|entry| entry.id).collect()
    }

    pub(super) fn find(&self, tuple: &Tuple) -> Option<ConnId> {
        let hash = self.hash(tuple);
        let slot = self.by_tuple.find(hash, |slot| self.tuple_in(*slot) == Some(tuple))?;
        self.slots[*slot as usize].as_ref().map(|entry| entry.id)
    }

    fn hash(&self, tuple: &Tuple) -> u64 {
        xxh3_64_with_seed(&tuple.key(), self.seed)
    }

    fn tuple_in(&self, slot: u32) -> Option<&Tuple> {
        self.slots[slot as usize].as_ref().map(|entry| &entry.tcb.path.tuple)
    }

    pub(super) fn insert(&mut self, tcb: Tcb) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let serial = self.next_serial & ((1 << (STACK_SHIFT - SLOT_BITS)) - 1);
        self.next_serial += 1;
        let id = ConnId(self.stack | serial << SLOT_BITS | u64::from(slot));
        let hash = self.hash(&tcb.path.tuple);
        self.slots[slot as usize] =
            Some(Entry { id, tcb: Box::new(tcb), ready: false, timers: SmallVec::new() });
        let (slots, seed) = (&self.slots, self.seed);
        self.by_tuple.insert_unique(hash, slot, |slot| {
            slots[*slot as usize]
                .as_ref()
                .map_or(0, |entry| xxh3_64_with_seed(&entry.tcb.path.tuple.key(), seed))
        });
        id
    }

    pub(super) fn remove(&mut self, id: ConnId) -> Option<Box<Tcb>> {
        let slot = Self::slot(id);
        let hash = self.hash(&self.get(id)?.path.tuple);
        if let Ok(found) = self.by_tuple.find_entry(hash, |other| *other as usize == slot) {
            found.remove();
        }
        self.free.push(slot as u32);
        self.slots[slot].take().map(|entry| entry.tcb)
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Tcb> {
        self.slots.get(Self::slot(id))?.as_ref().filter(|entry| entry.id == id).map(|entry| &*entry.tcb)
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Tcb> {
        self.entry(id).map(|entry| &mut *entry.tcb)
    }

    fn entry(&mut self, id: ConnId) -> Option<&mut Entry> {
        self.slots.get_mut(Self::slot(id))?.as_mut().filter(|entry| entry.id == id)
    }

    /// Marks a connection as ready; true if it was not, so that the caller must queue it.
    pub(super) fn enter_ready(&mut self, id: ConnId) -> bool {
        self.entry(id).is_some_and(|entry| !std::mem::replace(&mut entry.ready, true))
    }

    pub(super) fn leave_ready(&mut self, id: ConnId) {
        if let Some(entry) = self.entry(id) {
            entry.ready = false;
        }
    }

    /// The deadline to queue for a connection; `None` if the timer queue has it or an earlier one.
    pub(super) fn timer_to_queue(&mut self, id: ConnId) -> Option<Instant> {
        let entry = self.entry(id)?;
        let at = entry.tcb.deadline()?;
        if entry.timers.last().is_some_and(|queued| *queued <= at) {
            return None;
        }
        entry.timers.push(at);
        Some(at)
    }

    /// Removes the earliest deadline of a connection from its list, because it has fired.
    pub(super) fn timer_fired(&mut self, id: ConnId) {
        if let Some(entry) = self.entry(id) {
            entry.timers.pop();
        }
    }

    fn slot(id: ConnId) -> usize {
        (id.0 & ((1 << SLOT_BITS) - 1)) as usize
    }
}
