//! Places for clients that come.

use super::Worker;
use super::unproven::{Standing, standing};
use crate::phase::Phase;
use landfall_sockets::ConnId;

impl Worker {
    /// A client has come, and `is_full` says whether there is a place for it. Returns whether it has one: a client without
    /// the password may have to give up its own.
    pub(super) fn find_place(&mut self, id: ConnId, is_full: bool) -> bool {
        if self.shared.config.password.is_none() {
            return !is_full;
        }
        let (conns, now_ms) = (&self.conns, self.now.steady_ms);
        let mut gives_way = || {
            self.unproven.take(|id| conns.get(id).map_or(Standing::Settled, |conn| standing(conn, now_ms)))
        };
        let oldest = if is_full { gives_way() } else { None };
        let has_place = !is_full || oldest.is_some();
        if let Some(conn) = oldest.and_then(|oldest| self.conns.get_mut(&oldest)) {
            tracing::debug!(conn = conn.id.0, "a client without the password gives up its place");
            conn.phase.advance(Phase::Closing);
            conn.linger = None;
        }
        oldest.into_iter().for_each(|oldest| self.touch(oldest));
        if has_place {
            let conns = &self.conns;
            self.unproven.add(id, conns.len(), |id| conns.get(id).is_some());
        }
        has_place
    }
}
