//! Reading what has left memory: a command that needs such bytes waits, and its worker does not.
//!
//! A command finds under the lock of its shard that its value is not in memory. It asks for all of it
//! ([`Loader::submit`]), waits as it would for a commit, and is executed again. Commands that follow in its pipeline, and
//! other keys that it names, are asked for at once, so that the device always has several reads to do.
//!
//! Once a round, a worker starts what was asked for, by one system call, on a ring of its own ([`Lane`]). Threads do what
//! could block: they drop data from memory to make room, and they read where another read or the lack of a ring is in
//! the way. What others than workers ask for, who have no rounds, threads read at once, and whoever waits for it helps.

mod threads;

use crate::counters::count;
use landfall_heap::{Heap, LoadId, Loader};
use landfall_media::{EventFd, Extent, MediaError, ReadQueue, Started};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that a worker starts to read in one round: finding memory for them takes time in which it serves nobody.
const ROUND_BYTES: u64 = 256 << 10;
/// Bytes of one read, and the multiple of bytes of the region at which reads begin and end: parts are released as they
/// were held.
const PART_BYTES: u64 = 256 << 10;
/// Room that a thread makes ahead of what is read next: one part in so many of the memory.
const AHEAD_PARTS: u64 = 64;
/// How long bytes that were read are held for the command that asked for them. It comes back at once, unless its client
/// is slow.
const KEPT_FOR: Duration = Duration::from_millis(200);
/// How long they are held while more than one part in [`KEPT_PARTS`] of the memory is held like this.
const KEPT_FOR_LEAST: Duration = Duration::from_millis(5);
const KEPT_PARTS: u64 = 16;
/// Replies that clients have not received may keep one part in so many of the memory before they are in the way.
const REPLY_PARTS: u64 = 2;
/// Replies of one connection may keep one part in so many, but at least so much.
const CONNECTION_PARTS: u64 = 64;
const CONNECTION_MIN: u64 = 256 << 10;
/// What is being read, and is held until the command that asked for it is executed: one part in so many of the memory.
const HELD_PARTS: u64 = 4;
/// How long a worker waits for memory to be released.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);
/// How long bytes that could not be read are not read again: a command that asks for them gets the error instead.
const FAILED_FOR: Duration = Duration::from_secs(1);

thread_local! {
    /// The calling thread starts its reads in rounds.
    static HAS_ROUNDS: Cell<bool> = const { Cell::new(false) };
}

/// Counts of the loader, for `INFO` and `/metrics`.
#[derive(Debug, Default)]
pub struct LoadCounters {
    /// Requests for bytes that had left memory.
    pub loads: AtomicU64,
    /// Bytes of these requests.
    pub bytes: AtomicU64,
}

/// The loader of a server.
pub struct Loads {
    heap: Arc<Heap>,
    state: Mutex<State>,
    work: Condvar,
    /// A request is done, or the threads end.
    done: Condvar,
    /// What has been asked for.
    pub counters: LoadCounters,
    /// Bytes of long replies that clients have not received yet. They stay in memory until then.
    replies: AtomicU64,
    /// Bytes of replies after which a connection's next commands wait until it has received some of them.
    pub(crate) reply_max: u64,
}

impl std::fmt::Debug for Loads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loads").field("counters", &self.counters).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Parts that a worker starts in its round.
    queue: VecDeque<Part>,
    /// Parts that a thread reads.
    blocking: VecDeque<Part>,
    room: Room,
    /// Bytes that workers and threads are reading.
    in_flight: u64,
    /// Number of parts to be read of each request that is not done.
    pending: BTreeMap<LoadId, usize>,
    /// What was read and is held for whoever asked for it.
    kept: BTreeMap<LoadId, Kept>,
    kept_bytes: u64,
    /// Parts that could not be read. What is a part of one is read all the same: the bad block may be beside it.
    failed: BTreeMap<Extent, Failed>,
    next: u64,
    stopping: bool,
}

impl State {
    /// Why one of these parts could not be read.
    fn failure(&self, mut parts: impl Iterator<Item = Extent>) -> Option<MediaError> {
        parts.find_map(|part| self.failed.get(&part)).map(|failed| failed.error.clone())
    }
}

/// Why something could not be read, and since when.
#[derive(Debug)]
struct Failed {
    since: Instant,
    error: MediaError,
}

/// A part of a request: one read.
#[derive(Clone, Copy, Debug)]
struct Part {
    load: LoadId,
    extent: Extent,
}

/// What was read of one request, and when its latest part was.
#[derive(Debug)]
struct Kept {
    since: Instant,
    extents: Vec<Extent>,
}

