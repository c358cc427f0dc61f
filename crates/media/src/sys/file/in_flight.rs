//! The overlap rule for blocking fences: a block is never in two writes at once.
//!
//! Two writes of one block may reach the device in either order; the one with the older bytes could win
//! over the one that was acknowledged. A driver that runs [`crate::Media::file_writes`] itself keeps the
//! rule itself.

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::{Extent, FileWrite};

/// The blocks that fences are writing now: a few for each thread within a fence.
#[derive(Default)]
pub(super) struct InFlight {
    extents: Mutex<SmallVec<[Extent; 8]>>,
    left: Condvar,
}

impl InFlight {
    /// Waits until none of these blocks is being written, then holds them until the guard is dropped.
    pub(super) fn enter<'a>(&'a self, writes: &'a [FileWrite]) -> Entered<'a> {
        let mut extents = self.extents.lock();
        while writes.iter().any(|write| extents.iter().any(|other| overlap(write.extent, *other))) {
            self.left.wait(&mut extents);
        }
        extents.extend(writes.iter().map(|write| write.extent));
        Entered { of: self, writes }
    }
}

fn overlap(a: Extent, b: Extent) -> bool {
    a.off < b.end() && b.off < a.end()
}

/// Blocks held.
pub(super) struct Entered<'a> {
    of: &'a InFlight,
    writes: &'a [FileWrite],
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut extents = self.of.extents.lock();
        // No two holders overlap, so that an extent names its holder.
        extents.retain(|held| !self.writes.iter().any(|write| write.extent == *held));
        self.of.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn write(off: u64, len: u32) -> [FileWrite; 1] {
        [FileWrite { extent: Extent::new(off, len), addr: 0 }]
    }

    #[test]
    fn overlapping_writes_wait_and_others_do_not() {
        let (in_flight, left) = (InFlight::default(), AtomicBool::new(false));
        let (first, apart, across) = (write(0, 8192), write(8192, 4096), write(4096, 8192));
        let held = in_flight.enter(&first);
        drop(in_flight.enter(&apart));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let _held = in_flight.enter(&across);
                assert!(left.load(Ordering::SeqCst), "entered beside an overlapping write");
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            left.store(true, Ordering::SeqCst);
            drop(held);
        });
        assert!(in_flight.extents.lock().is_empty());
    }
}
