//! Responses longer than a packet: asked for, put together, reported.

use super::Client;
use super::bypass::Progress;
use super::config::Event;
use super::incoming::{Place, Range, Whole};
use crate::wire::{Body, Packet, Wanted};

/// Most requests for pieces that wait to be sent.
const WANTED_MAX: usize = 64;
/// Asks for no more of a response: the server may forget it.
const NOTHING: Range = 0..0;

impl Client {
    /// While it holds, requests that wait are not sent: whoever takes the responses has enough of them.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// A piece of a response; false if it is of no use.
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
                self.want(seq, place.whole, wanted);
                true
            }
            Progress::Whole(response, in_windows) => {
                if in_windows {
                    self.want(seq, place.whole, Some(NOTHING));
                }
                self.response(seq, response, false)
            }
        }
    }

    /// Asks for pieces; for none to tell the server that it may forget the response.
    pub(super) fn want(&mut self, seq: u32, whole: Whole, ranges: impl IntoIterator<Item = Range>) {
        for range in ranges {
            let wanted = Wanted { offset: range.start as u32, len: range.len() as u32, check: whole.check };
            self.ask(Packet::new(self.session, seq, Body::ResponseRequest(wanted)).to_bytes());
        }
    }

    /// Has a packet sent that is repeated when its answer does not come.
    pub(super) fn ask(&mut self, packet: Vec<u8>) {
        if self.wanted.len() < WANTED_MAX {
            self.wanted.push_back(packet);
        }
    }

    fn too_long(&mut self, seq: u32, whole: Whole) -> bool {
        let Some(bypass) = self.bypass.take() else { return false };
        self.want(seq, whole, Some(NOTHING));
        let (len, max) = (whole.total, self.config.response_bytes_max as usize);
        self.events.push_back(Event::ResponseTooLong { id: bypass.id, len, max });
        true
    }
}
