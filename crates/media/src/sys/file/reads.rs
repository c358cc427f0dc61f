//! Reads of missing blocks while the caller goes on: an io_uring of one thread.
//!
//! A read marks its chunks busy when it starts, as a blocking read does, and no longer busy when its completion is
//! taken. The thread that started it may come to wait for such a chunk itself, in a blocking read. So every thread that
//! waits for a chunk takes the completions of all rings meanwhile ([`Rings::take_completions`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, types};
use parking_lot::Mutex;

use super::backing::Backing;
use super::paged::{Chunks, Taken, spans};
use super::residency::Residency;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::pages::{EventFd, ReadQueue, Started};
use crate::sys::image::Image;
use crate::units::RUN_SIZE;

/// Reads under way at once.
const ENTRIES: u32 = 256;

/// Where blocks are read from and to.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) image: &'a Image,
    pub(super) runs: &'a Residency,
    pub(super) backing: &'a Backing,
    pub(super) chunks: &'a Chunks,
}

/// The medium of which blocks are read.
pub(super) trait ReadTarget: Send + Sync {
    fn target(&self) -> Target<'_>;

    /// All rings that read blocks of this medium.
    fn rings(&self) -> &Rings;
}

/// The rings of all threads.
#[derive(Default)]
pub(super) struct Rings(Mutex<Vec<Arc<ReadRing>>>);

impl Rings {
    /// Ends the reads whose completions have arrived: their blocks are present and their chunks no longer busy.
    pub(super) fn take_completions(&self, target: Target<'_>) {
        let rings = self.0.lock().clone();
        for ring in rings {
            let mut state = ring.0.lock();
            // The caller may wait for a read that is only queued.
            state.submit();
            state.take_completions(target);
        }
    }
}

/// The ring of one thread, which other threads use only to take completions.
struct ReadRing(Mutex<State>);

struct State {
    ring: IoUring,
    reads: Reads,
}

/// The reads of a ring.
#[derive(Default)]
struct Reads {
    /// Reads that have not ended, by number.
    started: BTreeMap<u32, Read>,
    next: u32,
    /// Entries submitted or queued whose completions were not taken.
    in_flight: u32,
    ended: Vec<(u64, Result<(), MediaError>)>,
}

/// One read: it has an entry for each gap of missing blocks.
struct Read {
    tag: u64,
    taken: Vec<Taken>,
    entries_left: usize,
    outcome: io::Result<()>,
}

impl ReadRing {
    fn open(eventfd: Option<EventFd<'_>>) -> io::Result<Self> {
        let ring = IoUring::builder().setup_coop_taskrun().dontfork().build(ENTRIES)?;
        eventfd.map_or(Ok(()), |eventfd| ring.submitter().register_eventfd(eventfd.as_fd().as_raw_fd()))?;
        Ok(Self(Mutex::new(State { ring, reads: Reads::default() })))
    }
}

impl State {
    /// Queues an entry for each gap of missing blocks. False if the ring has no room for them.
    fn push(&mut self, target: Target<'_>, tag: u64, taken: Vec<Taken>) -> bool {
        let gaps: Vec<_> = spans(&taken).collect();
        if self.reads.in_flight as usize + gaps.len() > ENTRIES as usize {
            target.chunks.give_up(&taken);
            return false;
        }
        let number = self.reads.next;
        self.reads.next = number.wrapping_add(1);
        let file = types::Fd(target.backing.fd());
        for gap in &gaps {
            let len = (gap.end - gap.start) as u32;
            let into = target.image.at(gap.start, u64::from(len)).expect("the extent was checked");
            let entry = opcode::Read::new(file, into, len).offset(gap.start).build();
            let entry = entry.user_data(u64::from(number) << 32 | u64::from(len));
            // SAFETY: the blocks are missing and this read has marked their chunks busy, so that nobody else reads or
            // stores to them. The image stays mapped until the queue is dropped, which waits for every read.
            unsafe { self.ring.submission().push(&entry) }.expect("there is room for every entry in flight");
        }
        self.reads.in_flight += gaps.len() as u32;
        self.reads.started.insert(number, Read { tag, taken, entries_left: gaps.len(), outcome: Ok(()) });
        true
    }

