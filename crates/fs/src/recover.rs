//! Recovery: which records of files are current.
//!
//! [`FilesRecovery`] is a [`Tenant`] of a [`landfall_heap::Region`]. Once the region is open,
//! [`FilesRecovery::take_settled`] hands over what it has decided.

mod found;
mod logs;
mod settle;
mod settled;
mod unreadable;

pub(crate) use found::RecordKey;
pub use settled::{
    DamagedRecord, HeaderFound, LeftFound, LogDamage, LogFound, OperationSlot, Recovered, Settled,
};

use crate::clients::FIRST_CLIENT_AGAIN;
use crate::header::{Header, LogFields};
use crate::inode::ORPHAN;
use crate::key::OperationKey;
use crate::left::LeftLog;
use crate::log::CLIENT;
use found::{BoundFound, BoundsFound, OperationFound, RecordFound, TreeFound, Version};
use landfall_heap::{
    Damage, DamagedSlot, Found, Heap, HeapError, Judge, Keeper, Kind, RecordView, SlotId, Tenant, spaces,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use unreadable::Unreadable;

/// Number of lists in which recovery gathers operations, so that threads seldom wait for each other.
const STRIPES: usize = 32;
/// Current records that one step of [`FilesRecovery::current_some`] names.
const VISITED_AT_ONCE: usize = 4096;

/// Recovery of the files of one region.
#[derive(Debug, Default)]
pub struct FilesRecovery {
    tree: TreeFound,
    /// The newest header.
    header: Mutex<Option<(Version, HeaderFound)>>,
    /// Some header has a seed.
    is_of_chain: AtomicBool,
    bounds: Mutex<BoundsFound>,
    operations: [Mutex<Vec<OperationFound>>; STRIPES],
    damaged: Mutex<Vec<DamagedSlot>>,
    doubtful: Mutex<Doubtful>,
    /// What a killed server has not executed.
    left: Mutex<Vec<Arc<LeftLog>>>,
    settled: Mutex<Settled>,
    next_visited: AtomicUsize,
}

/// Records of transactions of which nobody knows whether they count.
#[derive(Debug, Default)]
struct Doubtful {
    found: Vec<Found>,
    /// Whether something newer is known of each. Empty until all is settled.
    judged: BTreeMap<SlotId, bool>,
}

fn version(found: &Found) -> Version {
    Version { seq: found.seq, rev: found.rev }
}

fn is_operation(found: &Found) -> bool {
    found.space == spaces::FILES_LOG && found.kind != Kind::Bound
}

impl Judge for FilesRecovery {
    fn is_superseded(&self, _: &Heap, found: &Found) -> bool {
        if is_operation(found) {
            let bounds = self.bounds.lock();
            // The marks of the mount's log do not only rise: a copy brings that of another log.
            return bounds.newest.get(&found.aux).is_some_and(|bound| match found.aux {
                CLIENT => bound.version.seq > found.seq,
                _ => bound.mark > found.expiry_ms,
            });
        }
        // A record of a committed transaction was durable, so its data are gone only because it was replaced.
        self.doubtful.lock().judged.get(&found.slot).copied().unwrap_or(true)
    }

    fn lacks_bound(&self, found: &Found) -> bool {
        is_operation(found) && !self.bounds.lock().newest.contains_key(&found.aux)
    }
}

impl Tenant for FilesRecovery {
    fn owns(&self, space: u8) -> bool {
        spaces::FILES.contains(&space)
    }

    fn restart(&self) {
        self.tree.clear();
        *self.header.lock() = None;
        self.is_of_chain.store(false, Ordering::Relaxed);
        *self.bounds.lock() = BoundsFound::default();
        self.operations.iter().for_each(|stripe| stripe.lock().clear());
        self.damaged.lock().clear();
        *self.doubtful.lock() = Doubtful::default();
    }

    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError> {
        let key = heap.key(view)?;
        match (found.space, found.kind) {
            (spaces::FILES_LOG, Kind::Bound) => self.take_bound(heap, found, view, &key),
            (spaces::FILES_LOG, Kind::Put) => self.take_operation(found, &key),
            (_, Kind::Put | Kind::Tombstone) => {
                let Some(key) = RecordKey::decode(found.space, &key) else { return Ok(()) };
                let is_tombstone = found.kind == Kind::Tombstone;
                let is_orphan = found.space == spaces::FILES_INODE && found.aux == ORPHAN;
                let (slot, version) = (found.slot, version(found));
                self.tree.add(RecordFound { key, is_tombstone, is_orphan, slot, version });
                if found.space == spaces::FILES_HEADER {
                    self.take_header(heap, found, view);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_damaged(&self, damaged: &DamagedSlot) {
        self.damaged.lock().push(damaged.clone());
    }

    fn take_doubtful(&self, found: &Found) {
        self.doubtful.lock().found.push(*found);
    }

    fn settle(&self, heap: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        let bounds = std::mem::take(&mut *self.bounds.lock());
        let mut unreadable = Unreadable::new(&std::mem::take(&mut *self.damaged.lock()));
        let newest = bounds.newest.iter().map(|(client, bound)| (*client, bound.version)).collect();
        let header = self.header.lock().map(|(_, header)| header);
        if header.is_some_and(|found| found.header == Err(Damage::Newer)) {
            return Err(HeapError::NewerRecord { what: "the header of the files" });
        }
        // Floors only rise: whichever of the two is lower is of an earlier time.
        let of_bound = bounds.newest.get(&CLIENT).map_or(0, |bound| bound.floor);
        let of_header = header.and_then(|found| found.header.ok()).map_or(0, |header| header.floor);
        self.tree.drop_below(of_bound.max(of_header));
        let mut doubtful = self.doubtful.lock();
        doubtful.judged = unreadable.add_doubtful(heap, &doubtful.found, &self.tree, &newest)?;
        drop(doubtful);
        let mut operations: Vec<OperationFound> = Vec::new();
        self.operations.iter().for_each(|stripe| operations.append(&mut stripe.lock()));
        let left = self.left.lock().clone();
        let mut settled = settle::settle(heap, &self.tree, header, &bounds, operations, &unreadable, &left);
        let is_newest = !unreadable.bounds.contains_key(&CLIENT);
        settled.floor = Some(of_bound).filter(|floor| *floor > 0 && is_newest);
        settled.is_of_chain = self.is_of_chain.load(Ordering::Relaxed);
        *self.settled.lock() = settled;
        Ok(Vec::new())
    }

    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let from = self.next_visited.fetch_add(VISITED_AT_ONCE, Ordering::Relaxed);
        let some: Vec<SlotId> = {
            let settled = self.settled.lock();
            settled.current.iter().skip(from).take(VISITED_AT_ONCE).copied().collect()
        };
        for slot in &some {
            // A record whose value is damaged is kept: a read of it returns an error.
            keeper.keep(*slot, &mut |_| Ok(true))?;
        }
        Ok(!some.is_empty())
    }

    fn stale(&self) -> u64 {
        {
            let settled = self.settled.lock();
            settled.kept.stale.total() + settled.kept_bounds.stale.total()
        }
    }

    fn describe(&self, space: u8, key: &[u8]) -> Option<String> {
        if let Some(key) = RecordKey::decode(space, key) {
            return Some(key.describe());
        }
        Some(match (OperationKey::decode(key), <[u8; 4]>::try_from(key)) {
            (Ok(key), _) => format!("log of client {}, operation {}", key.client, key.index),
            (_, Ok(client)) => format!("log of client {}", u32::from_le_bytes(client)),
            _ => format!("a record of files with the key {}", key.escape_ascii()),
        })
    }
}

impl FilesRecovery {
    fn take_bound(&self, heap: &Heap, found: &Found, view: &RecordView<'_>, key: &[u8]) {
        if *key != found.aux.to_le_bytes() {
            return;
        }
        let value = heap.value_bytes(found.slot, view).map_err(|_| Damage::ValueChecksum);
        let fields = value.and_then(|value| LogFields::decode(&value)).map(|(fields, _)| fields);
        let (slot, version, mark) = (found.slot, version(found), found.expiry_ms);
        let floor = if found.aux == CLIENT { view.arrival_ns() } else { 0 };
        self.bounds.lock().add(found.aux, BoundFound { slot, version, mark, floor, fields });
    }

    fn take_operation(&self, found: &Found, key: &[u8]) {
        let Ok(key) = OperationKey::decode(key) else { return };
        // Others of such clients were executed in the log of the mount, or never will be.
        if key.client >= FIRST_CLIENT_AGAIN && !self.left.lock().iter().any(|left| left.has(&key)) {
            return;
        }
        if (key.client, key.index) == (found.aux, found.expiry_ms) {
            let (slot, version) = (found.slot, version(found));
            let operation = OperationFound { index: key.index, version, client: key.client, slot };
            self.operations[slot.run().0 as usize % STRIPES].lock().push(operation);
        }
    }

    fn take_header(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) {
        let value = heap.value_bytes(found.slot, view).map_err(|_| Damage::ValueChecksum);
        let header = value.and_then(|value| Header::decode(&value));
        if header.is_ok_and(|header| header.seed.is_some()) {
            self.is_of_chain.store(true, Ordering::Relaxed);
        }
        let new = (version(found), HeaderFound { slot: found.slot, header });
        let mut known = self.header.lock();
        if known.is_none_or(|(version, _)| version < new.0) {
            *known = Some(new);
        }
    }

    /// The operations of these logs are executed, too. To be called before the region is read.
    pub fn execute_left(&self, left: Vec<Arc<LeftLog>>) {
        *self.left.lock() = left;
    }

    /// What was decided, while the region is being checked.
    pub fn settled(&self) -> MutexGuard<'_, Settled> {
        self.settled.lock()
    }

    /// Hands over what was decided. To be called once, when the region is open.
    pub(crate) fn take_settled(&self) -> Settled {
        std::mem::take(&mut *self.settled.lock())
    }
}

#[cfg(test)]
mod tests;
