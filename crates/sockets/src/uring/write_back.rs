//! Writing back: the writes side by side, then one sync.

use super::Uring;
use super::token::{Operation, Token};
use crate::Event;
use crate::sys::{Completion, SideRing, write_durably};
use landfall_media::FileWrite;
use std::io;
use std::os::fd::RawFd;

/// Up to this many writes are each made durable by themselves.
const DURABLE_WRITES_MAX: usize = 4;

/// A write-back in flight.
pub(super) struct WriteBack {
    id: u64,
    file: RawFd,
    /// Each write is durable by itself when it completes.
    durably: bool,
    /// Bytes that each write must have written.
    lens: Vec<u32>,
    /// Writes that have not completed.
    left: usize,
    outcome: io::Result<()>,
}

impl Uring {
    pub(super) fn start_writing(&mut self, id: u64, file: RawFd, writes: &[FileWrite]) {
        assert!(self.writing.is_none(), "two write-backs at once: wait for Event::WrittenBack");
        if writes.is_empty() {
            return self.ready.push(Event::WrittenBack { id, outcome: Ok(()) });
        }
        let lens = writes.iter().map(|write| write.extent.len).collect();
        let durably = writes.len() <= DURABLE_WRITES_MAX;
        self.writing = Some(WriteBack { id, file, durably, lens, left: writes.len(), outcome: Ok(()) });
        for (index, write) in writes.iter().enumerate() {
            self.ring.write(file, write, durably, Token::of_index(Operation::Write, index).0);
        }
    }

    pub(super) fn written(&mut self, index: usize, completion: &Completion) {
        let writing = self.writing.as_mut().expect("a write completes within its write-back");
        writing.note(index, completion);
        if writing.left > 0 {
            return;
        }
        if writing.outcome.is_ok() && !writing.durably {
            return self.ring.data_sync(writing.file, Token::of(Operation::Sync).0);
        }
        self.finish_writing();
    }

    pub(super) fn synced(&mut self, completion: &Completion) {
        let writing = self.writing.as_mut().expect("a sync completes within its write-back");
        writing.outcome = completion.outcome().map(drop);
        self.finish_writing();
    }

    fn finish_writing(&mut self) {
        if let Some(WriteBack { id, outcome, .. }) = self.writing.take() {
            self.ready.push(Event::WrittenBack { id, outcome });
        }
    }

    /// Several writes go through a ring of their own, side by side; one needs no ring.
    pub(super) fn write_and_wait(&mut self, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
        if writes.len() < 2 {
            return write_durably(file, writes);
        }
        if self.side.is_none() {
            self.side = SideRing::open()
                .inspect_err(|error| {
                    tracing::warn!(%error, "no second ring: writing back one range after the other");
                })
                .ok();
        }
        let Some(side) = &mut self.side else { return write_durably(file, writes) };
        let outcome = side.write_durably(file, writes);
        if outcome.is_err() {
            self.side = None;
        }
        outcome
    }
}

impl WriteBack {
    fn note(&mut self, index: usize, completion: &Completion) {
        self.left -= 1;
        let outcome = completion.outcome().and_then(|written| match self.lens[index] {
            len if len == written => Ok(()),
            len => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("{written} of {len} bytes were written"),
            )),
        });
        if self.outcome.is_ok() {
            self.outcome = outcome;
        }
    }
}
