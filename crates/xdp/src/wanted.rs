//! Selects the datagrams for the sockets of a bridge.

use std::ops::RangeInclusive;

/// The datagrams for a bridge's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Range of ports, source or destination, in ascending order.
    pub ports: RangeInclusive<u16>,
    /// Kinds of payload; `None`: all.
    pub kinds: Option<Vec<Kind>>,
}

impl From<RangeInclusive<u16>> for Wanted {
    fn from(ports: RangeInclusive<u16>) -> Self {
        Self { ports, kinds: None }
    }
}

/// A kind of payload, by its first byte. The first entry with a payload's first byte decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The first byte of the payload.
    pub first: u8,
    /// Bits that must also be zero.
    pub zero: Option<Bits>,
}

/// Bits of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Index of the byte, from 0. A payload that ends before it does not match.
    pub at: u8,
    /// The bits of that byte.
    pub mask: u8,
}
