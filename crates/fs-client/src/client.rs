//! The client: leases, reads and writes.

use crate::file::{Asking, File, Lease, State};
use crate::host::{Gone, Host};
use crate::log::{Entry, Log};
use crate::segments::{Place, Segment, Segments};
use crate::value::{Blocks, parts};
use landfall_fs::{FILE_BYTES_MAX, WritePlace};
use landfall_fs_link::{
    BLOCK_BYTES, Control, Kind, LEASES_MAX, LinkState, Reason, Refusal, Reply, Request, SEQS_PER_LEASE,
    USE_BYTES_MAX, Unusable, lease,
};
use landfall_media::Extent;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often a call asks for a lease that it loses before it can use it.
const TRIES: usize = 3;
/// Bytes of which the client asks at once where they are: a sequential reader asks rarely, and the server verifies no
/// more than that for one question.
const MAP_BYTES: u64 = 1 << 20;
/// Segments of one file. A file with more of them is given back, and asked for anew.
const SEGMENTS_MAX: usize = 1 << 16;
/// Seqs that a write may need: one for each of its operations.
const SEQS_NEEDED: u64 = 32;
/// Time in which the client does not ask again for space that the server did not have, milliseconds.
const SPACE_WAIT_MS: u64 = 10;

static ZEROES: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// A call that the kernel is to answer. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel is to answer the call")]
pub struct Unanswered;

/// Why a thread is not in a lease.
enum Lost {
    /// The lease was revoked: a new one may help.
    Lease,
    /// Nothing helps.
    Client,
}

impl From<Gone> for Lost {
    fn from(Gone: Gone) -> Self {
        Self::Client
    }
}

/// What the server has been asked to make durable.
#[derive(Default)]
struct Syncs {
    /// Number of times that it was asked.
    begun: AtomicU64,
    /// The last one that it has answered. Who holds this asks: those who wait share the next answer.
    done: Mutex<u64>,
    /// Operations below this index are durable, wherever they must be.
    durable: AtomicU64,
}

/// Which server follows the one that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// One of the same region: it says in the control memory what it has executed.
    SameRegion,
    /// Perhaps one of another region, to which the mount has gone: nothing is known of what was not made durable.
    Any,
}

/// What a write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The end of what was written.
    pub end: u64,
    /// Bytes: all, or those that still counted when the server fenced the client.
    pub len: u64,
}

/// One side of the link: that of a program's process.
pub struct Client<'m> {
    control: Control<'m>,
    host: &'m dyn Host,
    region_bytes: u64,
    /// What the server has executed counts, and nothing that this client makes durable.
    is_executed_again: bool,
    log: Mutex<Log>,
    syncs: Syncs,
    next: Next,
    /// The server takes no operations any more, or does not answer.
    is_over: AtomicBool,
    /// When the server may be asked for space again.
    refill_from_ms: AtomicU64,
    /// When it was seen last that the server is there.
    seen_ms: AtomicU64,
}

impl<'m> Client<'m> {
    /// The client of a connection that the server has welcomed.
    ///
    /// # Errors
    /// [`Unusable::Version`].
    pub fn new(control: Control<'m>, host: &'m dyn Host) -> Result<Self, Unusable> {
        let identity = control.identity()?;
        Ok(Self {
            control,
            host,
            region_bytes: identity.region_bytes,
            is_executed_again: identity.is_executed_again(),
            syncs: Syncs::default(),
            next: Next::SameRegion,
            log: Mutex::new(Log::new(identity)),
            is_over: AtomicBool::new(false),
            refill_from_ms: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
        })
    }

    /// Says which server may follow. It is one of the same region otherwise.
    #[must_use]
    pub fn followed_by(self, next: Next) -> Self {
        Self { next, ..self }
    }

    /// True once the kernel answers for all files.
    ///
    /// A server that was killed says nothing, and another one may open the region at once. So the client asks the kernel,
    /// once in a millisecond, whether its server is there.
    pub fn is_over(&self) -> bool {
        if self.has_ended() {
            return true;
        }
        let now_ms = self.host.now().ms;
        if self.seen_ms.swap(now_ms, Ordering::Relaxed) == now_ms || self.host.is_there() {
            return false;
        }
        self.end();
        true
    }

    /// True if it was seen that the kernel answers for all files: it is not asked whether the server is there.
    pub fn has_ended(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.control.state() != LinkState::Running
    }

    /// True while the client has a lease of the file: calls are answered without a word to the server.
    pub fn has_lease(&self, file: &File) -> bool {
        let state = file.lock();
        state.lease.as_ref().is_some_and(|lease| lease::is_granted(self.control.lease_word(lease.place)))
    }

