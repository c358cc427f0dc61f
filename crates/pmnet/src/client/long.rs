//! Responses longer than a packet: requests for their pieces, reassembly, report.

use super::bypass::Progress;
use super::config::Event;
use super::incoming::{Place, Range, Whole};
use super::state::Client;
use crate::wire::{Body, Packet, Wanted};

/// Most response requests that wait to be sent.
const WANTED_MAX: usize = 64;
/// The range of a request for no more bytes. The server may then delete the response.
const NOTHING: Range = 0..0;

impl Client {
    /// While `held` is true, waiting requests are not sent, because the application has enough responses to process.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Handles a piece of a response. False if it is not needed.
    pub(super) fn piece(&mut self, seq: u32, place: Option<Place>, bytes: &[u8]) -> bool {
        let (now, trips, max) = (self.now, &mut self.bypass_trips, self.config.response_bytes_max as usize);
        let Some(bypass) = self.bypass.as_mut().filter(|bypass| bypass.seq == seq) else { return false };
        let Some(place) = place else { return false };
        for sent_at in [bypass.sent_once_at(), bypass.window_asked_at(&place)].into_iter().flatten() {
            trips.sample(now.since(sent_at));
        }
        if place.whole.total > max {
            return self.too_long(seq, place.whole);
        }
        match bypass.piece(place, bytes, now, |repeats| trips.timeout(repeats)) {
            Progress::None => false,
            Progress::More(wanted) => {
                self.request_ranges(seq, place.whole, wanted);
                true
            }
            Progress::Whole(response, in_windows) => {
                if in_windows {
                    self.request_ranges(seq, place.whole, Some(NOTHING));
                }
                self.response(seq, response, false)
            }
        }
    }

    /// Requests ranges of a response. An empty range tells the server that it may delete the response.
    pub(super) fn request_ranges(&mut self, seq: u32, whole: Whole, ranges: impl IntoIterator<Item = Range>) {
        for range in ranges {
            let wanted = Wanted { offset: range.start as u32, len: range.len() as u32, check: whole.check };
            self.queue_packet(Packet::new(self.session, seq, Body::ResponseRequest(wanted)).to_bytes());
        }
    }

    /// Queues a packet that is repeated if its answer does not arrive.
    pub(super) fn queue_packet(&mut self, packet: Vec<u8>) {
        if self.wanted.len() < WANTED_MAX {
            self.wanted.push_back(packet);
        }
    }

    fn too_long(&mut self, seq: u32, whole: Whole) -> bool {
        let Some(bypass) = self.bypass.take() else { return false };
        self.request_ranges(seq, whole, Some(NOTHING));
        let (len, max) = (whole.total, self.config.response_bytes_max as usize);
        self.events.push_back(Event::ResponseTooLong { id: bypass.id, len, max });
        true
    }
}
