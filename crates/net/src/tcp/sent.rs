//! Segments in flight: one entry for each segment that was sent and not acknowledged. This is the scoreboard of RFC
//! 6675. Each entry has the time of its last transmission, from which RFC 8985 (RACK) detects losses, those of
//! retransmissions included.

use super::sack::Block;
use super::seq::Seq;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Duplicate acknowledgements that indicate a loss (RFC 5681, 3.2; RFC 6675, 2).
pub(super) const DUP_THRESH: u32 = 3;

/// Segments of one connection in flight, at most, however small they are.
const SEGMENTS_MAX: usize = 4096;

/// One segment in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: Seq,
    /// Sequence numbers that the segment takes.
    pub(crate) len: u32,
    /// Time of the last transmission.
    at: Instant,
    /// The peer has reported the segment.
    sacked: bool,
    /// The segment counts as lost and has not been retransmitted since.
    lost: bool,
    /// Number of retransmissions.
    resent: u32,
}

impl Sent {
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len
    }

    /// True if the segment counts as being in the network.
    fn in_flight(&self) -> bool {
        !self.sacked && !self.lost
    }

    /// True if the segment was sent before a segment that has arrived (RFC 8985, 6.2 step 2).
    fn before(&self, at: Instant, end: Seq) -> bool {
        self.at < at || (self.at == at && self.end().lt(end))
    }
}

/// What an acknowledgement reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Sequence numbers that are newly known to have arrived.
    pub(crate) bytes: u32,
    /// Sequence numbers that the cumulative acknowledgement newly covers.
    pub(crate) acked: u32,
    /// Round-trip time of the latest segment that was sent only once (Karn's rule: RFC 6298, 3).
    pub(crate) rtt: Option<Duration>,
}

/// Result of a loss detection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// At least one segment was newly marked as lost.
    pub(crate) any: bool,
    /// When to detect losses again: another segment may be lost by then.
    pub(crate) again: Option<Instant>,
}

/// The latest segment known to have arrived (RFC 8985, 6.2).
#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Instant,
    end: Seq,
    rtt: Duration,
}

/// All segments in flight, in sequence order.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    sent: VecDeque<Sent>,
    /// Sequence numbers in the network: the *pipe* of RFC 6675.
    pipe: u32,
    /// Segments that the peer has reported after a hole.
    sacked: u32,
    lost: u32,
    latest: Option<Latest>,
    min_rtt: Option<Duration>,
    /// Highest sequence number that the peer has (RFC 8985: RACK.fack).
    highest: Option<Seq>,
    /// Segments have arrived out of order.
    reordered: bool,
}