    /// False while it is useless to ask the client about a file.
    pub fn is_ready(&self, file: &File) -> bool {
        let state = file.lock();
        let may_ask = match state.asking {
            Asking::From(ms) => ms <= self.host.now().ms,
            Asking::Never => false,
        };
        (state.lease.is_some() || may_ask) && !self.is_over()
    }

    /// Fills `space` with the bytes from `offset` on, up to the end of the file. Returns how many they are.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn read_at<S: DerefMut<Target = [u8]>>(
        &self,
        file: &File,
        offset: u64,
        space: &mut [S],
    ) -> Result<usize, Unanswered> {
        let wanted: u64 = space.iter().map(|slice| slice.len() as u64).sum();
        if wanted > USE_BYTES_MAX {
            return Err(Unanswered);
        }
        let mut state = file.lock();
        self.leased(file, &mut state, Kind::Read, |client, state| {
            let range = offset.min(state.size)..offset.saturating_add(wanted).min(state.size);
            client.learn(state, range.clone())?;
            client.within(state, |client, state| client.copy_out(&state.segments, range, space))
        })
    }

    /// Writes at `offset`, or at the end of the file.
    ///
    /// # Errors
    /// [`Unanswered`]: nothing was written.
    pub fn write_at<D: Deref<Target = [u8]>>(
        &self,
        file: &File,
        offset: Option<u64>,
        data: &[D],
    ) -> Result<Written, Unanswered> {
        let len: u64 = data.iter().map(|slice| slice.len() as u64).sum();
        if len == 0 || len > USE_BYTES_MAX {
            return Err(Unanswered);
        }
        let mut state = file.lock();
        self.leased(file, &mut state, Kind::Write, |client, state| {
            let offset = offset.unwrap_or(state.size);
            let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Lost::Client)?;
            let blocks = Blocks::of(offset..end, state.size);
            client.learn(state, blocks.head(state.size))?;
            client.learn(state, blocks.tail())?;
            let mut log = client.log_with_room(&blocks)?;
            let mut counts = 0;
            let append = |client: &Self, state: &mut State| {
                client.append(file, state, &mut log, &blocks, data, &mut counts)
            };
            // What was appended before the server took nothing more counts: nobody must do it again.
            match client.within(state, append) {
                Err(lost) if counts == 0 => Err(lost),
                _ => Ok(Written { end: offset + counts, len: counts }),
            }
        })
    }

    /// The size of the file, bytes.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn size(&self, file: &File) -> Result<u64, Unanswered> {
        let mut state = file.lock();
        self.leased(file, &mut state, Kind::Read, |client, state| {
            client.within(state, |_, state| Ok(state.size))
        })
    }

    /// Makes durable everything that was done to the file, with everything that the client has done.
    ///
    /// # Errors
    /// [`Unanswered`]: the client does not know what others have done.
    pub fn sync(&self, file: &File) -> Result<(), Unanswered> {
        let mut state = file.lock();
        // Before a lease to write was granted everything done to the file was durable. Nobody else has changed it since.
        if self.is_over() || state.lease.as_ref().is_none_or(|lease| lease.kind != Kind::Write) {
            return Err(Unanswered);
        }
        self.within(&mut state, |_, _| Ok(())).map_err(|_| Unanswered)?;
        if !self.is_executed_again {
            self.log().make_durable(&self.control, self.host);
            return Ok(());
        }
        let changed_at = state.changed_at;
        drop(state);
        self.sync_by_server(changed_at)
    }

    /// The server makes everything durable that was done before so many syncs had begun.
    fn sync_by_server(&self, changed_at: u64) -> Result<(), Unanswered> {
        let mut done = self.syncs.done.lock().unwrap_or_else(PoisonError::into_inner);
        if *done > changed_at {
            return Ok(());
        }
        let number = self.syncs.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let appended = self.log().appended();
        match self.ask(&Request::Sync) {
            Ok(Reply::Done) => *done = number,
            _ => return Err(Unanswered),
        }
        self.syncs.durable.fetch_max(appended, Ordering::AcqRel);
        Ok(())
    }

    /// The number of the last operation on the file that is lost if the server ends before it has executed it, or that is lost
    /// because it has ended; `None`: there is none.
    pub fn at_stake(&self, file: &File) -> Option<u64> {
        let state = file.lock();
        self.is_at_stake(&state).then_some(state.appended)
    }

    /// True, once, if what was written to the file is lost, or may be. To be asked when the kernel has made the file durable,
    /// with what was at stake before: a server that ends in good order has executed everything then.
    pub fn has_lost(&self, file: &File, at_stake: u64) -> bool {
        let mut state = file.lock();
        if !self.is_at_stake(&state) {
            return false;
        }
        let is_refused = self.control.state() == LinkState::Fenced && state.appended > self.control.applied();
        let is_lost = self.has_gone() || is_refused;
        if is_lost {
            state.appended = 0;
        } else {
            // The kernel was answered by this server, as that is still there.
            state.kept = state.kept.max(at_stake);
        }
        is_lost
    }

    /// Has the server make durable what is at stake. If it cannot, that stays at stake.
    pub fn settle(&self, file: &File) {
        if self.at_stake(file).is_some() && !self.is_over() {
            let changed_at = file.lock().changed_at;
            let _ = self.sync_by_server(changed_at);
        }
    }

    fn is_at_stake(&self, state: &State) -> bool {
        self.is_executed_again && state.appended > state.kept.max(self.kept())
    }

    /// Operations below this index are not lost with the server.
    fn kept(&self) -> u64 {
        match self.next {
            Next::SameRegion => self.control.applied(),
            Next::Any => self.syncs.durable.load(Ordering::Acquire),
        }
    }

    /// True if the server is not there any more, also where nobody has looked for it since.
    fn has_gone(&self) -> bool {
        let is_there = self.host.is_there();
        if !is_there {
            self.end();
        }
        match self.next {
            Next::SameRegion => self.has_ended(),
            // As long as it is there no other one serves the mount.
            Next::Any => !is_there && !self.host.has_settled(),
        }
    }

    /// The kernel answers for the file from now on.
    pub fn leave(&self, file: &File) {
        let mut state = file.lock();
        state.asking = Asking::Never;
        self.release(&mut state);
    }

    /// Gives back the lease of a file that nobody uses.
    pub fn put_away(&self, file: &File) {
        self.release(&mut file.lock());
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under a lease, which is asked for if there is none, or if it was lost.
    fn leased<T>(
        &self,
        file: &File,
        state: &mut State,
        kind: Kind,
        mut call: impl FnMut(&Self, &mut State) -> Result<T, Lost>,
    ) -> Result<T, Unanswered> {
        for _ in 0..TRIES {
            let done = self.hold(file, state, kind).and_then(|()| call(self, state));
            match done {
                Ok(done) => return Ok(done),
                Err(Lost::Client) => return Err(Unanswered),
                Err(Lost::Lease) => state.lease = None,
            }
        }
        Err(Unanswered)
    }

    /// Gets a lease, unless there is one.
    fn hold(&self, file: &File, state: &mut State, kind: Kind) -> Result<(), Lost> {
        if self.is_over() {
            return Err(Lost::Client);
        }
        let is_enough = |lease: &Lease| {
            (kind == Kind::Read || lease.kind == Kind::Write)
                && lease.seqs.end - lease.seqs.start >= SEQS_NEEDED
        };
        if state.lease.as_ref().is_some_and(is_enough) && state.segments.count() < SEGMENTS_MAX {
            return Ok(());
        }
        self.release(state);
        match state.asking {
            Asking::From(ms) if ms <= self.host.now().ms => self.acquire(file, state, kind),
            _ => Err(Lost::Client),
        }
    }

    /// Asks for a lease. Nothing is known of the file before.
    fn acquire(&self, file: &File, state: &mut State, kind: Kind) -> Result<(), Lost> {
        let (place, generation) = match self.ask(&Request::Acquire { kind, inode: file.inode })? {
            Reply::Lease { place, generation } => (place as usize, generation),
            Reply::Refused(refusal) => {
                self.note_refusal(state, refusal);
                return Err(Lost::Client);
            }
            _ => return Err(self.end()),
        };
        if place >= LEASES_MAX {
            return Err(self.end());
        }
        // The fields are those of the lease as long as a thread is in.
        let word = self.control.lease_word(place);
        lease::enter(word, generation, kind).map_err(|_| Lost::Lease)?;
        let fields = self.control.lease(place);
        lease::leave(word);
        if fields.inode != file.inode || fields.size > FILE_BYTES_MAX {
            return Err(self.end());
        }
        state.size = fields.size;
        let seqs = fields.seq..fields.seq.saturating_add(SEQS_PER_LEASE);
        state.lease = Some(Lease { place, generation, kind, number: fields.number, seqs });
        self.note_changed(state);
        Ok(())
    }

    /// Something may not be durable that was done to the file until now.
    fn note_changed(&self, state: &mut State) {
        state.changed_at = self.syncs.begun.load(Ordering::Acquire);
    }

    fn note_refusal(&self, state: &mut State, refusal: Refusal) {
        let wait_ms = u64::from(refusal.wait_ms).max(1);
        match refusal.reason {
            Reason::Inode => state.asking = Asking::Never,
            Reason::Version
            | Reason::Medium
            | Reason::WriteBack
            | Reason::Always
            | Reason::Fenced
            | Reason::Message => {
                self.end();
            }
            _ => state.asking = Asking::From(self.host.now().ms + wait_ms),
        }
    }

    /// Gives a lease back. A lease that was revoked needs no word.
    fn release(&self, state: &mut State) {
        state.segments.clear();
        if let Some(Lease { place, generation, .. }) = state.lease.take()
            && lease::is_granted(self.control.lease_word(place))
            && !self.is_over()
        {
            // Whatever the answer is, the client does not use it any more.
            let _ = self.ask(&Request::Release { place: place as u32, generation });
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply, Lost> {
        self.host.ask(request).map_err(|Gone| self.end())
    }

    /// The kernel answers everything from now on.
    fn end(&self) -> Lost {
        self.is_over.store(true, Ordering::Relaxed);
        Lost::Client
    }

    /// Does something while the thread is in the lease.
    fn within<T>(
        &self,
        state: &mut State,
        call: impl FnOnce(&Self, &mut State) -> Result<T, Lost>,
    ) -> Result<T, Lost> {
        let lease = state.lease.as_ref().ok_or(Lost::Lease)?;
        let (place, word) = (lease.place, self.control.lease_word(lease.place));
        match lease::enter(word, lease.generation, lease.kind) {
            Ok(()) => {}
            Err(lease::Refused::Revoked) => return Err(Lost::Lease),
            Err(_) => return Err(Lost::Client),
        }
        self.control.note_use(place);
        let done = call(self, state);
        lease::leave(word);
        // Who was fenced meanwhile may have read what is not there any more. A server that ends in good order has waited for
        // this thread.
        if self.control.state() == LinkState::Fenced { Err(self.end()) } else { done }
    }

    /// Learns where the bytes of a range are.
    fn learn(&self, state: &mut State, range: Range<u64>) -> Result<(), Lost> {
        while let Some(at) = state.segments.unknown(range.clone()) {
            let lease = state.lease.as_ref().ok_or(Lost::Lease)?;
            let (place, generation) = (lease.place as u32, lease.generation);
            let offset = at / BLOCK_BYTES * BLOCK_BYTES;
            let end = range.end.max((offset + MAP_BYTES).min(state.size));
            match self.ask(&Request::Map { place, generation, offset, end })? {
                Reply::Parts { end: known, parts } => {
                    let known = known.min(end);
                    // What takes more parts than an answer has is read by the kernel.
                    if known <= at {
                        return Err(Lost::Client);
                    }
                    for part in parts.iter().filter(|part| part.offset < known) {
                        let len = u64::from(part.len).min(known - part.offset);
                        let is_inside = part.at.checked_add(len).is_some_and(|end| end <= self.region_bytes);
                        if !is_inside {
                            return Err(self.end());
                        }
                        let place = Place::Region(part.at);
                        state.segments.fill(Segment { offset: part.offset, len, place });
                    }
                    let len = known - offset;
                    state.segments.fill(Segment { offset, len, place: Place::Zeroes });
                }
                Reply::Refused(Refusal { reason: Reason::Revoked, .. }) => return Err(Lost::Lease),
                Reply::Refused(refusal) => {
                    self.note_refusal(state, refusal);
                    return Err(Lost::Client);
                }
                _ => return Err(self.end()),
            }
        }
        Ok(())
    }

    /// The bytes of a range, of which everything is known, into `space`.
    fn copy_out<S: DerefMut<Target = [u8]>>(
        &self,
        segments: &Segments,
        range: Range<u64>,
        space: &mut [S],
    ) -> Result<usize, Lost> {
        let mut at = range.start;
        for slice in space {
            let end = range.end.min(at + slice.len() as u64);
            for segment in segments.within(at..end) {
                let from = (segment.offset - at) as usize;
                let into = &mut slice[from..from + segment.len as usize];
                match segment.place {
                    Place::Zeroes => into.fill(0),
                    Place::Region(off) => {
                        into.copy_from_slice(self.host.bytes(extent(off, segment.len))?);
                    }
                }
            }
            at = end;
        }
        Ok((at - range.start) as usize)
    }

    /// The log, with room for a write.
    fn log_with_room(&self, blocks: &Blocks) -> Result<MutexGuard<'_, Log>, Lost> {
        let log = self.log();
        let lens = || blocks.entries().map(|range| range.end - range.start);
        if log.has_room(&self.control, lens()) {
            return Ok(log);
        }
        let now_ms = self.host.now().ms;
        if now_ms < self.refill_from_ms.load(Ordering::Relaxed) {
            return Err(Lost::Client);
        }
        match self.ask(&Request::Refill)? {
            Reply::Done if log.has_room(&self.control, lens()) => return Ok(log),
            Reply::Done | Reply::Refused(Refusal { reason: Reason::Space, .. }) => {}
            _ => return Err(self.end()),
        }
        self.refill_from_ms.store(now_ms + SPACE_WAIT_MS, Ordering::Relaxed);
        Err(Lost::Client)
    }

    /// Appends the operations of a write, for which there is room. `counts`: bytes of it that are appended.
    fn append<D: Deref<Target = [u8]>>(
        &self,
        file: &File,
        state: &mut State,
        log: &mut Log,
        blocks: &Blocks,
        data: &[D],
        counts: &mut u64,
    ) -> Result<(), Lost> {
        let (time_ns, size) = (self.host.now().unix_ns, state.size);
        for range in blocks.entries() {
            let lease = state.lease.as_mut().ok_or(Lost::Lease)?;
            let seq = lease.seqs.next().ok_or(Lost::Lease)?;
            let place = WritePlace { file: file.inode, offset: range.start, lease: lease.number };
            let entry = Entry { place, seq, time_ns, len: range.end - range.start };
            let old = &state.segments;
            let fill = |off| self.fill(old, size, blocks, data, (range.clone(), off));
            let bytes = log.append(&self.control, self.host, &entry, fill).map_err(|Gone| self.end())?;
            let place = Place::Region(bytes.off);
            state.segments.set(Segment { offset: range.start, len: entry.len, place });
            state.size = state.size.max(range.end);
            state.appended = log.appended();
            *counts = range.end.min(blocks.written.end).saturating_sub(blocks.written.start);
        }
        self.note_changed(state);
        let hole = size..blocks.whole.start.max(size);
        let len = hole.end - hole.start;
        state.segments.set(Segment { offset: hole.start, len, place: Place::Zeroes });
        Ok(())
    }

    /// Stores the bytes of one operation: new ones, and old ones before and behind them in their blocks.
    fn fill<D: Deref<Target = [u8]>>(
        &self,
        old: &Segments,
        size: u64,
        blocks: &Blocks,
        data: &[D],
        (range, off): (Range<u64>, u64),
    ) -> Result<(), Gone> {
        let to = |offset: u64| off + (offset - range.start);
        let Range { start, end } = blocks.written.clone();
        let (head, tail) = (range.start..start.min(range.end), end.max(range.start)..range.end);
        self.store_old(old, size, head.clone(), &to)?;
        let written = start.max(range.start)..end.min(range.end);
        let mut at = written.start;
        for part in parts(data, written.start - start..written.end.max(written.start) - start) {
            self.host.store(to(at), part)?;
            at += part.len() as u64;
        }
        self.store_old(old, size, tail, &to)
    }

    /// Stores old bytes again; what lies behind the end of the file is zero.
    fn store_old(
        &self,
        old: &Segments,
        size: u64,
        range: Range<u64>,
        to: &impl Fn(u64) -> u64,
    ) -> Result<(), Gone> {
        if range.is_empty() {
            return Ok(());
        }
        let known = range.start..range.end.min(size.max(range.start));
        for segment in old.within(known.clone()) {
            match segment.place {
                Place::Zeroes => self.store_zeroes(to(segment.offset), segment.len)?,
                Place::Region(at) => {
                    self.host.store(to(segment.offset), self.host.bytes(extent(at, segment.len))?)?;
                }
            }
        }
        self.store_zeroes(to(known.end), range.end - known.end)
    }

    /// Parts of a block are shorter than one.
    fn store_zeroes(&self, off: u64, len: u64) -> Result<(), Gone> {
        if len == 0 { Ok(()) } else { self.host.store(off, &ZEROES[..len as usize]) }
    }
}

/// Bytes of one call: they are less than 4 GiB.
fn extent(off: u64, len: u64) -> Extent {
    Extent::new(off, u32::try_from(len).unwrap_or(u32::MAX))
}
