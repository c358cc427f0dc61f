//! The bypass that waits for its response. A client has one bypass at a time.

use super::config::RequestId;
use super::incoming::{Incoming, Place, Range, Whole};
use landfall_net::Instant;
use std::time::Duration;

/// Number of requests for missing pieces of a stalled response, after which the bypass is sent again. The server may
/// have restarted.
const STALLS_MAX: u32 = 3;

/// Result of adding a piece of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The piece was not needed.
    None,
    /// More pieces are needed. These ranges are to be requested.
    More(Vec<Range>),
    /// The response is complete. True if the server keeps it until the client confirms its arrival.
    Whole(Vec<u8>, bool),
}

/// What to do after a timeout.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expired {
    /// How often the bypass was sent again before. `None` while only its response stalls.
    pub(super) repeats: Option<u32>,
    /// The ranges to request.
    pub(super) missing: Vec<Range>,
}

/// A bypass in flight.
#[derive(Debug)]
pub(super) struct Bypass {
    pub(super) id: RequestId,
    pub(super) seq: u32,
    packets: Vec<Vec<u8>>,
    /// Index of the next packet to send; the number of packets if all are sent.
    at: usize,
    /// How often all packets have been sent.
    sent: u32,
    sent_at: Instant,
    deadline: Option<Instant>,
    incoming: Option<Incoming>,
    /// Number of timeouts since the last piece of a response that has begun.
    stalls: u32,
    /// Whether the round trip of the bypass was measured.
    measured: bool,
}

impl Bypass {
    /// A bypass to be sent at once.
    pub(super) fn new(id: RequestId, seq: u32, packets: Vec<Vec<u8>>, now: Instant) -> Self {
        let (incoming, deadline) = (None, None);
        Self {
            id,
            seq,
            packets,
            at: 0,
            sent: 0,
            sent_at: now,
            deadline,
            incoming,
            stalls: 0,
            measured: false,
        }
    }

    /// The next packet to send. The timeout starts with the last packet.
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

    /// Whether packets that are sent now have been sent before.
    pub(super) fn repeats(&self) -> bool {
        self.sent > 0
    }

    /// Sends all packets again, with the same number.
    pub(super) fn again(&mut self) {
        if self.sent > 0 {
            (self.at, self.deadline) = (0, None);
        }
    }

