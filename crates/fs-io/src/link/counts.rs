//! What libraries have done since they are served. Shown by [`crate::inspect`].

use landfall_fs::{LeaseNumber, Leases};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why a lease is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody else needs the inode.
    Conflict,
    /// Its client gives it back, or asks for another one.
    Released,
    /// It was not used for a while, or its client holds too much with it.
    Expired,
    /// Its client has ended.
    Ended,
}

impl Why {
    /// All reasons, in order, and their labels.
    pub(crate) const ALL: [(Self, &str); 4] = [
        (Self::Conflict, "conflict"),
        (Self::Released, "released"),
        (Self::Expired, "expired"),
        (Self::Ended, "ended"),
    ];

    /// The lease has ended.
    pub(super) fn end(self, leases: &mut Leases, now: Duration, number: LeaseNumber) {
        match self {
            Self::Conflict => leases.end(now, number),
            Self::Released | Self::Expired | Self::Ended => leases.release(number),
        }
    }
}

/// Why the log of a library has ended before its process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// It has broken a rule.
    Refused,
    /// It has not given a lease back in time.
    Slow,
}

impl Fenced {
    pub(crate) const ALL: [(Self, &str); 2] = [(Self::Refused, "refused"), (Self::Slow, "slow")];
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    granted: AtomicU64,
    taken_back: [AtomicU64; Why::ALL.len()],
    operations: AtomicU64,
    bytes: AtomicU64,
    fenced: [AtomicU64; Fenced::ALL.len()],
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counts {
    pub(super) fn note_granted(&self) {
        add(&self.granted, 1);
    }

    pub(super) fn note_taken_back(&self, why: Why) {
        add(&self.taken_back[why as usize], 1);
    }

    pub(super) fn note_adopted(&self, operations: u64, bytes: u64) {
        add(&self.operations, operations);
        add(&self.bytes, bytes);
    }

    pub(super) fn note_fenced(&self, why: Fenced) {
        add(&self.fenced[why as usize], 1);
    }

    /// Leases granted.
    pub(crate) fn granted(&self) -> u64 {
        read(&self.granted)
    }

    /// Leases that have ended.
    pub(crate) fn taken_back(&self, why: Why) -> u64 {
        read(&self.taken_back[why as usize])
    }

    /// Operations adopted, and their bytes.
    pub(crate) fn adopted(&self) -> (u64, u64) {
        (read(&self.operations), read(&self.bytes))
    }

    /// Logs that were ended.
    pub(crate) fn fenced(&self, why: Fenced) -> u64 {
        read(&self.fenced[why as usize])
    }
}
