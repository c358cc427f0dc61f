//! Appending records: one writer for each worker, one fence a batch.
//!
//! The protocol and the argument for each crash point: `docs/format/commit.md`. In short: store and flush data and
//! records, fence once, and only then acknowledge, expose, and release superseded versions.

mod erase;
mod pieces;
mod room;
mod sent;
mod slab;
mod transaction;

use crate::bond::{Bond, Group};
use crate::copies::CopyPath;
use crate::crc;
use crate::entry::{Entry, Source};
use crate::error::HeapError;
use crate::extents::{Extents, total_len};
use crate::fill::{Fill, STREAMS};
use crate::forwards::Forwards;
use crate::heap::Heap;
use crate::lanes::Ticket;
use crate::layout::{
    GROUP_RECORDS_MAX, KEY_BYTES_MAX, RECORD_SIZE, RunId, SLOTS_PER_RUN, SlotId, VALUE_BYTES_MAX,
};
use crate::patience::Patience;
use crate::pieces::{Certified, Crcs, KeptCrcs, PIECES_FROM, Patch};
use crate::record::{BODY_SIZE, Check, Draft, EXTENT_SIZE, Fields, Kind, RecordView, encoded_extent};
use crate::run::Run;
use crate::slab_directory::SpareSlab;
use crate::successor::{Room, Successor, TakenRoom};
use crate::superblock::FEATURE_SHARED;
use crate::superseded::Superseded;
use crate::ticket::Gated;
use landfall_media::{Dirty, Extent, LINE_SIZE, MediaError, Site};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A slab with fewer free slots is closed when no batch is under way.
const SLAB_ROOM_MIN: u32 = 256;

/// The id that owns all slabs of foreign writers.
pub(crate) const FOREIGN_WRITER: u8 = 251;
/// The compactor's id.
const COMPACTOR: u8 = 254;

/// Which reserves an append may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Write,
    /// A value that another machine has admitted.
    Admitted,
    /// A value of a copy of everything that another machine has.
    Copied,
    Delete,
    Compact,
}

/// The sites of a writer's steps, for the crash simulator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sites {
    pub(crate) data: Site,
    record: Site,
    commit: Site,
}

const COMMIT_SITES: Sites = Sites { data: Site::Data, record: Site::Record, commit: Site::Commit };
const MOVE_SITES: Sites = Sites { data: Site::MoveData, record: Site::MoveRecord, commit: Site::MoveCommit };

/// A full slab in which records of the current batch lie.
#[derive(Clone, Debug)]
struct LeftSlab {
    run: RunId,
    /// Those of the batch.
    slots: Range<u32>,
}

/// A batch whose fence is under way.
#[derive(Debug)]
struct InFlight {
    batch: u64,
    /// The slabs in which the batch lies, each with the slot behind its last one.
    slabs: SmallVec<[(RunId, u32); 1]>,
    superseded: Superseded,
    /// What the successor gets, until it is sent.
    records: Vec<SlotId>,
    /// Room that was taken at the successor.
    taken: u64,
}

impl InFlight {
    fn lies_in(&self, run: RunId) -> bool {
        self.slabs.iter().any(|(slab, _)| *slab == run)
    }
}

