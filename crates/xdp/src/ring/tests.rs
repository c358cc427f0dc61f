//! Tests of both sides of a ring in one thread, over anonymous memory: they need no NIC and no root.

use super::*;
use crate::socket::push_packet;
use crate::sys::Mapped;
use crate::{PIECES_MAX, Piece};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::rc::Rc;

/// A ring that both sides of a test share.
impl<M: RingMemory> RingMemory for Rc<M> {
    type Word = M::Word;
    type Entry = M::Entry;

    fn entries(&self) -> u32 {
        (**self).entries()
    }

    fn producer(&self) -> &M::Word {
        (**self).producer()
    }

    fn consumer(&self) -> &M::Word {
        (**self).consumer()
    }

    fn read(&self, index: u32) -> M::Entry {
        (**self).read(index)
    }

    fn write(&self, index: u32, entry: M::Entry) {
        (**self).write(index, entry);
    }
}

type Ring<T> = Rc<Mapped<T>>;

/// A ring whose counters start at `first`.
fn ring_at(entries: u32, first: u32) -> (Producer<Ring<u64>>, Consumer<Ring<u64>>) {
    let memory = Rc::new(Mapped::anonymous(entries).unwrap());
    memory.producer().store(first, Ordering::Relaxed);
    memory.consumer().store(first, Ordering::Relaxed);
    (Producer::new(memory.clone()), Consumer::new(memory))
}

fn taken(consumer: &mut Consumer<Ring<u64>>, max: u32) -> Vec<u64> {
    let mut entries = Vec::new();
    let count = consumer.take(max, |entry| entries.push(entry));
    assert_eq!(count as usize, entries.len());
    entries
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let (mut producer, mut consumer) = ring_at(4, 0);
    assert!(producer.push(1) && producer.push(2));
    assert!(taken(&mut consumer, 10).is_empty());
    assert_eq!((producer.publish(), producer.publish()), (2, 0));
    assert_eq!(taken(&mut consumer, 1), [1]);
    assert_eq!(producer.pending(), 1);
    assert_eq!(taken(&mut consumer, 10), [2]);
}

#[test]
fn full_ring_takes_nothing_until_entries_are_given_back() {
    let (mut producer, mut consumer) = ring_at(4, 0);
    assert!((0..4).all(|n| producer.push(n)));
    assert!(!producer.push(4) && producer.room() == 0 && !producer.has_room(1));
    producer.publish();
    assert!(!producer.push(4));
    assert_eq!(taken(&mut consumer, 3), [0, 1, 2]);
    assert_eq!((producer.room(), producer.has_room(4)), (3, false));
    assert!(producer.push(4));
    producer.publish();
    assert_eq!(taken(&mut consumer, 10), [3, 4]);
}

#[test]
fn counters_wrap_around() {
    let (mut producer, mut consumer) = ring_at(2, u32::MAX - 3);
    for n in 0..16 {
        assert!(producer.push(n) && producer.push(n + 100) && !producer.push(7));
        producer.publish();
        assert_eq!(taken(&mut consumer, 10), [n, n + 100]);
    }
}

#[test]
fn counters_that_claim_more_than_the_ring_are_clamped() {
    let (mut producer, mut consumer) = ring_at(4, 0);
    consumer.memory.producer().store(1000, Ordering::Relaxed);
    assert_eq!(consumer.available(), 4);
    assert_eq!(taken(&mut consumer, 10).len(), 4);
    producer.memory.consumer().store(7, Ordering::Relaxed);
    assert_eq!(producer.room(), 0, "a consumer ahead of its producer leaves no room");
}

#[test]
fn all_pieces_but_the_last_say_that_the_packet_continues() {
    let memory = Rc::new(Mapped::<libc::xdp_desc>::anonymous(64).unwrap());
    let (mut producer, mut consumer) = (Producer::new(memory.clone()), Consumer::new(memory));
    for count in 1..=PIECES_MAX {
        let pieces: Vec<Piece> = (0..count as u64).map(|n| Piece { addr: n * 100, len: 9 }).collect();
        push_packet(&mut producer, &pieces);
        assert_eq!(producer.publish() as usize, count);
        let mut seen = Vec::new();
        consumer.take(u32::MAX, |d| seen.push((d.addr, d.len, d.options)));
        let expected = (0..count).map(|n| (n as u64 * 100, 9, u32::from(n + 1 < count)));
        assert_eq!(seen, expected.collect::<Vec<_>>());
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Push(u8),
    Publish,
    Take(u8),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        (0u8..12).prop_map(Operation::Push),
        Just(Operation::Publish),
        (0u8..12).prop_map(Operation::Take),
    ];
    prop::collection::vec(operation, 0..200)
}

proptest! {
    #[test]
    fn ring_is_a_bounded_queue(first: u32, bits in 0u32..5, operations in operations()) {
        let entries = 1 << bits;
        let (mut producer, mut consumer) = ring_at(entries, first);
        let (mut written, mut published, mut next) = (VecDeque::new(), VecDeque::new(), 0u64);
        for operation in operations {
            match operation {
                Operation::Push(count) => for _ in 0..count {
                    let room = written.len() + published.len() < entries as usize;
                    prop_assert_eq!(producer.push(next), room);
                    if room {
                        written.push_back(next);
                    }
                    next += 1;
                },
                Operation::Publish => {
                    prop_assert_eq!(producer.publish() as usize, written.len());
                    published.append(&mut written);
                    prop_assert_eq!(producer.pending() as usize, published.len());
                }
                Operation::Take(max) => {
                    let count = published.len().min(max.into());
                    let expected: Vec<u64> = published.drain(..count).collect();
                    prop_assert_eq!(taken(&mut consumer, max.into()), expected);
                }
            }
        }
    }
}
