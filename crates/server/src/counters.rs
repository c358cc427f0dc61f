//! Counters over all workers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the commit-latency histogram, microseconds; the last bucket has no bound.
pub const COMMIT_BOUNDS_US: [u64; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];

/// Counters over all workers. Names follow the fields of `INFO` if Redis has them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Accepted connections.
    pub connections: AtomicU64,
    /// Connections refused because of the limit.
    pub rejected_connections: AtomicU64,
    /// Current connections.
    pub clients: AtomicU64,
    /// Executed RESP commands.
    pub commands: AtomicU64,
    /// Executed HTTP requests.
    pub http_requests: AtomicU64,
    /// Reads that found their key.
    pub hits: AtomicU64,
    /// Reads that did not find their key.
    pub misses: AtomicU64,
    /// Replies that were errors.
    pub errors: AtomicU64,
    /// Bytes received.
    pub input_bytes: AtomicU64,
    /// Bytes sent.
    pub output_bytes: AtomicU64,
    /// Commits made durable.
    pub commits: AtomicU64,
    /// Time of commits, from begin to durable, nanoseconds.
    pub commit_ns: AtomicU64,
    /// Commits by latency: [`COMMIT_BOUNDS_US`], then all longer ones.
    pub commit_buckets: [AtomicU64; COMMIT_BOUNDS_US.len() + 1],
    /// Bytes written to the file behind the region by commits.
    pub written_bytes: AtomicU64,
    /// Connections closed for being idle or too slow.
    pub timeouts: AtomicU64,
    /// Replies refused because of their length.
    pub overflows: AtomicU64,
    /// Connections closed because unfinished requests held too much.
    pub unfinished_closed: AtomicU64,
    /// Connections closed because they sent too much without authenticating.
    pub unauthenticated_closed: AtomicU64,
    /// Bytes that unfinished requests of unauthenticated clients hold now.
    pub unauthenticated_bytes: AtomicU64,
    /// Bytes that the compactor has moved.
    pub compacted_bytes: AtomicU64,
    /// Records that the compactor has rewritten.
    pub compacted_records: AtomicU64,
    /// Keys checked by the scrub.
    pub scrubbed_keys: AtomicU64,
    /// Bytes checked by the scrub.
    pub scrubbed_bytes: AtomicU64,
    /// Damage found by the scrub.
    pub scrub_findings: AtomicU64,
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
