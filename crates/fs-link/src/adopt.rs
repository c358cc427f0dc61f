//! The server's side of a client's log: what is granted to it, and which of its operations count.
//!
//! Nothing that the client has written is believed unchecked. A rule that it breaks ends its log, and nothing else.

use crate::control::{Control, SlabGrant};
use crate::layout::{BLOCK_BYTES, LANDINGS_MAX, SEQS_PER_LEASE, SLABS_MAX};
use crate::record::{Broken, Checked};
use landfall_fs::{
    AdoptedWrite, FIRST_CLIENT_AGAIN, Files, ForeignWrite, FsError, InodeNumber, LeaseNumber, RefusedWrite,
};
use landfall_heap::{ForeignData, ForeignSlab, HeapError, RECORD_SIZE, RunId, SLOTS_PER_RUN, TakenRoom};
use landfall_media::{Extent, RUN_SIZE};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Most operations that are made durable with one fence, so that the tree is not locked for long.
const ADOPTED_AT_ONCE: u64 = 256;
/// A client gets the next slab when so many slots of the one in use are adopted.
const SLAB_NEXT_FROM: u32 = SLOTS_PER_RUN / 2;
/// Landing runs that are granted ahead of need: one part in so many of what is free, within bounds.
const LANDINGS_PARTS: u64 = 32;
const LANDINGS_AHEAD: RangeInclusive<u64> = 2..=8;
const _: () = assert!(*LANDINGS_AHEAD.end() <= LANDINGS_MAX && SLABS_MAX >= 2);
/// Landing runs that a client may have behind it and that are kept for its leases, before leases must end.
const KEPT_MAX: u64 = 64;

