//! Who keeps how much data behind holes: the bound for all connections together.
//!
//! Such data may be dropped again, since the peer keeps them until they are acknowledged (RFC 2018, 8). So whoever makes many
//! holes does not take the room of others: beyond the bound, the connection that keeps most drops what is furthest from its
//! hole.

use super::Stack;
use crate::event::ConnId;
use crate::frames::Frames;
use crate::stats::Drop;
use crate::tcp::Kept;
use crate::time::Instant;
use std::collections::BTreeSet;

/// What all connections keep behind holes.
#[derive(Debug, Default)]
pub(super) struct Reordered {
    kept: Kept,
    /// Connections that keep something, by how many bytes.
    holders: BTreeSet<(usize, ConnId)>,
}

impl Reordered {
    /// A connection keeps `now` where it kept `before`.
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

    /// Who keeps most, if all together keep more than `max` bytes.
    fn beyond(&self, max: usize) -> Option<ConnId> {
        // Asked for each segment, and nearly never so.
        if self.kept.bytes <= max { None } else { self.holders.last().map(|(_, conn)| *conn) }
    }
}

impl Stack {
    /// Drops data behind holes while all connections together keep more than they may.
    pub(super) fn bound_reordered(&mut self, now: Instant, frames: &mut dyn Frames) {
        while let Some(conn) = self.reordered.beyond(self.config.waiting_bytes_max) {
            self.stats.drop(Drop::TooMuchWaiting);
            self.with_quietly(now, frames, conn, |tcb, context| tcb.drop_furthest(context.frames));
        }
    }
}
