//! The states of a connection: how far it has come, what it sends, and on which of its worker's lists it is.

/// How far a connection has come. It only advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Both sides may send.
    #[default]
    Open,
    /// The client has ended its stream. What it has sent is executed and answered; then the connection is closed.
    HalfClosed,
    /// Nothing more is parsed. The connection is closed once its replies have left.
    Closing,
    /// The transport has been told to close it.
    Closed,
}

impl Phase {
    /// Moves on to `to`, unless the connection has come further already.
    pub(crate) fn advance(&mut self, to: Self) {
        *self = (*self).max(to);
    }

    /// True when nothing more is parsed.
    pub(crate) fn is_closing(self) -> bool {
        self >= Self::Closing
    }

    /// True when the transport has been told to close the connection.
    pub(crate) fn is_closed(self) -> bool {
        self == Self::Closed
    }
}

/// A send that the transport has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Its bytes.
    pub(crate) len: usize,
    /// Of these, the bytes that had not left when [`Self::progress`] was called last.
    unsent: usize,
}

impl Sending {
    pub(crate) fn new(len: usize) -> Self {
        Self { len, unsent: len }
    }

    /// Bytes that have left since the last call, now that `unsent` have not, as far as the transport knows.
    pub(crate) fn progress(&mut self, unsent: Option<usize>) -> usize {
        let unsent = unsent.unwrap_or(self.unsent).min(self.unsent);
        std::mem::replace(&mut self.unsent, unsent) - unsent
    }
}

/// How the transport receives for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receiving {
    /// It receives nothing for now.
    pub(crate) is_paused: bool,
    /// The client has authenticated: it receives as much as arrives.
    pub(crate) is_trusted: bool,
}

/// On which lists of its worker a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// To be serviced in this round.
    pub(crate) touched: bool,
    /// Its replies or commands wait for a commit, or for space.
    pub(crate) waiting: bool,
    /// Its command waits for a log to grow.
    pub(crate) tailing: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_never_goes_back() {
        let mut phase = Phase::default();
        phase.advance(Phase::Closing);
        phase.advance(Phase::HalfClosed);
        assert!(phase.is_closing() && !phase.is_closed());
        phase.advance(Phase::Closed);
        assert!(phase.is_closing() && phase.is_closed());
    }

    #[test]
    fn progress_counts_each_byte_once_and_ignores_a_transport_that_does_not_know() {
        let mut sending = Sending::new(10);
        assert_eq!([Some(7), None, Some(9), Some(0)].map(|unsent| sending.progress(unsent)), [3, 0, 0, 7]);
    }
}