    /// After a timeout: sends the bypass again, or returns the missing ranges of a response that has begun.
    pub(super) fn expire(&mut self, now: Instant, timeout: impl Fn(u32) -> Duration) -> Option<Expired> {
        self.deadline.filter(|deadline| *deadline <= now)?;
        let missing = self.incoming.as_mut().map(Incoming::missing).unwrap_or_default();
        if self.incoming.is_some() && self.stalls < STALLS_MAX {
            self.stalls += 1;
            self.deadline = Some(now + timeout(self.stalls));
            return Some(Expired { repeats: None, missing });
        }
        self.again();
        Some(Expired { repeats: Some(self.sent - 1), missing })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// When the bypass was sent, if it was sent only once. Returned once, when the response begins.
    pub(super) fn sent_once_at(&mut self) -> Option<Instant> {
        let first = !std::mem::replace(&mut self.measured, true);
        (first && self.sent == 1 && self.deadline.is_some()).then_some(self.sent_at)
    }

    /// When the window that begins at an offset was requested, if this piece measures its round trip.
    pub(super) fn window_asked_at(&mut self, place: &Place) -> Option<Instant> {
        let incoming = self.incoming.as_mut().filter(|incoming| incoming.whole() == place.whole)?;
        incoming.asked_at(place.offset)
    }

    /// The response that has begun.
    pub(super) fn response(&self) -> Option<Whole> {
        self.incoming.as_ref().map(Incoming::whole)
    }

    /// Adds a piece of the response.
    ///
    /// A server that has restarted may execute a bypass again, with another response. So pieces belong to one
    /// response only if they carry the same check, and the whole response must match that check.
    pub(super) fn piece(
        &mut self,
        place: Place,
        bytes: &[u8],
        now: Instant,
        timeout: impl Fn(u32) -> Duration,
    ) -> Progress {
        let same = self.response() == Some(place.whole);
        let incoming = self.incoming.take().filter(|_| same);
        let incoming = self.incoming.insert(incoming.unwrap_or_else(|| Incoming::new(place, bytes.len())));
        if !incoming.add(place.offset, bytes) {
            return Progress::None;
        }
        self.stalls = 0;
        if self.at == self.packets.len() {
            self.deadline = Some(now + timeout(0));
        }
        if !incoming.is_whole() {
            return Progress::More(incoming.wants(now));
        }
        let in_windows = incoming.in_windows();
        match self.incoming.take().and_then(Incoming::into_bytes) {
            Some(whole) => Progress::Whole(whole, in_windows),
            None => {
                self.again();
                Progress::More(Vec::new())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Sizes;
    use crate::wire::{Body, Packet};

    const WAIT: Duration = Duration::from_millis(5);

    fn bypass() -> Bypass {
        Bypass::new(RequestId(1), 1 << 31, vec![vec![1], vec![2]], Instant::default())
    }

    fn pieces(response: &[u8]) -> Vec<(Place, Vec<u8>)> {
        let sizes = Sizes::new(100, false);
        let packets = sizes.first_window(1, 1 << 31, &sizes.response(response.to_vec()));
        let read = |bytes: &Vec<u8>| {
            let packet = Packet::parse(bytes).unwrap();
            let Body::ResponseFragment(place, piece) = packet.body else { panic!("no fragment") };
            (Place::of_fragment(place, packet.header.hash, piece.len()).unwrap(), piece.to_vec())
        };
        packets.iter().map(read).collect()
    }

    #[test]
    fn pieces_of_two_executions_are_never_combined() {
        let (first, second) = (pieces(&[1; 90]), pieces(&[2; 90]));
        let mut bypass = bypass();
        let mut take =
            |(place, bytes): &(Place, Vec<u8>)| bypass.piece(*place, bytes, Instant::default(), |_| WAIT);
        assert_eq!(first.len(), 2);
        assert_eq!(take(&first[0]), Progress::More(vec![]));
        assert_eq!(take(&second[1]), Progress::More(vec![]));
        assert_eq!(take(&second[0]), Progress::Whole(vec![2; 90], false));
    }

    #[test]
    fn the_timeout_starts_with_the_last_packet() {
        let mut bypass = bypass();
        let later = Instant::default() + WAIT;
        assert!(bypass.send(Instant::default(), |_| WAIT).is_some());
        assert_eq!(bypass.deadline(), None);
        assert!(bypass.send(Instant::default(), |_| WAIT).is_some());
        assert!(bypass.send(Instant::default(), |_| WAIT).is_none());
        assert_eq!(bypass.expire(Instant::default(), |_| WAIT), None);
        assert_eq!(bypass.expire(later, |_| WAIT), Some(Expired { repeats: Some(0), missing: vec![] }));
        assert_eq!(bypass.send(later, |_| WAIT), Some(&[1][..]));
    }

    #[test]
    fn a_stalled_response_is_requested_before_the_bypass_is_sent_again() {
        let mut bypass = bypass();
        let mut now = Instant::default();
        while bypass.send(now, |_| WAIT).is_some() {}
        let (place, bytes) = &pieces(&[1; 90])[0];
        assert_eq!(bypass.piece(*place, bytes, now, |_| WAIT), Progress::More(vec![]));
        for stall in 0..=STALLS_MAX {
            now = bypass.deadline().unwrap();
            let missing = bypass.expire(now, |_| WAIT).unwrap().missing;
            assert_eq!(missing, vec![bytes.len()..90], "stall {stall}");
            assert_eq!(bypass.send(now, |_| WAIT).is_some(), stall == STALLS_MAX, "stall {stall}");
        }
    }
}