/// Why a client gets nothing more to write to.
#[derive(Debug, thiserror::Error)]
pub enum NotGranted {
    /// The region has no run.
    #[error(transparent)]
    Region(#[from] HeapError),
    /// There is not plenty of room at the other machines that get what it writes.
    #[error("there is not plenty of room at the other machines")]
    Behind,
}

/// Why a client's log has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogEnd {
    /// The operation with this index breaks a rule.
    #[error("operation {0} breaks a rule: {1}")]
    Broken(u64, Broken),
    /// The tree refuses an operation.
    #[error(transparent)]
    Refused(#[from] RefusedWrite),
    /// A count in the control memory is impossible.
    #[error("a count in the control memory is impossible")]
    Counts,
    /// The log has ended before.
    #[error("the log has ended before")]
    Before,
    /// An error of the region.
    #[error(transparent)]
    Region(#[from] HeapError),
}

/// How far adopting has come.
#[derive(Debug)]
pub enum Adopted {
    /// Everything that was appended is adopted: so many operations.
    All(u64),
    /// The next operation is to be tried again: this error does not last ([`FsError::until`]).
    Waits(FsError),
}

/// A write lease of the client.
#[derive(Clone, Debug)]
struct Held {
    inode: InodeNumber,
    /// Seqs that operations under it may have.
    seqs: Range<u64>,
    /// What the client has stored in landing runs from this one on may be read as long as the lease lasts.
    landing: u64,
}

type RecordBytes = [u8; RECORD_SIZE as usize];

/// Most writes that refer to one landing run: extents begin at different blocks.
const WRITES_PER_LANDING: u64 = RUN_SIZE / BLOCK_BYTES;

/// A place in the landing runs: number of the run, offset in it.
type LandingPlace = (u64, u64);

/// The log of one client.
#[derive(Debug)]
pub struct ClientLog {
    files: Arc<Files>,
    client: u32,
    /// Slabs that are not adopted to their end; the first one is being adopted.
    slabs: VecDeque<ForeignSlab>,
    slabs_granted: u64,
    /// Landing runs; the first one has number `landings_granted - landings.len()`.
    landings: VecDeque<ForeignData>,
    landings_granted: u64,
    /// Landing runs that the client does not store to any more.
    done: u64,
    /// Behind everything that adopted operations refer to.
    used: LandingPlace,
    adopted: u64,
    adopted_bytes: u64,
    /// Operations from `adopted` on that are checked, and are to be executed again in the log of the mount.
    checked: VecDeque<Checked>,
    /// Room at the successor of that log, for what the granted landing runs may hold.
    room: TakenRoom,
    /// Its share for each landing run.
    room_per_landing: u64,
    leases: BTreeMap<u64, Held>,
    /// Nothing more is adopted.
    has_ended: bool,
}

impl ClientLog {
    /// The log of a client that has just been attached ([`Files::attach`]); or, from [`FIRST_CLIENT_AGAIN`] on, whose operations
    /// are executed again in the log of the mount ([`Files::execute_adopted`]).
    pub fn new(files: Arc<Files>, client: u32) -> Self {
        Self {
            files,
            client,
            slabs: VecDeque::new(),
            slabs_granted: 0,
            landings: VecDeque::new(),
            landings_granted: 0,
            done: 0,
            used: (0, 0),
            adopted: 0,
            adopted_bytes: 0,
            checked: VecDeque::new(),
            room: TakenRoom::default(),
            room_per_landing: 0,
            leases: BTreeMap::new(),
            has_ended: false,
        }
    }

    /// The client's number.
    pub fn client(&self) -> u32 {
        self.client
    }

    /// Number of operations that are adopted.
    pub fn adopted(&self) -> u64 {
        self.adopted
    }

    /// Bytes of these operations.
    pub fn adopted_bytes(&self) -> u64 {
        self.adopted_bytes
    }

    /// True if anything was granted: the client appends, or is about to.
    pub fn has_grants(&self) -> bool {
        self.slabs_granted > 0
    }

    /// Grants slabs and landing runs, so that the client has the next ones before it needs them.
    ///
    /// # Errors
    /// [`NotGranted`] if there is no space for all of them, here or elsewhere; the medium's.
    pub fn refill(&mut self, control: Control<'_>) -> Result<(), NotGranted> {
        let heap = Arc::clone(self.files.heap());
        let is_advanced = self.slabs.front().is_some_and(|slab| slab.adopted() >= SLAB_NEXT_FROM);
        let slabs = if is_advanced { 2 } else { 1 };
        while self.slabs.len() < slabs {
            let slab = ForeignSlab::grant(&heap)?;
            control.grant_slab(self.slabs_granted, SlabGrant { run: slab.run(), seal: slab.seal() });
            self.slabs_granted += 1;
            self.slabs.push_back(slab);
        }
        let part = u64::from(heap.runs().free_count()) / LANDINGS_PARTS;
        let landings = part.clamp(*LANDINGS_AHEAD.start(), *LANDINGS_AHEAD.end());
        while self.landings_granted - self.done < landings {
            // What is adopted must not be refused: there is room for it wherever it goes.
            let room = self.room_for_landing()?;
            let data = ForeignData::grant(&heap)?;
            self.room_per_landing = room.bytes();
            self.room.add(room);
            control.grant_landing(self.landings_granted, data.run());
            self.landings_granted += 1;
            self.landings.push_back(data);
        }
        Ok(())
    }

    /// The client gets a write lease. Operations under it have seqs from `seq` on.
    pub fn begin_lease(&mut self, number: LeaseNumber, inode: InodeNumber, seq: u64) {
        let held = Held { inode, seqs: seq..seq + SEQS_PER_LEASE, landing: self.done };
        self.leases.insert(number.0, held);
    }

    /// A lease of the client has ended: what it appended under it is adopted, and nothing more will be.
    pub fn end_lease(&mut self, number: LeaseNumber) {
        self.leases.remove(&number.0);
        self.release_landings();
    }

    /// The lease that has been held longest, if so much data is kept for the client's leases that it must end: any, if the
    /// region is short of space.
    pub fn lease_to_end(&self, is_short: bool) -> Option<LeaseNumber> {
        let kept = self.done.saturating_sub(self.first_landing());
        let most = if is_short { 0 } else { KEPT_MAX };
        let oldest = self.leases.iter().min_by_key(|(_, held)| held.landing);
        oldest.filter(|_| kept > most).map(|(number, _)| LeaseNumber(*number))
    }

    /// Adopts everything that the client has appended, as far as that is possible now.
    ///
    /// # Errors
    /// [`LogEnd`]: what was before is adopted, and the log has ended: the client is to be fenced. Nothing is adopted from
    /// then on.
    pub fn adopt(&mut self, control: Control<'_>) -> Result<Adopted, LogEnd> {
        if self.has_ended {
            return Err(LogEnd::Before);
        }
        let adopted = self.adopt_all(control);
        self.has_ended = adopted.is_err();
        adopted
    }

    /// Room at other machines for what a client writes to a landing run; none where that goes to no other one.
    fn room_for_landing(&self) -> Result<TakenRoom, NotGranted> {
        if !self.is_executed_again() {
            return Ok(TakenRoom::default());
        }
        self.files.take_spare_room(WRITES_PER_LANDING, RUN_SIZE).ok_or(NotGranted::Behind)
    }

    fn is_executed_again(&self) -> bool {
        self.client >= FIRST_CLIENT_AGAIN
    }

    fn adopt_all(&mut self, control: Control<'_>) -> Result<Adopted, LogEnd> {
        let done = control.done();
        let appended = control.appended();
        let known = self.adopted + self.checked.len() as u64;
        let possible = known..=self.slabs_granted * u64::from(SLOTS_PER_RUN);
        if !possible.contains(&appended) || !(self.done..=self.landings_granted).contains(&done) {
            return Err(LogEnd::Counts);
        }
        let before = self.adopted;
        while self.adopted < appended {
            let waits = self.adopt_some(control, appended);
            control.set_applied(self.adopted);
            if let Some(error) = waits? {
                return Ok(Adopted::Waits(error));
            }
        }
        self.done = done;
        self.release_landings();
        Ok(Adopted::All(self.adopted - before))
    }

    /// Adopts some of the operations below `appended`. Returns why the next one has to wait.
    fn adopt_some(&mut self, control: Control<'_>, appended: u64) -> Result<Option<FsError>, LogEnd> {
        let slab = self.slabs.front().ok_or(LogEnd::Counts)?;
        let room = u64::from(SLOTS_PER_RUN - slab.adopted());
        let until = self.adopted + room.min(appended - self.adopted).min(ADOPTED_AT_ONCE);
        let mut writes: Vec<(Checked, RecordBytes)> = Vec::new();
        let mut end = None;
        for index in self.adopted + self.checked.len() as u64..until {
            match self.check(index) {
                Ok(write) => writes.push(write),
                Err(error) => {
                    end = Some(error);
                    break;
                }
            }
        }
        if self.is_executed_again() {
            self.checked.extend(writes.iter().map(|(write, _)| *write));
            if let Some(error) = self.execute_again(control)? {
                // A rule that was broken behind it is found again.
                return Ok(Some(error));
            }
        } else {
            self.execute(&writes)?;
        }
        end.map_or(Ok(None), Err)
    }

    /// Checks an operation, and notes what it uses up.
    fn check(&mut self, index: u64) -> Result<(Checked, RecordBytes), LogEnd> {
        let slab = self.slabs.front().ok_or(LogEnd::Counts)?;
        let heap = self.files.heap();
        let at = (index % u64::from(SLOTS_PER_RUN)) as u32;
        let bytes = slab.copy(at).map_err(HeapError::from)?;
        let geometry = heap.geometry();
        let named = (self.client, index);
        let broken = |what| LogEnd::Broken(index, what);
        let (slot, seal) = (slab.slot(at), slab.seal());
        let write = Checked::new(&bytes, slot, seal, geometry.bytes(), geometry.hash_seed, named);
        let write = write.map_err(broken)?;
        let used = self.place_behind(write.extents()).ok_or(broken(Broken::Extents))?;
        // The bytes are checked here, because whoever reads or divides them later counts on their checksum.
        if heap.crc_of(write.extents()).map_err(HeapError::from)? != write.crc {
            return Err(broken(Broken::Data));
        }
        let held = self.leases.get_mut(&write.place.lease).ok_or(broken(Broken::Lease))?;
        if held.inode != write.place.file || !held.seqs.contains(&write.seq) {
            return Err(broken(Broken::Lease));
        }
        held.seqs.start = write.seq + 1;
        self.used = used;
        Ok((write, bytes))
    }

    fn execute(&mut self, writes: &[(Checked, RecordBytes)]) -> Result<(), LogEnd> {
        let Some(slab) = self.slabs.front_mut() else { return Ok(()) };
        let extents: Vec<&[Extent]> = writes.iter().map(|(write, _)| write.extents()).collect();
        let slots = slab.adopt(&extents)?;
        let is_full = slab.adopted() == SLOTS_PER_RUN;
        let foreign: Vec<ForeignWrite> = slots
            .into_iter()
            .zip(writes)
            .map(|(slot, (write, record))| ForeignWrite {
                slot,
                record: *record,
                place: write.place,
                len: write.len,
                time_ns: write.time_ns,
            })
            .collect();
        self.files.execute_foreign(self.client, &foreign)?;
        self.note_adopted(writes.iter().map(|(write, _)| write), is_full);
        Ok(())
    }

    /// Executes what is checked in the log of the mount, in order. Returns why the next one has to wait.
    fn execute_again(&mut self, control: Control<'_>) -> Result<Option<FsError>, LogEnd> {
        let Some(slab) = self.slabs.front_mut() else { return Ok(None) };
        let writes: Vec<AdoptedWrite<'_>> = self
            .checked
            .iter()
            .map(|write| AdoptedWrite {
                place: write.place,
                extents: write.extents(),
                crc: write.crc,
                time_ns: write.time_ns,
            })
            .collect();
        // If this server is killed, the next one knows what it need not execute.
        let note = |count: usize| control.set_applied(self.adopted + count as u64);
        let (count, outcome) = self.files.execute_adopted(&writes, &mut self.room, note);
        slab.pass_over(u32::try_from(count).unwrap_or(u32::MAX));
        let is_full = slab.adopted() == SLOTS_PER_RUN;
        let done: Vec<Checked> = self.checked.drain(..count).collect();
        self.note_adopted(done.iter(), is_full);
        match outcome {
            Ok(()) => Ok(None),
            Err(error) if error.until().is_some() => Ok(Some(error)),
            Err(error) => Err(RefusedWrite { index: self.adopted, error }.into()),
        }
    }

    fn note_adopted<'w>(&mut self, writes: impl Iterator<Item = &'w Checked>, is_slab_full: bool) {
        for write in writes {
            self.adopted += 1;
            self.adopted_bytes += write.len;
        }
        if is_slab_full {
            self.slabs.pop_front();
        }
    }

    fn first_landing(&self) -> u64 {
        self.landings_granted - self.landings.len() as u64
    }

    /// The place behind these extents, if they are in landing runs of the client, behind everything that was used.
    fn place_behind(&self, extents: &[Extent]) -> Option<LandingPlace> {
        let mut used = self.used;
        for extent in extents {
            let run = RunId::of(extent.off);
            let at = self.landings.iter().position(|data| data.run() == run)?;
            let number = self.first_landing() + at as u64;
            let place = (number, extent.off - run.off());
            if place < used || number < self.done {
                return None;
            }
            used = (number, place.1 + u64::from(extent.len()));
        }
        Some(used)
    }

    /// Landing runs that the client has done with are kept as long as a lease lasts that was granted before.
    fn release_landings(&mut self) {
        let needed = self.leases.values().map(|held| held.landing).min().unwrap_or(self.done);
        let until = needed.min(self.done);
        while self.first_landing() < until {
            self.landings.pop_front();
        }
        // What was not used of the room of runs that are full is free for others.
        self.room.keep_at_most((self.landings_granted - self.done) * self.room_per_landing);
    }
}
