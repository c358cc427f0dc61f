//! Updates of one session in the order of their numbers: what is early waits, what is missing is known.

use crate::wire::Fragment;
use std::collections::BTreeMap;

/// Most runs of missing updates that are asked for at once.
const RUNS_MAX: usize = 16;

/// A packet that waits for those before it.
#[derive(Debug)]
struct Early {
    place: Option<Fragment>,
    bytes: Vec<u8>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits, or is part of what [`Order::pop`] gives now.
    Yes,
    /// It had arrived.
    Before,
    /// It is too far ahead, or there is no room.
    TooEarly,
}

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Any packet.
    Any,
    /// Packets of the next request alone, so that there is always one session that gets on.
    Next,
    /// None.
    None,
}

/// The updates that have arrived and not been popped.
#[derive(Debug)]
pub(super) struct Order {
    /// Number of the first packet of the next request.
    next: u32,
    /// Packets below this number are known to have been sent.
    known: u32,
    early: BTreeMap<u32, Early>,
    bytes: usize,
}

impl Order {
    /// Everything below `next` is done.
    pub(super) fn new(next: u32) -> Self {
        Self { next, known: next, early: BTreeMap::new(), bytes: 0 }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The highest number that waits.
    pub(super) fn newest(&self) -> Option<u32> {
        self.early.keys().next_back().copied()
    }

    /// Bytes of packets that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Starts over at an earlier number: what was popped from there on is wanted again.
    pub(super) fn rewind(&mut self, next: u32) {
        self.known = self.known.max(self.next);
        self.next = next;
    }

    /// Goes on at a later number, up to which nothing is wanted.
    pub(super) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
        self.known = self.known.max(self.next);
    }

    /// The client has sent `seq`, as something else says.
    pub(super) fn note(&mut self, seq: u32) {
        self.known = self.known.max(seq.saturating_add(1));
    }

    /// Takes a packet, if its number is below `limit` and there is room for it.
    pub(super) fn take(
        &mut self,
        (seq, place): (u32, Option<Fragment>),
        bytes: &[u8],
        limit: u32,
        room: Room,
    ) -> Taken {
        if seq < self.next || self.early.contains_key(&seq) {
            return Taken::Before;
        }
        self.note(seq);
        let first = seq.checked_sub(place.map_or(0, |place| u32::from(place.index)));
        let fits = room == Room::Any || (room == Room::Next && first == Some(self.next));
        if seq >= limit || !fits {
            return Taken::TooEarly;
        }
        self.bytes += bytes.len();
        self.early.insert(seq, Early { place, bytes: bytes.to_vec() });
        Taken::Yes
    }

    /// The next request and the number of its last packet, if all of it is here. Pieces that do not belong together are
    /// dropped: good ones may follow.
    pub(super) fn pop(&mut self) -> Option<(Vec<u8>, u32)> {
        let count = match self.early.get(&self.next)?.place {
            None => 1,
            Some(place) => usize::from(place.count),
        };
        if self.early.len() < count || !self.is_here(count) {
            return None;
        }
        let first = self.next;
        let pieces: Vec<Early> = (first..).take(count).map_while(|seq| self.early.remove(&seq)).collect();
        self.bytes -= pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        let whole = join(pieces)?;
        self.next = first + count as u32;
        Some((whole, self.next - 1))
    }

    fn is_here(&self, count: usize) -> bool {
        let found = self.early.range(self.next..).take(count);
        (self.next..).zip(found).filter(|(seq, (early, _))| seq == *early).count() == count
    }

    /// Whether something below `limit` is missing that the client has sent.
    pub(super) fn is_missing(&self, limit: u32) -> bool {
        self.known.min(limit).saturating_sub(self.next) as usize > self.early.len()
    }

    /// The first runs of what is missing: number and count.
    pub(super) fn missing(&self, limit: u32) -> Vec<(u32, u32)> {
        let (mut runs, mut from) = (Vec::new(), self.next);
        let end = self.known.min(limit);
        for seq in self.early.keys().copied().chain([end]) {
            if seq > from && runs.len() < RUNS_MAX {
                runs.push((from, seq - from));
            }
            from = seq + 1;
        }
        runs
    }
}

