//! Reassembly of a response that arrives in pieces, and the requests for its next windows.
//!
//! Protocol: `docs/format/pmnet.md`, "Long responses".

use crate::pieces::{RESPONSE_WINDOW_MAX, check};
use crate::wire::{Fragment, Part, RESPONSE_WINDOW};
use landfall_net::Instant;
use std::collections::BTreeMap;

/// Fewest packets in a window.
const WINDOW_MIN: usize = 8;
/// Packets by which the window grows with each request.
const WINDOW_STEP: usize = 8;
/// Number of pieces behind a gap after which the gap counts as a loss.
const EARLY_MAX: usize = 8;
/// Most gaps that are requested at once.
const GAPS_MAX: usize = 16;

/// A byte range of a response.
pub(super) type Range = core::ops::Range<usize>;

/// Position of a piece, and the response that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) whole: Whole,
    /// Whether the server sends more only on request.
    pub(super) in_windows: bool,
}

/// The values that all pieces of one response share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) total: usize,
    pub(super) check: u32,
}

impl Place {
    pub(super) fn of_part(part: Part, check: u32) -> Self {
        let whole = Whole { total: part.total as usize, check };
        Self { offset: part.offset as usize, whole, in_windows: true }
    }

    /// The place of a fragment. All fragments but the last have one length. `None` if the fragment does not fit the
    /// total.
    pub(super) fn of_fragment(fragment: Fragment, check: u32, len: usize) -> Option<Self> {
        let total = fragment.total as usize;
        let is_last = fragment.index + 1 == fragment.count;
        let before = if is_last { total.checked_sub(len)? } else { usize::from(fragment.index) * len };
        let fits = before + len <= total;
        fits.then_some(Self { offset: before, whole: Whole { total, check }, in_windows: false })
    }
}

/// The pieces of a response that have arrived.
#[derive(Debug)]
pub(super) struct Incoming {
    whole: Whole,
    in_windows: bool,
    /// The bytes before the first gap.
    bytes: Vec<u8>,
    /// The pieces behind the first gap, by offset.
    early: BTreeMap<usize, Vec<u8>>,
    /// The bytes before this offset have been sent by the server once, or have been requested.
    asked: usize,
    /// Length of the longest piece.
    piece: usize,
    /// Most packets in flight.
    window: usize,
    /// The last gap that was requested because of pieces behind it.
    repaired: Option<usize>,
    /// A requested window whose first piece is awaited, and when it was requested.
    timed: Option<(usize, Instant)>,
}

impl Incoming {
    /// A response of which the first piece arrives.
    pub(super) fn new(place: Place, len: usize) -> Self {
        let asked = if place.in_windows { len * RESPONSE_WINDOW } else { place.whole.total };
        Self {
            whole: place.whole,
            in_windows: place.in_windows,
            bytes: Vec::new(),
            early: BTreeMap::new(),
            asked: asked.min(place.whole.total),
            piece: len,
            window: RESPONSE_WINDOW,
            repaired: None,
            timed: None,
        }
    }

    pub(super) fn whole(&self) -> Whole {
        self.whole
    }

    /// When the window that begins at `offset` was requested. Returned once.
    pub(super) fn asked_at(&mut self, offset: usize) -> Option<Instant> {
        self.timed.take_if(|(first, _)| *first == offset).map(|(_, at)| at)
    }

    pub(super) fn in_windows(&self) -> bool {
        self.in_windows
    }

    /// Adds a piece. False if it is not needed.
    pub(super) fn add(&mut self, offset: usize, piece: &[u8]) -> bool {
        // The last piece may arrive first, and is shorter.
        self.piece = self.piece.max(piece.len());
        self.in_windows |= self.whole.total > self.piece * RESPONSE_WINDOW;
        let reach = self.bytes.len() + 2 * RESPONSE_WINDOW_MAX * self.piece;
        let is_new = offset >= self.bytes.len() && !self.early.contains_key(&offset);
        if piece.is_empty() || offset > reach || !is_new || offset + piece.len() > self.whole.total {
            return false;
        }
        if offset > self.bytes.len() {
            self.early.insert(offset, piece.to_vec());
        } else {
            self.bytes.extend_from_slice(piece);
            self.join();
        }
        true
    }

    /// Appends the early pieces that have become next.
    fn join(&mut self) {
        while let Some((at, piece)) = self.early.pop_first() {
            if at > self.bytes.len() {
                self.early.insert(at, piece);
                return;
            }
            self.bytes.extend_from_slice(piece.get(self.bytes.len() - at..).unwrap_or_default());
        }
    }

