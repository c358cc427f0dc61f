//! States of a connection: its phase, its send, and the lists of its worker that it is on.

/// Phase of a connection. The phase only advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Both sides may send.
    #[default]
    Open,
    /// The client has ended its stream. Its remaining commands are executed and answered; then the connection is
    /// closed.
    HalfClosed,
    /// Nothing more is parsed. The connection is closed once its replies are sent, and its [`Linger`] is over, if it has
    /// one.
    Closing,
    /// The transport was told to close the connection.
    Closed,
}

impl Phase {
    /// Advances to `to`, unless the connection is already in a later phase.
    pub(crate) fn advance(&mut self, to: Self) {
        *self = (*self).max(to);
    }

    /// True if nothing more is parsed.
    pub(crate) fn is_closing(self) -> bool {
        self >= Self::Closing
    }

    /// True if the transport was told to close the connection.
    pub(crate) fn is_closed(self) -> bool {
        self == Self::Closed
    }
}

/// How long a refused connection stays while its client sends, milliseconds.
const LINGER_MS: u64 = 5000;
/// The same, for one that is silent.
const LINGER_QUIET_MS: u64 = 1000;
/// Bytes of a refused client that are discarded, at most: whoever sends more goes on for nothing.
const LINGER_BYTES: u64 = 32 << 20;

/// A connection was refused while its client may still send: what comes is discarded for a while. A socket that is closed
/// with bytes that nobody has read is reset, and the client, which is busy sending, never reads why (RFC 9112, section
/// 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linger {
    since_ms: u64,
    heard_ms: u64,
    /// Bytes that may still come.
    left: u64,
}

impl Linger {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { since_ms: now_ms, heard_ms: now_ms, left: LINGER_BYTES }
    }

    /// A reply has been sent, behind which the refusal may come.
    pub(crate) fn restart(&mut self, now_ms: u64) {
        (self.since_ms, self.heard_ms) = (now_ms, now_ms);
    }

    /// The client has sent something.
    pub(crate) fn hear(&mut self, now_ms: u64, bytes: u32) {
        (self.heard_ms, self.left) = (now_ms, self.left.saturating_sub(bytes.into()));
    }

    pub(crate) fn is_over(self, now_ms: u64) -> bool {
        self.left == 0
            || now_ms.saturating_sub(self.since_ms) >= LINGER_MS
            || now_ms.saturating_sub(self.heard_ms) >= LINGER_QUIET_MS
    }
}

/// A send that the transport has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Length of the send, bytes.
    pub(crate) len: usize,
    /// Bytes that were not sent at the last call of [`Self::progress`].
    unsent: usize,
}

impl Sending {
    pub(crate) fn new(len: usize) -> Self {
        Self { len, unsent: len }
    }

    /// Bytes sent since the last call, as far as the transport knows; `unsent` are the bytes that are not sent now.
    pub(crate) fn progress(&mut self, unsent: Option<usize>) -> usize {
        let unsent = unsent.unwrap_or(self.unsent).min(self.unsent);
        std::mem::replace(&mut self.unsent, unsent) - unsent
    }
}

/// Receive state of the connection's transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receiving {
    /// The transport receives nothing for now.
    pub(crate) is_paused: bool,
    /// The client has authenticated: the transport receives without a limit per turn.
    pub(crate) is_trusted: bool,
}

/// The lists of its worker that a connection is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Connections to serve in this round.
    pub(crate) touched: bool,
    /// Connections whose replies or commands wait for a commit, or for space.
    pub(crate) waiting: bool,
    /// Connections whose command waits for a log to grow.
    pub(crate) tailing: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_never_goes_back() {
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
