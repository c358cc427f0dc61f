//! Tickets, and which batches of each writer are durable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bits of a ticket that number the batch; the writer's id is above them.
const BATCH_BITS: u32 = 56;

/// Everything that one writer has appended, up to and including one of its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket of an abandoned batch, which is never durable. No writer has its id.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The ticket of a batch. Batch numbers start at 1. [`crate::Writer::ticket`] returns the current one.
    pub fn new(writer: u8, batch: u64) -> Self {
        debug_assert!(batch < 1 << BATCH_BITS);
        Self(u64::from(writer) << BATCH_BITS | batch)
    }

    /// Id of the writer whose commit makes the ticket durable.
    pub fn writer(self) -> u8 {
        (self.0 >> BATCH_BITS) as u8
    }

    /// Number of the batch.
    pub fn batch(self) -> u64 {
        self.0 & ((1 << BATCH_BITS) - 1)
    }
}

/// Progress of one writer. Each has its own cache line, because all workers update theirs constantly.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane {
    /// Every batch up to this one is durable.
    durable: AtomicU64,
    /// The last batch number issued.
    issued: AtomicU64,
    /// A writer was dropped with uncommitted records: none of its later batches may count as durable.
    abandoned: AtomicBool,
}

/// Progress of each writer of a region.
#[derive(Debug)]
pub(crate) struct Lanes(Box<[Lane]>);

impl Default for Lanes {
    fn default() -> Self {
        Self((0..=u8::MAX).map(|_| Lane::default()).collect())
    }
}

impl Lanes {
    fn of(&self, writer: u8) -> &Lane {
        &self.0[usize::from(writer)]
    }

    /// The number of a writer's next batch.
    ///
    /// # Panics
    /// After [`Self::abandon`]: a later batch would seem to cover the abandoned ones.
    pub(crate) fn issue(&self, writer: u8) -> u64 {
        assert!(
            !self.of(writer).abandoned.load(Ordering::Relaxed),
            "writer {writer} left records uncommitted"
        );
        self.of(writer).issued.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The writer was dropped with uncommitted records.
    pub(crate) fn abandon(&self, writer: u8) {
        self.of(writer).abandoned.store(true, Ordering::Relaxed);
    }

    /// A batch has become durable, after every earlier one of its writer.
    pub(crate) fn complete(&self, writer: u8, batch: u64) {
        let before = self.of(writer).durable.swap(batch, Ordering::Release);
        debug_assert!(before < batch, "batches become durable in order");
    }

    pub(crate) fn is_durable(&self, ticket: Ticket) -> bool {
        self.of(ticket.writer()).durable.load(Ordering::Acquire) >= ticket.batch()
    }
}
