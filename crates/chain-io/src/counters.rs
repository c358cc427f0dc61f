//! What a node counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a node has sent to the node behind it since its start, and what came packed.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches that were sent and acknowledged.
    pub batches: AtomicU64,
    /// Of these, those that the writer itself has sent, and whose answer it has read.
    pub own_batches: AtomicU64,
    /// How long they took from the first byte until they were acknowledged, nanoseconds.
    pub batch_ns: AtomicU64,
    /// How long of that until they were sent, nanoseconds.
    pub send_ns: AtomicU64,
    /// Bytes of values in chunks from the node before.
    pub taken_bytes: AtomicU64,
    /// How long it took to verify these and to append their records, nanoseconds.
    pub take_ns: AtomicU64,
    /// Bytes of values, of batches and copies.
    pub value_bytes: AtomicU64,
    /// Bytes of their messages as they were sent.
    pub wire_bytes: AtomicU64,
    /// Of the bytes of values, those that were sent packed.
    pub packed_bytes: AtomicU64,
    /// By how much they became fewer.
    pub saved_bytes: AtomicU64,
    /// Bytes of values that came packed from the node before.
    pub unpacked_bytes: AtomicU64,
    /// Connections that were opened.
    pub connections: AtomicU64,
    /// Copies that have ended well.
    pub copies: AtomicU64,
    /// Records that were gone through by copies.
    pub compared_records: AtomicU64,
    /// Records that were copied: what the node behind lacked.
    pub copied_keys: AtomicU64,
    /// Bytes of all messages of copies.
    pub copy_bytes: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds the nanoseconds since `begun`.
    pub fn add_since(counter: &AtomicU64, begun: Instant) -> u64 {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Self::add(counter, ns);
        ns
    }
}
