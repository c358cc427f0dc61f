//! Opening a region for the systems that keep records in it. The steps and their proof: `docs/format/recovery.md`.
//!
//! [`Region`] reads slabs and tails, and asks the [`Tenant`] that owns a record's space. The caller brings the threads:
//! [`Region::scan_some`] may run on any number of them until it returns false, then [`Region::gather_some`] likewise,
//! then [`Region::settle`] once (and all three again if it returns true), then [`Region::adopt_some`] and
//! [`Region::finish_some`], each on any number, then [`Region::finish`]. [`Region::run`] does all of it on the calling
//! thread.

use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::RecordView;
use crate::recover::{DamagedSlot, Opening, Resolved, Scanned};
use crate::scan::Scan;
use crate::tenant::{Keeper, Tenant};
use landfall_media::Media;
use parking_lot::Mutex;
use std::sync::Arc;

/// The report of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Number of records below the watermarks.
    pub records: u64,
    /// Decisions about the records above the watermarks.
    pub resolved: Resolved,
    /// Records with one flipped bit, corrected.
    pub corrected: Vec<SlotId>,
    /// Slots that cannot be read.
    pub damaged: Vec<DamagedSlot>,
    /// Records whose value is lost because its list of extents is damaged.
    pub damaged_values: u64,
    /// Notes for the log.
    pub notes: Vec<String>,
}

/// A region being opened.
#[derive(Debug)]
pub struct Region {
    scan: Scan,
    report: Mutex<Recovered>,
}

impl Region {
    /// Begins to open the region on `media`, in which `tenants` keep records.
    ///
    /// # Errors
    /// As [`Opening::begin`]; [`HeapError::Foreign`] if the region may hold records of a system that is not among the tenants.
    pub fn open(media: Arc<dyn Media>, tenants: Vec<Arc<dyn Tenant>>) -> Result<Self, HeapError> {
        let scan = Scan::begin(Opening::begin(media)?, tenants)?;
        let report = Recovered { notes: scan.opening.notes.clone(), ..Recovered::default() };
        Ok(Self { scan, report: Mutex::new(report) })
    }

    /// Opens a region on the calling thread.
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

    /// Number of slabs whose scan has begun, and number of all slabs.
    pub fn progress(&self) -> (usize, usize) {
        self.scan.progress()
    }

    /// Scans the next slab; false when none is left.
    ///
    /// # Errors
    /// [`HeapError::Foreign`] if a record belongs to none of the tenants; the medium's.
    pub fn scan_some(&self) -> Result<bool, HeapError> {
        let Some((_, scanned)) = self.scan.scan_next()? else { return Ok(false) };
        self.add_report(scanned);
        Ok(true)
    }

    fn add_report(&self, scanned: Scanned) {
        let mut report = self.report.lock();
        report.records += scanned.records;
        report.notes.extend(scanned.uncertain.iter().map(|slot| {
            format!(
                "record {}, the mark of a FLUSHALL, was damaged and is written again: {}",
                slot.0,
                Damage::FlushMark
            )
        }));
        report.corrected.extend(scanned.corrected);
        report.damaged.extend(scanned.damaged);
        let lost = |slot| DamagedSlot { slot, what: Damage::Lost, named: None };
        report.damaged.extend(scanned.holes.into_iter().map(lost));
    }

    /// Runs one step of [`Tenant::gather_some`]; false when no step is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn gather_some(&self) -> Result<bool, HeapError> {
        self.scan.gather_some()
    }

    /// Decides about the records above the watermarks. Returns true if a flush mark was found that changes which
    /// records count. All records must then be read again: scan, gather and settle once more.
    ///
    /// # Errors
    /// As [`Self::scan_some`].
    pub fn settle(&mut self) -> Result<bool, HeapError> {
        let resolved = self.scan.resolve()?;
        let report = self.report.get_mut();
        report.resolved.undecided = resolved.undecided;
        // The first call leaves no record above the watermarks.
        if resolved.accepted + resolved.rejected > 0 {
            report.resolved = resolved;
        }
        if self.scan.tenants.iter().any(Tenant::must_rescan) {
            self.scan.restart();
            report.records = 0;
            report.damaged.clear();
            return Ok(true);
        }
        report.damaged.extend(self.scan.tenants.settle(self.scan.heap())?);
        Ok(false)
    }

    /// Counts the references of some current records; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn adopt_some(&self) -> Result<bool, HeapError> {
        self.scan.current_some(self)
    }

    /// Runs one step of [`Tenant::finish_some`]; false when no step is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn finish_some(&self) -> Result<bool, HeapError> {
        self.scan.tenants.some(|tenant| tenant.finish_some(self))
    }

    /// Ends recovery and returns the heap. Runs without references of current records are free.
    ///
    /// # Errors
    /// The medium's.
    pub fn finish(self) -> Result<(Arc<Heap>, Recovered), HeapError> {
        let report = self.report.into_inner();
        let heap = self.scan.opening.finish()?;
        if self.scan.tenants.iter().any(Tenant::pins_damaged) {
            report.damaged.iter().for_each(|damaged| heap.pin_slab(damaged.slot));
        }
        Ok((heap, report))
    }
}

impl Keeper for Region {
    fn heap(&self) -> &Heap {
        self.scan.heap()
    }

    fn keep(
        &self,
        slot: SlotId,
        also: &mut dyn FnMut(&RecordView<'_>) -> Result<bool, HeapError>,
    ) -> Result<bool, HeapError> {
        let view = self.scan.heap().record(slot)?;
        if !also(&view)? {
            return Ok(false);
        }
        match self.scan.opening.adopt(slot, &view) {
            Ok(()) => Ok(true),
            // The slot stays current, so that its owner answers with an error, not with an older version.
            Err(HeapError::Damaged { .. }) => {
                self.report.lock().damaged_values += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
