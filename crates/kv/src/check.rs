//! Checking a region that nobody serves, without changing it.
//!
//! The check reads what recovery would read, by the heap's read-only opening, and judges every current
//! record itself: its key by its hash, its value by its checksum. It builds no index that serves.
//! The caller brings the threads, as for [`crate::Recovery`]: [`Check::scan_some`] until it returns false,
//! then [`Check::settle`], then [`Check::verify_some`] until it returns false, then [`Check::report`].

use crate::error::KvError;
use crate::shard::ByHash;
use crate::tenants::Tenants;
use landfall_heap::{
    Damage, DamagedCopies, Found, HeapError, Kind, Opening, RecordView, RunId, Scanned, SlotId, Tenant,
    spaces,
};
use landfall_media::{Extent, Media};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Parts that the current records are shared out over.
const PARTS: usize = 64;
/// Damaged keys and slots that are listed; more are counted.
pub const FINDINGS_MAX: usize = 100_000;

/// Something damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What failed; `None`: the slot holds nothing although something was made durable there.
    pub what: Option<Damage>,
    /// The record.
    pub slot: SlotId,
    /// Where the damage lies, bytes from the region's start: the record, or the first extent of the value.
    pub offset: u64,
    /// Database and key, where they can be told.
    pub named: Option<(u8, Vec<u8>)>,
    /// Hash of the key, where it can be told.
    pub hash: Option<u64>,
}

/// What a check has found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Bytes of the region.
    pub bytes: u64,
    /// Bytes in runs that hold records, or values of current ones.
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
    /// Current records that say that something is gone.
    pub tombstones: u64,
    /// Records that newer ones replace.
    pub stale: u64,
    /// Records of batches that were never acknowledged: recovery drops them. No damage.
    pub unacknowledged: u64,
    /// Records with one flipped bit: recovery corrects them. Damage, but nothing is lost.
    pub correctable: Vec<SlotId>,
    /// Damaged copies of superblock and run tables.
    pub copies: DamagedCopies,
    /// What is lost.
    pub findings: Vec<Finding>,
    /// More than `FINDINGS_MAX` findings: how many in all.
    pub findings_count: u64,
}

impl Checked {
    /// True if nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0 && self.correctable.is_empty() && self.copies == DamagedCopies::default()
    }
}

/// The newest record of a key.
#[derive(Clone, Copy, Debug)]
struct Newest {
    slot: SlotId,
    kind: Kind,
    version: (u64, u32),
    /// The highest version among the records that it replaces.
    older_seq: u64,
}

impl Newest {
    fn new(found: &Found) -> Self {
        Self { slot: found.slot, kind: found.kind, version: (found.seq, found.rev), older_seq: 0 }
    }
}

/// A check under way.
#[derive(Debug)]
pub struct Check {
    opening: Opening,
    /// By hash alone: two keys of one hash would count as one (one chance in 2^64 for each pair).
    newest: Box<[Mutex<ByHash<Newest>>]>,
    flush: Mutex<Option<Found>>,
    next_unit: AtomicUsize,
    next_part: AtomicUsize,
    stale: AtomicU64,
    used: Mutex<BTreeSet<RunId>>,
    tenants: Tenants,
    report: Mutex<Checked>,
}

impl Check {
    /// Begins a check of the region on `media`, which may be read-only.
    ///
    /// # Errors
    /// All the ways in which this is not a region that can be opened.
    pub fn begin(media: Arc<dyn Media>) -> Result<Self, KvError> {
        Self::begin_with(media, Vec::new())
    }

