//! The bypass that waits for its response: one at a time.

use super::config::RequestId;
use super::incoming::{Incoming, Place, Range, Whole};
use landfall_net::Instant;
use std::time::Duration;

/// While a response stalls, so many requests for what is missing go out before the bypass is sent again, too: the server may
/// have restarted.
const STALLS_MAX: u32 = 3;

/// What a piece of a response came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It was of no use.
    None,
    /// These are to be asked for.
    More(Vec<Range>),
    /// This is the response; true if the server keeps it until it hears that it is here.
    Whole(Vec<u8>, bool),
}

/// What is to be done when nothing has come for too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expired {
    /// How often the bypass was sent again before; none while its response only stalls.
    pub(super) repeats: Option<u32>,
    /// To be asked for.
    pub(super) missing: Vec<Range>,
}

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
    incoming: Option<Incoming>,
    /// Times that nothing has come of a response that had begun.
    stalls: u32,
    /// Whether its round trip was measured.
    measured: bool,
}

impl Bypass {
    /// To be sent at once.
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

    /// If the timeout has passed: sends again, or asks for what is missing of a response that has begun.
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

    /// When it was sent, if that was once; told once, when the response begins.
    pub(super) fn sent_once_at(&mut self) -> Option<Instant> {
        let first = !std::mem::replace(&mut self.measured, true);
        (first && self.sent == 1 && self.deadline.is_some()).then_some(self.sent_at)
    }

    /// When the window that begins at an offset was asked for, if its answer tells how long that takes.
    pub(super) fn window_asked_at(&mut self, place: &Place) -> Option<Instant> {
        let incoming = self.incoming.as_mut().filter(|incoming| incoming.whole() == place.whole)?;
        incoming.asked_at(place.offset)
    }

    /// The response that has begun.
    pub(super) fn response(&self) -> Option<Whole> {
        self.incoming.as_ref().map(Incoming::whole)
    }

    /// Takes a piece of the response.
    ///
    /// A server that has restarted may execute a bypass again and answer otherwise: pieces are of one response only if
    /// they bear one check, and together they must match it.
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
    fn pieces_of_two_executions_are_never_put_together() {
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
    fn the_timeout_runs_from_the_last_packet() {
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
    fn a_response_that_stalls_is_asked_for_before_the_bypass_is_sent_again() {
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