/// Appends records to the heap for one worker.
///
/// Contract: append and [`Self::supersede`] as commands execute. A batch ends either with [`Self::commit_now`], or with
/// [`Self::begin_commit`], the driver's writes and [`Self::finish_commit`].
#[derive(Debug)]
pub struct Writer {
    pub(crate) heap: Arc<Heap>,
    id: u8,
    pub(crate) sites: Sites,
    urgency_base: Urgency,
    /// Urgency of the current append.
    pub(crate) urgency: Urgency,
    /// Every append may use the space that is kept for deletes.
    frees_space: bool,
    /// Of values.
    values: Urgency,
    slab: Option<SpareSlab>,
    /// Number of the current batch.
    batch: u64,
    batch_start: u32,
    /// The records of the batch below this slot are flushed.
    flushed: u32,
    /// The records of the slab below this slot are durable in this region.
    persisted: u32,
    /// Slabs before this one in which records of the current batch lie, durable in this region.
    left: SmallVec<[LeftSlab; 1]>,
    pub(crate) fill: Option<Fill>,
    /// The compactor's other fills, by how often their bytes have been moved.
    pub(crate) parked: [Option<Fill>; STREAMS],
    /// How often the bytes in `fill` have been moved, this move included.
    pub(crate) moves: u8,
    /// New places of shared bytes that the compactor has moved.
    pub(crate) forwards: Forwards,
    pub(crate) dirty: Dirty,
    /// Data to flush when the batch ends. With earlier flushes, every locked instruction would wait for the flushes
    /// under way. At the end they overlap.
    unflushed: Vec<Extent>,
    superseded: Superseded,
    /// The emptied list of the last batch, reused for the next one.
    spare: Superseded,
    in_flight: Option<InFlight>,
    /// What the request that is being executed has waited for.
    patience: Patience,
    /// Age of the data that the compactor moves, as [`crate::Runs`] counts it.
    born: u32,
    successor: Option<Arc<dyn Successor>>,
    /// Room at the successor that the current batch has taken.
    taken: u64,
    /// The newest append's part of that.
    newest_taken: Room,
    /// Room at the successor that was taken for what is appended.
    lent: TakenRoom,
    /// The records of the transaction whose commit record is in the current batch.
    decided: Vec<SlotId>,
    /// Slots of the slab with records that were taken back, and are to be erased before anything else becomes durable.
    unerased: Range<u32>,
    /// Why a batch will never be complete: nothing may be appended behind it.
    lost: Option<&'static str>,
}

impl Writer {
    /// A worker's writer. `id` is unique among the writers of the region, at most 253, and not 251.
    pub fn new(heap: Arc<Heap>, id: u8) -> Self {
        assert!(id < COMPACTOR && id != FOREIGN_WRITER, "writer ids go to 253, without 251");
        Self::with(heap, id, COMMIT_SITES, Urgency::Write)
    }

    /// The compactor's writer.
    pub(crate) fn compactor(heap: Arc<Heap>) -> Self {
        Self::with(heap, COMPACTOR, MOVE_SITES, Urgency::Compact)
    }

    fn with(heap: Arc<Heap>, id: u8, sites: Sites, urgency_base: Urgency) -> Self {
        let batch = heap.lanes.issue(id);
        Self {
            heap,
            id,
            sites,
            urgency_base,
            urgency: Urgency::Write,
            frees_space: false,
            values: Urgency::Write,
            slab: None,
            batch,
            batch_start: 0,
            flushed: 0,
            persisted: 0,
            left: SmallVec::new(),
            fill: None,
            parked: [None; STREAMS],
            moves: 1,
            forwards: Forwards::default(),
            dirty: Dirty::new(),
            unflushed: Vec::new(),
            superseded: Superseded::default(),
            spare: Superseded::default(),
            in_flight: None,
            patience: Patience::default(),
            born: 0,
            successor: None,
            taken: 0,
            newest_taken: Room::default(),
            lent: TakenRoom::default(),
            decided: Vec::new(),
            unerased: 0..0,
            lost: None,
        }
    }

    /// From now on, what is appended frees space or does not. Records that free space may use what is kept for deletes,
    /// whatever their kind is.
    pub fn set_frees_space(&mut self, frees_space: bool) {
        self.frees_space = frees_space;
    }

    /// From now on, values that are appended were admitted by another machine, which knows how much room there is, or
    /// were not. Those that were may use what is kept for them.
    pub fn set_admitted(&mut self, is_admitted: bool) {
        self.values = if is_admitted { Urgency::Admitted } else { Urgency::Write };
    }

    /// From now on, values that are appended are part of a copy of everything that another machine has, or are not. Those that
    /// are may use what is kept for copies.
    pub fn set_copied(&mut self, is_copied: bool) {
        self.values = if is_copied { Urgency::Copied } else { Urgency::Write };
    }

