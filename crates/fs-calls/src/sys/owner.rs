//! Whose the table is.

use super::raw;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The process that has the table. A child of `fork` has none.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// The table is that of this process.
pub(super) fn begin() {
    OWNER.store(raw::process_id(), Ordering::Release);
}

/// True in the process that has the table, and not in a child that shares its memory.
pub(super) fn is_owner() -> bool {
    OWNER.load(Ordering::Acquire) == raw::process_id()
}
