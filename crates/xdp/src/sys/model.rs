//! Model of the ring with a producer and a consumer on two threads, in every order that the memory model allows.
//!
//! The cells report every access to loom: an access that is not ordered after the other side's fails the test.

use crate::ring::{Consumer, Producer, RingMemory, Word};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

const ENTRIES: u32 = 2;
/// Initial value of the counters: they wrap in the middle of the run.
const FIRST: u32 = u32::MAX - 1;

impl Word for AtomicU32 {
    fn load(&self, ordering: Ordering) -> u32 {
        self.load(ordering)
    }

    fn store(&self, value: u32, ordering: Ordering) {
        self.store(value, ordering);
    }
}

struct Shared {
    producer: AtomicU32,
    consumer: AtomicU32,
    cells: [UnsafeCell<u64>; ENTRIES as usize],
}

// SAFETY: the ring protocol gives each cell to one side at a time, which loom checks.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(FIRST),
            consumer: AtomicU32::new(FIRST),
            cells: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }
}

impl RingMemory for Arc<Shared> {
    type Word = AtomicU32;
    type Entry = u64;

    fn entries(&self) -> u32 {
        ENTRIES
    }

    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    fn read(&self, index: u32) -> u64 {
        // SAFETY: loom fails the test if the other side may be writing.
        self.cells[(index % ENTRIES) as usize].with(|at| unsafe { *at })
    }

    fn write(&self, index: u32, entry: u64) {
        // SAFETY: loom fails the test if the other side may be reading.
        self.cells[(index % ENTRIES) as usize].with_mut(|at| unsafe { *at = entry });
    }
}

/// Sends `packets` packets of `pieces` entries; the consumer must get all of them, whole and in order.
fn deliver(packets: u64, pieces: u64) {
    loom::model(move || {
        let shared = Shared::new();
        let mut producer = Producer::new(shared.clone());
        let sender = loom::thread::spawn(move || {
            for packet in 0..packets {
                while !producer.has_room(pieces as u32) {
                    loom::thread::yield_now();
                }
                for piece in 0..pieces {
                    assert!(producer.push(packet * pieces + piece));
                }
                assert_eq!(u64::from(producer.publish()), pieces);
            }
        });
        let (mut consumer, mut next) = (Consumer::new(shared), 0);
        while next < packets * pieces {
            let taken = consumer.take(u32::MAX, |entry| {
                assert_eq!(entry, next);
                next += 1;
            });
            assert!(u64::from(taken).is_multiple_of(pieces), "part of a packet was seen");
            if taken == 0 {
                loom::thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn entries_arrive_once_and_in_order_in_every_interleaving() {
    deliver(3, 1);
}

#[test]
fn packets_of_two_pieces_are_seen_whole_in_every_interleaving() {
    deliver(3, 2);
}
