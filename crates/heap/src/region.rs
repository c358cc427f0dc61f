//! Opening a region for the systems whose records are in it. The steps and their proof: `docs/format/recovery.md`.
//!
//! No system drives: [`Region`] reads slabs and tails, and asks the [`Tenant`] that owns a record's space. The caller
//! brings the threads: [`Region::scan_some`] may run on any number of them until it returns false, then
//! [`Region::gather_some`] likewise, then [`Region::settle`] once (and all three again if it says so), then
//! [`Region::adopt_some`] and [`Region::finish_some`], each on any number, then [`Region::finish`].
//! [`Region::run`] does all of it on the calling thread.

use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::{RecordView, Slot};
use crate::recover::{DamagedSlot, Opening, Resolved, Scanned};
use crate::tenant::{Keeper, Tenant, Tenants};
use landfall_media::Media;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Records read below the watermarks.
    pub records: u64,
    /// What became of the records above them.
    pub resolved: Resolved,
    /// Records with one flipped bit, corrected.
    pub corrected: Vec<SlotId>,
    /// Slots that cannot be read.
    pub damaged: Vec<DamagedSlot>,
    /// Records whose value is lost because its list of extents is damaged.
    pub damaged_values: u64,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// A region being opened.
#[derive(Debug)]
pub struct Region {
    opening: Opening,
    tenants: Tenants,
    next_unit: AtomicUsize,
    report: Mutex<Recovered>,
}

impl Region {
    /// Begins to open the region on `media`, in which these systems keep records.
    ///
    /// # Errors
    /// All the ways in which the region cannot be opened; [`HeapError::Foreign`] if it says that it may hold records of a
    /// system that is not among them.
    pub fn open(media: Arc<dyn Media>, tenants: Vec<Arc<dyn Tenant>>) -> Result<Self, HeapError> {
        let opening = Opening::begin(media)?;
        let tenants = Tenants::new(tenants, opening.heap())?;
        tenants.iter().for_each(|tenant| tenant.begin(opening.heap(), opening.units()));
        let report = Recovered { notes: opening.notes.clone(), ..Recovered::default() };
        Ok(Self { opening, tenants, next_unit: AtomicUsize::new(0), report: Mutex::new(report) })
    }

    /// Opens a region on the calling thread alone.
    ///
    /// # Errors
    /// As [`Self::open`]; the medium's.
    pub fn run(
        media: Arc<dyn Media>,
        tenants: Vec<Arc<dyn Tenant>>,
    ) -> Result<(Arc<Heap>, Recovered), HeapError> {
        let mut region = Self::open(media, tenants)?;
        loop {
            while region.scan_some()? {}
            while region.gather_some()? {}
            if !region.settle()? {
                break;
            }
        }
        while region.adopt_some()? {}
        while region.finish_some()? {}
        region.finish()
    }

    /// Slabs scanned or begun, and slabs in all: for showing progress.
    pub fn progress(&self) -> (usize, usize) {
        let total = self.opening.units().len();
        (self.next_unit.load(Ordering::Relaxed).min(total), total)
    }

    /// Scans the next slab; false when none is left.
    ///
    /// # Errors
    /// [`HeapError::Foreign`] if a record belongs to none of the tenants; the medium's.
    pub fn scan_some(&self) -> Result<bool, HeapError> {
        let index = self.next_unit.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = self.opening.units().get(index) else { return Ok(false) };
        let mut takers = self.tenants.slab(self.opening.heap());
        let scanned = self.opening.scan(unit, |found, view| takers.take(&found, view))?;
        takers.end()?;
        self.tenants.take_damaged(&scanned);
        self.add_report(scanned);
        Ok(true)
    }

    fn add_report(&self, scanned: Scanned) {
        let mut report = self.report.lock();
        report.records += scanned.records;
        report.corrected.extend(scanned.corrected);
        report.damaged.extend(scanned.damaged);
        let lost = |slot| DamagedSlot { slot, what: Damage::Lost, named: None };
        report.damaged.extend(scanned.holes.into_iter().map(lost));
    }

    /// Has a tenant bring some of what it has gathered in order; false when nothing is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn gather_some(&self) -> Result<bool, HeapError> {
        self.tenants.some(|tenant| tenant.gather_some(self.opening.heap()))
    }

    /// Settles what lies above the watermarks. True: what was found changes which records count (a flush mark), so that
    /// all must be read again: scan, gather and settle once more.
    ///
    /// # Errors
    /// As [`Self::scan_some`].
    pub fn settle(&mut self) -> Result<bool, HeapError> {
        let resolved = resolve(&mut self.opening, &self.tenants)?;
        let report = self.report.get_mut();
        if resolved != Resolved::default() {
            report.resolved = resolved;
        }
        if self.tenants.iter().any(Tenant::must_rescan) {
            self.tenants.iter().for_each(Tenant::restart);
            report.records = 0;
            report.damaged.clear();
            self.next_unit.store(0, Ordering::Relaxed);
            return Ok(true);
        }
        report.damaged.extend(self.tenants.settle(self.opening.heap())?);
        Ok(false)
    }

    /// Counts what some of the current records refer to; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn adopt_some(&self) -> Result<bool, HeapError> {
        self.tenants.some(|tenant| tenant.current_some(self))
    }

    /// Has a tenant end some of what is left to do once all current records are counted; false when nothing is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn finish_some(&self) -> Result<bool, HeapError> {
        self.tenants.some(|tenant| tenant.finish_some(self))
    }

    /// Ends recovery: the heap. What no tenant has claimed is free.
    ///
    /// # Errors
    /// The medium's.
    pub fn finish(self) -> Result<(Arc<Heap>, Recovered), HeapError> {
        let report = self.report.into_inner();
        let heap = self.opening.finish()?;
        if self.tenants.iter().any(Tenant::pins_damaged) {
            report.damaged.iter().for_each(|damaged| heap.pin_slab(damaged.slot));
        }
        Ok((heap, report))
    }
}

impl Keeper for Region {
    fn heap(&self) -> &Heap {
        self.opening.heap()
    }

    fn keep(
        &self,
        slot: SlotId,
        also: &mut dyn FnMut(&RecordView<'_>) -> Result<bool, HeapError>,
    ) -> Result<bool, HeapError> {
        let view = self.opening.heap().record(slot)?;
        if !also(&view)? {
            return Ok(false);
        }
        match self.opening.adopt(slot, &view) {
            Ok(()) => Ok(true),
            // The slot stays current, so that its owner answers with an error, not with something older.
            Err(HeapError::Damaged { .. }) => {
                self.report.lock().damaged_values += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Settles the tails and hands what is believed to its owners.
///
/// # Errors
/// [`HeapError::Foreign`], before anything is decided that only the owners of these records could decide.
pub(crate) fn resolve(opening: &mut Opening, tenants: &Tenants) -> Result<Resolved, HeapError> {
    for slot in opening.units().iter().flat_map(crate::ScanUnit::tail) {
        if let Slot::Record(view) = opening.heap().slot(slot)?
            && tenants.is_foreign(view.space())
        {
            return Err(HeapError::Foreign { space: view.space() });
        }
    }
    let mut accepted = Vec::new();
    let resolved = opening.resolve(tenants, |found, _| accepted.push(found))?;
    let heap = opening.heap();
    accepted.iter().try_for_each(|found| tenants.take(heap, found, &heap.record(found.slot)?))?;
    Ok(resolved)
}
