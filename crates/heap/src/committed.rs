//! The commit records that records on the medium still need.

use crate::bond::TransactionId;
use crate::layout::SlotId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A committed transaction.
#[derive(Debug)]
pub(crate) struct Committed {
    /// Its commit record.
    pub(crate) slot: SlotId,
    /// Number of its records on the medium, current or stale.
    pub(crate) marked: u64,
}

/// The committed transactions that have records on the medium.
#[derive(Debug, Default)]
pub(crate) struct Transactions(pub(crate) Mutex<BTreeMap<TransactionId, Committed>>);
