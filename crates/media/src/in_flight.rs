//! The overlap rule: a block is never in two writes at once.
//!
//! Two writes of one block may reach the device in either order. The write with the older bytes could then overwrite
//! bytes that were acknowledged. [`crate::Batch::run`] is the only way to execute a region's writes, and it enters
//! here.

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::extent::Extent;
use crate::file_write::FileWrite;

/// The blocks of one holder: sorted, without duplicates.
type Blocks = SmallVec<[Extent; 4]>;

/// The blocks that are being written: one entry for each writing thread.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    holders: Mutex<Holders>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Holders {
    next: u64,
    held: SmallVec<[(u64, Blocks); 8]>,
}

impl InFlight {
    /// Waits until none of these blocks is being written, then holds them until the guard is dropped. It takes all
    /// blocks at once: a waiting thread holds none, so that no two threads wait for each other.
    ///
    /// `writes` are sorted and do not overlap.
    pub(crate) fn enter(&self, writes: &[FileWrite]) -> Entered<'_> {
        debug_assert!(writes.is_sorted_by_key(|write| write.extent.off), "a plan is sorted");
        let mut holders = self.holders.lock();
        while holders.held.iter().any(|(_, blocks)| meet(writes, blocks)) {
            self.left.wait(&mut holders);
        }
        let id = holders.next;
        holders.next += 1;
        holders.held.push((id, writes.iter().map(|write| write.extent).collect()));
        Entered { of: self, id }
    }
}

/// True if a block is in both. Both lists are sorted.
fn meet(writes: &[FileWrite], blocks: &[Extent]) -> bool {
    let (mut writes, mut blocks) = (writes.iter().peekable(), blocks.iter().peekable());
    while let (Some(write), Some(held)) = (writes.peek(), blocks.peek()) {
        if write.extent.end() <= held.off {
            writes.next();
        } else if held.end() <= write.extent.off {
            blocks.next();
        } else {
            return true;
        }
    }
    false
}

/// Blocks held.
pub(crate) struct Entered<'a> {
    of: &'a InFlight,
    id: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.of.holders.lock().held.retain(|(id, _)| *id != self.id);
        self.of.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(off: u64, len: u32) -> FileWrite {
        FileWrite { extent: Extent::new(off, len), addr: 0 }
    }

    #[test]
    fn disjoint_writes_are_held_at_the_same_time_and_released() {
        let in_flight = InFlight::default();
        let first = in_flight.enter(&[write(0, 8192), write(16384, 4096)]);
        let between = in_flight.enter(&[write(8192, 8192)]);
        assert_eq!(in_flight.holders.lock().held.len(), 2);
        drop((between, first));
        assert!(in_flight.holders.lock().held.is_empty());
    }

    proptest! {
        #[test]
        fn two_plans_overlap_where_a_block_is_in_both(
            a in proptest::collection::btree_set(0..40u64, 0..12),
            b in proptest::collection::btree_set(0..40u64, 0..12),
        ) {
            let writes: Vec<FileWrite> = a.iter().map(|block| write(block * 4096, 4096)).collect();
            let held: Vec<Extent> = b.iter().map(|block| Extent::new(block * 4096, 4096)).collect();
            prop_assert_eq!(meet(&writes, &held), !a.is_disjoint(&b));
        }
    }
}