/// `None` if the pieces are not those of one request.
fn join(mut pieces: Vec<Early>) -> Option<Vec<u8>> {
    let place = pieces.first()?.place;
    let Some(Fragment { count, total, .. }) = place else { return pieces.pop().map(|whole| whole.bytes) };
    let fits = |(index, piece): (u16, &Early)| piece.place == Some(Fragment { index, count, total });
    if !(0..).zip(&pieces).all(fits) {
        return None;
    }
    let whole: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.bytes).collect();
    (whole.len() == total as usize).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 5000;

    fn whole(order: &mut Order, seq: u32) -> Taken {
        order.take((seq, None), &seq.to_le_bytes(), LIMIT, Room::Any)
    }

    fn piece(order: &mut Order, seq: u32, index: u16, count: u16) -> Taken {
        let place = Fragment { index, count, total: u32::from(count) };
        order.take((seq, Some(place)), &[index as u8], LIMIT, Room::Any)
    }

    fn popped(order: &mut Order) -> Vec<u32> {
        std::iter::from_fn(|| order.pop()).map(|(_, last)| last).collect()
    }

    #[test]
    fn what_is_early_waits_for_what_is_missing() {
        let mut order = Order::new(1);
        assert_eq!(whole(&mut order, 3), Taken::Yes);
        assert_eq!(whole(&mut order, 6), Taken::Yes);
        assert_eq!(whole(&mut order, 3), Taken::Before);
        assert!(order.pop().is_none());
        assert_eq!(order.missing(LIMIT), [(1, 2), (4, 2)]);
        whole(&mut order, 1);
        whole(&mut order, 2);
        assert_eq!(popped(&mut order), [1, 2, 3]);
        assert_eq!(whole(&mut order, 2), Taken::Before);
        assert_eq!(order.missing(LIMIT), [(4, 2)]);
        whole(&mut order, 5);
        whole(&mut order, 4);
        assert_eq!(popped(&mut order), [4, 5, 6]);
        assert!(!order.is_missing(LIMIT));
        assert_eq!(order.bytes(), 0);
    }

    #[test]
    fn fragments_are_one_request_whose_number_is_the_last_one() {
        let mut order = Order::new(1);
        for (seq, index) in [(4, 2), (2, 0)] {
            piece(&mut order, seq, index, 3);
        }
        whole(&mut order, 1);
        assert_eq!(popped(&mut order), [1]);
        assert!(order.is_missing(LIMIT));
        piece(&mut order, 3, 1, 3);
        assert_eq!(order.pop(), Some((vec![0, 1, 2], 4)));
    }

    #[test]
    fn a_request_of_which_the_rest_has_not_been_sent_is_not_missing_anything() {
        let mut order = Order::new(1);
        piece(&mut order, 1, 0, 3);
        piece(&mut order, 2, 1, 3);
        assert!(order.pop().is_none());
        assert!(!order.is_missing(LIMIT));
    }

    #[test]
    fn pieces_that_contradict_each_other_are_dropped_and_wanted_again() {
        let mut order = Order::new(1);
        piece(&mut order, 1, 0, 2);
        piece(&mut order, 2, 0, 2);
        assert!(order.pop().is_none());
        assert_eq!(order.missing(LIMIT), [(1, 2)]);
        assert_eq!(order.bytes(), 0);
        piece(&mut order, 1, 0, 2);
        piece(&mut order, 2, 1, 2);
        assert_eq!(order.pop(), Some((vec![0, 1], 2)));
    }

    #[test]
    fn what_is_too_far_ahead_is_dropped_but_known_to_exist() {
        let mut order = Order::new(1);
        assert_eq!(order.take((9, None), b"x", 5, Room::Any), Taken::TooEarly);
        assert_eq!(order.missing(5), [(1, 4)]);
        assert_eq!(order.missing(20), [(1, 9)]);
    }

    #[test]
    fn without_room_only_the_next_request_is_taken() {
        let mut order = Order::new(1);
        let place = Some(Fragment { index: 1, count: 2, total: 2 });
        assert_eq!(order.take((2, None), b"x", LIMIT, Room::Next), Taken::TooEarly);
        assert_eq!(order.take((2, place), b"x", LIMIT, Room::None), Taken::TooEarly);
        assert_eq!(order.take((2, place), b"x", LIMIT, Room::Next), Taken::Yes);
    }

    #[test]
    fn what_is_rewound_is_wanted_again() {
        let mut order = Order::new(1);
        (1..=4).for_each(|seq| assert_eq!(whole(&mut order, seq), Taken::Yes));
        assert_eq!(popped(&mut order), [1, 2, 3, 4]);
        order.rewind(3);
        assert_eq!(order.missing(LIMIT), [(3, 2)]);
    }
}