/// When a worker calls [`Loads::start`] again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// When a command has asked for something, or something was read.
    OnEvent,
    /// After [`PAUSE`] at the latest: memory may be released meanwhile.
    Soon,
    /// In its next round, without waiting.
    AtOnce,
}

/// A worker's own ring, through which it reads without waiting.
pub(crate) struct Lane {
    queue: Box<dyn ReadQueue>,
    /// Parts that are being read, by tag.
    reading: BTreeMap<u64, Part>,
    next: u64,
    ended: Vec<(u64, Result<(), MediaError>)>,
}

/// Whether a thread makes room in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Room {
    #[default]
    Enough,
    Wanted,
    InProgress,
}

/// Work for a thread.
enum Job {
    Read(Part),
    MakeRoom,
}

impl Loads {
    /// The loader of a heap of which not all need be in memory; `None` where all is.
    pub(crate) fn of(heap: &Arc<Heap>) -> Option<Arc<Self>> {
        let limit = heap.memory()?.limit;
        let loads = Arc::new(Self {
            heap: Arc::clone(heap),
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            counters: LoadCounters::default(),
            replies: AtomicU64::new(0),
            reply_max: (limit / CONNECTION_PARTS).max(CONNECTION_MIN),
        });
        let loader: Arc<dyn Loader> = Arc::clone(&loads) as _;
        heap.set_loader(Arc::downgrade(&loader));
        Some(loads)
    }

