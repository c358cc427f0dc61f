//! A response in pieces, on its way: window by window, as the client asks for it.
//!
//! How: `docs/format/pmnet.md`, "Long responses".

use crate::pieces::{RESPONSE_WINDOW_MAX, check};
use crate::wire::{Fragment, Part, RESPONSE_WINDOW};
use landfall_net::Instant;
use std::collections::BTreeMap;

/// Fewest packets of a window.
const WINDOW_MIN: usize = 8;
/// Packets that a window grows by, with each that arrives without loss.
const WINDOW_STEP: usize = 8;
/// Pieces behind a gap after which it is taken for a loss.
const EARLY_MAX: usize = 8;
/// Gaps that are asked for at once.
const GAPS_MAX: usize = 16;

/// Bytes of a response to be asked for.
pub(super) type Range = core::ops::Range<usize>;

/// Where a piece lies, and in which response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) whole: Whole,
    /// Whether the server waits for requests.
    pub(super) in_windows: bool,
}

/// What the pieces of one response have in common.
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

    /// All fragments but the last are of one length. `None` if they do not make a whole.
    pub(super) fn of_fragment(fragment: Fragment, check: u32, len: usize) -> Option<Self> {
        let total = fragment.total as usize;
        let is_last = fragment.index + 1 == fragment.count;
        let before = if is_last { total.checked_sub(len)? } else { usize::from(fragment.index) * len };
        let fits = before + len <= total;
        fits.then_some(Self { offset: before, whole: Whole { total, check }, in_windows: false })
    }
}

/// What has arrived of a response.
#[derive(Debug)]
pub(super) struct Incoming {
    whole: Whole,
    in_windows: bool,
    /// Everything up to the first gap.
    bytes: Vec<u8>,
    /// Pieces behind it, by offset.
    early: BTreeMap<usize, Vec<u8>>,
    /// Everything in front of this has been sent once, or asked for.
    asked: usize,
    /// Bytes of the longest piece.
    piece: usize,
    /// Packets that may be under way.
    window: usize,
    /// The gap that was asked for last because of what came behind it.
    repaired: Option<usize>,
    /// A window whose first piece is waited for, and since when.
    timed: Option<(usize, Instant)>,
}

impl Incoming {
    /// With the first piece.
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

    /// When the window that begins here was asked for, once and for the first time.
    pub(super) fn asked_at(&mut self, offset: usize) -> Option<Instant> {
        self.timed.take_if(|(first, _)| *first == offset).map(|(_, at)| at)
    }

    pub(super) fn in_windows(&self) -> bool {
        self.in_windows
    }

    /// Takes a piece; false if it is of no use.
    pub(super) fn add(&mut self, offset: usize, piece: &[u8]) -> bool {
        // The last piece may come first, and is shorter.
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

    /// What was early and is next goes behind the rest.
    fn join(&mut self) {
        while let Some((at, piece)) = self.early.pop_first() {
            if at > self.bytes.len() {
                self.early.insert(at, piece);
                return;
            }
            self.bytes.extend_from_slice(piece.get(self.bytes.len() - at..).unwrap_or_default());
        }
    }

    /// What to ask for now: a gap that others have passed, and the next window.
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

    /// Nothing has come for too long: what is missing of what was asked for.
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
        // With more gaps than that, what lies between them comes once more.
        if self.asked > from {
            missing.push(from..self.asked);
        }
        missing
    }

    /// Whether all of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() == self.whole.total
    }

    /// The response; `None` if it is not the one that its pieces belong to.
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
    fn a_response_is_asked_for_window_by_window_until_it_is_whole() {
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
    fn what_is_lost_is_asked_for_behind_others_and_after_a_while() {
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
            assert!(!incoming.add(at, &whole[at..(at + PIECE).min(whole.len())]), "it is there");
        }
        assert_eq!(incoming.into_bytes(), Some(whole));
    }

    #[test]
    fn fragments_have_their_place_also_when_the_last_comes_first() {
        let of = |index, len| {
            Place::of_fragment(Fragment { index, count: 3, total: 25 }, 1, len).map(|place| place.offset)
        };
        assert_eq!([of(2, 5), of(0, 10), of(1, 10)], [Some(20), Some(0), Some(10)]);
        assert_eq!([of(2, 26), of(1, 20)], [None, None]);
    }

    #[test]
    fn what_is_far_ahead_or_beyond_the_end_is_not_taken() {
        let whole = bytes(10_000);
        let mut incoming = Incoming::new(place(&whole, 0), PIECE);
        assert!(!incoming.add(3 * RESPONSE_WINDOW_MAX * PIECE, &[1; PIECE]));
        assert!(!incoming.add(whole.len() - 1, &[1; PIECE]));
        assert!(!incoming.add(0, &[]));
    }
}
