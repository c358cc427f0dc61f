//! Write-back on a thread, whose end a poll operation reports.

use super::state::Uring;
use super::token::{Operation, Token};
use crate::event::Event;
use crate::sys::Completion;
use landfall_media::Batch;

impl Uring {
    pub(super) fn start_writing(&mut self, id: u64, batch: Batch) {
        let watch = |descriptor| {
            self.ring.watch_edges(descriptor, Token::of(Operation::Written).0);
            Ok(())
        };
        if let Err(error) = self.write_back.begin(id, batch, watch) {
            self.ready.push(Event::WrittenBack { id, outcome: Err(error) });
        }
    }

    pub(super) fn written(&mut self, completion: &Completion) {
        let Some(descriptor) = self.write_back.descriptor() else { return };
        if !completion.more && !self.stopping {
            self.ring.watch_edges(descriptor, Token::of(Operation::Written).0);
        }
        self.ready.extend(std::iter::from_fn(|| self.write_back.collect()));
    }
}
