//! The heap as the source of the memory that packets land in.

use landfall_heap::Heap;
use landfall_media::Extent;
use landfall_sockets::Frames;
use std::sync::Arc;

/// Lends free runs of the heap to a transport.
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
        // Held bytes are in memory: only an extent outside the region could be an error.
        self.0.media().bytes(extent).unwrap_or_default()
    }

    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        self.0.media().store(off, bytes).is_ok()
    }

    fn is_held(&self, off: u64) -> bool {
        self.0.runs().frame_refs(off) > 0
    }
}
