//! The writes of a batch, and the gate that every write to a region's file passes.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::extent::Extent;
use crate::file_write::FileWrite;
use crate::in_flight::{Entered, InFlight};

/// The check that every write to one region's file passes: the overlap rule, and the latch that closes the region.
#[derive(Debug, Default)]
pub(crate) struct WriteGate {
    in_flight: InFlight,
    closed: OnceLock<String>,
}

impl WriteGate {
    /// Closes the region for writing. The first reason is kept.
    pub(crate) fn close(&self, reason: String) {
        let _ = self.closed.set(reason);
    }

    /// Waits until no thread writes into the extent, and blocks all other writes into it until the guard is dropped.
    pub(crate) fn hold(&self, extent: Extent) -> Entered<'_> {
        self.in_flight.enter(&[FileWrite { extent, addr: 0 }])
    }

    /// Why the region is closed for writing, if it is.
    pub(crate) fn closed(&self) -> Option<&String> {
        self.closed.get()
    }
}

/// The block writes that make a batch durable. A driver executes them on a thread of its own.
///
/// [`Batch::run`] is the only way to execute them. It holds their blocks meanwhile, so that a block is never in two
/// writes at once.
#[derive(Clone, Debug)]
pub struct Batch {
    file: RawFd,
    writes: SmallVec<[FileWrite; 4]>,
    gate: Arc<WriteGate>,
}

impl Batch {
    /// `writes` do not overlap. They are put in the order of the device: the overlap rule finds what two batches share only
    /// if both are sorted.
    pub(crate) fn new(file: RawFd, mut writes: SmallVec<[FileWrite; 4]>, gate: &Arc<WriteGate>) -> Self {
        writes.sort_unstable_by_key(|write| write.extent.off);
        Self { file, writes, gate: Arc::clone(gate) }
    }

    /// Nothing to write.
    pub fn none() -> Self {
        Self::new(-1, SmallVec::new(), &Arc::default())
    }

    /// Writes to a file that is not a region and whose blocks nothing else writes, for tests of drivers. They do not overlap.
    pub fn of_no_region(file: RawFd, writes: &[FileWrite]) -> Self {
        Self::new(file, writes.into(), &Arc::default())
    }

    /// True when there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Bytes to write: whole blocks.
    pub fn bytes(&self) -> u64 {
        self.writes.iter().map(|write| u64::from(write.extent.len())).sum()
    }

    /// The ranges to write, in order.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.writes.iter().map(|write| write.extent)
    }

    /// Waits until no other batch writes one of these blocks, then calls `write`, which writes them to the file and
    /// makes them durable. The bytes written are those that are in memory at that time. An error closes the region for
    /// writing before any waiting thread continues.
    ///
    /// Blocks the thread while another batch that has one of these blocks is being written.
    ///
    /// # Errors
    /// The error of `write`, or the reason why the region was closed before.
    pub fn run(&self, write: impl FnOnce(RawFd, &[FileWrite]) -> io::Result<()>) -> io::Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let _held = self.gate.in_flight.enter(&self.writes);
        // While this batch waited for its blocks, the batch before it may have failed.
        if let Some(reason) = self.gate.closed() {
            return Err(io::Error::other(reason.clone()));
        }
        write(self.file, &self.writes).inspect_err(|error| self.gate.close(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};
    use std::time::Duration;

    fn batch(gate: &Arc<WriteGate>, off: u64) -> Batch {
        let writes = [FileWrite { extent: Extent::new(off, 8192), addr: 0 }];
        Batch::new(-1, SmallVec::from_slice(&writes), gate)
    }

    #[test]
    fn a_block_is_never_in_two_batches_at_once() {
        let gate = Arc::default();
        let (first, across) = (batch(&gate, 0), batch(&gate, 4096));
        let (entered, news) = sync_channel(1);
        std::thread::scope(|threads| {
            let outcome = first.run(|_, _| {
                threads.spawn(|| across.run(|_, _| entered.send(()).map_err(io::Error::other)));
                // The other batch can enter only after this one has left, however long this thread waits.
                assert_eq!(news.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
                Ok(())
            });
            outcome.expect("nothing fails");
            news.recv().expect("the other enters at last");
        });
    }

    #[test]
    fn a_block_is_never_in_two_batches_whatever_the_order_in_which_their_writes_are_given() {
        let gate = Arc::default();
        let write = |off| FileWrite { extent: Extent::new(off, 4096), addr: 0 };
        let first = Batch::new(-1, SmallVec::from_slice(&[write(8192), write(0)]), &gate);
        let across = batch(&gate, 0);
        let (entered, news) = sync_channel(1);
        std::thread::scope(|threads| {
            let outcome = first.run(|_, writes| {
                assert_eq!(writes[0].extent.off, 0);
                threads.spawn(|| across.run(|_, _| entered.send(()).map_err(io::Error::other)));
                assert_eq!(news.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
                Ok(())
            });
            outcome.expect("nothing fails");
            news.recv().expect("the other enters at last");
        });
    }

    #[test]
    fn a_batch_that_waited_for_a_failed_write_writes_nothing() {
        let gate = Arc::default();
        let (first, second) = (batch(&gate, 0), batch(&gate, 4096));
        first.run(|_, _| Err(io::Error::from_raw_os_error(libc::EIO))).expect_err("it failed");
        let error = second.run(|_, _| panic!("written to a closed region")).expect_err("closed");
        assert!(error.to_string().contains("Input/output"), "{error}");
    }
}
