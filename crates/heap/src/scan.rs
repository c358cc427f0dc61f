//! The scan that opening and checking a region share: it reads slabs and tails, and hands each record to its owner.

use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{RunId, SLOTS_PER_RUN, SlotId};
use crate::record::Slot;
use crate::recover::{Found, Opening, Resolved, ScanUnit, Scanned};
use crate::tenant::{Keeper, Tenant, Tenants};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Slots of lost runs that are reported, at most: systems list them, and a part of the run table that is lost as a whole names
/// hundreds of runs.
const LOST_SLOTS_MAX: usize = 1 << 20;

/// A scan of a region for the systems that own its records.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) opening: Opening,
    pub(crate) tenants: Tenants,
    next_unit: AtomicUsize,
    /// The medium has lost records whose keys are unknown.
    has_lost: AtomicBool,
}

impl Scan {
    /// Begins the scan for these systems.
    ///
    /// # Errors
    /// [`HeapError::Foreign`] if the region may hold records of a system that is not among the tenants.
    pub(crate) fn begin(opening: Opening, tenants: Vec<Arc<dyn Tenant>>) -> Result<Self, HeapError> {
        let tenants = Tenants::new(tenants, opening.heap())?;
        tenants.iter().for_each(|tenant| tenant.begin(opening.heap(), opening.units()));
        let (next_unit, has_lost) = (AtomicUsize::new(0), AtomicBool::new(false));
        let scan = Self { opening, tenants, next_unit, has_lost };
        scan.take_lost_runs();
        Ok(scan)
    }

    /// Reports each slot of the runs of which nothing is known: it may have had any record.
    fn take_lost_runs(&self) {
        let runs = &self.opening.damaged_copies.runs;
        self.has_lost.store(!runs.is_empty(), Ordering::Relaxed);
        let slots = runs.iter().flat_map(|run| (0..SLOTS_PER_RUN).map(move |index| SlotId::new(*run, index)));
        self.tenants.take_lost(slots.take(LOST_SLOTS_MAX));
    }

    pub(crate) fn heap(&self) -> &Heap {
        self.opening.heap()
    }

    /// Number of slabs whose scan has begun, and number of all slabs.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let total = self.opening.units().len();
        (self.next_unit.load(Ordering::Relaxed).min(total), total)
    }

    /// Reads the next slab and hands its records to their owners. `None` when no slab is left.
    ///
    /// # Errors
    /// [`HeapError::Foreign`] if a record belongs to none of the tenants; the medium's.
    pub(crate) fn scan_next(&self) -> Result<Option<(RunId, Scanned)>, HeapError> {
        let index = self.next_unit.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = self.opening.units().get(index) else { return Ok(None) };
        let mut takers = self.tenants.slab(self.heap());
        let scanned = self.opening.scan(unit, |found, view| takers.take(&found, view))?;
        takers.end()?;
        self.tenants.take_damaged(&scanned);
        if !scanned.holes.is_empty() || scanned.damaged.iter().any(|damaged| damaged.named.is_none()) {
            self.has_lost.store(true, Ordering::Relaxed);
        }
        Ok(Some((unit.run, scanned)))
    }

    /// Runs one step of [`Tenant::gather_some`]; false when no step is left.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn gather_some(&self) -> Result<bool, HeapError> {
        if self.take_decided()? {
            return Ok(true);
        }
        self.tenants.some(|tenant| tenant.gather_some(self.heap()))
    }

    /// Hands some records of committed transactions to their owners; false when none is left.
    fn take_decided(&self) -> Result<bool, HeapError> {
        let heap = self.heap();
        self.opening.decided_some(|found, view| self.tenants.take(heap, &found, view))
    }

    /// Has a tenant hand some of its current records to `keeper`; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        self.tenants.some(|tenant| tenant.current_some(keeper))
    }

    /// Decides about the tails and hands the records that count to their owners.
    ///
    /// # Errors
    /// [`HeapError::Foreign`] if a record's owner is missing. Nothing has been decided then.
    pub(crate) fn resolve(&mut self) -> Result<Resolved, HeapError> {
        for slot in self.opening.units().iter().flat_map(ScanUnit::tail) {
            if let Slot::Record(view) = self.heap().slot(slot)?
                && self.tenants.is_foreign(view.space())
            {
                return Err(HeapError::Foreign { space: view.space() });
            }
        }
        let mut accepted = Vec::new();
        let resolved = self.opening.resolve(&self.tenants, |found, _| accepted.push(found))?;
        let heap = self.heap();
        accepted.iter().try_for_each(|found| self.tenants.take(heap, found, &heap.record(found.slot)?))?;
        while self.take_decided()? {}
        self.report_doubtful()?;
        Ok(resolved)
    }

    /// Reports the records of undecided transactions, if a lost record may have been a commit record.
    fn report_doubtful(&self) -> Result<(), HeapError> {
        self.each_doubtful(|found| {
            self.tenants.of(found.space).into_iter().for_each(|owner| owner.take_doubtful(found));
        })
    }

    /// Visits the records of undecided transactions, if a lost record may have been a commit record. To be called once it
    /// is known which records above the watermarks count.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn each_doubtful(&self, visit: impl FnMut(&Found)) -> Result<(), HeapError> {
        if self.has_lost.load(Ordering::Relaxed) { self.opening.each_undecided(visit) } else { Ok(()) }
    }

    /// Restarts the scan, because a flush mark was found that changes which records count.
    pub(crate) fn restart(&mut self) {
        self.tenants.iter().for_each(Tenant::restart);
        self.opening.rescan();
        self.take_lost_runs();
        self.next_unit.store(0, Ordering::Relaxed);
    }
}
