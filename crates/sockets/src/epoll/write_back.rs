//! Writing back: on a thread of its own, because a direct write waits for the device.

use super::EpollTransport;
use super::token::{Source, Token};
use crate::Event;
use crate::sys::{EventFd, write_durably};
use landfall_media::FileWrite;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Write-backs at once.
const JOBS_MAX: usize = 1;

struct Job {
    id: u64,
    file: RawFd,
    writes: Vec<FileWrite>,
}

struct Done {
    id: u64,
    outcome: io::Result<()>,
}

/// The thread, and the way to it and back.
pub(super) struct Writer {
    /// Dropped first, which ends the thread.
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    signal: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    busy: bool,
}

impl EpollTransport {
    pub(super) fn start_writing(&mut self, id: u64, file: RawFd, writes: &[FileWrite]) {
        let job = Job { id, file, writes: writes.to_vec() };
        if let Err(error) = self.hand_over(job) {
            self.ready.push(Event::WrittenBack { id, outcome: Err(error) });
        }
    }

    fn hand_over(&mut self, job: Job) -> io::Result<()> {
        if self.writer.is_none() {
            let writer = Writer::spawn()?;
            self.epoll.watch_edges(writer.signal.descriptor(), Token::of(Source::Writer).0)?;
            self.writer = Some(writer);
        }
        let writer = self.writer.as_mut().expect("it was just made where there was none");
        assert!(!writer.busy, "two write-backs at once: wait for Event::WrittenBack");
        let jobs = writer.jobs.as_ref().expect("it is taken only when the writer goes");
        jobs.send(job).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        writer.busy = true;
        Ok(())
    }

    pub(super) fn collect_written(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        while let Ok(Done { id, outcome }) = writer.done.try_recv() {
            writer.busy = false;
            self.ready.push(Event::WrittenBack { id, outcome });
        }
    }
}

impl Writer {
    fn spawn() -> io::Result<Self> {
        let signal = Arc::new(EventFd::new()?);
        let (jobs, to_do) = sync_channel::<Job>(JOBS_MAX);
        let (report, done) = sync_channel(JOBS_MAX);
        let thread_signal = Arc::clone(&signal);
        let thread = Builder::new().name("write-back".into()).spawn(move || {
            for Job { id, file, writes } in to_do {
                let outcome = write_durably(file, &writes);
                if report.send(Done { id, outcome }).is_err() {
                    return;
                }
                thread_signal.signal();
            }
        })?;
        Ok(Self { jobs: Some(jobs), done, signal, thread: Some(thread), busy: false })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the write-back thread panicked");
        }
    }
}
