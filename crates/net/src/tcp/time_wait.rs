//! Connections in TIME-WAIT. An entry answers late segments and keeps them from reaching a new connection with the same
//! tuple (RFC 9293, 3.6.1; RFC 6191; RFC 1337).

use super::emit::{Header, OptionsOut};
use super::segment::{Flags, Segment};
use super::seq::Seq;
use super::tcb::Tcb;
use crate::address::{Path, Tuple};
use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Length of TIME-WAIT, twice the segment lifetime. This is the value of Linux; RFC 9293 (3.4.2) says four minutes and
/// leaves the value to implementations.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);

/// Length of the expiry queue below which stale entries are not removed.
const ORDER_MIN: usize = 64;

/// What TIME-WAIT keeps of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    path: Path,
    snd_nxt: Seq,
    rcv_nxt: Seq,
    /// The peer's last timestamp, and this side's timestamp offset.
    timestamps: Option<(u32, u32)>,
    until: Instant,
}

impl Over {
    /// The entry of a connection that has ended.
    pub(crate) fn of(now: Instant, tcb: &Tcb) -> Self {
        Self {
            path: tcb.path,
            snd_nxt: tcb.snd_nxt,
            rcv_nxt: tcb.rcv_nxt,
            timestamps: tcb.timestamps.map(|t| (t.recent, t.offset)),
            until: now + LIFETIME,
        }
    }

    /// True if a SYN certainly belongs to a new connection (RFC 9293, 3.10.7.4; RFC 6191, 2).
    pub(crate) fn yields_to(&self, segment: &Segment) -> bool {
        let plain_syn = segment.flags.syn && !segment.flags.ack && !segment.flags.rst;
        let newer = match (self.timestamps, segment.options.timestamps) {
            (Some((recent, _)), Some((value, _))) if value != recent => {
                value.wrapping_sub(recent).cast_signed() > 0
            }
            _ => self.rcv_nxt.lt(segment.seq),
        };
        plain_syn && newer
    }

    /// True for a retransmitted FIN: the acknowledgement of it was lost, and TIME-WAIT starts again (RFC 9293,
    /// 3.10.7.4, eighth).
    pub(crate) fn restarts_lifetime(&self, segment: &Segment) -> bool {
        segment.flags.fin && !segment.flags.rst && segment.seq + segment.len() == self.rcv_nxt
    }

    /// This entry with the whole lifetime from `now` on.
    pub(crate) fn restarted(self, now: Instant) -> Self {
        Self { until: now + LIFETIME, ..self }
    }

    /// An initial sequence number for the new connection, past everything that the old connection used.
    pub(crate) fn next_iss(&self) -> Seq {
        self.snd_nxt + 0x1_0000
    }

    /// The answer to a late segment: the last acknowledgement. Resets change nothing (RFC 1337).
    pub(crate) fn answer(&self, now: Instant, segment: &Segment) -> Option<Header> {
        if segment.flags.rst || (segment.len() == 0 && segment.seq == self.rcv_nxt) {
            return None;
        }
        let timestamps =
            self.timestamps.map(|(recent, offset)| ((now.millis() as u32).wrapping_add(offset), recent));
        let flags = Flags { ack: true, ..Flags::default() };
        let options = OptionsOut { timestamps, ..OptionsOut::default() };
        Some(Header { seq: self.snd_nxt, ack: self.rcv_nxt, flags, window: 0, options, markable: false })
    }
}

/// All connections in TIME-WAIT. When there are too many, the oldest is removed.
#[derive(Debug, Default)]
pub(crate) struct TimeWait {
    over: BTreeMap<[u8; 36], Over>,
    order: VecDeque<(Instant, Tuple)>,
}

impl TimeWait {
    pub(crate) fn insert(&mut self, over: Over, max: usize) {
        self.over.remove(&over.path.tuple.key());
        while self.over.len() >= max.max(1)
            && let Some((until, oldest)) = self.order.pop_front()
        {
            self.forget(until, &oldest);
        }
        if self.order.len() >= 2 * max.max(ORDER_MIN) {
            // Tuples that were used again have left stale entries in the queue.
            let over = &self.over;
            self.order.retain(|(until, tuple)| over.get(&tuple.key()).is_some_and(|o| o.until == *until));
        }
        self.order.push_back((over.until, over.path.tuple));
        self.over.insert(over.path.tuple.key(), over);
    }

    /// Removes the entry that expires at `until`; a later entry with the same tuple stays.
    fn forget(&mut self, until: Instant, tuple: &Tuple) {
        if self.over.get(&tuple.key()).is_some_and(|over| over.until == until) {
            self.over.remove(&tuple.key());
        }
    }

    pub(crate) fn get(&self, tuple: &Tuple) -> Option<&Over> {
        if self.over.is_empty() { None } else { self.over.get(&tuple.key()) }
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) {
        self.over.remove(&tuple.key());
    }

    pub(crate) fn len(&self) -> usize {
        self.over.len()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(until, _)| *until)
    }

    pub(crate) fn handle_time(&mut self, now: Instant) {
        while let Some((until, tuple)) = self.order.front().copied().filter(|(until, _)| *until <= now) {
            self.order.pop_front();
            self.forget(until, &tuple);
        }
    }
}
