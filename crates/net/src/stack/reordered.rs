//! The limit on out-of-order data of all connections together.
//!
//! The stack may drop such data, since the peer keeps them until they are acknowledged (RFC 2018, 8). So a connection
//! with many holes does not take memory from others: beyond the limit, the connection that keeps most drops the data
//! that are furthest from its first hole.

use crate::event::ConnId;
use crate::tcp::Kept;
use std::collections::BTreeSet;

/// Out-of-order data that all connections keep.
#[derive(Debug, Default)]
pub(super) struct Reordered {
    kept: Kept,
    /// Connections that keep out-of-order data, ordered by bytes.
    holders: BTreeSet<(usize, ConnId)>,
}

impl Reordered {
    /// Records that a connection keeps `now` instead of `before`.
    pub(super) fn note(&mut self, conn: ConnId, before: Kept, now: Kept) {
        if before == now {
            return;
        }
        self.kept.bytes = self.kept.bytes + now.bytes - before.bytes;
        self.kept.pieces = self.kept.pieces + now.pieces - before.pieces;
        self.holders.remove(&(before.bytes, conn));
        if now.bytes > 0 {
            self.holders.insert((now.bytes, conn));
        }
    }

    pub(super) fn kept(&self) -> Kept {
        self.kept
    }

    /// The connection that keeps most, if all together keep more than `max` bytes.
    pub(super) fn beyond(&self, max: usize) -> Option<ConnId> {
        // This runs for each segment, and the limit is rarely exceeded.
        if self.kept.bytes <= max { None } else { self.holders.last().map(|(_, conn)| *conn) }
    }
}
