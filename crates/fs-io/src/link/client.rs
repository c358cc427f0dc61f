//! One client: its log, its leases, and the memory that it shares.

use super::counts::{Fenced, Why};
use super::shared::{Boot, Linked, Shared, reason_of, words_of};
use crate::leases::Withheld;
use crate::lives::MountNumber;
use crate::sys::SharedMemory;
use landfall_fs::{Access, FilePart, Files, FsError, InodeNumber, LeaseNumber, RefusedWrite};
use landfall_fs_link::{
    Adopted, CONTROL_WORDS, ClientLog, Control, Identity, Kind, LEASE_TIME, LEASES_MAX, LeaseFields,
    LinkState, LogEnd, NotGranted, PARTS_MAX, Part, Reason, SEQS_PER_LEASE, lease,
};
use landfall_heap::{ForeignData, HeapError};
use landfall_media::{Extent, RUN_SIZE};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// How often the server asks whether a thread has left a lease.
const ASK_EVERY: Duration = Duration::from_micros(50);
/// Most bytes that one answer maps: they are verified before.
const MAP_BYTES_MAX: u64 = 4 << 20;
/// Bytes in records, which are copied, begin at multiples of so many bytes.
const COPY_GRAIN: u64 = 64;

/// A client.
pub(super) struct Client {
    number: u32,
    /// The mount through which its program opens files.
    linked: Linked,
    memory: SharedMemory,
    /// Where the memory is in the region, if the program is in a virtual machine.
    place: Option<u64>,
    state: Mutex<State>,
}

struct State {
    log: ClientLog,
    /// Nothing of it counts any more.
    is_over: bool,
    leases: BTreeMap<LeaseNumber, Held>,
    /// The newest generation of each place.
    generations: Vec<u32>,
    copies: Option<Copies>,
}

/// A lease of the client.
struct Held {
    place: usize,
    inode: InodeNumber,
    /// Bytes that the client may read as long as it has the lease.
    extents: Vec<Extent>,
    /// Of what the client may change the holders of mounts on other machines keep nothing.
    _withheld: Option<Withheld>,
}

/// A run with copies of short values.
struct Copies {
    data: ForeignData,
    used: u64,
}

/// What *map* answers: the parts, and the end of the range that they cover.
type Mapped = (Vec<Part>, u64);

