//! What becomes of operations that another machine sends.

use crate::calls::Calls;
use crate::header::LogFields;
use landfall_heap::SlotId;
use std::collections::BTreeMap;

/// How an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// In a page of a copy.
    InPage,
    /// When the first node had executed it, which has room for it here.
    AsExecuted,
}

/// What becomes of them.
#[derive(Debug, Default)]
pub(crate) enum Received {
    /// They are executed.
    #[default]
    Executed,
    /// They mean nothing: these are not the files of that machine. A copy will have them.
    PassedOver,
    /// They are kept: a copy of that machine's files is under way.
    Kept(Copying),
}

/// A copy that is being received.
#[derive(Debug, Default)]
pub(crate) struct Copying {
    /// The tree that was there is compared with the one that comes.
    pub(crate) keeps: bool,
    /// The bound of the log that is copied: the index of its first operation, its fields, and what was called.
    pub(crate) bound: Option<(u64, LogFields, Calls)>,
    /// Operations that are executed at the end, by index.
    pub(crate) waiting: BTreeMap<u64, SlotId>,
}

impl Received {
    /// The copy that is under way.
    pub(crate) fn copying(&mut self) -> Option<&mut Copying> {
        if let Self::Kept(copying) = self { Some(copying) } else { None }
    }
}
