//! Releases space that unfinished requests hold, by closing their connections.

use super::state::Worker;
use crate::admission::{self, Excess, Held, Holder};
use crate::conn::{Conn, Core};
use crate::landing::Aside;
use landfall_heap::{Heap, Return};
use landfall_sockets::ConnId;
use std::sync::Arc;

/// Growth of what unfinished requests hold after which connections to close are selected again, bytes.
const RELIEF_STEP: u64 = 64 << 10;
/// Without landing space, a request that holds at least this much is refused, bytes.
const STARVING_MIN: usize = 64 << 10;

impl Worker {
    /// Closes the connections whose unfinished requests progress most slowly, if such requests hold more than allowed.
    pub(super) fn relieve(&mut self) {
        self.return_wanted();
        let all = admission::held(&self.shared.counters, &self.heap);
        let has_grown = all.unauthenticated > self.relieved.unauthenticated
            || all.unfinished > self.relieved.unfinished + RELIEF_STEP;
        if !has_grown {
            self.relieved.unauthenticated = self.relieved.unauthenticated.min(all.unauthenticated);
            self.relieved.unfinished = self.relieved.unfinished.min(all.unfinished);
            return;
        }
        self.relieved = all;
        let excess = admission::excess(all, self.heap.media().len(), admission::room(&self.heap));
        if !excess.is_none() {
            self.close_slowest(excess);
        }
    }

    /// Makes unfinished requests return what they hold, if a write has found no room: first what is scattered over runs of
    /// its own, for which no request is refused, and then half of all. Complete requests have priority: even the fastest
    /// unfinished request, which is otherwise spared, returns its space if no other one can. What it holds may be
    /// scattered over many more runs than it fills.
    fn return_wanted(&mut self) {
        if self.heap.take_return_wanted() {
            self.shared.wake_all();
        }
        let Some(asked) = self.heap.asked_return(&mut self.returned) else { return };
        self.gather_scattered();
        if asked == Return::Half {
            let unfinished = self.heap.unfinished_bytes() / 2;
            if !self.close_slowest(Excess { unauthenticated: 0, unfinished }) {
                self.close_largest();
            }
        }
        if self.heap.answer_return() {
            self.shared.wake_all();
        }
    }

    /// Copies what unfinished requests hold out of runs that little else keeps.
    fn gather_scattered(&mut self) {
        for conn in self.conns.values_mut().filter(|conn| conn.held.bytes > 0) {
            if let Err(error) = conn.inbox.set_aside(&mut self.landing, Aside::Scattered) {
                tracing::error!(%error, "received bytes cannot be moved");
            }
        }
    }

    /// Closes the connection whose unfinished request holds most, if it holds enough.
    fn close_largest(&mut self) {
        let largest = self.conns.values().max_by_key(|conn| conn.held.bytes);
        let Some(conn) = largest.filter(|conn| conn.held.bytes >= STARVING_MIN as u64) else { return };
        let (id, bytes) = (conn.id, conn.held.bytes);
        tracing::warn!(
            conn = id.0,
            bytes,
            "a complete write has no room: the largest unfinished request is refused"
        );
        self.refuse(id, Conn::refuse_unfinished);
    }

    /// Closes the slowest connections until this worker's part of the excess is returned. False if there is no
    /// connection to close.
    fn close_slowest(&mut self, excess: Excess) -> bool {
        let now_ms = self.now.steady_ms;
        let holder = |conn: &Conn| Holder { id: conn.id, held: conn.held, rate: conn.arriving.rate(now_ms) };
        let holders: Vec<Holder> = self.conns.values().map(|conn| holder(conn)).collect();
        let sum = |of: fn(&Holder) -> bool| holders.iter().filter(|h| of(h)).map(|h| h.held.bytes).sum();
        let own = Excess { unauthenticated: sum(|h| !h.held.is_authenticated), unfinished: sum(|_| true) };
        let chosen =
            admission::choose(holders, excess.part(own, admission::held(&self.shared.counters, &self.heap)));
        if let Some(first) = chosen.first() {
            tracing::warn!(conn = first.0, closed = chosen.len(), "unfinished requests hold too much");
        }
        let closes = !chosen.is_empty();
        for id in chosen {
            self.refuse(id, Conn::refuse_unfinished);
        }
        closes
    }

    /// Refuses a connection's unfinished request.
    fn refuse(&mut self, id: ConnId, refuse: fn(&mut Conn, &mut Core<'_>, &Heap)) {
        let heap = Arc::clone(&self.heap);
        let (mut core, _, conns) = self.core_and_conns();
        if let Some(conn) = conns.get_mut(&id) {
            refuse(conn, &mut core, &heap);
            admission::note(&core.shared.counters, &heap, conn.held, Held::default());
            conn.held = Held::default();
        }
        self.touch(id);
    }

    /// Handles the lack of landing space. If neither compaction nor what is scattered makes space, the largest unfinished
    /// request could not be stored anyway.
    pub(super) fn make_landing_room(&mut self) {
        self.starved = !self.heap.can_land();
        if !self.starved || self.heap.may_wait_for_any() {
            self.starved_since = None;
            return self.shared.wake_maintenance();
        }
        if self.heap.ask_for_scattered(&mut self.starved_since) {
            return;
        }
        // A request that waits for its turn releases its space when it is executed.
        if self.conns.values().any(|conn| conn.listed.touched && conn.inbox.len() >= STARVING_MIN) {
            return;
        }
        let largest =
            self.conns.values().filter(|conn| !conn.phase.is_closing()).max_by_key(|conn| conn.inbox.len());
        let Some(conn) = largest.filter(|conn| conn.inbox.len() >= STARVING_MIN) else {
            // Many short requests may hold as much.
            let unfinished = self.heap.unfinished_bytes() / 2;
            self.close_slowest(Excess { unauthenticated: 0, unfinished });
            return;
        };
        let (id, bytes) = (conn.id, conn.inbox.len());
        tracing::warn!(conn = id.0, bytes, "no landing space: the largest unfinished request is refused");
        self.refuse(id, Conn::refuse_for_space);
    }
}
