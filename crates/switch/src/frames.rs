//! The heap as a source of memory to land packets in.

use landfall_heap::Heap;
use landfall_media::Extent;
use landfall_sockets::Frames;
use std::sync::Arc;

/// Lends free runs of the heap.
#[derive(Clone, Debug)]
pub(crate) struct HeapFrames(pub(crate) Arc<Heap>);

impl Frames for HeapFrames {
    fn take_run(&mut self) -> Option<u64> {
        self.0.take_landing_run()
    }

    fn retire_run(&mut self, run_off: u64) {
        self.0.retire_landing_run(run_off);
    }

    fn hold(&mut self, extent: Extent) {
        self.0.runs().hold(extent);
    }

    fn release(&mut self, extent: Extent) {
        self.0.runs().release(extent);
    }

    fn bytes(&self, extent: Extent) -> &[u8] {
        // What is held is in memory; an error could only be of an extent that no run has.
        self.0.media().bytes(extent).unwrap_or_default()
    }

    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        self.0.media().store(off, bytes).is_ok()
    }

    fn is_held(&self, off: u64) -> bool {
        self.0.runs().frame_refs(off) > 0
    }
}
