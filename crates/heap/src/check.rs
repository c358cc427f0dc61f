//! Checks a region offline, without changing it.
//!
//! The check reads what recovery would read, by a read-only opening, and verifies every current record: its key by its
//! hash, its value by its checksum. Each system says which of its records are current, as a [`Tenant`]. The caller
//! brings the threads, as for [`crate::Region`]: [`RegionCheck::scan_some`] until it returns false, then
//! [`RegionCheck::gather_some`], then [`RegionCheck::settle`], then [`RegionCheck::verify_some`] until it returns
//! false, then [`RegionCheck::report`].
//!
//! A medium that was opened to be salvaged has zeroes where it cannot read. So a bad block damages what lies there, and the
//! check goes on; what is damaged for that is [`Damage::Unreadable`].

use crate::error::{Damage, HeapError};
use crate::extents::Extents;
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId, SlotId};
use crate::record::{KeyPlace, Kind, RecordView, ValuePlace};
use crate::recover::{DamagedCopies, Judge, Opening, Scanned};
use crate::scan::Scan;
use crate::spaces;
use crate::tenant::{Keeper, Tenant};
use landfall_media::{Extent, Media, RUN_SIZE};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most damaged keys and slots that are listed. Further ones are only counted.
pub const FINDINGS_MAX: usize = 100_000;

/// Something damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check failed; `None` if the slot is empty although a record was made durable there.
    pub what: Option<Damage>,
    /// The record.
    pub slot: SlotId,
    /// Where the damage lies, bytes from the region's start: what cannot be read, the record, or the first extent of the value.
    pub offset: u64,
    /// Database and key, if they are known.
    pub named: Option<(u8, Vec<u8>)>,
    /// Hash of the key, if it is known.
    pub hash: Option<u64>,
}

/// What a check has found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Bytes of the region.
    pub bytes: u64,
    /// Bytes in runs that hold records, or values of current records.
    pub used_bytes: u64,
    /// Bytes of current records, keys and values.
    pub live_bytes: u64,
    /// Slabs of records.
    pub slabs: u64,
    /// Records that are whole.
    pub records: u64,
    /// Current keys, expired ones included.
    pub keys: u64,
    /// Current entries of logs.
    pub log_entries: u64,
    /// Current records of files.
    pub file_records: u64,
    /// Current tombstones and flush marks.
    pub tombstones: u64,
    /// Records that newer records replace.
    pub stale: u64,
    /// Records of batches and transactions that were never acknowledged. Recovery drops them; they are no damage.
    pub unacknowledged: u64,
    /// Records with one flipped bit, which recovery corrects. This is damage, but nothing is lost.
    pub correctable: Vec<SlotId>,
    /// Damaged copies of the superblock and of the run tables.
    pub copies: DamagedCopies,
    /// Blocks that the medium cannot read, whatever lies there.
    pub lost_blocks: Vec<Extent>,
    /// The damage that loses data.
    pub findings: Vec<Finding>,
    /// Number of findings, also of those beyond `FINDINGS_MAX`.
    pub findings_count: u64,
}

impl Checked {
    /// True if nothing is damaged.
    pub fn is_clean(&self) -> bool {
        let is_whole = self.copies == DamagedCopies::default() && self.lost_blocks.is_empty();
        self.findings_count == 0 && self.correctable.is_empty() && is_whole
    }

    /// True if blocks with records or data cannot be read: also where nothing is found of it, something may be lost.
    pub fn has_lost_blocks(&self) -> bool {
        self.lost_blocks.iter().any(|block| !RunId::of(block.off).is_table())
    }

    /// The unreadable records that a repair overwrites. None while there are more doubtful keys than a check lists: older
    /// versions of the others would become current.
    pub fn unreadable(&self) -> impl Iterator<Item = &Finding> {
        let unreadable = |finding: &&Finding| match finding.what {
            None | Some(Damage::RecordChecksum | Damage::RecordFields | Damage::KeyHash) => true,
            // A record, or its key. Where only the value cannot be read, the key gets a tombstone.
            Some(Damage::Unreadable) => finding.named.is_none(),
            Some(_) => false,
        };
        let is_doubtful = |finding: &Finding| finding.what == Some(Damage::Undecided);
        let is_listed = self.findings_count == self.findings.len() as u64;
        let may_clear = is_listed || !self.findings.iter().any(is_doubtful);
        self.findings.iter().filter(unreadable).filter(move |_| may_clear)
    }

    /// Those of them of which no key is known.
    pub fn nameless(&self) -> Vec<SlotId> {
        self.unreadable().filter(|finding| finding.named.is_none()).map(|finding| finding.slot).collect()
    }
}

