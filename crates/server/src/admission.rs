//! Limits on how much of the region unfinished requests and unauthenticated clients may hold, over all connections.
//! When a limit is exceeded, the server closes those connections that hold more than an equal share and progress most
//! slowly.
//!
//! Complete requests are executed and need no admission. So a client that sends complete requests is never refused
//! because of clients that do not.

use crate::counters::Counters;
use landfall_heap::Heap;
use landfall_sockets::ConnId;
use std::sync::atomic::Ordering;

/// Divisor: unauthenticated clients hold at most this part of the region.
const UNAUTHENTICATED_SHARE: u64 = 64;
/// Unauthenticated clients may hold this much of any region, however small, bytes.
const UNAUTHENTICATED_MIN: u64 = 256 << 10;
/// Unauthenticated clients may not hold more than this, however large the region is, bytes.
const UNAUTHENTICATED_MAX: u64 = 64 << 20;
/// Unfinished requests may hold this much however little room there is, bytes: a request in two packets, such as a
/// delete, must be possible.
const UNFINISHED_MIN: u64 = 1 << 20;
/// Divisor: this part of the region is reserved for requests that arrive complete. Unfinished requests arrive in pieces
/// that are scattered over runs, and a run becomes free only when all of its pieces are released.
const WHOLE_SHARE: u64 = 16;
/// Bytes that a client may send before it has authenticated, when it connects ...
const ALLOWANCE_BYTES: u64 = 256 << 10;
/// ... and additional bytes for each second since it connected.
const ALLOWANCE_RATE: u64 = 16 << 10;

/// What a connection holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Bytes of the region that received data of an unfinished request keep from other uses.
    pub(crate) bytes: u64,
    /// The client has authenticated, or need not.
    pub(crate) is_authenticated: bool,
}

/// A connection that holds data, and how fast its data grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) id: ConnId,
    pub(crate) held: Held,
    /// Growth, bytes a second.
    pub(crate) rate: u64,
}

/// Bytes held by unfinished requests, or the part of them that must be returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) unauthenticated: u64,
    pub(crate) unfinished: u64,
}

impl Excess {
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// This worker's part of the excess; the worker holds `own` of `all`.
    pub(crate) fn part(self, own: Self, all: Self) -> Self {
        let part = |excess: u64, own: u64, all: u64| {
            let all = all.max(own).max(1);
            (u128::from(excess) * u128::from(own)).div_ceil(u128::from(all)) as u64
        };
        Self {
            unauthenticated: part(self.unauthenticated, own.unauthenticated, all.unauthenticated),
            unfinished: part(self.unfinished, own.unfinished, all.unfinished),
        }
    }
}

/// Updates the counters: a connection holds `now` instead of `before`.
pub(crate) fn note(counters: &Counters, heap: &Heap, before: Held, now: Held) {
    heap.note_unfinished(before.bytes, now.bytes);
    let unauthenticated = |held: Held| if held.is_authenticated { 0 } else { held.bytes };
    let change = unauthenticated(now).wrapping_sub(unauthenticated(before));
    if change != 0 {
        counters.unauthenticated_bytes.fetch_add(change, Ordering::Relaxed);
    }
}

/// What unfinished requests hold now, over all workers.
pub(crate) fn held(counters: &Counters, heap: &Heap) -> Excess {
    Excess {
        unauthenticated: counters.unauthenticated_bytes.load(Ordering::Relaxed),
        unfinished: heap.unfinished_bytes(),
    }
}

/// Free bytes beside unfinished requests. If little is free because nothing had to be compacted so far, the heap is
/// asked for as much as is held: space counts only once it is free, since compaction cannot free what is held.
pub(crate) fn room(heap: &Heap) -> u64 {
    let held = heap.unfinished_bytes();
    if held >= UNFINISHED_MIN {
        heap.request_free(held.saturating_mul(2));
    }
    heap.free_bytes()
}

