//! Writing back, on a thread that a poll reports from.

use super::Uring;
use super::token::{Operation, Token};
use crate::Event;
use crate::sys::Completion;
use crate::write_back::{Done, DurableWriter, WriteBackThread};
use landfall_media::FileWrite;
use std::io;
use std::os::fd::RawFd;

impl Uring {
    pub(super) fn start_writing(&mut self, id: u64, file: RawFd, writes: &[FileWrite]) {
        if let Err(error) = self.hand_over(id, file, writes) {
            self.ready.push(Event::WrittenBack { id, outcome: Err(error) });
        }
    }

    fn hand_over(&mut self, id: u64, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
        if self.writer.is_none() {
            let writer = WriteBackThread::spawn(DurableWriter::default)?;
            self.ring.watch_edges(writer.descriptor(), Token::of(Operation::Written).0);
            self.writer = Some(writer);
        }
        self.writer.as_mut().expect("it was just made where there was none").hand_over(id, file, writes)
    }

    pub(super) fn written(&mut self, completion: &Completion) {
        let Some(writer) = &mut self.writer else { return };
        if !completion.more && !self.stopping {
            self.ring.watch_edges(writer.descriptor(), Token::of(Operation::Written).0);
        }
        while let Some(Done { id, outcome }) = writer.collect() {
            self.ready.push(Event::WrittenBack { id, outcome });
        }
    }
}