impl Client {
    /// A client that has been attached.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn new(files: &Arc<Files>, number: u32, linked: Linked) -> io::Result<Self> {
        let memory = SharedMemory::new(CONTROL_WORDS)?;
        let client = Self::with(files, number, linked, (memory, None));
        client.control().begin(client.identity(files));
        Ok(client)
    }

    /// A client in a virtual machine since `boot`, with its memory at this place of the region. `None`: a client that had the
    /// place before may be in a lease still.
    ///
    /// # Errors
    /// There is no such memory.
    pub(super) fn within(
        files: &Arc<Files>,
        number: u32,
        linked: Linked,
        (region, place, boot): (File, u64, Boot),
    ) -> io::Result<Option<Self>> {
        let memory = SharedMemory::within(region, CONTROL_WORDS, place)?;
        let client = Self::with(files, number, linked, (memory, Some(place)));
        let (identity, control) = (client.identity(files), client.control());
        let has_begun = control.begin_again(identity, words_of(boot));
        let generations = (0..LEASES_MAX).map(|place| lease::generation(control.lease_word(place))).collect();
        client.state.lock().generations = generations;
        Ok(has_begun.then_some(client))
    }

    fn with(
        files: &Arc<Files>,
        number: u32,
        linked: Linked,
        (memory, place): (SharedMemory, Option<u64>),
    ) -> Self {
        let state = State {
            log: ClientLog::new(Arc::clone(files), number),
            is_over: false,
            leases: BTreeMap::new(),
            generations: vec![0; LEASES_MAX],
            copies: None,
        };
        Self { number, linked, memory, place, state: Mutex::new(state) }
    }

    fn identity(&self, files: &Files) -> Identity {
        let geometry = files.heap().geometry();
        let (hash_seed, region_bytes) = (geometry.hash_seed, geometry.bytes());
        Identity { client: self.number, hash_seed, region_bytes }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The mount through which its program opens files.
    pub(super) fn mount(&self) -> MountNumber {
        self.linked.mount
    }

    /// Where the memory is in the region, if the program is in a virtual machine.
    pub(super) fn place(&self) -> Option<u64> {
        self.place
    }

    /// The memory as a file.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn control(&self) -> Control<'_> {
        Control::new(self.memory.words()).expect("it has the size of a control memory")
    }

    /// Grants runs, and adopts what fills those before.
    pub(super) fn refill(&self, shared: &Shared) -> Result<(), Reason> {
        let mut state = self.state.lock();
        self.adopt_locked(shared, &mut state);
        if state.is_over {
            return Err(Reason::Fenced);
        }
        state.refill(shared, self.control()).map_err(|error| match error {
            NotGranted::Region(error) => reason_of(&FsError::from(error)),
            NotGranted::Behind => Reason::Space,
        })
    }

    /// Makes durable what is appended, at other machines, too, where they have the files.
    pub(super) fn sync(&self, shared: &Shared) -> Result<(), Reason> {
        {
            let mut state = self.state.lock();
            self.adopt_locked(shared, &mut state);
            if state.is_over {
                return Err(Reason::Fenced);
            }
        }
        let _waiter = shared.files.waiter();
        shared.files.acknowledge_all().map_err(|error| reason_of(&error))
    }

    /// Adopts what is appended.
    pub(super) fn adopt(&self, shared: &Shared) {
        self.adopt_locked(shared, &mut self.state.lock());
    }

    fn adopt_locked(&self, shared: &Shared, state: &mut State) {
        if state.is_over {
            return;
        }
        if let Err(error) = state.adopt(shared, self.control()) {
            tracing::warn!(client = self.number, %error, "a library breaks a rule: it is fenced");
            shared.counts.note_fenced(Fenced::Refused);
            self.close(shared, state, LinkState::Fenced);
        }
    }

    /// What is done for a client now and then. Returns leases that are to be taken back.
    pub(super) fn tend(&self, shared: &Shared) -> Vec<LeaseNumber> {
        let mut state = self.state.lock();
        self.adopt_locked(shared, &mut state);
        if state.is_over {
            return Vec::new();
        }
        // A client that has never asked writes nothing. One for which there is no space asks, and is told.
        let refilled = if state.log.has_grants() { state.refill(shared, self.control()) } else { Ok(()) };
        // Leases that end give nothing back to other machines.
        let is_short = matches!(refilled, Err(NotGranted::Region(_))) || !shared.files.heap().has_room();
        let (control, now) = (self.control(), shared.now());
        let mut leases = shared.leases.lock();
        let is_idle =
            |(number, held): &(&LeaseNumber, &Held)| leases.is_idle(now, **number, control.uses(held.place));
        let idle = state.leases.iter().filter(is_idle).map(|(number, _)| *number);
        idle.chain(state.log.lease_to_end(is_short)).collect()
    }

    /// Takes a lease back: waits for the threads that use it, and adopts what they have appended.
    pub(super) fn take_back(&self, shared: &Shared, number: LeaseNumber, why: Why) {
        let mut state = self.state.lock();
        let Some(place) = state.leases.get(&number).map(|held| held.place) else { return };
        let word = self.control().lease_word(place);
        lease::revoke(word);
        if is_left(word) {
            self.adopt_locked(shared, &mut state);
        } else {
            tracing::warn!(client = self.number, "a library does not give a lease back: it is fenced");
            shared.counts.note_fenced(Fenced::Slow);
            self.close(shared, &mut state, LinkState::Fenced);
        }
        state.drop_lease(shared, number, why);
    }

    /// The client has ended, or its mount ends.
    pub(super) fn finish(&self, shared: &Shared) {
        self.close(shared, &mut self.state.lock(), LinkState::Ended);
    }

    /// The process of a client that has finished has ended: nobody looks at its memory any more.
    pub(super) fn retire(&self) {
        self.control().set_state(LinkState::Ended);
    }

    /// Ends the log behind what is appended. What was leased is free for others only when that is durable.
    fn close(&self, shared: &Shared, state: &mut State, to: LinkState) {
        if state.is_over {
            return;
        }
        state.is_over = true;
        let control = self.control();
        control.set_state(to);
        state.leases.values().for_each(|held| lease::revoke(control.lease_word(held.place)));
        if to == LinkState::Ended
            && !state.leases.values().all(|held| is_left(control.lease_word(held.place)))
        {
            // Threads that are in may still append, and that counts: they are waited for. What they append from now on does
            // not count. Those of a process that was killed have gone, and are waited for in vain.
            control.set_state(LinkState::Fenced);
        }
        // What is appended by now counts, and the library knows what does not.
        control.seal();
        // What breaks a rule does not count, and neither does what is behind it.
        if state.adopt(shared, control).is_err() {
            control.set_state(LinkState::Fenced);
        }
        shared.files.end_client(self.number);
        shared.publish_end(self.number);
        let numbers: Vec<LeaseNumber> = state.leases.keys().copied().collect();
        for number in numbers {
            state.drop_lease(shared, number, Why::Ended);
            shared.leases.lock().release(number);
        }
        state.copies = None;
    }

    /// True if nothing of the client counts any more.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Number of its leases.
    pub(super) fn leases(&self) -> u64 {
        self.state.lock().leases.len() as u64
    }

    /// True if the client has this lease.
    pub(super) fn has(&self, number: LeaseNumber) -> bool {
        self.state.lock().leases.contains_key(&number)
    }

    /// The lease with this place and generation.
    pub(super) fn lease_at(&self, place: u32, generation: u32) -> Option<LeaseNumber> {
        self.state.lock().number_at(place, generation)
    }

    /// Grants a pending lease. Returns its place and generation.
    pub(super) fn grant(
        &self,
        shared: &Shared,
        number: LeaseNumber,
        inode: InodeNumber,
        access: Access,
    ) -> Result<(u32, u32), Reason> {
        let withheld = match access {
            Access::Write => Some(self.withhold(shared, inode)?),
            Access::Read => None,
        };
        let mut state = self.state.lock();
        if state.is_over {
            return Err(Reason::Fenced);
        }
        let control = self.control();
        let place = state.free_place(control).ok_or(Reason::Many)?;
        let stat = shared.files.stat(inode).map_err(|error| reason_of(&error))?;
        let seq = shared.files.heap().draw_seqs(SEQS_PER_LEASE);
        if !shared.leases.lock().activate(number) {
            return Err(Reason::Left);
        }
        let (size, mtime_ns) = (stat.inode.size, stat.mtime_ns);
        control.set_lease(place, &LeaseFields { inode, number: number.0, seq, size, mtime_ns });
        let generation = state.generations[place].wrapping_add(1);
        state.generations[place] = generation;
        if access == Access::Write {
            state.log.begin_lease(number, inode, seq);
        }
        let held = Held { place, inode, extents: Vec::new(), _withheld: withheld };
        state.leases.insert(number, held);
        lease::grant(control.lease_word(place), generation, kind_of(access));
        shared.counts.note_granted();
        Ok((u32::try_from(place).unwrap_or(u32::MAX), generation))
    }

    /// Before the client may change an inode, nobody else keeps anything of it. No lock may be held: others wait here for
    /// requests that need the inode, and that take the lease back then.
    fn withhold(&self, shared: &Shared, inode: InodeNumber) -> Result<Withheld, Reason> {
        // Of a library whose operations are executed again the server makes everything durable together.
        if !shared.executes_again {
            let _waiter = shared.files.waiter();
            shared.files.sync(inode).map_err(|error| reason_of(&error))?;
        }
        // First the holders: what one has kept its kernel would read again.
        let withheld = shared.holders.withhold(inode);
        // The kernels of other mounts keep what programs have mapped, whoever changes it.
        if self.linked.forgetter.forget(inode) { Ok(withheld) } else { Err(Reason::Fenced) }
    }

    /// Where bytes of a leased file are.
    pub(super) fn map(
        &self,
        shared: &Shared,
        (place, generation): (u32, u32),
        range: Range<u64>,
    ) -> Result<Mapped, Reason> {
        let mut state = self.state.lock();
        let number = state.number_at(place, generation).ok_or(Reason::Revoked)?;
        let inode = state.leases[&number].inode;
        let end = range.end.min(range.start.saturating_add(MAP_BYTES_MAX));
        let parts = shared.files.read(inode, range.start..end).map_err(|error| reason_of(&error))?;
        let (mut mapped, mut at) = (Vec::new(), range.start);
        for part in &parts {
            match part {
                FilePart::Zeroes(len) => at += len,
                FilePart::Stored(stored) => {
                    let extents = state.extents_of(shared, stored).map_err(|error| reason_of(&error))?;
                    if mapped.len() + extents.len() > PARTS_MAX {
                        release(shared, &extents);
                        return Ok((mapped, at));
                    }
                    for extent in &extents {
                        mapped.push(Part { offset: at, at: extent.off, len: extent.len() });
                        at += u64::from(extent.len());
                    }
                    let held = state.leases.get_mut(&number).expect("it is held");
                    held.extents.extend(extents);
                }
            }
        }
        // Behind the end of the file there is nothing.
        Ok((mapped, end))
    }
}