impl InFlight {
    /// Sequence numbers in the network.
    pub(crate) fn pipe(&self) -> u32 {
        self.pipe
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// How many more segments may be in flight. There is a limit because each acknowledgement visits all of them.
    pub(crate) fn room(&self) -> u32 {
        SEGMENTS_MAX.saturating_sub(self.sent.len()) as u32
    }

    /// True when a segment is to be retransmitted.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Adds a segment that is sent for the first time.
    pub(crate) fn push(&mut self, now: Instant, seq: Seq, len: u32) {
        self.sent.push_back(Sent { seq, len, at: now, sacked: false, lost: false, resent: 0 });
        self.pipe += len;
    }

    /// The cumulative acknowledgement has moved to `ack`.
    pub(crate) fn acknowledge(&mut self, now: Instant, ack: Seq) -> Delivered {
        let mut report = Delivered::default();
        while let Some(first) = self.sent.front().copied() {
            if !first.end().le(ack) {
                self.acknowledge_part(ack, &mut report);
                break;
            }
            self.sent.pop_front();
            report.acked += first.len;
            if first.sacked {
                self.sacked -= 1;
            } else {
                self.arrived(now, &first, &mut report);
            }
            if first.in_flight() {
                self.pipe -= first.len;
            }
            self.lost -= u32::from(first.lost);
        }
        self.check();
        report
    }

    /// Acknowledges the beginning of the first segment.
    fn acknowledge_part(&mut self, ack: Seq, report: &mut Delivered) {
        let Some(first) = self.sent.front_mut() else { return };
        let part = ack.past(first.seq);
        if part == 0 {
            return;
        }
        if first.in_flight() {
            self.pipe -= part;
        }
        if !first.sacked {
            report.bytes += part;
        }
        report.acked += part;
        first.seq += part;
        first.len -= part;
    }

    /// Marks the ranges that the peer reports after a hole (RFC 2018; RFC 6675, 3).
    pub(crate) fn acknowledge_blocks(&mut self, now: Instant, blocks: &[Option<Block>]) -> Delivered {
        let mut report = Delivered::default();
        let Some((una, nxt)) = self.sent.front().zip(self.sent.back()).map(|(f, l)| (f.seq, l.end())) else {
            return report;
        };
        for block in blocks.iter().flatten() {
            // A block of data that were acknowledged long ago, or never sent, is ignored (RFC 2883, RFC 6675 3).
            if !(block.start.lt(block.end) && una.le(block.start) && block.end.le(nxt)) {
                continue;
            }
            let first = self.sent.partition_point(|sent| sent.seq.lt(block.start));
            for index in first..self.sent.len() {
                let sent = self.sent[index];
                if !sent.end().le(block.end) {
                    break;
                }
                if !sent.sacked {
                    self.mark_sacked(index);
                    self.arrived(now, &sent, &mut report);
                }
            }
        }
        self.check();
        report
    }

    /// Handles a duplicate acknowledgement of a peer without SACK: some segment after the first has arrived (RFC 5681,
    /// 3.2: the window is inflated by what has left the network).
    pub(crate) fn acknowledge_duplicate(&mut self) -> Delivered {
        Delivered { bytes: self.report_next(), ..Delivered::default() }
    }

    /// Marks the next unreported segment after the first as arrived, since the peer does not say which one arrived.
    /// Returns its length.
    fn report_next(&mut self) -> u32 {
        let next = self.sent.iter().skip(1).position(|sent| !sent.sacked && !sent.lost);
        let Some(index) = next.map(|index| index + 1) else { return 0 };
        self.mark_sacked(index);
        self.sent[index].len
    }

    /// Length of the first segment, 0 if there is none.
    pub(crate) fn first_len(&self) -> u32 {
        self.sent.front().map_or(0, |first| first.len)
    }

    /// True if the peer has reported the first segment, which it has not acknowledged.
    pub(crate) fn first_is_reported(&self) -> bool {
        self.sent.front().is_some_and(|first| first.sacked)
    }

    /// Clears all reports: the peer may have dropped the data, or the duplicate acknowledgements may have been for
    /// other segments.
    pub(crate) fn forget_reports(&mut self) {
        for index in 0..self.sent.len() {
            if self.sent[index].sacked {
                self.sent[index].sacked = false;
                self.sacked -= 1;
                self.pipe += self.sent[index].len;
            }
        }
    }

    fn mark_sacked(&mut self, index: usize) {
        let sent = &mut self.sent[index];
        if sent.in_flight() {
            self.pipe -= sent.len;
        }
        self.lost -= u32::from(std::mem::take(&mut sent.lost));
        sent.sacked = true;
        self.sacked += 1;
    }

    /// Updates the state with a segment that has arrived (RFC 8985, 6.2 steps 1 to 3).
    fn arrived(&mut self, now: Instant, sent: &Sent, report: &mut Delivered) {
        report.bytes += sent.len;
        let rtt = now.since(sent.at);
        if sent.resent == 0 {
            report.rtt = Some(rtt);
            if self.highest.is_some_and(|highest| sent.end().lt(highest)) {
                self.reordered = true;
            }
        } else if self.min_rtt.is_some_and(|least| rtt < least) {
            // The acknowledgement is for an earlier transmission.
            return;
        }
        self.highest = Some(self.highest.map_or(sent.end(), |highest| highest.max(sent.end())));
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        if self.latest.is_none_or(|latest| !sent.before(latest.at, latest.end)) {
            self.latest = Some(Latest { at: sent.at, end: sent.end(), rtt });
        }
    }

    /// Marks lost segments: those sent well before a segment that has arrived (RFC 8985, 6.2 step 5), or three segments
    /// before it (RFC 6675, 4).
    pub(crate) fn detect_losses(&mut self, now: Instant, srtt: Duration, recovering: bool) -> Found {
        let mut found = Found::default();
        let Some(latest) = self.latest else { return found };
        let grace = self.reordering_window(srtt, recovering);
        for index in 0..self.sent.len() {
            let sent = self.sent[index];
            if !sent.before(latest.at, latest.end) {
                // First transmissions are in sequence order: no segment after this one was sent earlier.
                if sent.resent == 0 {
                    break;
                }
                continue;
            }
            if !sent.in_flight() {
                continue;
            }
            let due = sent.at + latest.rtt + grace;
            if due <= now {
                self.mark_lost(index);
                found.any = true;
            } else {
                found.again = Some(found.again.map_or(due, |at| at.min(due)));
            }
        }
        found
    }

    /// How much later than others a segment may arrive (RFC 8985, 6.2 step 4).
    fn reordering_window(&self, srtt: Duration, recovering: bool) -> Duration {
        if !self.reordered && (recovering || self.sacked >= DUP_THRESH) {
            return Duration::ZERO;
        }
        (self.min_rtt.unwrap_or_default() / 4).min(srtt)
    }

    /// Marks the first segment as lost, after three duplicate acknowledgements without SACK or a partial
    /// acknowledgement (RFC 6582, 3.2).
    pub(crate) fn lose_first(&mut self) -> bool {
        let loses = self.sent.front().is_some_and(Sent::in_flight);
        if loses {
            self.mark_lost(0);
        }
        loses
    }

    /// Handles a partial acknowledgement without SACK: the segment that is now the first is missing (RFC 6582, 3.2,
    /// step 3). If a duplicate was counted for it, the duplicate was for a later segment.
    pub(crate) fn lose_next_hole(&mut self) {
        if let Some(first) = self.sent.front_mut().filter(|first| first.sacked) {
            first.sacked = false;
            self.sacked -= 1;
            self.pipe += first.len;
            self.report_next();
        }
        self.lose_first();
        self.check();
    }

    /// Marks everything that the peer has not reported as lost, after a timeout (RFC 6298, 5.4; RFC 6675, 5.1).
    pub(crate) fn lose_all(&mut self) {
        for index in 0..self.sent.len() {
            if self.sent[index].in_flight() {
                self.mark_lost(index);
            }
        }
    }

    fn mark_lost(&mut self, index: usize) {
        let sent = &mut self.sent[index];
        sent.lost = true;
        self.lost += 1;
        self.pipe -= sent.len;
    }

    /// The first segment to retransmit, at most `len_max` long; a longer one is split.
    pub(crate) fn next_lost(&mut self, len_max: u32) -> Option<(Seq, u32)> {
        if self.lost == 0 {
            return None;
        }
        let index = self.sent.iter().position(|sent| sent.lost)?;
        let sent = self.sent[index];
        if sent.len > len_max + 1 {
            let rest = Sent { seq: sent.seq + len_max, len: sent.len - len_max, ..sent };
            self.sent[index].len = len_max;
            self.sent.insert(index + 1, rest);
            self.lost += 1;
        }
        self.check();
        Some((sent.seq, self.sent[index].len))
    }

    /// Records that `len` numbers of the segment at `seq` were retransmitted.
    pub(crate) fn resend(&mut self, now: Instant, seq: Seq, len: u32) {
        let index = self.sent.partition_point(|sent| sent.seq.lt(seq));
        let Some(sent) = self.sent.get_mut(index).filter(|sent| sent.seq == seq && sent.lost) else { return };
        if len < sent.len {
            let rest = Sent { seq: seq + len, len: sent.len - len, ..*sent };
            sent.len = len;
            self.lost += 1;
            self.sent.insert(index + 1, rest);
        }
        let sent = &mut self.sent[index];
        sent.lost = false;
        sent.resent += 1;
        sent.at = now;
        self.lost -= 1;
        self.pipe += sent.len;
        self.check();
    }

    /// Marks the last segment that the peer has not reported as lost, so that it is sent as a probe (RFC 8985, 7.3).
    pub(crate) fn lose_last(&mut self) -> bool {
        match self.sent.iter().rposition(Sent::in_flight) {
            Some(index) => {
                self.mark_lost(index);
                true
            }
            None => false,
        }
    }

    /// Checks the counters against the entries.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let count = |which: fn(&Sent) -> bool| self.sent.iter().filter(|sent| which(sent)).count() as u32;
        assert_eq!(self.lost, count(|sent| sent.lost));
        assert_eq!(self.sacked, count(|sent| sent.sacked));
        assert_eq!(count(|sent| sent.lost && sent.sacked), 0);
        assert_eq!(self.pipe, self.sent.iter().filter(|sent| sent.in_flight()).map(|sent| sent.len).sum());
        for (one, next) in self.sent.iter().zip(self.sent.iter().skip(1)) {
            assert!(one.end() == next.seq && one.len > 0, "segments follow each other");
        }
    }

    #[cfg(not(debug_assertions))]
    const fn check(&self) {}

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
