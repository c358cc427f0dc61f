//! The bypass that waits for its response: one at a time.

use super::config::RequestId;
use crate::pieces::{Assembly, Mark, check};
use crate::wire::Fragment;
use landfall_net::Instant;
use std::time::Duration;

/// A bypass under way.
#[derive(Debug)]
pub(super) struct Bypass {
    pub(super) id: RequestId,
    pub(super) seq: u32,
    packets: Vec<Vec<u8>>,
    /// The packet to be sent next; none beyond the last.
    at: usize,
    /// Times that all packets have been sent.
    sent: u32,
    sent_at: Instant,
    deadline: Option<Instant>,
    partial: Option<Assembly>,
}

impl Bypass {
    /// To be sent at once.
    pub(super) fn new(id: RequestId, seq: u32, packets: Vec<Vec<u8>>, now: Instant) -> Self {
        Self { id, seq, packets, at: 0, sent: 0, sent_at: now, deadline: None, partial: None }
    }

    /// The next packet; the timeout runs from the last one.
    pub(super) fn send(&mut self, now: Instant, timeout: impl Fn(u32) -> Duration) -> Option<&[u8]> {
        let packet = self.packets.get(self.at)?;
        self.at += 1;
        if self.at == self.packets.len() {
            self.deadline = Some(now + timeout(self.sent));
            self.sent = self.sent.saturating_add(1);
            self.sent_at = now;
        }
        Some(packet)
    }

    /// Whether packets that are sent now are sent again.
    pub(super) fn repeats(&self) -> bool {
        self.sent > 0
    }

    /// All packets are to be sent again, with the same number.
    pub(super) fn again(&mut self) {
        if self.sent > 0 {
            (self.at, self.deadline) = (0, None);
        }
    }

    /// If the timeout has passed: sends again, and tells how often that was done before.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u32> {
        self.deadline.filter(|deadline| *deadline <= now)?;
        self.again();
        Some(self.sent - 1)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// When it was sent, if that was once.
    pub(super) fn sent_once_at(&self) -> Option<Instant> {
        (self.sent == 1 && self.deadline.is_some()).then_some(self.sent_at)
    }

    /// Takes a piece of the response; the whole response with the last one.
    ///
    /// A server that has restarted may execute a bypass again and answer otherwise: pieces are of one response only if
    /// they bear one `hash`, and together they must match it.
    pub(super) fn piece(&mut self, place: Fragment, hash: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let mark = Mark::new(place, hash);
        let partial = match self.partial.take() {
            Some(partial) if partial.mark() == mark => partial,
            _ => Assembly::new(mark),
        };
        let partial = self.partial.insert(partial);
        partial.add(place.index, bytes);
        if !partial.is_whole() {
            return None;
        }
        let whole = self.partial.take()?.into_bytes()?;
        (check(&whole) == hash).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Sizes;
    use crate::wire::{Body, Packet};

    fn bypass() -> Bypass {
        Bypass::new(RequestId(1), 1 << 31, vec![vec![1], vec![2]], Instant::default())
    }

    fn pieces(response: &[u8]) -> Vec<(Fragment, u32, Vec<u8>)> {
        let packets = Sizes::new(100, false).response(1, 1 << 31, response);
        let read = |bytes: &Vec<u8>| {
            let packet = Packet::parse(bytes).unwrap();
            let Body::ResponseFragment(place, piece) = packet.body else { panic!("no fragment") };
            (place, packet.header.hash, piece.to_vec())
        };
        packets.iter().map(read).collect()
    }

    #[test]
    fn pieces_of_two_executions_are_never_put_together() {
        let (first, second) = (pieces(&[1; 90]), pieces(&[2; 90]));
        let mut bypass = bypass();
        let mut take = |(place, hash, bytes): &(Fragment, u32, Vec<u8>)| bypass.piece(*place, *hash, bytes);
        assert_eq!(first.len(), 2);
        assert_eq!(take(&first[0]), None);
        assert_eq!(take(&second[1]), None);
        assert_eq!(take(&second[0]), Some(vec![2; 90]));
    }

    #[test]
    fn the_timeout_runs_from_the_last_packet() {
        let (mut bypass, wait) = (bypass(), Duration::from_millis(5));
        let later = Instant::default() + wait;
        assert!(bypass.send(Instant::default(), |_| wait).is_some());
        assert_eq!(bypass.deadline(), None);
        assert!(bypass.send(Instant::default(), |_| wait).is_some());
        assert!(bypass.send(Instant::default(), |_| wait).is_none());
        assert_eq!(bypass.expire(Instant::default()), None);
        assert_eq!(bypass.expire(later), Some(0));
        assert_eq!(bypass.send(later, |_| wait), Some(&[1][..]));
    }
}
