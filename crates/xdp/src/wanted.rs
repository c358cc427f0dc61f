//! Which datagrams a bridge takes out of the stream.

use std::ops::RangeInclusive;

/// Datagrams that are to come to a bridge's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Source or destination port, the first not above the last.
    pub ports: RangeInclusive<u16>,
    /// Of those, payloads of these kinds; `None`: all.
    pub kinds: Option<Vec<Kind>>,
}

impl From<RangeInclusive<u16>> for Wanted {
    fn from(ports: RangeInclusive<u16>) -> Self {
        Self { ports, kinds: None }
    }
}

/// Payloads that begin with a byte. The first kind with a payload's first byte decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The byte.
    pub first: u8,
    /// Bits that must be zero, too.
    pub zero: Option<Bits>,
}

/// Bits of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Which byte, counted from 0. A payload that ends before it does not match.
    pub at: u8,
    /// Which bits of it.
    pub mask: u8,
}
