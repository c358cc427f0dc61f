//! Several systems in one region: who owns which records, and what each is asked by recovery, by the compactor and by
//! the check.
//!
//! A record's *space* tells which system owns it: [`crate::spaces`] lists them all. A system takes part in opening and
//! in checking a region as a [`Tenant`]; the compactor is given an [`OwnerBySpace`].

use crate::compact::{Gone, Named, Owner};
use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::RecordView;
use crate::recover::{DamagedSlot, Found, Judge, ScanUnit, Scanned};
use crate::spaces;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A system whose records are in the region, while that is opened ([`crate::Region`]) or checked
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
    /// True for the spaces whose records are its own.
    fn owns(&self, space: u8) -> bool;

    /// These slabs are about to be read.
    fn begin(&self, heap: &Heap, units: &[ScanUnit]) {
        let _ = (heap, units);
    }

    /// Forgets everything taken: the scan begins anew.
    fn restart(&self);

    /// A believed record of its own.
    ///
    /// # Errors
    /// The medium's.
    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError>;

    /// One that takes the records of one slab, for a system that gathers them there; else [`Self::take`] takes each.
    fn slab<'t>(&'t self, heap: &'t Heap) -> Option<Box<dyn SlabTaker + 't>> {
        let _ = heap;
        None
    }

    /// A slot that cannot be read: one of its own, by the name, or one that nobody can name.
    fn take_damaged(&self, damaged: &DamagedSlot);

    /// A record of a transaction whose commit record the medium may have lost: whether it counts cannot be told.
    /// Nothing older may pass for it.
    fn take_doubtful(&self, found: &Found) {
        let _ = found;
    }

    /// True if slabs with slots that cannot be read are to stay, so that the damage stays known until it is repaired.
    fn pins_damaged(&self) -> bool {
        true
    }

    /// Brings some of what was gathered to where [`Judge`] finds it; false when nothing is left.
    ///
    /// # Errors
    /// The medium's.
    fn gather_some(&self, heap: &Heap) -> Result<bool, HeapError> {
        let _ = heap;
        Ok(false)
    }

    /// True if what was read changes which records count, so that all must be read again.
    fn must_rescan(&self) -> bool {
        false
    }

    /// Everything has been taken: decides what is current. Yields slots that it finds damaged.
    ///
    /// # Errors
    /// The medium's.
    fn settle(&self, heap: &Heap) -> Result<Vec<DamagedSlot>, HeapError>;

    /// Hands over some of the slots whose records are current; false when none is left.
    ///
    /// # Errors
    /// What `keeper` returns; the medium's.
    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError>;

    /// Once all current records are known: ends some of what is left to do, perhaps with further current records; false
    /// when nothing is left.
    ///
    /// # Errors
    /// As [`Self::current_some`].
    fn finish_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let _ = keeper;
        Ok(false)
    }

    /// Records that newer ones replace, as far as it counts them.
    fn stale(&self) -> u64 {
        0
    }

    /// What a person would call the record with this key.
    fn describe(&self, space: u8, key: &[u8]) -> Option<String>;
}

/// Takes a slab's records.
pub trait SlabTaker {
    /// A believed record.
    fn take(&mut self, found: &Found, view: &RecordView<'_>);

    /// The slab has no more.
    ///
    /// # Errors
    /// The medium's.
    fn end(self: Box<Self>) -> Result<(), HeapError>;
}

/// Is handed current records: recovery counts what they refer to, the check verifies them.
pub trait Keeper {
    /// The heap that the records are in.
    fn heap(&self) -> &Heap;

    /// Reads a record and, if `also` says so, keeps it. False if it is not kept, or cannot be kept whole.
    ///
    /// # Errors
    /// What `also` returns; the medium's.
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
    /// Refuses a region that says that it may hold records of a system that is not here.
    pub(crate) fn new(all: Vec<Arc<dyn Tenant>>, heap: &Heap) -> Result<Self, HeapError> {
        let tenants = Self(all);
        let features = heap.geometry().features;
        let is_missing = |system: &&spaces::System| {
            features & system.feature != 0 && tenants.of(*system.spaces.start()).is_none()
        };
        match spaces::SYSTEMS.iter().find(is_missing) {
            Some(system) => Err(HeapError::Foreign { space: *system.spaces.start() }),
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

    /// True for a record whose owner is not here. Nobody may decide anything about it.
    pub(crate) fn is_foreign(&self, space: u8) -> bool {
        !spaces::is_none(space) && self.of(space).is_none()
    }

    /// What takes the records of one slab.
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

    /// Slots that cannot be read, or that the medium has lost.
    pub(crate) fn take_damaged(&self, scanned: &Scanned) {
        let lost = |slot: &SlotId| DamagedSlot { slot: *slot, what: Damage::Lost, named: None };
        for slot in scanned.damaged.iter().cloned().chain(scanned.holes.iter().map(lost)) {
            match &slot.named {
                Some((space, _, _)) => {
                    self.of(*space).into_iter().for_each(|owner| owner.take_damaged(&slot))
                }
                None => self.iter().for_each(|tenant| tenant.take_damaged(&slot)),
            }
        }
    }

    /// Calls `step` for one tenant after the other until one has done something.
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

/// Each record is judged by its owner.
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

/// What takes the records of one slab, each for its owner.
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

/// One owner for each record, by its space.
pub struct OwnerBySpace<'a> {
    /// Owns what nobody else does.
    pub default: &'a dyn Owner,
    /// The others, with their spaces.
    pub others: &'a [(RangeInclusive<u8>, &'a dyn Owner)],
}

impl std::fmt::Debug for OwnerBySpace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnerBySpace").finish_non_exhaustive()
    }
}

impl OwnerBySpace<'_> {
    /// Place of a space's owner among `others`; one past them for `rest`.
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