impl State {
    fn number_at(&self, place: u32, generation: u32) -> Option<LeaseNumber> {
        let place = usize::try_from(place).ok()?;
        let is_current = self.generations.get(place) == Some(&generation);
        let mut at_place = self.leases.iter().filter(|(_, held)| held.place == place);
        at_place.next().filter(|_| is_current).map(|(number, _)| *number)
    }

    /// A place that no lease has, and in which nobody is.
    fn free_place(&self, control: Control<'_>) -> Option<usize> {
        let is_free = |place: &usize| {
            self.leases.values().all(|held| held.place != *place)
                && lease::is_empty(control.lease_word(*place))
        };
        (0..LEASES_MAX).find(is_free)
    }

    /// Grants runs, as far as what is written to them could be executed.
    fn refill(&mut self, shared: &Shared, control: Control<'_>) -> Result<(), NotGranted> {
        if shared.files.is_held_up() { Err(NotGranted::Behind) } else { self.log.refill(control) }
    }

    /// Adopts what is appended, and counts it. It waits as long as something cannot be executed yet: whoever comes behind must
    /// see it.
    fn adopt(&mut self, shared: &Shared, control: Control<'_>) -> Result<(), LogEnd> {
        loop {
            let before = (self.log.adopted(), self.log.adopted_bytes());
            let adopted = self.log.adopt(control);
            shared.counts.note_adopted(self.log.adopted() - before.0, self.log.adopted_bytes() - before.1);
            match adopted? {
                Adopted::All(_) => return Ok(()),
                Adopted::Waits(error) => {
                    let refused = |error| RefusedWrite { index: self.log.adopted(), error };
                    shared.wait_for(error).map_err(refused)?;
                }
            }
        }
    }

