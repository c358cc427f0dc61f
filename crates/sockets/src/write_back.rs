//! Durable write-back: in line, or on a thread, because the device makes the caller wait.
//!
//! The io_uring transport uses a thread, too: its ring processes completions only when the worker waits, so the step
//! from the writes to the sync would be delayed while the worker does other work. `docs/results/decisions.md`
//! has the measurements.

use crate::event::Event;
use crate::policy::write_back_soon_when_woken;
use crate::sys::{EventFd, SideRing, write_durably};
use landfall_media::{Batch, FileWrite};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Write-backs in progress, at most.
const JOBS_MAX: usize = 1;

/// The two ways of a transport to write back.
pub struct WriteBack {
    uses_ring: bool,
    in_line: DurableWriter,
    /// Started by the first write-back that the caller does not wait for.
    thread: Option<WriteBackThread>,
}

impl WriteBack {
    /// `uses_ring`: several ranges are written concurrently if the kernel supports io_uring.
    pub fn new(uses_ring: bool) -> Self {
        Self { uses_ring, in_line: DurableWriter::new(uses_ring), thread: None }
    }

    /// Writes the batch while the caller waits.
    ///
    /// # Errors
    /// The first error; a short write is one.
    pub fn now(&mut self, batch: &Batch) -> io::Result<()> {
        batch.run(|file, writes| self.in_line.write(file, writes))
    }

    /// Starts to write while the caller continues. `watch` is called once with the descriptor that becomes ready, by an
    /// edge, when [`Self::collect`] has a result.
    ///
    /// # Errors
    /// The thread cannot be started or watched, or has ended; nothing was written.
    pub fn begin(
        &mut self,
        id: u64,
        batch: Batch,
        watch: impl FnOnce(RawFd) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.thread.is_none() {
            let thread = WriteBackThread::spawn(DurableWriter::new(self.uses_ring))?;
            watch(thread.signal.descriptor())?;
            self.thread = Some(thread);
        }
        self.thread.as_mut().expect("it was just made where there was none").hand_over(id, batch)
    }

    /// The descriptor to watch, once the thread exists.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        self.thread.as_ref().map(|thread| thread.signal.descriptor())
    }

    /// The event of the write-back that has ended, if any.
    pub fn collect(&mut self) -> Option<Event> {
        let Done { id, outcome } = self.thread.as_mut()?.collect()?;
        Some(Event::WrittenBack { id, outcome })
    }

    /// Waits for the write-back in progress: nothing reads the region afterwards.
    pub fn end(&mut self) {
        self.thread = None;
    }
}

/// Writes several ranges concurrently if the kernel supports io_uring, otherwise one after the other.
struct DurableWriter {
    ring: RingState,
}

enum RingState {
    Untried,
    Open(Box<SideRing>),
    /// The kernel refuses io_uring, or the transport does not use it.
    None,
}

impl DurableWriter {
    fn new(uses_ring: bool) -> Self {
        Self { ring: if uses_ring { RingState::Untried } else { RingState::None } }
    }

    /// Writes everything; it is durable when this returns.
    ///
    /// # Errors
    /// The first error; a short write is one.
    fn write(&mut self, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
        if writes.len() < 2 {
            return write_durably(file, writes);
        }
        if matches!(self.ring, RingState::Untried) {
            self.ring = SideRing::open().map_or_else(
                |error| {
                    tracing::warn!(%error, "no ring for writing: ranges are written one after the other");
                    RingState::None
                },
                |ring| RingState::Open(Box::new(ring)),
            );
        }
        let RingState::Open(ring) = &mut self.ring else { return write_durably(file, writes) };
        let outcome = ring.write_durably(file, writes);
        if outcome.is_err() {
            self.ring = RingState::Untried;
        }
        outcome
    }
}

struct Job {
    id: u64,
    batch: Batch,
}

struct Done {
    id: u64,
    outcome: io::Result<()>,
}

/// The thread, and the channels to and from it.
struct WriteBackThread {
    /// Dropped first, which ends the thread.
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    signal: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    busy: bool,
}

impl WriteBackThread {
    fn spawn(mut writer: DurableWriter) -> io::Result<Self> {
        let signal = Arc::new(EventFd::new()?);
        let (jobs, to_do) = sync_channel::<Job>(JOBS_MAX);
        let (report, done) = sync_channel(JOBS_MAX);
        let thread_signal = Arc::clone(&signal);
        let thread = Builder::new().name("write-back".into()).spawn(move || {
            write_back_soon_when_woken();
            for Job { id, batch } in to_do {
                let outcome = batch.run(|file, writes| writer.write(file, writes));
                if report.send(Done { id, outcome }).is_err() {
                    return;
                }
                thread_signal.signal();
            }
        })?;
        Ok(Self { jobs: Some(jobs), done, signal, thread: Some(thread), busy: false })
    }

    fn hand_over(&mut self, id: u64, batch: Batch) -> io::Result<()> {
        assert!(!self.busy, "two write-backs at once: wait for Event::WrittenBack");
        let jobs = self.jobs.as_ref().expect("it is taken only when the thread is ended");
        jobs.send(Job { id, batch }).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.busy = true;
        Ok(())
    }

    fn collect(&mut self) -> Option<Done> {
        let done = self.done.try_recv().ok()?;
        self.busy = false;
        Some(done)
    }
}

impl Drop for WriteBackThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the write-back thread panicked");
        }
    }
}
