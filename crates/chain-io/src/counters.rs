//! What a node counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a node has sent to the node behind it since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches that were sent and acknowledged.
    pub batches: AtomicU64,
    /// How long they took from the first byte until they were acknowledged, nanoseconds.
    pub batch_ns: AtomicU64,
    /// Bytes of values, of batches and copies.
    pub value_bytes: AtomicU64,
    /// Connections that were opened.
    pub connections: AtomicU64,
    /// Copies that have ended well.
    pub copies: AtomicU64,
    /// Keys that were copied.
    pub copied_keys: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
