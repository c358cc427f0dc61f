//! Several systems in one region: which records each owns, and what recovery, the compactor and the check ask of it.
//!
//! A record's *space* identifies the system that owns it: [`crate::spaces`] lists them. A system takes part in opening
//! and in checking a region as a [`Tenant`]. The compactor gets an [`OwnerBySpace`].

use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::owner::{Gone, Named, Owner};
use crate::record::RecordView;
use crate::recover::{DamagedSlot, Found, Judge, ScanUnit, Scanned};
use crate::spaces;
use crate::superblock::{FEATURE_FILES, FEATURE_LOGS, FEATURE_PMNET};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The feature of regions that may hold records of a system, by one of its spaces. A system without one is not listed.
const FEATURES: [(u8, u32); 3] =
    [(spaces::LOG, FEATURE_LOGS), (spaces::PMNET_LOG, FEATURE_PMNET), (spaces::FILES_HEADER, FEATURE_FILES)];

/// A system that keeps records in a region, while the region is opened ([`crate::Region`]) or checked
/// ([`crate::RegionCheck`]).
///
/// Order of calls:
///
/// 1. [`Self::begin`], once.
/// 2. [`Self::slab`] or [`Self::take`] for every record below the watermarks, and [`Self::take_damaged`], from any
///    number of threads; then [`Self::gather_some`] from any number of threads until it returns false.
/// 3. The questions of [`Judge`] about records above the watermarks, and [`Self::take`] for those that are believed;
///    [`Self::take_doubtful`].
/// 4. [`Self::must_rescan`]. If any tenant says so, [`Self::restart`], and everything from 2 on again.
/// 5. [`Self::settle`], once; then [`Self::current_some`], and after that [`Self::finish_some`], each from any number
///    of threads until it returns false.
pub trait Tenant: Judge + Send + Sync + std::fmt::Debug {
    /// True for the spaces that the system owns.
    fn owns(&self, space: u8) -> bool;

    /// Called before these slabs are read.
    fn begin(&self, heap: &Heap, units: &[ScanUnit]) {
        let _ = (heap, units);
    }

    /// Forgets all records taken: the scan restarts.
    fn restart(&self);

    /// Takes a record of the system that counts.
    ///
    /// # Errors
    /// The medium's.
    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError>;

    /// A taker for the records of one slab, for a system that gathers them by slab. `None`: [`Self::take`] takes each
    /// record.
    fn slab<'t>(&'t self, heap: &'t Heap) -> Option<Box<dyn SlabTaker + 't>> {
        let _ = heap;
        None
    }

    /// Takes an unreadable slot: either its key names the system, or its key is unknown. So are those of all slots of a run of
    /// which nothing is known.
    fn take_damaged(&self, damaged: &DamagedSlot);

    /// Takes a record of a transaction whose commit record the medium may have lost, so that it is unknown whether the
    /// record counts. An older version must not be served instead of it.
    fn take_doubtful(&self, found: &Found) {
        let _ = found;
    }

    /// True if slabs with unreadable slots must not be compacted, so that the damage stays known until it is repaired.
    fn pins_damaged(&self) -> bool {
        true
    }

    /// Does one step of indexing the gathered records for the questions of [`Judge`]; false when no step is left.
    ///
    /// # Errors
    /// The medium's.
    fn gather_some(&self, heap: &Heap) -> Result<bool, HeapError> {
        let _ = heap;
        Ok(false)
    }

    /// True if a record was read that changes which records count, so that all must be read again.
    fn must_rescan(&self) -> bool {
        false
    }

    /// Decides which records are current, after all were taken. Returns slots that it finds damaged.
    ///
    /// # Errors
    /// The medium's.
    fn settle(&self, heap: &Heap) -> Result<Vec<DamagedSlot>, HeapError>;

    /// Hands some current records to `keeper`; false when none is left.
    ///
    /// # Errors
    /// The errors of `keeper`; the medium's.
    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError>;

    /// Does one step of the work that remains when all current records are known. It may find further current records.
    /// False when no step is left.
    ///
    /// # Errors
    /// As [`Self::current_some`].
    fn finish_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let _ = keeper;
        Ok(false)
    }

    /// Number of stale records, if the system counts them.
    fn stale(&self) -> u64 {
        0
    }

    /// The name of the record with this key, for people.
    fn describe(&self, space: u8, key: &[u8]) -> Option<String>;
}

/// Takes the records of one slab.
pub trait SlabTaker {
    /// Takes a record that counts.
    fn take(&mut self, found: &Found, view: &RecordView<'_>);

    /// Ends the slab.
    ///
    /// # Errors
    /// The medium's.
    fn end(self: Box<Self>) -> Result<(), HeapError>;
}

/// Receives current records. Recovery counts their references, the check verifies them.
pub trait Keeper {
    /// The heap with the records.
    fn heap(&self) -> &Heap;

