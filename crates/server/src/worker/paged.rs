//! Commands that wait for bytes which have left memory.

use super::Worker;
use crate::conn::{Conn, Park};
use crate::loads::{Again, Lane, Loads};
use crate::pace::RATE_MIN;
use crate::shared::Shared;
use landfall_heap::{LoadId, Until};
use landfall_media::EventFd;
use landfall_sockets::{ConnId, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Replies shorter than this are not counted: all of them together are little, bytes.
const LONG_REPLY: u64 = 64 << 10;
/// A client that has read next to nothing for so long is stuck, milliseconds.
const STUCK_MS: u64 = 1000;

/// A worker's part in reading what has left memory.
pub(super) struct Paged {
    pub(super) loads: Arc<Loads>,
    /// Reads these bytes; `None` where threads read.
    lane: Option<Lane>,
    /// Connections with a command that waits for bytes to be read.
    loading: BTreeMap<LoadId, ConnId>,
    /// Requests of which the commands are executed in this round.
    loaded: Vec<(LoadId, ConnId)>,
    /// A request for bytes may be done.
    is_due: bool,
    /// When further reads can be started.
    again: Again,
}

impl Paged {
    pub(super) fn new(loads: &Arc<Loads>, transport: &dyn Transport) -> Self {
        Self {
            loads: Arc::clone(loads),
            lane: loads.open_lane(EventFd::of(&transport.waker())),
            loading: BTreeMap::new(),
            loaded: Vec::new(),
            is_due: false,
            again: Again::OnEvent,
        }
    }

    /// When the worker has something to do here.
    pub(super) fn again(&self) -> Again {
        if self.is_due { Again::AtOnce } else { self.again }
    }

    /// Something may have been read.
    pub(super) fn note_event(&mut self) {
        self.is_due = true;
    }

    /// A connection's command waits for a request.
    pub(super) fn wait(&mut self, load: LoadId, id: ConnId) {
        self.loading.insert(load, id);
    }

    /// The requests that have been done, with the connections that wait for them.
    fn take_done(&mut self, shared: &Shared, worker: usize) -> Vec<(LoadId, ConnId)> {
        let is_done = self.lane.as_mut().is_some_and(|lane| self.loads.finish_reads(lane));
        if is_done {
            shared.wake_load_waiters(Some(worker));
        }
        if !std::mem::take(&mut self.is_due) && !is_done {
            return Vec::new();
        }
        if !self.loading.is_empty() {
            ask_for_load_wake(shared, worker);
        }
        self.loads.take_done(&mut self.loading)
    }
}

impl Worker {
    /// Executes the commands again whose bytes have been read.
    pub(super) fn resume_loaded(&mut self) {
        let Some(paged) = &mut self.paged else { return };
        let done = paged.take_done(&self.shared, self.id);
        paged.loaded.extend_from_slice(&done);
        for (load, id) in done {
            if let Some(conn) = self.conns.get_mut(&id)
                && conn.park == Some(Park::On(Until::Load(load)))
            {
                conn.park = None;
                self.touch(id);
            }
        }
    }

    /// Releases what this round's commands have used, and starts the reads that they have asked for.
    pub(super) fn start_loads(&mut self) {
        let Some(paged) = &mut self.paged else { return };
        for (load, id) in paged.loaded.drain(..) {
            // A command that needs still more is executed from its start again, with what it has asked for so far.
            let park = self.conns.get(&id).and_then(|conn| conn.park);
            if !matches!(park, Some(Park::On(Until::Load(_)))) {
                paged.loads.release_done(load);
            }
        }
        paged.again = paged.loads.start(paged.lane.as_mut());
        paged.is_due |= paged.again == Again::AtOnce;
    }

    /// Checks for what no event has reported.
    pub(super) fn tick_loads(&mut self) {
        let Some(paged) = &mut self.paged else { return };
        paged.loads.release_kept();
        paged.is_due |= !paged.loading.is_empty();
        let excess = paged.loads.reply_excess();
        if excess > 0 {
            self.close_stuck_readers(excess);
        }
    }

    /// Counts a connection's reply if it is long.
    pub(super) fn note_reply(&mut self, id: ConnId) {
        let (Some(paged), Some(conn)) = (&self.paged, self.conns.get_mut(&id)) else { return };
        let len = conn.output_len() as u64;
        let now = if len < LONG_REPLY { 0 } else { len };
        let before = std::mem::replace(&mut conn.reply_bytes, now);
        if before != now {
            paged.loads.note_reply(before, now);
        }
    }

    /// Closes connections that do not read their replies, those with the longest first, until `excess` bytes can leave
    /// memory. Replies are sent from the region, so they stay in memory until they are received.
    fn close_stuck_readers(&mut self, excess: u64) {
        let now_ms = self.now_ns / 1_000_000;
        let is_stuck = |conn: &Conn| {
            conn.reply_bytes > 0
                && conn.leaving.age_ms(now_ms) >= STUCK_MS
                && conn.leaving.rate(now_ms) < RATE_MIN
        };
        let mut stuck: Vec<(u64, ConnId)> = self
            .conns
            .values()
            .filter(|conn| is_stuck(conn))
            .map(|conn| (conn.reply_bytes, conn.id))
            .collect();
        stuck.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut left = excess;
        for (bytes, id) in stuck {
            if left == 0 {
                break;
            }
            tracing::warn!(conn = id.0, bytes, "the memory is full of replies that are not read: closing");
            left = left.saturating_sub(bytes);
            self.cut_off(id);
        }
    }
}

/// Has other threads wake a worker when they have read something. What they have read before is found at once.
pub(super) fn ask_for_load_wake(shared: &Shared, worker: usize) {
    if let Some(workers) = shared.workers.get() {
        workers[worker].loading.store(true, Ordering::SeqCst);
    }
}