    /// The ranges to request now: a gap that counts as a loss, and the next window.
    pub(super) fn wants(&mut self, now: Instant) -> Vec<Range> {
        let mut wants = Vec::new();
        let first = self.bytes.len();
        if self.early.len() >= EARLY_MAX && self.repaired != Some(first) {
            (self.repaired, self.timed) = (Some(first), None);
            self.window = (self.window / 2).max(WINDOW_MIN);
            wants.extend(self.early.keys().next().map(|end| first..*end));
        }
        let window = self.window * self.piece;
        let end = self.whole.total.min(first + window);
        if end > self.asked && (end - self.asked >= window / 2 || end == self.whole.total) {
            self.timed.get_or_insert((self.asked, now));
            wants.push(self.asked..end);
            self.asked = end;
            self.window = (self.window + WINDOW_STEP).min(RESPONSE_WINDOW_MAX);
        }
        wants
    }

    /// The missing ranges among those that were requested, after a timeout.
    pub(super) fn missing(&mut self) -> Vec<Range> {
        self.timed = None;
        self.window = (self.window / 2).max(WINDOW_MIN);
        let mut missing = Vec::new();
        let mut from = self.bytes.len();
        for (at, piece) in &self.early {
            if missing.len() + 1 == GAPS_MAX {
                break;
            }
            if *at > from {
                missing.push(from..*at);
            }
            from = at + piece.len();
        }
        // If there are more gaps, the ranges between them are requested again, too.
        if self.asked > from {
            missing.push(from..self.asked);
        }
        missing
    }

    /// Whether the response is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() == self.whole.total
    }

    /// The response; `None` if it does not match its check.
    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        (check(&self.bytes) == self.whole.check).then_some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const PIECE: usize = 10;

    fn bytes(packets: usize) -> Vec<u8> {
        (0..=250).cycle().take(packets * PIECE - 3).collect()
    }

    fn place(whole: &[u8], offset: usize) -> Place {
        Place { offset, whole: Whole { total: whole.len(), check: check(whole) }, in_windows: true }
    }

    fn pieces(whole: &[u8], range: Range) -> impl Iterator<Item = (usize, &[u8])> {
        range.step_by(PIECE).map(|at| (at, &whole[at..(at + PIECE).min(whole.len())]))
    }

    #[test]
    fn a_response_is_requested_window_by_window_until_it_is_complete() {
        let whole = bytes(1000);
        let mut incoming = Incoming::new(place(&whole, 0), PIECE);
        let mut wants = VecDeque::new();
        wants.push_back(0..RESPONSE_WINDOW * PIECE);
        let mut longest = 0;
        while let Some(range) = wants.pop_front() {
            longest = longest.max(range.len() / PIECE);
            for (at, piece) in pieces(&whole, range) {
                assert!(incoming.add(at, piece));
                wants.extend(incoming.wants(Instant::default()));
            }
        }
        assert!(longest > RESPONSE_WINDOW && longest <= RESPONSE_WINDOW_MAX, "{longest}");
        assert!(incoming.is_whole());
        assert_eq!(incoming.into_bytes(), Some(whole));
    }

    #[test]
    fn lost_pieces_are_requested_when_later_ones_arrive_or_after_a_timeout() {
        let whole = bytes(RESPONSE_WINDOW);
        let mut incoming = Incoming::new(place(&whole, 0), PIECE);
        let mut asked = Vec::new();
        for (at, piece) in pieces(&whole, 0..whole.len()).filter(|(at, _)| ![20, 30, 310].contains(at)) {
            assert!(incoming.add(at, piece));
            asked.extend(incoming.wants(Instant::default()));
        }
        assert_eq!(asked, vec![20..40; 1]);
        assert_eq!(incoming.missing(), [20..40, 310..317]);
        for at in [20, 30, 310] {
            assert!(incoming.add(at, &whole[at..(at + PIECE).min(whole.len())]));
            assert!(!incoming.add(at, &whole[at..(at + PIECE).min(whole.len())]), "it has arrived before");
        }
        assert_eq!(incoming.into_bytes(), Some(whole));
    }

    #[test]
    fn fragments_have_the_right_place_even_if_the_last_arrives_first() {
        let of = |index, len| {
            Place::of_fragment(Fragment { index, count: 3, total: 25 }, 1, len).map(|place| place.offset)
        };
        assert_eq!([of(2, 5), of(0, 10), of(1, 10)], [Some(20), Some(0), Some(10)]);
        assert_eq!([of(2, 26), of(1, 20)], [None, None]);
    }

    #[test]
    fn pieces_far_ahead_or_beyond_the_end_are_rejected() {
        let whole = bytes(10_000);
        let mut incoming = Incoming::new(place(&whole, 0), PIECE);
        assert!(!incoming.add(3 * RESPONSE_WINDOW_MAX * PIECE, &[1; PIECE]));
        assert!(!incoming.add(whole.len() - 1, &[1; PIECE]));
        assert!(!incoming.add(0, &[]));
    }
}
