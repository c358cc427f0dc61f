//! Selective acknowledgements (RFC 2018).

use super::seq::Seq;

/// SACK blocks in one acknowledgement, at most (RFC 2018, 3: three beside timestamps).
pub(crate) const BLOCKS_MAX: usize = 3;

/// A range of received sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
}
