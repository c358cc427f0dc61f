//! Write-back on a thread, which reports the end by an edge on a descriptor.

use super::state::EpollTransport;
use super::token::{Source, Token};
use crate::event::Event;
use landfall_media::Batch;

impl EpollTransport {
    pub(super) fn start_writing(&mut self, id: u64, batch: Batch) {
        let watch = |descriptor| self.epoll.watch_edges(descriptor, Token::of(Source::Writer).0);
        if let Err(error) = self.write_back.begin(id, batch, watch) {
            self.ready.push(Event::WrittenBack { id, outcome: Err(error) });
        }
    }

    pub(super) fn collect_written(&mut self) {
        self.ready.extend(std::iter::from_fn(|| self.write_back.collect()));
    }
}