    fn submit(&mut self) {
        // What the kernel does not accept now stays queued for the next call.
        let _ = self.ring.submit();
    }

    fn take_completions(&mut self, target: Target<'_>) {
        // There are at least as many completion entries as reads in flight, so that none overflows.
        self.ring.completion().for_each(|entry| self.reads.complete(target, &entry));
    }
}

impl Reads {
    fn complete(&mut self, target: Target<'_>, entry: &cqueue::Entry) {
        self.in_flight -= 1;
        let (number, len) = ((entry.user_data() >> 32) as u32, entry.user_data() as u32);
        let Some(read) = self.started.get_mut(&number) else { return };
        read.entries_left -= 1;
        if let Err(error) = whole(entry.result(), len) {
            read.outcome = Err(error);
        }
        if read.entries_left == 0
            && let Some(read) = self.started.remove(&number)
        {
            let came = target.chunks.settle(&read.taken, read.outcome.is_ok());
            target.runs.add_resident(came);
            let outcome = read.outcome.map_err(|error| target.backing.io("read the region", error));
            self.ended.push((read.tag, outcome));
        }
    }
}

/// A read that was cut short is an error: a blocking read finds out why.
fn whole(result: i32, len: u32) -> io::Result<()> {
    match u32::try_from(result) {
        Ok(got) if got == len => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::from_raw_os_error(result.saturating_neg())),
    }
}

/// The queue of one thread.
pub(super) struct Queue {
    medium: Arc<dyn ReadTarget>,
    ring: Arc<ReadRing>,
}

impl Queue {
    pub(super) fn open(
        medium: Arc<dyn ReadTarget>,
        eventfd: Option<EventFd<'_>>,
    ) -> Result<Self, MediaError> {
        let backing = medium.target().backing;
        let ring = ReadRing::open(eventfd).map_err(|error| backing.io("open an io_uring", error))?;
        let ring = Arc::new(ring);
        medium.rings().0.lock().push(Arc::clone(&ring));
        Ok(Self { medium, ring })
    }
}

impl ReadQueue for Queue {
    fn start(&mut self, tag: u64, extent: Extent) -> Result<Started, MediaError> {
        let target = self.medium.target();
        target.image.at(extent.off, u64::from(extent.len()))?;
        let (runs, chunks) = (target.runs, target.chunks);
        let run = extent.off / RUN_SIZE;
        if runs.is_whole(run) {
            return Ok(Started::Present);
        }
        if chunks.is_pinned(extent) {
            runs.page(run, false);
        }
        if extent.end() > (run + 1) * RUN_SIZE || !runs.is_paged(run) {
            return Ok(Started::Busy);
        }
        match chunks.try_take(extent) {
            None => Ok(Started::Busy),
            Some(taken) if taken.is_empty() => Ok(Started::Present),
            // Their blocks are marked as missing, too, when the whole run is in memory.
            Some(taken) if !runs.is_paged(run) => {
                chunks.give_up(&taken);
                Ok(Started::Present)
            }
            Some(taken) => {
                let queued = self.ring.0.lock().push(target, tag, taken);
                Ok(if queued { Started::Reading } else { Started::Full })
            }
        }
    }

    fn submit(&mut self) {
        self.ring.0.lock().submit();
    }

    fn take_ended(&mut self, into: &mut Vec<(u64, Result<(), MediaError>)>) {
        let mut state = self.ring.0.lock();
        state.take_completions(self.medium.target());
        into.append(&mut state.reads.ended);
    }
}

impl Drop for Queue {
    /// Waits until the kernel writes to the image no more.
    fn drop(&mut self) {
        let mut state = self.ring.0.lock();
        while state.reads.in_flight > 0 {
            if state.ring.submit_and_wait(1).is_err() {
                std::thread::yield_now();
            }
            state.take_completions(self.medium.target());
        }
        drop(state);
        self.medium.rings().0.lock().retain(|ring| !Arc::ptr_eq(ring, &self.ring));
    }
}
