//! Puts the updates of one session into the order of their numbers. Early updates wait; missing ones are known.

use crate::wire::Fragment;
use std::collections::BTreeMap;

/// Most ranges of missing updates that are requested at once.
const RUNS_MAX: usize = 16;

/// A packet that waits for packets with lower numbers.
#[derive(Debug)]
struct Early {
    place: Option<Fragment>,
    bytes: Vec<u8>,
}

/// Result of [`Order::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The packet waits, or [`Order::pop`] can return its request now.
    Yes,
    /// The packet had arrived before.
    Before,
    /// The packet is too far ahead, or there is no room for it.
    TooEarly,
}

/// For which packets there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// For every packet.
    Any,
    /// Only for packets of the next request, so that at least one session always progresses.
    Next,
    /// For no packet.
    None,
}

/// The updates that have arrived and have not been popped.
#[derive(Debug)]
pub(super) struct Order {
    /// Number of the first packet of the next request.
    next: u32,
    /// The client is known to have sent every packet below this number.
    known: u32,
    early: BTreeMap<u32, Early>,
    bytes: usize,
}

impl Order {
    /// Starts at `next`: every lower number is applied.
    pub(super) fn new(next: u32) -> Self {
        Self { next, known: next, early: BTreeMap::new(), bytes: 0 }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The highest number of the waiting packets.
    pub(super) fn newest(&self) -> Option<u32> {
        self.early.keys().next_back().copied()
    }

    /// Bytes of the waiting packets.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Goes back to an earlier number. The updates from there on must arrive again.
    pub(super) fn rewind(&mut self, next: u32) {
        self.known = self.known.max(self.next);
        self.next = next;
    }

    /// Skips the numbers below `next`.
    pub(super) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
        self.known = self.known.max(self.next);
    }

    /// Notes that the client has sent `seq`, as another packet shows.
    pub(super) fn note(&mut self, seq: u32) {
        self.known = self.known.max(seq.saturating_add(1));
    }

    /// Accepts a packet if its number is below `limit` and there is room for it.
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

    /// The next request and the number of its last packet, if all its packets have arrived. Pieces that do not
    /// belong together are dropped, because correct ones may still arrive.
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

    /// Whether an update below `limit` that the client has sent is missing.
    pub(super) fn is_missing(&self, limit: u32) -> bool {
        self.known.min(limit).saturating_sub(self.next) as usize > self.early.len()
    }

    /// The first ranges of missing updates: number and count.
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

/// Joins the pieces of one request; `None` if they do not belong together.
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
    fn early_updates_wait_for_missing_ones() {
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
    fn fragments_become_one_request_with_the_number_of_the_last_fragment() {
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
    fn fragments_that_are_not_known_to_be_sent_do_not_count_as_missing() {
        let mut order = Order::new(1);
        piece(&mut order, 1, 0, 3);
        piece(&mut order, 2, 1, 3);
        assert!(order.pop().is_none());
        assert!(!order.is_missing(LIMIT));
    }

    #[test]
    fn pieces_that_contradict_each_other_are_dropped_and_requested_again() {
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
    fn an_update_too_far_ahead_is_dropped_but_known_to_exist() {
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
    fn updates_after_a_rewind_are_requested_again() {
        let mut order = Order::new(1);
        (1..=4).for_each(|seq| assert_eq!(whole(&mut order, seq), Taken::Yes));
        assert_eq!(popped(&mut order), [1, 2, 3, 4]);
        order.rewind(3);
        assert_eq!(order.missing(LIMIT), [(3, 2)]);
    }
}
