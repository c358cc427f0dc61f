//! The reply of a connection.

use crate::sys::Message;

/// The reply that a connection is sending, if any. Its memory is kept for the next reply.
pub(crate) struct Sending {
    pub(crate) message: Message,
    pub(crate) active: bool,
}

impl Sending {
    pub(crate) fn new() -> Self {
        Self { message: Message::new(), active: false }
    }

    /// Bytes of the reply that were not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.message.unsent()
    }
}
