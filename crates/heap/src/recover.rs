//! Creating a region, and opening one after a crash or damage.
//!
//! Recovery is one pass over the slabs. The caller runs [`Opening::scan`] on any number of threads, then
//! [`Opening::resolve`] decides about the few records above each slab's watermark. Which records count, and why:
//! `docs/format/recovery.md`.

mod found;
mod noted;
mod tail;

use crate::bond::TransactionId;
use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RUNS_MAX, RunId, SLOTS_PER_RUN, SlotId};
use crate::pieces::HeldPieces;
use crate::record::{self, RecordView, Seal, Slot};
use crate::run::RunUse;
use crate::slab_directory::SpareSlab;
use crate::spaces;
use crate::superblock::{FEATURE_EPOCHS, Geometry, RESERVED};
use crate::table::{self, Epoch, RunWord};
pub use found::{Found, Judge};
use landfall_media::{Dirty, Extent, Media, MediaError, RUN_SIZE, Site};
use noted::Noted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tail::{Cutter, Tail, TailRecord};

/// Slabs with at least this many free slots are appended to again after a restart.
const REOPEN_SLOTS_MIN: u32 = 1024;

/// Slots that are skipped at once where nothing was written: a page.
const BLANK_SLOTS: u32 = 32;
static BLANK: [u8; BLANK_SLOTS as usize * RECORD_SIZE as usize] =
    [0; BLANK_SLOTS as usize * RECORD_SIZE as usize];
const _: () = assert!(SLOTS_PER_RUN.is_multiple_of(BLANK_SLOTS));

/// Number of earlier epochs that are tried for a record in a slot whose record the medium has lost.
const EPOCHS_BACK: u32 = 1024;

/// Parameters of a new region. The caller supplies the random bytes, because the heap draws no entropy.
#[derive(Clone, Copy, Debug)]
pub struct NewRegion {
    /// Random bytes that seed the region's checksums.
    pub salt: [u8; 16],
    /// Random seed of the key hash.
    pub hash_seed: u64,
    /// Now, Unix milliseconds.
    pub created_ms: u64,
}

/// Writes an empty region over the whole medium.
///
/// # Errors
/// [`HeapError::Capacity`]; the medium's.
pub fn create(media: &dyn Media, new: &NewRegion) -> Result<(), HeapError> {
    let runs = Geometry::runs_for(media.len())?;
    table::zero_tables(media, 0..runs)?;
    table::zero_epochs(media, 0..runs)?;
    let geometry = Geometry {
        salt: new.salt,
        hash_seed: new.hash_seed,
        runs,
        created_ms: new.created_ms,
        generation: 1,
        compatible: 0,
        read_only: 0,
        features: FEATURE_EPOCHS,
        reserved: [0; RESERVED],
    };
    Ok(geometry.write(media)?)
}

/// An unreadable slot below its slab's watermark: an acknowledged record is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSlot {
    /// The slot.
    pub slot: SlotId,
    /// The check that failed.
    pub what: Damage,
    /// Space, key and hash, if they can still be read.
    pub named: Option<(u8, Vec<u8>, u64)>,
}

/// One slab of the scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanUnit {
    /// The slab.
    pub run: RunId,
    /// Slots below are durable with their data.
    trusted: u32,
    /// Slots at or above hold no valid record.
    filled: u32,
    /// Slots at or above hold zeroes.
    written: u32,
}

impl ScanUnit {
    /// Slots that may hold records.
    pub fn filled(&self) -> usize {
        self.filled as usize
    }

    /// The slots above the slab's watermark that may hold records.
    pub fn tail(&self) -> impl Iterator<Item = SlotId> + use<> {
        let run = self.run;
        (self.trusted..self.filled).map(move |index| SlotId::new(run, index))
    }
}

/// The result of scanning one slab.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    /// Number of records that were visited.
    pub records: u64,
    /// Records with one flipped bit, and commit records whose key was intact. They were corrected in place.
    pub corrected: Vec<SlotId>,
    /// Flush marks that were written again without certainty which keys they had deleted.
    pub(crate) uncertain: Vec<SlotId>,
    /// Slots that cannot be read.
    pub damaged: Vec<DamagedSlot>,
    /// Slots whose durable record the medium has lost: they are empty, or hold a record of an earlier epoch.
    pub holes: Vec<SlotId>,
}

