//! Executes the commands again that waited for bytes which had left memory, and closes connections that keep memory.

use super::state::Worker;
use crate::conn::{Conn, Park};
use crate::loads::Again;
use crate::pace::RATE_MIN;
use landfall_heap::Until;
use landfall_sockets::ConnId;

/// Replies shorter than this are not counted: all of them together are little, bytes.
const LONG_REPLY: u64 = 64 << 10;
/// A client that has read next to nothing for so long is stuck, milliseconds.
const STUCK_MS: u64 = 1000;

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
        let (again, is_done) = paged.loads.start(paged.lane.as_mut());
        paged.again = again;
        paged.is_due |= again == Again::AtOnce;
        if is_done {
            self.shared.wake_load_waiters(Some(self.id));
        }
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
        let now_ms = self.now.steady_ms;
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