    /// The heap of the writer.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// This writer's id.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Appends one record; it gets the next version number.
    ///
    /// # Errors
    /// [`HeapError::Full`], [`HeapError::TooLarge`], [`HeapError::Busy`] (commit, then try again), the medium's.
    pub fn append(&mut self, entry: &Entry<'_>) -> Result<SlotId, HeapError> {
        let taken = self.check_room(std::slice::from_ref(entry))?;
        let seq = self.heap.take_seqs(1);
        let slot = self.append_at(entry, seq, Bond::Alone);
        self.use_room(taken, slot.is_ok());
        slot
    }

    /// Appends records that count together or not at all.
    ///
    /// # Errors
    /// As [`Self::append`]; nothing is appended then.
    pub fn append_group(&mut self, entries: &[Entry<'_>]) -> Result<SmallVec<[SlotId; 8]>, HeapError> {
        if let [one] = entries {
            return Ok(SmallVec::from_slice(&[self.append(one)?]));
        }
        let taken = self.check_room(entries)?;
        let first_seq = self.heap.take_seqs(entries.len() as u64);
        let mut slots = SmallVec::new();
        for (place, entry) in entries.iter().enumerate() {
            let group = Group { first_seq, count: entries.len() as u32, place: place as u32 };
            match self.append_at(entry, first_seq + place as u64, Bond::Group(group)) {
                Ok(slot) => slots.push(slot),
                Err(error) => {
                    self.use_room(taken, false);
                    self.rewind(&slots);
                    return Err(error);
                }
            }
        }
        self.use_room(taken, true);
        Ok(slots)
    }

    /// Computes the checksums of a value before it is appended. The checksums of pieces are stored in `crcs`.
    ///
    /// # Errors
    /// The medium's.
    pub fn certified<'a>(
        &self,
        value: Source<'a>,
        crcs: &'a mut Option<KeptCrcs>,
    ) -> Result<Source<'a>, HeapError> {
        let Source::Landed { extents, crc: None } = value else { return Ok(value) };
        let len = total_len(extents);
        let stays = len > self.heap.policy.consolidated_max().max(BODY_SIZE as u64);
        if !stays || self.heap.policy.trusts_sums_of(extents) {
            return Ok(value);
        }
        let crc = if len < PIECES_FROM {
            Crcs::Whole(self.heap.crc_of(extents)?)
        } else {
            crcs.insert(self.heap.crcs_of(extents)?).get()
        };
        Ok(Source::Landed { extents, crc: Some(crc) })
    }

    /// A record of this batch replaces the record in `old`, or the batch drops it. When the batch is durable, its
    /// references are released.
    pub fn supersede(&mut self, old: SlotId) {
        self.superseded.note(old, |extents| extents.extend(self.heap.refers_to(old)));
    }

    /// [`Self::supersede`] for a record that has just been read.
    pub fn supersede_read(&mut self, old: SlotId, view: &RecordView<'_>) {
        self.superseded.note(old, |extents| {
            self.heap.each_referred(old, view, |extent| {
                // Prefetches the counts, which change when the batch is durable.
                self.heap.runs.prefetch_refs(extent);
                extents.push(extent);
            });
        });
    }

    /// The record in `slot` is a patch of the version that was current. It takes over the references to the parts that
    /// it keeps. The references to all other parts are released when the batch is durable.
    pub fn supersede_patched(&mut self, slot: SlotId, patch: &Patch) {
        self.heap.patches.take(slot);
        self.heap.take_over(patch.base(), slot, patch);
        self.superseded.note(patch.base(), |extents| extents.extend_from_slice(patch.gone()));
    }

    #[inline]
    fn check_room(&mut self, entries: &[Entry<'_>]) -> Result<Room, HeapError> {
        let urgency = self.check_entries(entries)?;
        self.ensure_slots(entries.len() as u32, urgency)?;
        self.take_room(entries, urgency)
    }

    /// Checks the limits of the entries and returns their urgency.
    #[inline]
    fn check_entries(&mut self, entries: &[Entry<'_>]) -> Result<Urgency, HeapError> {
        let mut urgency = Urgency::Delete;
        for entry in entries {
            too_large("a key", entry.key.len() as u64, KEY_BYTES_MAX as u64)?;
            too_large("a value", entry.value.len(), VALUE_BYTES_MAX)?;
            if entry.kind == Kind::Put && !self.frees_space {
                urgency = self.values;
            }
        }
        too_large("a group", entries.len() as u64, GROUP_RECORDS_MAX as u64)?;
        self.check_open()?;
        self.urgency = urgency;
        self.check_runs(entries)?;
        Ok(urgency)
    }

    #[inline]
    fn check_open(&self) -> Result<(), MediaError> {
        let lost = self.lost.map(String::from);
        self.heap.media.closed().or(lost).map_or(Ok(()), |reason| Err(MediaError::Closed { reason }))
    }

    /// The compactor begins to empty this run.
    pub(crate) fn begin_victim(&mut self, victim: &Run) {
        self.born = victim.born();
        self.fill_for(victim.moves());
    }

    /// True if all appended records are durable.
    fn is_quiescent(&self) -> bool {
        self.in_flight.is_none() && !self.has_work()
    }

    /// True if a commit has anything to make durable or to release.
    pub fn has_work(&self) -> bool {
        self.has_appended()
            || !self.dirty.is_empty()
            || !self.unflushed.is_empty()
            || !self.superseded.is_empty()
            || !self.unerased.is_empty()
    }

    /// True between [`Self::begin_commit`] and [`Self::finish_commit`].
    pub fn is_committing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The ticket of the current batch.
    #[inline]
    pub fn ticket(&self) -> Ticket {
        Ticket::new(self.id, self.batch)
    }

    /// A result that depends on the current batch.
    #[inline]
    pub fn gate<T>(&self, value: T) -> Gated<T> {
        Gated::new(value, self.ticket())
    }

    /// A result that depends on all records that this writer has appended so far.
    pub fn so_far(&self) -> Gated<()> {
        Gated::new((), self.newest())
    }

    /// The ticket of the newest batch with records; `None` if all appended records are durable.
    #[inline]
    pub fn newest(&self) -> Option<Ticket> {
        let batch =
            if self.has_appended() { Some(self.batch) } else { self.in_flight.as_ref().map(|b| b.batch) };
        batch.map(|batch| Ticket::new(self.id, batch))
    }

    /// Waits for a result: commits if the result depends on this writer's batch.
    ///
    /// # Errors
    /// [`HeapError::Busy`] while the result depends on a batch of another writer; the medium's.
    pub fn settle<T>(&mut self, gated: Gated<T>) -> Result<T, HeapError> {
        if gated.tickets().iter().any(|ticket| ticket == self.ticket()) {
            self.commit_now()?;
        }
        gated.if_durable(&self.heap).map_err(|_| HeapError::Busy)
    }

    fn has_appended(&self) -> bool {
        !self.left.is_empty() || self.slab.is_some_and(|slab| slab.next != self.batch_start)
    }

    pub(crate) fn append_at(&mut self, entry: &Entry<'_>, seq: u64, bond: Bond) -> Result<SlotId, HeapError> {
        let mut draft = Draft::new(&Fields {
            kind: entry.kind,
            space: entry.space,
            seq,
            rev: 0,
            hash: entry.hash,
            arrival_ns: entry.arrival_ns,
            expiry_ms: entry.expiry_ms,
            aux: entry.aux,
        });
        draft.bond(bond);
        let mut pieces = Pieces::default();
        let placed = self.place_entry(entry, &mut draft, &mut pieces);
        let slot = placed.and_then(|()| self.write_record(draft, &pieces));
        self.release_held(&pieces);
        if let (Source::Patched(_), Ok(slot)) = (entry.value, &slot) {
            self.heap.patches.note(*slot, pieces.refers);
        }
        slot
    }

    /// Places key and value, and adds them to the draft.
    #[inline]
    fn place_entry(
        &mut self,
        entry: &Entry<'_>,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        if draft.holds_key(entry.key.len()) {
            draft.key_inline(entry.key);
        } else {
            let at = match entry.key_at {
                Some(at) => at,
                None => self.place_contiguous(entry.key, CopyPath::Key, &mut pieces.held)?,
            };
            self.flush_data(at);
            pieces.refers.push(at);
            draft.key_stored(at);
        }
        match entry.value {
            Source::None => self.inline_value(&[], draft),
            Source::Bytes(bytes) if bytes.len() <= draft.room() => self.inline_value(bytes, draft),
            Source::Bytes(bytes) => {
                let extents = self.place(bytes, CopyPath::Placed, &mut pieces.held)?;
                let heap = Arc::clone(&self.heap);
                let certified = if bytes.len() as u64 >= PIECES_FROM {
                    Certified::Pieces(heap.reader().pieces_of(&extents)?)
                } else {
                    Certified::Whole(Check::Crc(crc::of(bytes)))
                };
                self.refer_certified(&extents, &certified, draft, pieces)?;
            }
            Source::Landed { extents, crc } => {
                self.place_landed(extents, extents, false, crc, draft, pieces)?;
            }
            Source::Patched(patch) => {
                self.refer_to_patch(patch, draft, pieces)?;
                self.say_shared(patch.is_shared(), draft)?;
            }
            Source::Stored { extents, durable, shared, crc: Some(crc), list: Some(list), .. } => {
                self.refer_to_listed(list, (total_len(extents), crc), draft, pieces)?;
                let unsaved = if durable { Extents::new() } else { pieces.again.clone() };
                unsaved.into_iter().for_each(|extent| self.flush_data(extent));
                self.say_shared(shared, draft)?;
            }
            Source::Stored { extents, landed, durable, shared, crc, list: _ } => {
                let unsaved = if durable { landed } else { extents };
                if self.place_landed(extents, unsaved, landed.is_empty(), crc, draft, pieces)? {
                    pieces.again = without(extents, landed);
                    self.say_shared(shared, draft)?;
                }
            }
        }
        Ok(())
    }

    fn inline_value(&self, bytes: &[u8], draft: &mut Draft) {
        self.heap.copies.add(CopyPath::Inline, bytes.len());
        draft.value_inline(bytes, crc::of(bytes));
    }

    /// Sets the shared flag, after the region has the must-know feature for it.
    fn say_shared(&self, shared: bool, draft: &mut Draft) -> Result<(), MediaError> {
        if shared {
            self.heap.require_features(FEATURE_SHARED)?;
            draft.shared();
        }
        Ok(())
    }

    /// Adds a landed value to the draft. `unsaved` are the extents that become durable with the record. False if the
    /// bytes were copied.
    #[inline]
    fn place_landed(
        &mut self,
        extents: &[Extent],
        unsaved: &[Extent],
        is_stored: bool,
        crc: Option<Crcs<'_>>,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<bool, HeapError> {
        if total_len(extents) <= draft.room() as u64 {
            let mut bytes: SmallVec<[u8; 64]> = SmallVec::new();
            for extent in extents {
                bytes.extend_from_slice(self.heap.media.bytes(*extent)?);
            }
            self.inline_value(&bytes, draft);
            return Ok(false);
        }
        if !is_stored && total_len(extents) <= self.heap.policy.consolidated_max() {
            self.consolidate(extents, draft, pieces)?;
            return Ok(false);
        }
        let certified = self.heap.certified(extents, crc)?;
        if let Certified::Whole(Check::Sums) = certified {
            self.order_data(unsaved)?;
        }
        unsaved.iter().for_each(|extent| self.flush_data(*extent));
        self.refer_certified(extents, &certified, draft, pieces)?;
        Ok(true)
    }

    /// Copies a short value that came in packets of its own next to others, since it would waste its frames.
    fn consolidate(
        &mut self,
        extents: &[Extent],
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        let mut bytes: SmallVec<[u8; 512]> = SmallVec::new();
        for extent in extents {
            bytes.extend_from_slice(self.heap.media.bytes(*extent)?);
        }
        let placed = self.place(&bytes, CopyPath::Consolidated, &mut pieces.held)?;
        self.refer_to(&placed, Check::Crc(crc::of(&bytes)), draft, pieces)
    }

    /// Makes data durable before the record is written: sums of 16 bits alone would not detect torn data reliably.
    fn order_data(&mut self, extents: &[Extent]) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        for extent in extents {
            self.heap.media.flush(&mut dirty, self.sites.data, *extent);
        }
        self.heap.media.fence(&mut dirty, Site::Order)
    }

    /// Adds references to `extents` to the draft: in its body if they fit, otherwise by a stored list.
    #[inline]
    pub(crate) fn refer_to(
        &mut self,
        extents: &[Extent],
        check: Check,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        match extents {
            [one] => pieces.refers.push(*one),
            all => pieces.refers.extend_from_slice(all),
        }
        if extents.len() * EXTENT_SIZE <= draft.room() {
            draft.value_extents(extents, check);
            return Ok(());
        }
        let mut list = Vec::with_capacity(extents.len() * EXTENT_SIZE + 4);
        extents.iter().for_each(|extent| list.extend_from_slice(&encoded_extent(*extent)));
        list.extend_from_slice(&crc::of(&list).to_le_bytes());
        let at = self.place_contiguous(&list, CopyPath::List, &mut pieces.held)?;
        pieces.refers.push(at);
        draft.value_indirect(at, total_len(extents) as u32, check);
        Ok(())
    }

    /// Releases the placed extents, which the record refers to now.
    #[inline]
    pub(crate) fn release_held(&self, pieces: &Pieces) {
        pieces.held.iter().for_each(|extent| self.heap.runs.release(*extent));
    }

    #[inline]
    pub(crate) fn write_record(&mut self, draft: Draft, pieces: &Pieces) -> Result<SlotId, HeapError> {
        let slab = self.slab.as_mut().expect("ensure_slots has opened a slab");
        let slot = SlotId::new(slab.run, slab.next);
        let run = self.heap.runs.get(slab.run);
        let bytes = draft.seal(slot, run.durable.load(Ordering::Acquire), run.seal());
        self.heap.media.store(slot.off(), &bytes)?;
        slab.next += 1;
        run.filled.store(slab.next, Ordering::Relaxed);
        pieces.refers.iter().for_each(|extent| self.heap.runs.refer(*extent, slot));
        pieces.again.iter().for_each(|extent| self.heap.runs.share(*extent));
        self.heap.runs.slot_live(slot);
        Ok(slot)
    }

    /// Notes data for the flush at the end of the batch. Adjacent extents become one range.
    #[inline]
    pub(crate) fn flush_data(&mut self, extent: Extent) {
        match self.unflushed.last_mut() {
            Some(last) if continues(*last, extent) => {
                *last = last.with_len(last.len().max((extent.end() - last.off) as u32));
            }
            _ => self.unflushed.push(extent),
        }
    }

    /// Flushes what the batch has that is not flushed yet: its data, and its records, which are contiguous.
    fn flush_batch(&mut self) {
        for extent in self.unflushed.drain(..) {
            self.heap.media.flush(&mut self.dirty, self.sites.data, extent);
        }
        let from = self.batch_start.max(self.flushed);
        if let Some(slab) = self.slab.filter(|slab| slab.next > from) {
            let records = (slab.next - from) * RECORD_SIZE as u32;
            let at = Extent::new(SlotId::new(slab.run, from).off(), records);
            self.heap.media.flush(&mut self.dirty, self.sites.record, at);
            self.flushed = slab.next;
        }
    }

    /// Fences the batch and completes it: all appended records are durable when this returns.
    ///
    /// # Errors
    /// The medium's; the batch is then not durable and the region closed for writing.
    pub fn commit_now(&mut self) -> Result<(), HeapError> {
        self.commit_at(self.sites.commit)
    }

    fn commit_at(&mut self, site: Site) -> Result<(), HeapError> {
        assert!(self.in_flight.is_none(), "one commit at a time");
        if let Some(mut dirty) = self.begin_commit() {
            let outcome = self.heap.media.fence(&mut dirty, site);
            self.finish_commit(outcome)?;
        }
        Ok(())
    }

    /// Ends the batch and returns the ranges that its fence must make durable; `None` if there are none. Later appends
    /// belong to the next batch.
    ///
    /// # Panics
    /// If a commit is under way: a block must never be in two writes at once.
    pub fn begin_commit(&mut self) -> Option<Dirty> {
        assert!(self.in_flight.is_none(), "one commit at a time");
        if !self.has_work() || !self.is_whole() {
            return None;
        }
        self.flush_batch();
        let records = self.records_to_send();
        let slab = self.slab.map(|slab| (slab.run, slab.next));
        let slabs = self.left.drain(..).map(|left| (left.run, left.slots.end)).chain(slab).collect();
        let batch = std::mem::replace(&mut self.batch, self.heap.lanes.issue(self.id));
        self.batch_start = slab.map_or(0, |(_, next)| next);
        if let Some((run, next)) = slab {
            self.heap.runs.get(run).begin_batch(self.batch, next);
        }
        let superseded = std::mem::replace(&mut self.superseded, std::mem::take(&mut self.spare));
        let taken = std::mem::take(&mut self.taken);
        self.newest_taken = Room::default();
        self.in_flight = Some(InFlight { batch, slabs, superseded, records, taken });
        if self.successor.as_ref().is_some_and(|successor| successor.sends_early()) {
            self.send_on();
        }
        Some(self.dirty.take())
    }

    /// Completes the batch under way. On success its records are durable, and superseded versions are released. On
    /// failure the batch never becomes durable. Waits for the successor, if it has not got the batch yet.
    ///
    /// # Errors
    /// The error of `outcome`; the successor's.
    pub fn finish_commit(&mut self, outcome: Result<(), MediaError>) -> Result<(), HeapError> {
        if outcome.is_ok() {
            self.send_on();
        }
        let in_flight = self.in_flight.take().expect("a commit is under way");
        if let Err(error) = outcome.map_err(HeapError::from).and_then(|()| self.wait_for_successor()) {
            self.abandon_left(&in_flight.slabs);
            return Err(error);
        }
        self.give_room_back(in_flight.taken);
        for (run, upto) in &in_flight.slabs {
            self.heap.runs.mark_durable(*run, *upto);
        }
        self.heap.lanes.complete(self.id, in_flight.batch);
        self.abandon_left(&in_flight.slabs);
        for (old, refers) in in_flight.superseded.iter() {
            // An unreadable record that was replaced, durably, must not block the key after the next restart.
            if self.heap.is_unreadable(old) {
                self.heap.store_tombstone(old, &mut self.dirty)?;
            }
            self.heap.retire_known(old, refers);
        }
        if !in_flight.superseded.is_empty() {
            self.heap.note_release();
        }
        self.spare = in_flight.superseded.emptied();
        let nearly_full = self.slab.is_some_and(|slab| SLOTS_PER_RUN - slab.next < SLAB_ROOM_MIN);
        // The compactor appends no groups, so it fills a slab to its end.
        if nearly_full && self.is_quiescent() && !self.is_compactor() {
            self.close_slab();
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.has_appended() || self.is_committing() || self.lost.is_some() {
            self.heap.lanes.abandon(self.id);
        }
        self.abandon_slabs();
        self.close_fills();
    }
}

/// True if `next` begins within `last` or in the line after it, and both together are one flush.
fn continues(last: Extent, next: Extent) -> bool {
    const FLUSH_BYTES_MAX: u64 = 1 << 30;
    (last.off..=last.end() + LINE_SIZE).contains(&next.off) && next.end() - last.off <= FLUSH_BYTES_MAX
}

/// The members of `extents` that are not in `landed`.
fn without(extents: &[Extent], landed: &[Extent]) -> Extents {
    let mut offsets: SmallVec<[u64; 8]> = landed.iter().map(|extent| extent.off).collect();
    offsets.sort_unstable();
    extents.iter().copied().filter(|extent| offsets.binary_search(&extent.off).is_err()).collect()
}

#[inline]
fn too_large(what: &'static str, size: u64, max: u64) -> Result<(), HeapError> {
    if size > max { Err(HeapError::TooLarge { what, size, max }) } else { Ok(()) }
}

/// The extents of a record's key and value in frames.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// All extents that the record will refer to.
    pub(crate) refers: Extents,
    /// Those extents to which records refer already.
    pub(crate) again: Extents,
    /// Extents that were placed for the record, held until it refers to them.
    pub(crate) held: Extents,
}