    /// Ends the threads once they have read what they are reading.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
        self.done.notify_all();
    }

    /// From now on the calling thread starts by [`Self::start`] what it asks for.
    pub(crate) fn reads_in_rounds() {
        HAS_ROUNDS.set(true);
    }

    /// Opens a worker's lane; `None` where the system refuses it, so that threads read. `eventfd` ends the worker's wait.
    pub(crate) fn open_lane(&self, eventfd: EventFd<'_>) -> Option<Lane> {
        match self.heap.open_queue(Some(eventfd)) {
            Ok(queue) => {
                queue.map(|queue| Lane { queue, reading: BTreeMap::new(), next: 0, ended: Vec::new() })
            }
            Err(error) => {
                tracing::warn!(%error, "threads read what has left memory, because there is no ring for it");
                None
            }
        }
    }

    /// Starts what was asked for, in a worker's round. True with it if a request is done, as everything of it is there: others may
    /// wait for that.
    pub(crate) fn start(&self, mut lane: Option<&mut Lane>) -> (Again, bool) {
        let mut state = self.state.lock();
        if state.queue.is_empty() {
            return (Again::OnEvent, false);
        }
        self.release_old(&mut state, Instant::now());
        let mut is_done = false;
        let again = self.start_some(&mut state, lane.as_deref_mut(), &mut is_done);
        drop(state);
        if let Some(lane) = lane {
            lane.queue.submit();
        }
        (again, is_done)
    }

    /// Starts parts from the front of the queue, in order, so that whole requests are done one after the other.
    fn start_some(&self, state: &mut State, mut lane: Option<&mut Lane>, is_done: &mut bool) -> Again {
        let (mut started, mut again) = (0, Again::OnEvent);
        while let Some(part) = state.queue.front().copied() {
            let len = u64::from(part.extent.len());
            if started > 0 && started + len > ROUND_BYTES {
                return Again::AtOnce;
            }
            if !self.may_hold(state, part) {
                return if again == Again::AtOnce { again } else { Again::Soon };
            }
            match self.start_one(state, lane.as_deref_mut(), part) {
                Started::Full => return again,
                Started::Present => {
                    if self.finish(state, part, Ok(())) {
                        (again, *is_done) = (Again::AtOnce, true);
                    }
                }
                Started::Reading => started += len,
                Started::Busy => {
                    state.blocking.push_back(part);
                    self.work.notify_one();
                }
            }
            state.queue.pop_front();
        }
        again
    }

    /// Starts one part. [`Started::Busy`]: a thread must read it.
    fn start_one(&self, state: &mut State, lane: Option<&mut Lane>, part: Part) -> Started {
        let len = u64::from(part.extent.len());
        let has_room = self.has_room(state, len);
        let started = match lane.filter(|_| has_room) {
            Some(lane) => {
                // A thread finds out what is wrong.
                let started = lane.queue.start(lane.next, part.extent).unwrap_or(Started::Busy);
                if started == Started::Reading {
                    lane.reading.insert(lane.next, part);
                    lane.next += 1;
                }
                started
            }
            None => Started::Busy,
        };
        if started != Started::Full {
            state.in_flight += len;
        }
        started
    }

    /// Whether a part may be read now. What is held for requests has a limit, so that commands which wait for much do not
    /// fill the memory together. One request is always in progress.
    fn may_hold(&self, state: &State, part: Part) -> bool {
        let Some(memory) = self.heap.memory() else { return true };
        let limit = if self.is_crowded() { 0 } else { memory.limit / HELD_PARTS };
        if state.in_flight + state.kept_bytes + u64::from(part.extent.len()) <= limit {
            return true;
        }
        let is_other = |load: &LoadId| *load != part.load && state.pending.contains_key(load);
        state.in_flight == 0 && !state.kept.keys().any(is_other)
    }

    /// Whether `len` more bytes fit into memory. Has room made ahead.
    fn has_room(&self, state: &mut State, len: u64) -> bool {
        let Some(memory) = self.heap.memory() else { return true };
        let wanted = memory.resident + state.in_flight + len;
        if wanted + memory.limit / AHEAD_PARTS > memory.limit && state.room == Room::Enough {
            state.room = Room::Wanted;
            self.work.notify_one();
        }
        wanted <= memory.limit
    }

    /// Ends the reads of a lane that have been done. True if a request is done.
    pub(crate) fn finish_reads(&self, lane: &mut Lane) -> bool {
        if lane.reading.is_empty() {
            return false;
        }
        let Lane { queue, reading, ended, .. } = lane;
        queue.take_ended(ended);
        if ended.is_empty() {
            return false;
        }
        let mut state = self.state.lock();
        let mut is_done = false;
        for (tag, outcome) in ended.drain(..) {
            let part = reading.remove(&tag).expect("it was started");
            if outcome.as_ref().is_err_and(|error| !is_refusal(error)) {
                // A thread finds out what is wrong.
                state.blocking.push_back(part);
                self.work.notify_one();
                continue;
            }
            is_done |= self.finish(&mut state, part, outcome);
        }
        is_done
    }

    /// Removes the requests from `waiting` that are done, and returns them.
    pub(crate) fn take_done<T>(&self, waiting: &mut BTreeMap<LoadId, T>) -> Vec<(LoadId, T)> {
        let state = self.state.lock();
        waiting.extract_if(.., |load, _| !state.pending.contains_key(load)).collect()
    }

    /// Releases what was read for a command that has been executed.
    pub(crate) fn release_done(&self, load: LoadId) {
        let mut state = self.state.lock();
        if !state.pending.contains_key(&load) {
            self.release_one(&mut state, load);
        }
    }

    /// Releases what was held long enough for whoever asked for it.
    pub(crate) fn release_kept(&self) {
        self.release_old(&mut self.state.lock(), Instant::now());
    }

    /// Drops data from memory ahead of what is read next.
    fn make_room(&self) {
        let ahead = self.heap.memory().map_or(0, |memory| memory.limit / AHEAD_PARTS);
        self.heap.relieve_memory(ahead);
        self.state.lock().room = Room::Enough;
    }

    /// True if replies that clients have not received keep the memory above its limit.
    pub(crate) fn is_crowded(&self) -> bool {
        let Some(memory) = self.heap.memory() else { return false };
        memory.resident > memory.limit && self.replies.load(Ordering::Relaxed) > memory.limit / REPLY_PARTS
    }

    /// Bytes of replies that are to be dropped, because they keep the memory above its limit.
    pub(crate) fn reply_excess(&self) -> u64 {
        let Some(memory) = self.heap.memory().filter(|_| self.is_crowded()) else { return 0 };
        let replies = self.replies.load(Ordering::Relaxed);
        replies.saturating_sub(memory.limit / REPLY_PARTS / 2)
    }

    /// Counts the bytes of a connection's reply: `before` were counted, `now` are.
    pub(crate) fn note_reply(&self, before: u64, now: u64) {
        self.replies.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The next job; `None` when the server stops.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            if state.room == Room::Wanted {
                state.room = Room::InProgress;
                return Some(Job::MakeRoom);
            }
            if let Some(part) = state.blocking.pop_front() {
                return Some(Job::Read(part));
            }
            if state.kept.is_empty() {
                self.work.wait(&mut state);
            } else {
                // A thread that has kept something comes back in time to release it.
                self.work.wait_for(&mut state, KEPT_FOR);
                self.release_old(&mut state, Instant::now());
            }
        }
    }

    /// A part has been read, or cannot be; true if its request is done.
    fn finish(&self, state: &mut State, part: Part, outcome: Result<(), MediaError>) -> bool {
        let (now, Part { load, extent }) = (Instant::now(), part);
        if let Err(error) = outcome {
            tracing::error!(%error, "a part of the region cannot be read");
            state.failed.insert(extent, Failed { since: now, error });
        }
        state.in_flight -= u64::from(extent.len());
        state.kept_bytes += u64::from(extent.len());
        let kept = state.kept.entry(load).or_insert_with(|| Kept { since: now, extents: Vec::new() });
        kept.since = now;
        kept.extents.push(extent);
        let left = state.pending.get_mut(&load).map_or(0, |left| {
            *left -= 1;
            *left
        });
        if left == 0 {
            state.pending.remove(&load);
            self.done.notify_all();
        }
        self.release_old(state, now);
        left == 0
    }

    /// Reads a part in the calling thread; true if its request is done.
    fn read(&self, part: Part) -> bool {
        let outcome = self.heap.load(part.extent);
        let mut state = self.state.lock();
        if state.kept.is_empty() {
            // One of the threads comes back in time to release it.
            self.work.notify_one();
        }
        self.finish(&mut state, part, outcome)
    }

    /// Releases what was held long enough. Requests are done in about the order of their numbers.
    fn release_old(&self, state: &mut State, now: Instant) {
        let kept_max = self.heap.memory().map_or(0, |memory| memory.limit / KEPT_PARTS);
        while let Some((load, kept)) = state.kept.first_key_value() {
            let (load, since) = (*load, kept.since);
            let kept_for = if state.kept_bytes > kept_max { KEPT_FOR_LEAST } else { KEPT_FOR };
            // All of a request that is not done is kept until whoever asked has seen it.
            if now - since < kept_for || state.pending.contains_key(&load) {
                break;
            }
            self.release_one(state, load);
        }
    }

    fn release_one(&self, state: &mut State, load: LoadId) {
        for extent in state.kept.remove(&load).into_iter().flat_map(|kept| kept.extents) {
            state.kept_bytes -= u64::from(extent.len());
            self.heap.runs().release_loaded(extent);
        }
    }
}