/// How much more is held than allowed. `room` is the number of bytes that writes may still fill.
///
/// Unfinished requests may hold as much as is free beside them, except for a part that is reserved for complete
/// requests. If they hold more, they must also return a quarter of the limit, so that the next packet does not exceed
/// it again.
pub(crate) fn excess(held: Excess, capacity: u64, room: u64) -> Excess {
    let beyond = |held: u64, bound: u64| if held > bound { held - bound * 3 / 4 } else { 0 };
    Excess {
        unauthenticated: beyond(held.unauthenticated, unauthenticated_max(capacity)),
        unfinished: beyond(held.unfinished, unfinished_max(capacity, room)),
    }
}

/// Bytes that all unfinished requests together may hold, if writes may still fill `room`.
fn unfinished_max(capacity: u64, room: u64) -> u64 {
    room.saturating_sub(capacity / WHOLE_SHARE).max(UNFINISHED_MIN)
}

/// Bytes that all unauthenticated clients together may hold.
pub(crate) fn unauthenticated_max(capacity: u64) -> u64 {
    (capacity / UNAUTHENTICATED_SHARE).clamp(UNAUTHENTICATED_MIN, UNAUTHENTICATED_MAX)
}

/// Bytes that a client may have sent without authenticating, `age_ms` after it connected.
pub(crate) fn allowance(age_ms: u64) -> u64 {
    ALLOWANCE_BYTES + ALLOWANCE_RATE.saturating_mul(age_ms) / 1000
}

/// Selects the connections to close: those whose data grow most slowly, and among these those that hold most.
///
/// A connection that holds no more than an equal share is not closed: if all were like that, there would be no excess.
/// The fastest authenticated connection stays, so one long request may use all the room.
pub(crate) fn choose(mut holders: Vec<Holder>, excess: Excess) -> Vec<ConnId> {
    holders.retain(|holder| holder.held.bytes > 0);
    holders.sort_by_key(|holder| (holder.rate, std::cmp::Reverse(holder.held.bytes)));
    let fastest = holders.iter().rev().find(|holder| holder.held.is_authenticated).map(|holder| holder.id);
    let share = share_of(holders.iter(), excess.unfinished);
    let unauthenticated_share =
        share_of(holders.iter().filter(|holder| !holder.held.is_authenticated), excess.unauthenticated);
    let mut left = excess;
    let mut chosen = Vec::new();
    for Holder { id, held, .. } in holders {
        let as_unauthenticated =
            !held.is_authenticated && left.unauthenticated > 0 && held.bytes > unauthenticated_share;
        if as_unauthenticated || (left.unfinished > 0 && held.bytes > share && Some(id) != fastest) {
            chosen.push(id);
            left.unfinished = left.unfinished.saturating_sub(held.bytes);
            if !held.is_authenticated {
                left.unauthenticated = left.unauthenticated.saturating_sub(held.bytes);
            }
        }
    }
    chosen
}