/// What is known of the records beside a damaged one.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// The version of the one before it in its slab, unless that is a copy.
    before: Option<u64>,
    /// Slots of the slab at or above hold no record.
    end: u32,
}

/// The version of a record that was appended to its slab in the order of versions: copies of the compactor are not, nor is what no
/// system owns.
fn seq_in_order(view: &RecordView<'_>) -> Option<u64> {
    (view.rev() == 0 && !spaces::is_none(view.space())).then(|| view.seq())
}

/// A record as it lies on the medium.
type RecordBytes = [u8; RECORD_SIZE as usize];

/// What [`Opening::resolve`] decided about records above the watermarks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Records that count.
    pub accepted: u64,
    /// Records of batches that were never acknowledged: torn, or members of incomplete groups.
    pub rejected: u64,
    /// Records of transactions without a commit record. They do not count, and are removed with their slabs.
    pub undecided: u64,
}

/// Copies of superblock and run-table words that fail their checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamagedCopies {
    /// Superblock copies.
    pub superblocks: u32,
    /// Words of run tables and epochs whose other copy is intact, or is not needed.
    pub words: u32,
    /// Runs with both copies damaged, and slabs whose epoch is lost. Their records cannot be read.
    pub runs: Vec<RunId>,
}

/// Words that must be rewritten, because a copy is damaged or old.
#[derive(Debug, Default)]
struct Repairs {
    words: Vec<(RunId, RunWord)>,
    epochs: Vec<(RunId, Epoch)>,
}

impl Repairs {
    fn count(&self) -> usize {
        self.words.len() + self.epochs.len()
    }

    fn is_empty(&self) -> bool {
        self.count() == 0
    }
}

/// A region being opened.
#[derive(Debug)]
pub struct Opening {
    heap: Heap,
    units: Vec<ScanUnit>,
    seq_max: AtomicU64,
    noted: Noted,
    /// Nothing is stored: repairs are only reported.
    read_only: bool,
    /// Notes for people: repaired copies, runs out of use.
    pub notes: Vec<String>,
    /// Damage of the superblock and of the run tables.
    pub damaged_copies: DamagedCopies,
}

impl Opening {
    /// Reads superblock and run tables, repairs damaged copies, and finds the slabs to scan.
    ///
    /// # Errors
    /// As [`Geometry::read`]; [`HeapError::Truncated`]; the medium's.
    pub fn begin(media: Arc<dyn Media>) -> Result<Self, HeapError> {
        let (mut geometry, repair) = Geometry::read(&*media)?;
        geometry.check_writable()?;
        geometry.check_length(&*media)?;
        let damaged_copies =
            DamagedCopies { superblocks: Geometry::damaged_copies(&*media)?, ..Default::default() };
        let mut notes = Vec::new();
        if repair {
            notes.push("one superblock copy was damaged or old: rewritten from the other".into());
            geometry.write(&*media)?;
        }
        grow_to_media(&*media, &mut geometry, &mut notes)?;
        Self::over(media, geometry, false, notes, damaged_copies)
    }