    /// Reads a record and keeps it if `also` returns true. False if the record is not kept, or is damaged.
    ///
    /// # Errors
    /// The errors of `also`; the medium's.
    fn keep(
        &self,
        slot: SlotId,
        also: &mut dyn FnMut(&RecordView<'_>) -> Result<bool, HeapError>,
    ) -> Result<bool, HeapError>;
}

/// The systems of a region that is being opened or checked.
#[derive(Debug)]
pub(crate) struct Tenants(Vec<Arc<dyn Tenant>>);

impl Tenants {
    /// Refuses a region that may hold records of a missing system.
    pub(crate) fn new(all: Vec<Arc<dyn Tenant>>, heap: &Heap) -> Result<Self, HeapError> {
        let tenants = Self(all);
        let features = heap.geometry().features;
        let is_missing =
            |(space, feature): &(u8, u32)| features & feature != 0 && tenants.of(*space).is_none();
        match FEATURES.into_iter().find(is_missing) {
            Some((space, _)) => Err(HeapError::Foreign { space }),
            None => Ok(tenants),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Tenant> {
        self.0.iter().map(|tenant| &**tenant)
    }

    fn place(&self, space: u8) -> Option<usize> {
        self.0.iter().position(|tenant| tenant.owns(space))
    }

    pub(crate) fn of(&self, space: u8) -> Option<&dyn Tenant> {
        Some(&*self.0[self.place(space)?])
    }

    /// True for a space whose owner is missing. Nothing may be decided about its records.
    pub(crate) fn is_foreign(&self, space: u8) -> bool {
        !spaces::is_none(space) && self.of(space).is_none()
    }

    /// Takers for the records of one slab.
    pub(crate) fn slab<'t>(&'t self, heap: &'t Heap) -> Takers<'t> {
        let slabs = self.iter().map(|tenant| tenant.slab(heap)).collect();
        Takers { tenants: self, heap, slabs, outcome: Ok(()) }
    }

    /// Hands a record to its owner.
    pub(crate) fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError> {
        match self.of(found.space) {
            Some(tenant) => tenant.take(heap, found, view),
            None if self.is_foreign(found.space) => Err(HeapError::Foreign { space: found.space }),
            None => Ok(()),
        }
    }

    /// Reports slots that are unreadable, or whose record the medium has lost.
    pub(crate) fn take_damaged(&self, scanned: &Scanned) {
        for slot in &scanned.damaged {
            match &slot.named {
                Some((space, _, _)) => self.of(*space).into_iter().for_each(|owner| owner.take_damaged(slot)),
                None => self.iter().for_each(|tenant| tenant.take_damaged(slot)),
            }
        }
        self.take_lost(scanned.holes.iter().copied());
    }

    /// Reports slots of which nothing is known but that they may have had a record: each may be any system's.
    pub(crate) fn take_lost(&self, slots: impl Iterator<Item = SlotId>) {
        for slot in slots {
            let lost = DamagedSlot { slot, what: Damage::Lost, named: None };
            self.iter().for_each(|tenant| tenant.take_damaged(&lost));
        }
    }

    /// Calls `step` for each tenant until one returns true.
    pub(crate) fn some(
        &self,
        mut step: impl FnMut(&dyn Tenant) -> Result<bool, HeapError>,
    ) -> Result<bool, HeapError> {
        for tenant in self.iter() {
            if step(tenant)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn settle(&self, heap: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        let mut damaged = Vec::new();
        for tenant in self.iter() {
            damaged.extend(tenant.settle(heap)?);
        }
        Ok(damaged)
    }
}

/// Each question goes to the owner of the record.
impl Judge for Tenants {
    fn is_superseded(&self, heap: &Heap, found: &Found) -> bool {
        self.of(found.space).is_some_and(|owner| owner.is_superseded(heap, found))
    }

    fn lacks_bound(&self, found: &Found) -> bool {
        self.of(found.space).is_some_and(|owner| owner.lacks_bound(found))
    }

    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        self.of(found.space).is_some_and(|owner| owner.is_flushed(mark, found))
    }
}

/// Passes the records of one slab to their owners.
pub(crate) struct Takers<'t> {
    tenants: &'t Tenants,
    heap: &'t Heap,
    slabs: Vec<Option<Box<dyn SlabTaker + 't>>>,
    outcome: Result<(), HeapError>,
}

impl Takers<'_> {
    pub(crate) fn take(&mut self, found: &Found, view: &RecordView<'_>) {
        let place = self.tenants.place(found.space);
        match place.and_then(|place| self.slabs[place].as_mut()) {
            Some(slab) => slab.take(found, view),
            None if self.outcome.is_ok() => self.outcome = self.tenants.take(self.heap, found, view),
            None => {}
        }
    }

    pub(crate) fn end(self) -> Result<(), HeapError> {
        self.outcome?;
        self.slabs.into_iter().flatten().try_for_each(SlabTaker::end)
    }
}

/// Selects the owner of each record by its space.
pub struct OwnerBySpace<'a> {
    /// The owner of all other spaces.
    pub default: &'a dyn Owner,
    /// Owners with their spaces.
    pub others: &'a [(RangeInclusive<u8>, &'a dyn Owner)],
}

impl std::fmt::Debug for OwnerBySpace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerBySpace").finish_non_exhaustive()
    }
}

impl OwnerBySpace<'_> {
    /// Index of a space's owner in `others`; its length for `default`.
    fn place(&self, space: u8) -> usize {
        self.others.iter().position(|(spaces, _)| spaces.contains(&space)).unwrap_or(self.others.len())
    }

    fn of(&self, space: u8) -> &dyn Owner {
        self.others.get(self.place(space)).map_or(self.default, |(_, owner)| *owner)
    }
}

impl Owner for OwnerBySpace<'_> {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        self.of(name.space).begin_move(name, slot, hold)
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        self.of(name.space).end_move(name, old, new)
    }

    fn abort_move(&self, name: Named) {
        self.of(name.space).abort_move(name);
    }

    fn forget(&self, gone: &mut [Gone]) {
        gone.sort_by_key(|gone| self.place(gone.name.space));
        for some in gone.chunk_by_mut(|a, b| self.place(a.name.space) == self.place(b.name.space)) {
            self.of(some[0].name.space).forget(some);
        }
    }
}
