//! Whose turn it is to write records of a log, where they must come to other machines in their order.

use crate::error::WalError;
use landfall_heap::{Heap, Tickets, Until, Writer};
use smallvec::SmallVec;

/// The writers of one log on a chain. Each of them sends by itself, so only one has records under way.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The newest record of each writer.
    newest: Tickets,
    /// Writers that were told to wait.
    waiting: SmallVec<[u8; 2]>,
}

impl Turns {
    /// Takes a turn. Nothing is excluded on a machine of its own.
    ///
    /// # Errors
    /// [`WalError::Wait`] while another writer has records under way, and while this one has and another one waits: whoever
    /// writes all the time would keep the others out.
    pub(crate) fn take(&mut self, heap: &Heap, writer: &Writer) -> Result<(), WalError> {
        if !writer.has_successor() {
            return Ok(());
        }
        let me = writer.id();
        self.newest.prune(heap);
        if let Some(ticket) = self.newest.iter().find(|ticket| ticket.writer() != me) {
            if !self.waiting.contains(&me) {
                self.waiting.push(me);
            }
            return Err(WalError::Wait(Until::Ticket(ticket)));
        }
        if self.newest.is_empty() {
            self.waiting.clear();
        }
        self.waiting.retain(|waiting| *waiting != me);
        match self.newest.iter().next().filter(|_| !self.waiting.is_empty()) {
            Some(own) => Err(WalError::Wait(Until::Ticket(own))),
            None => Ok(()),
        }
    }

    /// Notes that the writer has written a record.
    pub(crate) fn note(&mut self, writer: &Writer) {
        if writer.has_successor() {
            self.newest.add(writer.ticket());
        }
    }
}