    /// The same of a region that other systems' records share.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_with(media: Arc<dyn Media>, tenants: Vec<Arc<dyn Tenant>>) -> Result<Self, KvError> {
        let tenants = Tenants::new(tenants);
        let opening = Opening::begin_read_only(media)?;
        tenants.check_features(opening.heap())?;
        let report = Checked {
            bytes: opening.heap().geometry().bytes(),
            slabs: opening.units().len() as u64,
            copies: opening.damaged_copies.clone(),
            ..Checked::default()
        };
        Ok(Self {
            opening,
            newest: (0..PARTS).map(|_| Mutex::default()).collect(),
            flush: Mutex::new(None),
            next_unit: AtomicUsize::new(0),
            next_part: AtomicUsize::new(0),
            stale: AtomicU64::new(0),
            used: Mutex::default(),
            tenants,
            report: Mutex::new(report),
        })
    }

    /// Reads the next slab; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn scan_some(&self) -> Result<bool, KvError> {
        let index = self.next_unit.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = self.opening.units().get(index) else { return Ok(false) };
        let scanned = self.opening.scan(unit, |found, view| {
            if !self.tenants.take(self.opening.heap(), &found, view) {
                self.contest(&found);
            }
        })?;
        self.tenants.check()?;
        self.tenants.take_damaged(&scanned);
        self.used.lock().insert(unit.run);
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
            report.find(Finding { what: None, slot, offset: slot.off(), named: None, hash: None });
        }
    }

    /// Lets a record contest with the newest of its key so far.
    fn contest(&self, found: &Found) {
        if found.kind == Kind::Flush {
            return self.contest_flush(found);
        }
        let new = Newest::new(found);
        let mut part = self.part(found.hash).lock();
        let known = part.entry(found.hash).or_insert(new);
        if known.slot == new.slot {
            return;
        }
        self.stale.fetch_add(1, Ordering::Relaxed);
        let (older, newer) = if new.version > known.version { (*known, new) } else { (new, *known) };
        let older_seq = older.version.0.max(older.older_seq).max(newer.older_seq);
        *known = Newest { older_seq, ..newer };
    }

    fn contest_flush(&self, found: &Found) {
        let mut newest = self.flush.lock();
        let version = |found: &Found| (found.seq, found.rev);
        if newest.as_ref().is_some() {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
        if newest.as_ref().is_none_or(|known| version(known) < version(found)) {
            *newest = Some(*found);
        }
    }

    fn part(&self, hash: u64) -> &Mutex<ByHash<Newest>> {
        &self.newest[hash as usize % PARTS]
    }

    /// Settles what was not acknowledged when the region was last written, as recovery would.
    ///
    /// # Errors
    /// The medium's.
    pub fn settle(&mut self) -> Result<(), KvError> {
        let newest = &self.newest;
        let flush_seq = self.flush.get_mut().map_or(0, |flush| flush.seq);
        let superseded = |_: &landfall_heap::Heap, hash: u64, seq: u64| {
            let known = newest[hash as usize % PARTS].lock().get(&hash).map_or(0, |known| known.version.0);
            seq < flush_seq || known > seq
        };
        let mut accepted = Vec::new();
        let resolved =
            self.opening.resolve(&self.tenants.judge(superseded), |found, _| accepted.push(found))?;
        for found in &accepted {
            let heap = self.opening.heap();
            if !self.tenants.take(heap, found, &heap.record(found.slot)?) {
                self.contest(found);
            }
        }
        self.tenants.settle(self.opening.heap())?;
        let report = self.report.get_mut();
        report.records += resolved.accepted;
        report.unacknowledged = resolved.rejected;
        Ok(())
    }

    /// Verifies the current records of the next part; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn verify_some(&self) -> Result<bool, KvError> {
        let index = self.next_part.fetch_add(1, Ordering::Relaxed);
        let Some(part) = self.newest.get(index) else { return self.verify_tenants() };
        let flush_seq = self.flush.lock().map_or(0, |flush| flush.seq);
        // In order of slots: files are then read from one end to the other.
        let mut current: Vec<Newest> = part.lock().values().copied().collect();
        current.sort_unstable_by_key(|newest| newest.slot);
        for newest in current {
            if newest.version.0 < flush_seq {
                self.stale.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let is_needed = newest.older_seq > 0 && newest.older_seq >= flush_seq;
            self.verify(newest, is_needed)?;
        }
        Ok(true)
    }

    /// Verifies some of the other systems' current records; false when none is left.
    fn verify_tenants(&self) -> Result<bool, KvError> {
        self.tenants.visit_some(&mut |slot| {
            let verified = self.opening.with_record(slot, |view| self.verify_record(slot, view));
            match verified {
                Err(HeapError::Damaged { .. }) | Ok(()) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// What a person would call a record of another system.
    pub fn describe(&self, space: u8, key: &[u8]) -> Option<String> {
        self.tenants.describe(space, key)
    }

    fn verify(&self, newest: Newest, is_needed: bool) -> Result<(), KvError> {
        let verified = self.opening.with_record(newest.slot, |view| {
            // The key of a tombstone that nothing older needs may have been given up with its frames.
            let is_done = newest.kind == Kind::Tombstone && !is_needed;
            if is_done && !self.opening.heap().key_holds(view)? {
                self.stale.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            self.verify_record(newest.slot, view)
        });
        match verified {
            Err(HeapError::Damaged { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn verify_record(&self, slot: SlotId, view: &RecordView<'_>) -> Result<(), HeapError> {
        let heap = self.opening.heap();
        let named = heap
            .key_holds(view)?
            .then(|| heap.key(view).map(|key| (view.space(), key.to_vec())))
            .transpose()?;
        let outcome = heap.verify_value(slot, view);
        let extents = heap.all_extents(slot, view);
        let mut report = self.report.lock();
        match view.kind() {
            Kind::Put if spaces::LOGS.contains(&view.space()) => report.log_entries += 1,
            Kind::Put => report.keys += 1,
            Kind::Tombstone | Kind::Flush => report.tombstones += 1,
            Kind::Bound => {}
        }
        report.live_bytes += landfall_heap::RECORD_SIZE;
        let what = match (&named, outcome) {
            (None, _) => Some(Damage::KeyHash),
            (_, Err(HeapError::Damaged { what, .. })) => Some(what),
            (_, Err(error)) => return Err(error),
            (_, Ok(_)) => None,
        };
        let first = extents.as_ref().ok().and_then(|extents| extents.first()).map(|extent| extent.off);
        if let Some(what) = what {
            let offset = first.unwrap_or(slot.off());
            report.find(Finding { what: Some(what), slot, offset, named, hash: Some(view.hash()) });
        }
        if let Ok(extents) = extents {
            report.live_bytes += extents.iter().map(|extent| heap.runs().count_once(*extent)).sum::<u64>();
            drop(report);
            self.use_runs(&extents);
        }
        Ok(())
    }

    fn use_runs(&self, extents: &[Extent]) {
        let mut used = self.used.lock();
        for extent in extents.iter().filter(|extent| !extent.is_empty()) {
            used.extend((RunId::of(extent.off).0..=RunId::of(extent.end() - 1).0).map(RunId));
        }
    }

    /// Database and key of every record with one of these hashes whose key holds: older versions of keys
    /// that are damaged, which must not take their place.
    ///
    /// # Errors
    /// The medium's.
    pub fn names_of(&self, hashes: &BTreeSet<u64>) -> Result<BTreeSet<(u8, Vec<u8>)>, KvError> {
        let (heap, mut names) = (self.opening.heap(), BTreeSet::new());
        for unit in self.opening.units() {
            self.opening.scan(unit, |found, view| {
                if hashes.contains(&found.hash)
                    && let Ok(key) = heap.key(view)
                    && heap.hash(found.space, key) == found.hash
                {
                    names.insert((found.space, key.to_vec()));
                }
            })?;
        }
        Ok(names)
    }

    /// What the check has found so far; all of it once [`Self::verify_some`] has returned false.
    pub fn report(&self) -> Checked {
        let mut report = self.report.lock().clone();
        report.tombstones += u64::from(self.flush.lock().is_some());
        report.stale = self.stale.load(Ordering::Relaxed);
        report.used_bytes = self.used.lock().len() as u64 * landfall_media::RUN_SIZE;
        report.correctable.sort_unstable();
        report.findings.sort_unstable_by_key(|finding| finding.slot);
        report
    }

    /// Checks on the calling thread alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn run(media: Arc<dyn Media>) -> Result<Checked, KvError> {
        let mut check = Self::begin(media)?;
        while check.scan_some()? {}
        check.settle()?;
        while check.verify_some()? {}
        Ok(check.report())
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
