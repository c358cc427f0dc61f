//! Tickets, which name batches, and results that only a gate opens.
//!
//! A [`Ticket`] names a batch of one writer. Batch numbers are never reused in the life of a process, whereas slots
//! are. So a wait for a ticket never becomes a wait for a reused slot. The argument: `docs/format/commit.md`,
//! "Tickets".
//!
//! A result of an engine or a log may depend on batches that are not durable yet. Such a result is a [`Gated`] value,
//! which only a [`Gate`] opens: a reply, which is sent when the tickets are durable, or a caller that waits.

use crate::heap::Heap;
use crate::lanes::Ticket;
use smallvec::SmallVec;

impl Heap {
    /// True if the batch of the ticket is durable. Once true, always true.
    pub fn is_durable(&self, ticket: Ticket) -> bool {
        self.lanes.is_durable(ticket)
    }

    /// True if all of the tickets are durable.
    pub fn are_durable(&self, tickets: &Tickets) -> bool {
        tickets.iter().all(|ticket| self.is_durable(ticket))
    }
}

/// A set of tickets: the latest of each writer, which covers its earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tickets(SmallVec<[Ticket; 2]>);

impl Tickets {
    /// True if there is no ticket to wait for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tickets, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.0.iter().copied()
    }

    /// True if the set covers `ticket`: it is durable when the set is.
    #[inline]
    pub fn covers(&self, ticket: Ticket) -> bool {
        self.0.iter().any(|known| known.writer() == ticket.writer() && *known >= ticket)
    }

    /// Adds a ticket.
    pub fn add(&mut self, ticket: Ticket) {
        match self.0.iter_mut().find(|known| known.writer() == ticket.writer()) {
            Some(known) => *known = (*known).max(ticket),
            None => self.0.push(ticket),
        }
    }

    /// Adds the tickets of another set.
    pub fn add_all(&mut self, others: &Self) {
        others.iter().for_each(|ticket| self.add(ticket));
    }

    /// Removes the durable tickets.
    pub fn prune(&mut self, heap: &Heap) {
        self.0.retain(|ticket| !heap.is_durable(*ticket));
    }

    /// Removes all tickets.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl From<Ticket> for Tickets {
    fn from(ticket: Ticket) -> Self {
        let mut tickets = Self::default();
        tickets.0.push(ticket);
        tickets
    }
}

impl From<Option<Ticket>> for Tickets {
    fn from(ticket: Option<Ticket>) -> Self {
        Self(ticket.into_iter().collect())
    }
}

impl FromIterator<Ticket> for Tickets {
    fn from_iter<I: IntoIterator<Item = Ticket>>(tickets: I) -> Self {
        let mut all = Self::default();
        tickets.into_iter().for_each(|ticket| all.add(ticket));
        all
    }
}

/// Delays an output, such as a reply, until tickets are durable. An implementation must not output anything derived
/// from an opened result before that.
pub trait Gate {
    /// Delays the output until these tickets are durable, too.
    fn hold_until(&mut self, tickets: &Tickets);
}

/// A result that may depend on batches that are not durable yet. Only a [`Gate`] opens it, or [`Self::if_durable`].
///
/// ```compile_fail,E0616
/// # fn show(gated: landfall_heap::Gated<u32>) -> u32 {
/// gated.value // private: nothing is shown past the gate
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # fn read() -> landfall_heap::Gated<u32> { landfall_heap::Gated::durable(1) }
/// let early: u32 = read();
/// ```
#[derive(Debug)]
#[must_use = "a crash can undo a result that is shown before its tickets are durable"]
pub struct Gated<T> {
    value: T,
    tickets: Tickets,
}

impl<T> Gated<T> {
    /// A result and the tickets that it depends on.
    pub fn new(value: T, tickets: impl Into<Tickets>) -> Self {
        Self { value, tickets: tickets.into() }
    }

    /// A result that depends on no ticket.
    pub fn durable(value: T) -> Self {
        Self { value, tickets: Tickets::default() }
    }

    /// The result. `gate` waits for its tickets.
    #[inline]
    pub fn open(self, gate: &mut (impl Gate + ?Sized)) -> T {
        if !self.tickets.is_empty() {
            gate.hold_until(&self.tickets);
        }
        self.value
    }

    /// The result, if all of its tickets are durable. Otherwise the gated result is returned, to be tried again.
    ///
    /// # Errors
    /// The gated result itself.
    pub fn if_durable(self, heap: &Heap) -> Result<T, Self> {
        if heap.are_durable(&self.tickets) { Ok(self.value) } else { Err(self) }
    }

    /// The result without waiting: for the simulator, tests and offline tools. Never for a reply to a client: `cargo
    /// xtask tidy` rejects it in the serving crates.
    pub fn ungated(self) -> T {
        self.value
    }

    /// The tickets that the result depends on.
    pub fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// The tickets, without the result.
    pub fn into_tickets(self) -> Tickets {
        self.tickets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Lanes;

    #[test]
    fn the_latest_ticket_of_each_writer_covers_its_earlier_ones() {
        let tickets: Tickets = [Ticket::new(1, 5), Ticket::new(2, 1), Ticket::new(1, 3), Ticket::new(1, 9)]
            .into_iter()
            .collect();
        assert!(tickets.iter().eq([Ticket::new(1, 9), Ticket::new(2, 1)]));
    }

    #[test]
    fn batches_become_durable_in_order_and_their_numbers_are_not_reused() {
        let lanes = Lanes::default();
        let first = Ticket::new(3, lanes.issue(3));
        let second = Ticket::new(3, lanes.issue(3));
        assert!(first < second && !lanes.is_durable(first));
        lanes.complete(3, first.batch());
        assert!(lanes.is_durable(first) && !lanes.is_durable(second));
        assert!(!lanes.is_durable(Ticket::NEVER));
        assert_ne!(Ticket::new(3, lanes.issue(3)), second);
    }

    #[test]
    fn a_gate_waits_for_the_tickets_of_opened_results() {
        #[derive(Default)]
        struct Reply(Tickets);
        impl Gate for Reply {
            fn hold_until(&mut self, tickets: &Tickets) {
                self.0.add_all(tickets);
            }
        }
        let mut reply = Reply::default();
        assert_eq!(Gated::durable(1).open(&mut reply), 1);
        assert!(reply.0.is_empty());
        assert_eq!(Gated::new(2, Ticket::new(0, 7)).open(&mut reply), 2);
        assert!(reply.0.iter().eq([Ticket::new(0, 7)]));
    }
}