    /// As [`Self::begin`], but nothing is stored: for inspecting a region without changing it. [`Self::scan`] and
    /// [`Self::resolve`] report what recovery would find and decide. Read the records that they name with
    /// [`Self::with_record`], which corrects a flipped bit in a copy. [`Self::finish`] must not be called.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_read_only(media: Arc<dyn Media>) -> Result<Self, HeapError> {
        let (geometry, _) = Geometry::read(&*media)?;
        geometry.check_length(&*media)?;
        let damaged_copies =
            DamagedCopies { superblocks: Geometry::damaged_copies(&*media)?, ..Default::default() };
        Self::over(media, geometry, true, Vec::new(), damaged_copies)
    }

    fn over(
        media: Arc<dyn Media>,
        geometry: Geometry,
        read_only: bool,
        notes: Vec<String>,
        damaged_copies: DamagedCopies,
    ) -> Result<Self, HeapError> {
        let heap = Heap::new(media, geometry);
        let (units, seq_max) = (Vec::new(), AtomicU64::new(0));
        let noted = Noted::default();
        let mut opening = Self { heap, units, seq_max, noted, read_only, notes, damaged_copies };
        opening.read_tables()?;
        Ok(opening)
    }

    fn read_tables(&mut self) -> Result<(), HeapError> {
        let mut repairs = Repairs::default();
        for index in 0..self.heap.geometry.runs {
            let run = RunId(index);
            if run.is_table() {
                continue;
            }
            let epoch = self.read_epoch(run, &mut repairs)?;
            let read = table::read(&*self.heap.media, run, &self.heap.geometry.salt)?;
            self.damaged_copies.words += u32::from(read.damaged && read.word.is_some());
            match read.word {
                Some(RunWord::Slab { .. }) if epoch == Epoch::UNKNOWN => self.take_out_of_use(run, "epochs"),
                None => self.take_out_of_use(run, "table words"),
                Some(word) => {
                    if read.repair {
                        repairs.words.push((run, word));
                    }
                    self.take_word(run, word)?;
                }
            }
        }
        if !self.read_only && !repairs.is_empty() {
            self.notes.push(format!("{} run-table words rewritten from their other copy", repairs.count()));
            repairs.epochs.iter().try_for_each(|(run, epoch)| {
                self.heap.slabs.table.set_epoch(&self.heap.runs, *run, *epoch)
            })?;
            self.heap.slabs.table.write(&repairs.words)?;
        }
        Ok(())
    }

    /// Takes a run out of use, because its contents are unknown.
    fn take_out_of_use(&mut self, run: RunId, what: &str) {
        self.damaged_copies.runs.push(run);
        self.notes.push(format!("run {}: both {what} are damaged: out of use", run.0));
        self.heap.runs.get(run).set_use(RunUse::Bad);
    }

    fn read_epoch(&mut self, run: RunId, repairs: &mut Repairs) -> Result<Epoch, MediaError> {
        let salt = &self.heap.geometry.salt;
        let mut epoch = Epoch(0);
        if self.heap.has_epochs() {
            let read = table::read_epoch(&*self.heap.media, run, salt)?;
            epoch = read.word.unwrap_or(Epoch::UNKNOWN);
            self.damaged_copies.words += u32::from(read.damaged);
            if read.repair {
                repairs.epochs.push((run, epoch));
            }
        }
        self.heap.runs.get(run).set_epoch(epoch, Seal::new(salt, epoch.0));
        Ok(epoch)
    }

    fn take_word(&mut self, run: RunId, word: RunWord) -> Result<(), MediaError> {
        let RunWord::Slab { durable, .. } = word else { return Ok(()) };
        self.heap.runs.become_slab(run, 0);
        self.heap.runs.get(run).marked.store(durable, Ordering::Relaxed);
        let unit = if durable == SLOTS_PER_RUN {
            ScanUnit { run, trusted: durable, filled: durable, written: durable }
        } else {
            self.measure(run, durable)?
        };
        self.units.push(unit);
        Ok(())
    }

    /// Finds the end of a slab, and the highest watermark in its records.
    fn measure(&self, run: RunId, durable: u32) -> Result<ScanUnit, MediaError> {
        let mut unit = ScanUnit { run, trusted: durable, filled: durable, written: durable };
        for first in (0..SLOTS_PER_RUN).step_by(BLANK_SLOTS as usize) {
            if self.is_blank(SlotId::new(run, first))? {
                continue;
            }
            for index in first..first + BLANK_SLOTS {
                let slot = self.heap.slot(SlotId::new(run, index))?;
                if !matches!(slot, Slot::Empty) {
                    unit.written = unit.written.max(index + 1);
                }
                if let Slot::Record(view) = slot {
                    unit.filled = unit.filled.max(index + 1);
                    unit.trusted = unit.trusted.max(view.durable_before().min(index));
                }
            }
        }
        Ok(unit)
    }

    /// True if [`BLANK_SLOTS`] slots hold zeroes, as most do of a slab that is not full: bytes are compared at memory's
    /// speed, and no checksum is needed.
    fn is_blank(&self, first: SlotId) -> Result<bool, MediaError> {
        Ok(self.heap.media.bytes(Extent::new(first.off(), BLANK.len() as u32))? == BLANK)
    }

    /// The slabs. The caller distributes them over threads.
    pub fn units(&self) -> &[ScanUnit] {
        &self.units
    }

    /// The heap that is being opened, for reading keys during the scan.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Visits every trusted record of one slab. Those of transactions are kept for [`Self::decided_some`].
    ///
    /// # Errors
    /// The medium's.
    pub fn scan(
        &self,
        unit: &ScanUnit,
        mut visit: impl FnMut(Found, &RecordView<'_>),
    ) -> Result<Scanned, HeapError> {
        let mut slab = self.noted.slab();
        self.read_slab(unit, |found, view| {
            if !slab.note(&found, view) {
                visit(found, view);
            }
        })
    }

    /// Visits every trusted record of one slab, records of transactions included.
    pub(crate) fn read_slab(
        &self,
        unit: &ScanUnit,
        mut visit: impl FnMut(Found, &RecordView<'_>),
    ) -> Result<Scanned, HeapError> {
        let mut scanned = Scanned::default();
        let (mut seq_max, mut before) = (0, None);
        for index in 0..unit.trusted {
            let slot = SlotId::new(unit.run, index);
            let corrected;
            let view = match self.heap.slot(slot)? {
                Slot::Record(view) => view,
                Slot::Empty => {
                    scanned.holes.push(slot);
                    continue;
                }
                Slot::Damaged(what) => {
                    let beside = Beside { before, end: unit.filled };
                    let Some(good) = self.salvage(slot, what, beside, &mut scanned)? else { continue };
                    corrected = good;
                    let Slot::Record(view) = self.parse(&corrected, slot) else { continue };
                    view
                }
            };
            seq_max = seq_max.max(view.seq());
            if !spaces::is_none(view.space()) {
                before = seq_in_order(&view);
            }
            scanned.records += 1;
            self.heap.note_shared(slot, &view);
            visit(Found::new(slot, &view), &view);
        }
        self.seq_max.fetch_max(seq_max, Ordering::Relaxed);
        Ok(scanned)
    }

    /// Corrects a flipped bit, or reports what can still be read of the record.
    fn salvage(
        &self,
        slot: SlotId,
        what: Damage,
        beside: Beside,
        scanned: &mut Scanned,
    ) -> Result<Option<RecordBytes>, HeapError> {
        let at = Extent::new(slot.off(), RECORD_SIZE as u32);
        let bytes = self.heap.media.bytes(at)?.try_into().expect("a record's size was asked for");
        if self.is_left_behind(bytes, slot) {
            scanned.holes.push(slot);
            return Ok(None);
        }
        let named = record::salvage(bytes).filter(|(space, key, hash)| self.heap.hash(*space, key) == *hash);
        let corrected = record::correct_single_bit(bytes, slot, self.heap.reader().seal(slot.run()));
        let mut good = corrected.or_else(|| self.commit_record(slot, named.as_ref()?));
        let mut is_certain = true;
        if good.is_none() && named.as_ref().is_some_and(|(space, _, _)| *space == spaces::FLUSH) {
            (good, is_certain) = self.flush_mark(slot, bytes, beside)?;
        }
        if good.is_some() && !is_certain && self.read_only {
            scanned.damaged.push(DamagedSlot { slot, what: Damage::FlushMark, named });
            return Ok(good);
        }
        let Some(good) = good else {
            scanned.damaged.push(DamagedSlot { slot, what, named });
            return Ok(None);
        };
        if !self.read_only {
            self.heap.media.store(slot.off(), &good)?;
            landfall_media::persist(&*self.heap.media, at, Site::Erase, Site::EraseFence)?;
        }
        if !is_certain {
            scanned.uncertain.push(slot);
        }
        scanned.corrected.push(slot);
        Ok(Some(good))
    }

    /// A damaged flush mark, rebuilt from its key and from what lies beside it; none if nothing was appended before it. With it
    /// whether its version is certain: if it lies between those of its neighbours. If not, the mark ends at least what was appended
    /// before it, since what it has deleted must not come back, and never what is newer: the compactor's copies are not rebuilt.
    fn flush_mark(
        &self,
        slot: SlotId,
        bytes: &RecordBytes,
        beside: Beside,
    ) -> Result<(Option<RecordBytes>, bool), HeapError> {
        let (Some(stored), Some(before)) = (record::salvage_flush(bytes), beside.before) else {
            return Ok((None, false));
        };
        let mut behind = None;
        for index in slot.index() + 1..beside.end {
            match self.heap.slot(SlotId::new(slot.run(), index))? {
                Slot::Record(view) if spaces::is_none(view.space()) => {}
                // A copy is not alone: this is one, too, and older than what lies before it.
                Slot::Record(view) if view.rev() != 0 => return Ok((None, false)),
                Slot::Record(view) => {
                    behind = Some(view.seq());
                    break;
                }
                _ => {}
            }
        }
        let is_certain = stored > before && behind.is_some_and(|behind| stored < behind);
        let seq = if is_certain { stored } else { before.saturating_add(1) };
        let mark = self.heap.flush_mark(seq).seal(slot, 0, self.heap.reader().seal(slot.run()));
        Ok((Some(mark), is_certain))
    }

    /// A commit record, rebuilt from its key.
    fn commit_record(&self, slot: SlotId, named: &(u8, Vec<u8>, u64)) -> Option<RecordBytes> {
        let (space, key, _) = named;
        let id = TransactionId::from_key(key).filter(|_| *space == spaces::TRANSACTIONS)?;
        Some(self.heap.commit_record(id).seal(slot, 0, self.heap.reader().seal(slot.run())))
    }

    /// True for a record of an earlier epoch of the run.
    fn is_left_behind(&self, bytes: &RecordBytes, slot: SlotId) -> bool {
        let epoch = self.heap.runs.get(slot.run()).epoch().0;
        let salt = &self.heap.geometry.salt;
        (epoch.saturating_sub(EPOCHS_BACK)..epoch).any(|old| Seal::new(salt, old).holds(bytes, slot))
    }

    fn parse<'a>(&self, bytes: &'a RecordBytes, slot: SlotId) -> Slot<'a> {
        RecordView::parse(bytes, slot, self.heap.reader().seal(slot.run()), self.heap.geometry.bytes())
    }

    /// Reads a record that [`Self::scan`] or [`Self::resolve`] has reported, and corrects one flipped bit in a copy.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if the slot holds no valid record; the medium's; the errors of `read`.
    pub fn with_record<R>(
        &self,
        slot: SlotId,
        read: impl FnOnce(&RecordView<'_>) -> Result<R, HeapError>,
    ) -> Result<R, HeapError> {
        let damaged = match self.heap.record(slot) {
            Ok(view) => return read(&view),
            Err(error) => error,
        };
        let at = Extent::new(slot.off(), RECORD_SIZE as u32);
        let bytes = self.heap.media.bytes(at)?.try_into().expect("a record's size was asked for");
        let Some(good) = record::correct_single_bit(bytes, slot, self.heap.reader().seal(slot.run())) else {
            return Err(damaged);
        };
        match self.parse(&good, slot) {
            Slot::Record(view) => read(&view),
            _ => Err(damaged),
        }
    }

    /// Visits some records of transactions that are known to be committed. Call it until it returns false, after the
    /// scan and again after [`Self::resolve`].
    ///
    /// # Errors
    /// The errors of `visit`; the medium's.
    pub fn decided_some(
        &self,
        mut visit: impl FnMut(Found, &RecordView<'_>) -> Result<(), HeapError>,
    ) -> Result<bool, HeapError> {
        let Some(slots) = self.noted.next_decided() else { return Ok(false) };
        for slot in slots {
            self.with_record(slot, |view| visit(Found::new(slot, view), view))?;
        }
        Ok(true)
    }

    /// Visits the records of transactions without a commit record.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn each_undecided(&self, mut visit: impl FnMut(&Found)) -> Result<(), HeapError> {
        let undecided = self.noted.undecided();
        undecided.into_iter().try_for_each(|slot| {
            self.with_record(slot, |view| {
                visit(&Found::new(slot, view));
                Ok(())
            })
        })
    }

    /// Forgets everything that [`Self::scan`] has noted, for a new scan.
    pub(crate) fn rescan(&mut self) {
        self.noted = Noted::default();
    }

    /// Decides about the records above the watermarks. `judge` knows the newer records that the scan has found. `visit`
    /// gets the records that count, except those of transactions: [`Self::decided_some`].
    ///
    /// # Errors
    /// The medium's.
    pub fn resolve(
        &mut self,
        judge: &impl Judge,
        mut visit: impl FnMut(Found, &RecordView<'_>),
    ) -> Result<Resolved, HeapError> {
        let mut held = HeldPieces::default();
        let tails: Vec<Tail> =
            self.units.iter().map(|unit| self.read_tail(unit, &mut held)).collect::<Result<_, _>>()?;
        let mut cutter = Cutter::new(&self.heap, judge, &tails, self.noted.ids());
        let excusers = self.excusers(&cutter)?;
        let counts = cutter.cut_all(&excusers);
        let mut resolved = Resolved::default();
        let mut cuts = Vec::new();
        for ((unit, tail), cut) in self.units.iter().zip(&tails).zip(counts) {
            let mut slab = self.noted.slab();
            // Superseded records are visited, too: they stay on the medium, and a tombstone must outlive them.
            for found in tail.records[..cut].iter().filter_map(TailRecord::found) {
                let view = self.heap.record(found.slot)?;
                self.heap.note_shared(found.slot, &view);
                if slab.note(found, &view) {
                    continue;
                }
                visit(*found, &view);
                resolved.accepted += 1;
            }
            resolved.rejected += tail.records[cut..].iter().filter(|r| r.is_valid()).count() as u64;
            cuts.push(unit.trusted + cut as u32);
        }
        self.erase_rejected(&cuts)?;
        let counted = self.noted.decide();
        resolved.accepted += counted.decided_in_tails;
        resolved.undecided = counted.undecided;
        Ok(resolved)
    }

    /// Noted records of transactions whose commit record is in a tail, and that may excuse records whose data are gone.
    fn excusers(&self, cutter: &Cutter<'_, impl Judge>) -> Result<Vec<(TransactionId, Found)>, HeapError> {
        let mut excusers = Vec::new();
        let gone = cutter.gone_hashes();
        for (id, slots) in self.noted.of(|id| !gone.is_empty() && cutter.is_decided_in_a_tail(id)) {
            for slot in slots {
                self.with_record(slot, |view| {
                    if gone.contains(&view.hash()) || cutter.bounds_gone(view) {
                        excusers.push((id, Found::new(slot, view)));
                    }
                    Ok(())
                })?;
            }
        }
        Ok(excusers)
    }

    fn read_tail(&self, unit: &ScanUnit, held: &mut HeldPieces) -> Result<Tail, HeapError> {
        let mut records = Vec::new();
        for index in unit.trusted..unit.filled {
            let slot = SlotId::new(unit.run, index);
            records.push(match self.heap.slot(slot)? {
                Slot::Empty | Slot::Damaged(_) => TailRecord::Invalid,
                Slot::Record(view) => self.read_tail_record(slot, &view, held)?,
            });
        }
        Ok(Tail { records })
    }

    fn read_tail_record(
        &self,
        slot: SlotId,
        view: &RecordView<'_>,
        held: &mut HeldPieces,
    ) -> Result<TailRecord, HeapError> {
        let (found, bond) = (Found::new(slot, view), view.bond());
        let value_holds = match self.heap.reader().verify_value_once(slot, view, held) {
            Ok(()) => true,
            Err(HeapError::Damaged { .. }) => false,
            Err(error) => return Err(error),
        };
        let holds = value_holds && self.heap.key_holds(view)?;
        self.seq_max.fetch_max(found.seq, Ordering::Relaxed);
        let commits = view.commits();
        Ok(if holds {
            TailRecord::Valid { found, bond, commits }
        } else {
            TailRecord::DataGone { found, bond }
        })
    }

    /// Zeroes rejected records, durably, and only then raises the watermarks. Torn records are zeroed, too: a later
    /// torn record in the slot could complete them.
    fn erase_rejected(&mut self, cuts: &[u32]) -> Result<(), HeapError> {
        if self.read_only {
            self.units.iter_mut().zip(cuts).for_each(|(unit, cut)| unit.trusted = *cut);
            return Ok(());
        }
        let mut dirty = Dirty::new();
        for (unit, cut) in self.units.iter().zip(cuts).filter(|(unit, cut)| unit.written > **cut) {
            let at = SlotId::new(unit.run, *cut).off();
            let rejected = Extent::new(at, (unit.written - cut) * RECORD_SIZE as u32);
            self.heap.media.zero(rejected)?;
            self.heap.media.flush(&mut dirty, Site::Erase, rejected);
        }
        self.heap.media.fence(&mut dirty, Site::EraseFence)?;
        let mut words = Vec::new();
        for (unit, cut) in self.units.iter_mut().zip(cuts) {
            unit.trusted = *cut;
            unit.filled = *cut;
            unit.written = *cut;
            let run = self.heap.runs.get(unit.run);
            if run.marked.swap(*cut, Ordering::Relaxed) != *cut {
                words.push((unit.run, RunWord::Slab { durable: *cut, sealed: *cut == SLOTS_PER_RUN }));
            }
            run.filled.store(*cut, Ordering::Relaxed);
            run.durable.store(*cut, Ordering::Release);
        }
        if !words.is_empty() {
            self.heap.slabs.table.write(&words)?;
        }
        Ok(())
    }

    /// Counts the references of a current record. Call it once for each record that the owner keeps.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if the list of a long value cannot be read. The slot is then kept, without its data.
    pub fn adopt(&self, slot: SlotId, view: &RecordView<'_>) -> Result<(), HeapError> {
        self.heap.adopt(slot, view)
    }

    /// Ends recovery. Data runs without adopted references and slabs without records become free. Slabs with enough
    /// room are appended to again.
    ///
    /// # Errors
    /// The medium's.
    ///
    /// # Panics
    /// If the opening is read-only.
    pub fn finish(self) -> Result<Arc<Heap>, HeapError> {
        assert!(!self.read_only, "a region that was only looked at cannot be used");
        let heap = self.heap;
        for (id, slot, marked) in self.noted.committed() {
            heap.adopt(slot, &heap.record(slot)?)?;
            heap.note_committed(id, slot, marked);
        }
        heap.next_seq.store(self.seq_max.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        let empty: Vec<RunId> = self.units.iter().filter(|u| u.filled == 0).map(|u| u.run).collect();
        let words: Vec<_> = empty.iter().map(|run| (*run, RunWord::NotSlab)).collect();
        if !words.is_empty() {
            heap.slabs.table.write(&words)?;
        }
        heap.runs.free_unused();
        empty.iter().for_each(|run| heap.runs.leave_slab(*run));
        // Otherwise each start would read the free runs.
        heap.runs.change_free(|free| free.classify(|run| heap.media.forget_run(run.off())));
        let with_room = |unit: &&ScanUnit| unit.filled > 0 && SLOTS_PER_RUN - unit.filled >= REOPEN_SLOTS_MIN;
        let spares = self.units.iter().filter(with_room).map(|u| SpareSlab { run: u.run, next: u.filled });
        heap.slabs.directory.add_spares(spares);
        Ok(Arc::new(heap))
    }
}

/// Extends the region to a medium that has grown: first the tables, then the superblock.
fn grow_to_media(
    media: &dyn Media,
    geometry: &mut Geometry,
    notes: &mut Vec<String>,
) -> Result<(), HeapError> {
    let runs = (media.len() / RUN_SIZE).min(u64::from(RUNS_MAX)) as u32;
    if runs <= geometry.runs {
        return Ok(());
    }
    // The table of a partial zone already has words for all its runs, which are zero since creation.
    table::zero_tables(media, geometry.runs..runs)?;
    table::zero_epochs(media, geometry.runs..runs)?;
    notes.push(format!("the region grew from {} to {runs} MiB", geometry.runs));
    geometry.runs = runs;
    geometry.generation += 1;
    Ok(geometry.write(media)?)
}