    fn drop_lease(&mut self, shared: &Shared, number: LeaseNumber, why: Why) {
        if let Some(held) = self.leases.remove(&number) {
            shared.counts.note_taken_back(why);
            release(shared, &held.extents);
            self.log.end_lease(number);
        }
    }

    /// Where verified bytes are, held. Bytes in a record are copied.
    fn extents_of(
        &mut self,
        shared: &Shared,
        part: &landfall_heap::ItemPart<'_>,
    ) -> Result<Vec<Extent>, FsError> {
        let heap = shared.files.heap();
        if !part.item().verify()? {
            let what = landfall_heap::Damage::ValueChecksum;
            return Err(HeapError::Damaged { slot: part.item().slot, what }.into());
        }
        let extents: Vec<Extent> = match part.inline() {
            Some(bytes) => vec![self.copy(shared, bytes)?],
            None => part.extents().into_iter().filter(|extent| !extent.is_empty()).collect(),
        };
        extents.iter().for_each(|extent| heap.runs().hold(*extent));
        Ok(extents)
    }

    fn copy(&mut self, shared: &Shared, bytes: &[u8]) -> Result<Extent, FsError> {
        let heap = shared.files.heap();
        let len = bytes.len() as u64;
        let is_full = |copies: &Copies| copies.used + len > RUN_SIZE;
        if self.copies.as_ref().is_none_or(is_full) {
            self.copies = Some(Copies { data: ForeignData::grant(heap)?, used: 0 });
        }
        let copies = self.copies.as_mut().expect("there is one now");
        let extent = Extent::new(
            copies.data.run().off() + copies.used,
            u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        );
        heap.media().store(extent.off, bytes)?;
        copies.used += len.next_multiple_of(COPY_GRAIN);
        Ok(extent)
    }
}

fn release(shared: &Shared, extents: &[Extent]) {
    extents.iter().for_each(|extent| shared.files.heap().runs().release(*extent));
}

/// Waits until nobody is in a lease that was revoked. False if that takes longer than a lease lasts.
fn is_left(word: &AtomicU64) -> bool {
    let until = Instant::now() + LEASE_TIME;
    while !lease::is_empty(word) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(ASK_EVERY);
    }
    true
}

fn kind_of(access: Access) -> Kind {
    match access {
        Access::Read => Kind::Read,
        Access::Write => Kind::Write,
    }
}