/// A check under way.
#[derive(Debug)]
pub struct RegionCheck {
    scan: Scan,
    used: Mutex<BTreeSet<RunId>>,
    report: Mutex<Checked>,
}

impl RegionCheck {
    /// Begins a check of the region on `media`, in which `tenants` keep records. The medium may be read-only.
    ///
    /// # Errors
    /// As [`Opening::begin`].
    pub fn begin(media: Arc<dyn Media>, tenants: Vec<Arc<dyn Tenant>>) -> Result<Self, HeapError> {
        let scan = Scan::begin(Opening::begin_read_only(media)?, tenants)?;
        let report = Checked {
            bytes: scan.heap().geometry().bytes(),
            slabs: scan.opening.units().len() as u64,
            copies: scan.opening.damaged_copies.clone(),
            ..Checked::default()
        };
        Ok(Self { scan, used: Mutex::default(), report: Mutex::new(report) })
    }

    /// Reads the next slab; false when none is left.
    ///
    /// # Errors
    /// [`HeapError::Foreign`] if a record belongs to none of the tenants; the medium's.
    pub fn scan_some(&self) -> Result<bool, HeapError> {
        let Some((run, scanned)) = self.scan.scan_next()? else { return Ok(false) };
        self.used.lock().insert(run);
        self.note(scanned);
        Ok(true)
    }

    fn note(&self, scanned: Scanned) {
        let mut report = self.report.lock();
        report.records += scanned.records;
        report.correctable.extend(scanned.corrected);
        for damaged in scanned.damaged {
            let hash = damaged.named.as_ref().map(|(_, _, hash)| *hash);
            let named = damaged.named.map(|(space, key, _)| (space, key));
            let (slot, what) = (damaged.slot, Some(damaged.what));
            report.find(Finding { what, slot, offset: slot.off(), named, hash });
        }
        for slot in scanned.holes {
            let record = Extent::new(slot.off(), RECORD_SIZE as u32);
            let what = self.scan.heap().unreadable_in(&[record]).map(|_| Damage::Unreadable);
            report.find(Finding { what, slot, offset: slot.off(), named: None, hash: None });
        }
    }

