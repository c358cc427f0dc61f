//! The packets that begin and end a session.

use landfall_net::Instant;

/// A session start or end in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    pub(super) due: bool,
    pub(super) sent: u32,
    pub(super) deadline: Option<Instant>,
}

impl Control {
    /// A packet to be sent at once.
    pub(super) fn due() -> Self {
        Self { due: true, sent: 0, deadline: None }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            (self.due, self.deadline) = (true, None);
        }
    }
}
