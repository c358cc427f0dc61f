//! What a node counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a node has sent to the node behind it since its start, and what came packed.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches that were sent and acknowledged.
    pub batches: AtomicU64,
    /// How long they took from the first byte until they were acknowledged, nanoseconds.
    pub batch_ns: AtomicU64,
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
}