/// True if the device, or the system, says that it cannot read, and not only that this read came to nothing: another one may then
/// do, such as after one that was cut short.
fn is_refusal(error: &MediaError) -> bool {
    let is_final = |source: &io::Error| {
        source.raw_os_error().is_some()
            && !matches!(source.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
    };
    matches!(error, MediaError::Io { source, .. } if is_final(source))
}

/// An extent in parts of one run each, and of little more than [`PART_BYTES`].
fn parts_of(extent: Extent) -> impl Iterator<Item = Extent> {
    extent.by_run().flat_map(|part| {
        let cut = move |off: u64| {
            let end = (off + PART_BYTES) / PART_BYTES * PART_BYTES;
            Extent::new(off, (end.min(part.end()) - off) as u32)
        };
        std::iter::successors(Some(cut(part.off)), move |last| {
            (last.end() < part.end()).then(|| cut(last.end()))
        })
    })
}

impl Loader for Loads {
    /// The worker whose command asks starts the read at the end of its round. Threads read what others ask for.
    fn submit(&self, extents: &[Extent]) -> Result<Option<LoadId>, MediaError> {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.failed.retain(|_, failed| now - failed.since < FAILED_FOR);
        let parts: Vec<Extent> = extents.iter().flat_map(|extent| parts_of(*extent)).collect();
        if state.stopping {
            return Ok(None);
        }
        if let Some(error) = state.failure(parts.iter().copied()) {
            return Err(error);
        }
        count(&self.counters.loads, 1);
        count(&self.counters.bytes, extents.iter().map(|extent| u64::from(extent.len())).sum());
        let load = LoadId(state.next);
        state.next += 1;
        state.pending.insert(load, parts.len());
        let parts = parts.iter().map(|extent| Part { load, extent: *extent });
        if HAS_ROUNDS.get() {
            state.queue.extend(parts);
        } else {
            for part in parts {
                state.in_flight += u64::from(part.extent.len());
                state.blocking.push_back(part);
                self.work.notify_one();
            }
        }
        Ok(Some(load))
    }

    fn failed(&self, extents: &[Extent]) -> Option<MediaError> {
        self.state.lock().failure(extents.iter().flat_map(|extent| parts_of(*extent)))
    }

    fn is_done(&self, load: LoadId) -> bool {
        !self.state.lock().pending.contains_key(&load)
    }

    fn wait(&self, load: LoadId) -> bool {
        if HAS_ROUNDS.get() {
            return false;
        }
        let mut state = self.state.lock();
        while state.pending.contains_key(&load) && !state.stopping {
            let own = state.blocking.iter().position(|part| part.load == load);
            match own.and_then(|at| state.blocking.remove(at)) {
                Some(part) => drop(MutexGuard::unlocked(&mut state, || self.read(part))),
                None => self.done.wait(&mut state),
            }
        }
        true
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let queued = state.queue.drain(..).chain(state.blocking.drain(..)).map(|part| part.extent);
        let kept = std::mem::take(&mut state.kept).into_values().flat_map(|kept| kept.extents);
        queued.chain(kept).for_each(|extent| self.heap.runs().release(extent));
    }
}

#[cfg(test)]
mod tests;
