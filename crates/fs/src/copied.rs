//! What has come of a copy of another machine's files.

use crate::header::LogFields;
use landfall_heap::SlotId;
use std::collections::BTreeMap;

/// A copy that is being received.
#[derive(Debug, Default)]
pub(crate) struct Copying {
    /// The bound of the log that is copied: the index of its first operation, and its fields.
    pub(crate) bound: Option<(u64, LogFields)>,
    /// Operations that are executed at the end, by index.
    pub(crate) waiting: BTreeMap<u64, SlotId>,
}
