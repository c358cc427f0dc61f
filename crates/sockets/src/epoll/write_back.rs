//! Writing back, on a thread that an edge reports from.

use super::EpollTransport;
use super::token::{Source, Token};
use crate::Event;
use crate::write_back::{Done, DurableWriter, WriteBackThread};
use landfall_media::FileWrite;
use std::io;
use std::os::fd::RawFd;

impl EpollTransport {
    pub(super) fn start_writing(&mut self, id: u64, file: RawFd, writes: &[FileWrite]) {
        if let Err(error) = self.hand_over(id, file, writes) {
            self.ready.push(Event::WrittenBack { id, outcome: Err(error) });
        }
    }

    fn hand_over(&mut self, id: u64, file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
        if self.writer.is_none() {
            let writer = WriteBackThread::spawn(DurableWriter::without_ring)?;
            self.epoll.watch_edges(writer.descriptor(), Token::of(Source::Writer).0)?;
            self.writer = Some(writer);
        }
        self.writer.as_mut().expect("it was just made where there was none").hand_over(id, file, writes)
    }

    pub(super) fn collect_written(&mut self) {
        while let Some(Done { id, outcome }) = self.writer.as_mut().and_then(WriteBackThread::collect) {
            self.ready.push(Event::WrittenBack { id, outcome });
        }
    }
}