/// An equal share of the limit, for each of `holders`: what they hold less the excess.
fn share_of<'a>(holders: impl Iterator<Item = &'a Holder>, excess: u64) -> u64 {
    let (count, sum) = holders.fold((0, 0), |(count, sum), holder| (count + 1, sum + holder.held.bytes));
    sum.saturating_sub(excess) / u64::max(count, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holder(id: u64, bytes: u64, rate: u64, is_authenticated: bool) -> Holder {
        Holder { id: ConnId(id), held: Held { bytes, is_authenticated }, rate }
    }

    fn holders() -> impl Strategy<Value = Vec<Holder>> {
        prop::collection::vec((0..1000_u64, 0..5_u64, any::<bool>()), 0..40).prop_map(|all| {
            let holder = |(id, (bytes, rate, known))| holder(id as u64, bytes, rate, known);
            all.into_iter().enumerate().map(holder).collect()
        })
    }

    proptest! {
        #[test]
        fn holders_of_more_than_a_share_return_enough(
            all in holders(),
            unknown in 0..20_000_u64,
            any in 0..20_000_u64,
        ) {
            let chosen = choose(all.clone(), Excess { unauthenticated: unknown, unfinished: any });
            let holders = || all.iter().filter(|holder| holder.held.bytes > 0);
            let (left, back): (Vec<&Holder>, Vec<&Holder>) = holders().partition(|h| !chosen.contains(&h.id));
            let sum = |some: &[&Holder]| some.iter().map(|holder| holder.held.bytes).sum::<u64>();
            let strangers = |some: &[&Holder]| -> Vec<Holder> {
                some.iter().filter(|holder| !holder.held.is_authenticated).map(|holder| **holder).collect()
            };
            let fastest = left.iter().filter(|h| h.held.is_authenticated).map(|h| h.held.bytes).max().unwrap_or(0);
            let held = sum(&left) + sum(&back);
            prop_assert!(sum(&left) - fastest <= held.saturating_sub(any));
            let (unknown_left, unknown_back) = (strangers(&left), strangers(&back));
            let of = |some: &[Holder]| some.iter().map(|holder| holder.held.bytes).sum::<u64>();
            prop_assert!(of(&unknown_back) >= unknown.min(of(&unknown_left) + of(&unknown_back)));
            prop_assert!(unknown > 0 || any > 0 || chosen.is_empty());
        }
    }

    #[test]
    fn short_requests_are_not_closed_for_a_long_one() {
        let mut all: Vec<Holder> = (1..=50).map(|id| holder(id, 500, 0, true)).collect();
        all.push(holder(51, 40 << 20, 1 << 20, true));
        let choose =
            |all: &[Holder]| choose(all.to_vec(), Excess { unauthenticated: 0, unfinished: 26 << 20 });
        assert_eq!(choose(&all), [], "the only one that is too long is the fastest");
        all.push(holder(52, 20 << 20, 1 << 10, true));
        assert_eq!(choose(&all), [ConnId(52)]);
    }

    #[test]
    fn the_slowest_are_closed_first_and_the_fastest_stays() {
        let all = vec![
            holder(1, 10, 0, true),
            holder(2, 30, 0, true),
            holder(3, 500, 9, true),
            holder(4, 10, 5, true),
        ];
        let choose = |unfinished| choose(all.clone(), Excess { unauthenticated: 0, unfinished });
        assert_eq!(choose(0), []);
        assert_eq!(choose(540), [ConnId(2), ConnId(1), ConnId(4)]);
        assert_eq!(choose(10_000), [ConnId(2), ConnId(1), ConnId(4)]);
    }

    #[test]
    fn authenticated_clients_are_not_closed_for_unauthenticated_ones() {
        let all = vec![holder(1, 10, 0, true), holder(2, 30, 7, false), holder(3, 30, 9, false)];
        let choose = |unauthenticated| choose(all.clone(), Excess { unauthenticated, unfinished: 0 });
        assert_eq!(choose(30), [ConnId(2)]);
        assert_eq!(choose(10_000), [ConnId(2), ConnId(3)], "more than all");
    }

    fn held(unauthenticated: u64, unfinished: u64) -> Excess {
        Excess { unauthenticated, unfinished }
    }

    #[test]
    fn unfinished_requests_hold_as_much_as_is_free_beside_them_but_for_a_part() {
        assert!(excess(held(0, 20 << 20), 64 << 20, 24 << 20).is_none());
        assert_eq!(excess(held(0, 20 << 20), 64 << 20, 20 << 20), held(0, 8 << 20));
        let all_but_a_little = held(0, (20 << 20) - (768 << 10));
        assert_eq!(excess(held(0, 20 << 20), 64 << 20, 4 << 20), all_but_a_little);
        assert!(excess(held(0, 1 << 20), 64 << 20, 0).is_none(), "a little always gets in");
    }

    #[test]
    fn clients_that_have_not_authenticated_hold_a_sixty_fourth() {
        assert!(excess(held(1 << 20, 1 << 20), 64 << 20, 64 << 20).is_none());
        assert!(excess(held((1 << 20) + 1, (1 << 20) + 1), 64 << 20, 64 << 20).unauthenticated > 256 << 10);
        assert_eq!(unauthenticated_max(1 << 20), UNAUTHENTICATED_MIN);
        assert_eq!(unauthenticated_max(1 << 50), UNAUTHENTICATED_MAX);
    }
}