    /// Runs one step of [`Tenant::gather_some`]; false when no step is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn gather_some(&self) -> Result<bool, HeapError> {
        self.scan.gather_some()
    }

    /// Decides which records above the watermarks count, as recovery would.
    ///
    /// # Errors
    /// As [`Self::scan_some`].
    pub fn settle(&mut self) -> Result<(), HeapError> {
        let resolved = self.scan.resolve()?;
        self.scan.tenants.settle(self.scan.heap())?;
        let report = self.report.get_mut();
        report.records += resolved.accepted;
        report.unacknowledged = resolved.rejected + resolved.undecided;
        self.find_doubtful()
    }

    /// Names the keys that a transaction may have written whose commit record may be lost, unless something newer is known
    /// of them. Nothing older may pass for what the transaction wrote.
    fn find_doubtful(&self) -> Result<(), HeapError> {
        let (heap, mut doubtful) = (self.scan.heap(), Vec::new());
        self.scan.each_doubtful(|found| {
            if !self.scan.tenants.is_superseded(heap, found) {
                doubtful.push((found.slot, found.hash));
            }
        })?;
        let mut report = self.report.lock();
        for (slot, hash) in doubtful {
            let named = self.scan.opening.with_record(slot, |view| self.name_of(view))?;
            let what = Some(Damage::Undecided);
            report.find(Finding { what, slot, offset: slot.off(), named, hash: Some(hash) });
        }
        Ok(())
    }

    /// Database and key of a record, if the key holds.
    fn name_of(&self, view: &RecordView<'_>) -> Result<Option<(u8, Vec<u8>)>, HeapError> {
        let heap = self.scan.heap();
        Ok(heap
            .key_holds(view)?
            .then(|| heap.key(view).map(|key| (view.space(), key.to_vec())))
            .transpose()?)
    }

    /// Verifies some of the current records; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn verify_some(&self) -> Result<bool, HeapError> {
        self.scan.current_some(self)
    }

    /// The name of a record for people, if its system has one for it.
    pub fn describe(&self, space: u8, key: &[u8]) -> Option<String> {
        self.scan.tenants.of(space)?.describe(space, key)
    }

    fn verify_record(&self, slot: SlotId, view: &RecordView<'_>) -> Result<(), HeapError> {
        let heap = self.scan.heap();
        let named = self.name_of(view)?;
        let outcome = heap.verify_value(slot, view);
        let extents = heap.all_extents(slot, view);
        let mut report = self.report.lock();
        match view.kind() {
            Kind::Put if spaces::LOGS.contains(&view.space()) => report.log_entries += 1,
            Kind::Put if spaces::FILES.contains(&view.space()) => report.file_records += 1,
            Kind::Put => report.keys += 1,
            Kind::Tombstone | Kind::Flush => report.tombstones += 1,
            Kind::Bound | Kind::Commit => {}
        }
        report.live_bytes += RECORD_SIZE;
        let what = match (&named, outcome) {
            (None, _) => Some(Damage::KeyHash),
            (_, Err(HeapError::Damaged { what, .. })) => Some(what),
            (_, Err(error)) => return Err(error),
            (_, Ok(_)) => None,
        };
        let first = extents.as_ref().ok().and_then(|extents| extents.first()).map(|extent| extent.off);
        if let Some(what) = what {
            let lost = heap.unreadable_in(&referred(view, extents.as_ref().ok()));
            let what = Some(if lost.is_some() { Damage::Unreadable } else { what });
            let offset = lost.or(first).unwrap_or(slot.off());
            report.find(Finding { what, slot, offset, named, hash: Some(view.hash()) });
        }
        if let Ok(extents) = extents {
            report.live_bytes += extents.iter().map(|extent| heap.runs().count_once(*extent)).sum::<u64>();
            drop(report);
            self.use_runs(&extents);
            heap.evict_verified(&extents);
        }
        Ok(())
    }

    fn use_runs(&self, extents: &[Extent]) {
        let mut used = self.used.lock();
        for extent in extents.iter().filter(|extent| !extent.is_empty()) {
            used.extend((RunId::of(extent.off).0..=RunId::of(extent.end() - 1).0).map(RunId));
        }
    }

    /// Database and key of every record with one of these hashes whose key matches its hash. These are older versions
    /// of damaged keys, which must not take the place of the damaged ones.
    ///
    /// # Errors
    /// The medium's.
    pub fn names_of(&self, hashes: &BTreeSet<u64>) -> Result<BTreeSet<(u8, Vec<u8>)>, HeapError> {
        let (heap, mut names) = (self.scan.heap(), BTreeSet::new());
        for unit in self.scan.opening.units() {
            self.scan.opening.read_slab(unit, |found, view| {
                if hashes.contains(&found.hash)
                    && let Ok(key) = heap.key(view)
                    && heap.hash(found.space, &key) == found.hash
                {
                    names.insert((found.space, key.to_vec()));
                }
            })?;
        }
        Ok(names)
    }

    /// The findings so far. The report is complete when [`Self::verify_some`] has returned false.
    pub fn report(&self) -> Checked {
        let mut report = self.report.lock().clone();
        report.stale = self.scan.tenants.iter().map(Tenant::stale).sum();
        report.used_bytes = self.used.lock().len() as u64 * RUN_SIZE;
        report.lost_blocks = self.scan.heap().media().unreadable();
        report.correctable.sort_unstable();
        report.findings.sort_unstable_by_key(|finding| finding.slot);
        report
    }

    /// Runs the whole check on the calling thread.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn run(media: Arc<dyn Media>, tenants: Vec<Arc<dyn Tenant>>) -> Result<Checked, HeapError> {
        Ok(Self::complete(media, tenants)?.report())
    }

    /// As [`Self::run`]. Who has more to check than records asks what is returned.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn complete(media: Arc<dyn Media>, tenants: Vec<Arc<dyn Tenant>>) -> Result<Self, HeapError> {
        let mut check = Self::begin(media, tenants)?;
        while check.scan_some()? {}
        while check.gather_some()? {}
        check.settle()?;
        while check.verify_some()? {}
        Ok(check)
    }
}

/// What a record refers to, as far as that is known: all of it, or at least what the record itself names.
fn referred(view: &RecordView<'_>, all: Option<&Extents>) -> Extents {
    let mut extents = all.cloned().unwrap_or_default();
    match view.value() {
        ValuePlace::Indirect(list) => extents.push(list),
        ValuePlace::Pieces(list) => extents.push(list.at),
        ValuePlace::Inline(_) | ValuePlace::Extents(_) => {}
    }
    if let KeyPlace::Stored(key) = view.key() {
        extents.push(key);
    }
    extents
}

impl Keeper for RegionCheck {
    fn heap(&self) -> &Heap {
        self.scan.heap()
    }

    fn keep(
        &self,
        slot: SlotId,
        also: &mut dyn FnMut(&RecordView<'_>) -> Result<bool, HeapError>,
    ) -> Result<bool, HeapError> {
        let verified = self.scan.opening.with_record(slot, |view| {
            let is_kept = also(view)?;
            if is_kept {
                self.verify_record(slot, view)?;
            }
            Ok(is_kept)
        });
        match verified {
            Err(HeapError::Damaged { .. }) => Ok(false),
            other => other,
        }
    }
}

impl Checked {
    fn find(&mut self, finding: Finding) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}
